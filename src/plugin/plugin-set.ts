import type { ListedRoute } from "../catalog/section.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import type { PluginServer } from "../manifest/schema.ts";
import type { SchemeResolvers } from "../manifest/resolve.ts";
import { untilAborted, settlesWithin } from "../base/grace.ts";
import type { Transport } from "../transport/transport.ts";
import { describeFault, findPlace, isEntrusted, isStrange, isThrownNear } from "./errors.ts";
import type { HubAccess } from "./host.ts";
import type { Member, PluginStatus } from "./instance.ts";
import type { Answer, ResolveSecret, ToolInfo } from "./plugin.ts";
import { Reviser, toTool } from "./listing-rewriter.ts";
import { LeasedLink } from "./servers.ts";
import { type PassingCall, weave } from "./call-chain.ts";

/** The path of a tool's calls through the plugins that apply to it. */
export interface Way {
  readonly tool: ToolInfo;
  /** Never throws. */
  pass(call: PassingCall): Promise<Answer>;
}

/** Time limit for a plugin's secret, in ms. */
const SECRET_LIMIT = 30_000;
/** Time limit for a plugin's `dispose`, in ms. */
const DISPOSE_LIMIT = 1000;

/** The plugins of one manifest, set up; replaced as a whole. */
export class PluginSet {
  /** Unique in this process. */
  readonly number: number;
  /** The plugins' resolvers of `${scheme:…}`. */
  readonly schemes: SchemeResolvers;
  readonly members: readonly Member[];
  readonly #abort: AbortController;
  readonly #reviser: Reviser;
  readonly #callers: readonly Member[];
  readonly #ways = new WeakMap<ListedRoute, Way | "none">();
  /** By the listed item, so that a call path survives a rebuild of the routes as long as the tool is the same. */
  readonly #tools = new WeakMap<
    ListedItem,
    { readonly tool: ToolInfo; readonly way: Way | "none" }[]
  >();
  #hub: HubAccess | undefined;
  /**
   * Number of calls in plugins and of open transports to plugins' servers; below, the callbacks for when there are
   * none.
   */
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  #ended: Promise<void> | undefined;

  /** @param abort tells the plugins that they are being disposed */
  constructor(number: number, members: readonly Member[], abort: AbortController) {
    this.number = number;
    this.members = members;
    this.#abort = abort;
    this.#reviser = new Reviser(members);
    this.#callers = members.filter(({ parts }) => parts.call !== undefined);
    this.schemes = schemesOf(members, abort.signal);
  }

