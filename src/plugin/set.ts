import type { Route } from "../catalog/catalog.ts";
import type { Item } from "../catalog/item.ts";
import { HubError } from "../errors.ts";
import type { PluginServer } from "../manifest/schema.ts";
import type { Schemes } from "../manifest/secrets.ts";
import { untilAborted, within } from "../wire/grace.ts";
import type { Link } from "../wire/link.ts";
import { findPlace, isEntrusted } from "./fault.ts";
import type { HubAccess } from "./host.ts";
import type { Member, PluginStatus } from "./member.ts";
import type { Answer, ToolInfo } from "./plugin.ts";
import { Reviser, toTool } from "./revise.ts";
import { type PassingCall, weave } from "./weave.ts";

/** The way of a tool's calls through the plugins that are for it. */
export interface Way {
  readonly tool: ToolInfo;
  /** Never throws. */
  pass(call: PassingCall): Promise<Answer>;
}

/** How long a plugin may take to give a secret, in ms. */
const SECRET_LIMIT = 30_000;
/** How long a plugin may take to end, in ms. */
const DISPOSE_LIMIT = 1000;

/** The plugins of one manifest, set up; replaced as a whole. */
export class PluginSet {
  /** Unique in this process. */
  readonly number: number;
  /** What plugins have for `${scheme:…}`. */
  readonly schemes: Schemes;
  readonly members: readonly Member[];
  readonly #abort: AbortController;
  readonly #reviser: Reviser;
  readonly #callers: readonly Member[];
  readonly #ways = new WeakMap<Route, Way | "none">();
  #hub: HubAccess | undefined;
  /** Calls that are on their way through plugins, and who waits until there are none. */
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  #ended: Promise<void> | undefined;

  /** @param abort what tells the plugins that they are no longer used */
  constructor(number: number, members: readonly Member[], abort: AbortController) {
    this.number = number;
    this.members = members;
    this.#abort = abort;
    this.#reviser = new Reviser(members);
    this.#callers = members.filter(({ parts }) => parts.call !== undefined);
    this.schemes = schemesOf(members, abort.signal);
  }

  /**
   * Takes the blame for an error that nobody caught, if it came from a plugin's own file, or was given to a plugin, which
   * has lost interest in it. @returns whether it did
   */
  claim(error: unknown): boolean {
    const member = this.members.find(
      ({ spec }) => spec.path !== undefined && findPlace(error, spec.path) !== undefined,
    );
    member?.complain(error);
    return member !== undefined || isEntrusted(error);
  }

  get status(): readonly PluginStatus[] {
    return this.members.map(({ status }) => status);
  }

  /** What the hub does for its plugins; undefined before `attach`. */
  get hub(): HubAccess | undefined {
    return this.#hub;
  }

  attach(hub: HubAccess): void {
    this.#hub = hub;
  }

  /** A server's listing as clients may see it. Does not throw. */
  revise(server: string, items: readonly Item[]): readonly Item[] {
    return this.#reviser.revise(server, items);
  }

  /** The way of a route's calls, composed once; undefined if no plugin looks at them. @param except a plugin that calls itself */
  way(route: Route, isolation: ToolInfo["isolation"], except: Member | undefined): Way | undefined {
    if (this.#callers.length === 0) return undefined;
    if (except !== undefined) return this.#compose(route, isolation, except);
    let way = this.#ways.get(route);
    if (way === undefined) {
      way = this.#compose(route, isolation, undefined) ?? "none";
      this.#ways.set(route, way);
    }
    return way === "none" ? undefined : way;
  }

  /** A call has set out on a way. */
  enter(): void {
    this.#running++;
  }

  /** A call has come to its end. */
  leave(): void {
    if (--this.#running === 0) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Makes the link to a plugin's server. @throws {HubError} notSupported or pluginFailed */
  async makeLink({ name: server, plugin }: PluginServer): Promise<Link> {
    const member = this.members.find(
      ({ name, parts }) => name === plugin && Object.hasOwn(parts.servers ?? {}, server),
    );
    const make = member?.parts.servers?.[server];
    if (member === undefined || make === undefined) {
      const text = `There is no plugin "${plugin}" that has a server "${server}".`;
      throw new HubError("notSupported", text, { server });
    }
    try {
      return await make();
    } catch (error) {
      throw new HubError("pluginFailed", member.complain(error).message, { server, cause: error });
    }
  }

  /** Ends all plugins, when their calls have ended or `limit` ms are over. Never rejects. */
  async retire(limit: number): Promise<void> {
    if (this.#running > 0) {
      await within(limit, new Promise<void>((resolve) => this.#waiting.push(resolve)));
    }
    await this.end();
  }

  /** Ends all plugins now. Never rejects; repeated calls join the first. */
  end(): Promise<void> {
    this.#ended ??= disposeAll(this.members, this.#abort);
    return this.#ended;
  }

  #compose(
    route: Route,
    isolation: ToolInfo["isolation"],
    except: Member | undefined,
  ): Way | undefined {
    const { server, remoteName, name: exposedName, item } = route;
    const tool: ToolInfo = {
      server,
      name: remoteName,
      exposedName,
      isolation,
      get definition() {
        return toTool(item);
      },
    };
    const members = this.#callers.filter(
      (member) => member !== except && member.isForServer(server) && member.isForTool(remoteName),
    );
    const pass = weave(members, tool);
    return pass && { tool, pass };
  }
}

/** Tells plugins that they are no longer used, the last one first, and waits until they have ended, for a while. Never rejects. */
export async function disposeAll(
  members: readonly Member[],
  abort: AbortController,
): Promise<void> {
  abort.abort(new HubError("cancelled", "The plugin is no longer used."));
  for (const member of members.toReversed()) {
    const dispose = async (): Promise<void> => member.parts.dispose?.();
    const disposed = dispose().catch((error: unknown) => void member.complain(error));
    if (await within(DISPOSE_LIMIT, disposed)) continue;
    member.log("warn", `its dispose did not end within ${DISPOSE_LIMIT} ms`);
  }
}

/** By scheme; each is in one plugin only, which was checked. */
function schemesOf(members: readonly Member[], signal: AbortSignal): Schemes {
  return new Map(
    members.flatMap(({ parts }) =>
      Object.entries(parts.secrets ?? {}).map(([scheme, resolve]) => [
        scheme,
        async (path: string, server: string): Promise<string> => {
          const late = AbortSignal.timeout(SECRET_LIMIT);
          const limit = AbortSignal.any([signal, late]);
          const resolved = (async () => resolve(path, { server, signal: limit }))();
          const value: unknown = await untilAborted(resolved, limit);
          if (typeof value === "string") return value;
          throw new TypeError("the plugin gave something that is no string");
        },
      ]),
    ),
  );
}