  /**
   * Attributes an unhandled error to a plugin: it was thrown in the plugin's files, was given to a plugin that ignored
   * it, or is not an Error, so that toolmux has not thrown it.
   * @returns whether it is a plugin's
   */
  claim(error: unknown): boolean {
    if (isEntrusted(error)) return true;
    const outside = this.members.filter(({ spec }) => spec.path !== undefined);
    const by = (isBy: (error: unknown, path: string) => unknown): Member | undefined =>
      outside.find(({ spec: { path = "" } }) => isBy(error, path));
    const member = by(findPlace) ?? by(isThrownNear);
    member?.complain(error);
    if (member !== undefined) return true;
    const [first, ...others] = outside;
    if (first === undefined || !isStrange(error)) return false;
    if (others.length === 0) first.complain(error);
    else
      first.log(
        "error",
        `this or another plugin threw no error, but: ${describeFault(error, undefined).fault}`,
      );
    return true;
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
  revise(server: string, items: readonly ListedItem[]): readonly ListedItem[] {
    return this.#reviser.revise(server, items);
  }

  /** Whether every `list` hook succeeded the last time, for every server. */
  get isWhole(): boolean {
    return this.#reviser.isWhole;
  }

  /** The path of a route's calls, built once; undefined if no plugin wraps them. */
  way(route: ListedRoute, isolation: ToolInfo["isolation"]): Way | undefined {
    if (this.#callers.length === 0) return undefined;
    let way = this.#ways.get(route);
    if (way === undefined) {
      way = this.#find(route, isolation);
      this.#ways.set(route, way);
    }
    return way === "none" ? undefined : way;
  }

  /** Whether a call is in progress or a transport is open. */
  get isBusy(): boolean {
    return this.#running > 0;
  }

  /** A call has started, or a transport was opened. */
  enter(): void {
    this.#running++;
  }

  /** A call has ended, or a transport was closed. */
  leave(): void {
    if (--this.#running === 0) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /**
   * Opens the transport to a plugin's server.
   * @throws {HubError} notSupported or pluginFailed
   */
  async makeLink({ name: server, plugin }: PluginServer): Promise<Transport> {
    const member = this.members.find(
      ({ name, parts }) => name === plugin && Object.hasOwn(parts.servers ?? {}, server),
    );
    const make = member?.parts.servers?.[server];
    if (member === undefined || make === undefined) {
      const text = `There is no plugin "${plugin}" that has a server "${server}".`;
      throw new HubError("notSupported", text, { server });
    }
    try {
      const link: unknown = await make();
      if (isLink(link)) return new LeasedLink(link, this);
      throw new TypeError(`what it made for its server "${server}" is no link`);
    } catch (error) {
      throw new HubError("pluginFailed", member.complain(error).message, { server, cause: error });
    }
  }

  /**
   * The response of a plugin's web application; undefined if the plugin has none. The promise rejects with
   * pluginFailed.
   */
  serve(plugin: string, request: Request): Promise<Response> | undefined {
    const member = this.members.find(({ name, parts }) => name === plugin && parts.routes);
    const routes = member?.parts.routes;
    if (member === undefined || routes === undefined) return undefined;
    const answer = async (): Promise<Response> => {
      try {
        const response: unknown = await routes.fetch(request);
        if (response instanceof Response) return response;
        throw new TypeError("its routes gave something that is no Response");
      } catch (error) {
        throw member.complain(error);
      }
    };
    return answer();
  }

  /** Disposes all plugins after their calls and servers have ended, or after `timeout` ms. Never rejects. */
  async retire(limit: number): Promise<void> {
    await this.idle(limit);
    await this.end();
  }

  /** Resolves when their calls and servers have ended, or after `timeout` ms. Never rejects. */
  async idle(limit: number): Promise<void> {
    if (!this.isBusy) return;
    await settlesWithin(limit, new Promise<void>((resolve) => this.#waiting.push(resolve)));
  }

  /** Disposes all plugins now. Never rejects; repeated calls join the first. */
  end(): Promise<void> {
    this.#ended ??= disposeAll(this.members, this.#abort);
    return this.#ended;
  }

  #find(route: ListedRoute, isolation: ToolInfo["isolation"]): Way | "none" {
    const { server, name, item } = route;
    const known = this.#tools.get(item) ?? [];
    const same = known.find(
      ({ tool }) =>
        tool.server === server && tool.exposedName === name && tool.isolation === isolation,
    );
    if (same !== undefined) return same.way;
    const tool = infoOf(route, isolation);
    const way = this.#compose(tool) ?? "none";
    this.#tools.set(item, [...known, { tool, way }]);
    return way;
  }

  #compose(tool: ToolInfo): Way | undefined {
    const { server, name } = tool;
    const members = this.#callers.filter(
      (member) =>
        member.isForServer(server) &&
        (member.isForTool(name) || this.#reviser.hasAdded(member, server, name)),
    );
    const pass = weave(members, tool);
    return pass && { tool, pass };
  }
}

function isLink(value: unknown): value is Transport {
  const { open, send, close } = (value ?? {}) as Partial<Record<keyof Transport, unknown>>;
  return [open, send, close].every((part) => typeof part === "function");
}

function infoOf(
  { server, remoteName, name: exposedName, item }: ListedRoute,
  isolation: ToolInfo["isolation"],
): ToolInfo {
  return Object.freeze({
    server,
    name: remoteName,
    exposedName,
    isolation,
    get definition() {
      return toTool(item);
    },
  });
}

/**
 * Aborts the plugins' signal and disposes the plugins concurrently, started in reverse order. Each has a time limit, so
 * that one that hangs does not delay the others. Never rejects.
 */
export async function disposeAll(
  members: readonly Member[],
  abort: AbortController,
): Promise<void> {
  abort.abort(new HubError("cancelled", "The plugin is no longer used."));
  const endings = members.toReversed().map(async (member) => {
    const dispose = async (): Promise<void> => member.parts.dispose?.();
    const disposed = dispose().catch((error: unknown) => void member.complain(error));
    if (await settlesWithin(DISPOSE_LIMIT, disposed)) return;
    member.log("warn", `its dispose did not end within ${DISPOSE_LIMIT} ms`);
  });
  await Promise.all(endings);
}

/** By scheme; no two plugins have the same one, which was checked. */
function schemesOf(members: readonly Member[], signal: AbortSignal): SchemeResolvers {
  return new Map(
    members.flatMap(({ parts }) =>
      Object.entries(parts.secrets ?? {}).map(([scheme, resolve]) => [
        scheme,
        (path: string, server: string) => askSecret(resolve, path, server, signal),
      ]),
    ),
  );
}

/** @throws {HubError} valueMissing, with the plugin's message */
async function askSecret(
  resolve: ResolveSecret,
  path: string,
  server: string,
  end: AbortSignal,
): Promise<string> {
  const late = AbortSignal.timeout(SECRET_LIMIT);
  const signal = AbortSignal.any([end, late]);
  let value: unknown;
  try {
    value = await untilAborted((async () => resolve(path, { server, signal }))(), signal);
  } catch (error) {
    const seconds = SECRET_LIMIT / 1000;
    const { fault } = describeFault(error, undefined);
    const text = late.aborted ? `the plugin did not give it within ${seconds} s` : fault;
    throw new HubError("valueMissing", text);
  }
  if (typeof value === "string") return value;
  throw new HubError("valueMissing", "the plugin gave something that is no string");
}
