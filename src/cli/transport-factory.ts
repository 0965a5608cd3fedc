import { join } from "node:path";
import type { Authorizer } from "../auth/authorizer.ts";
import type { BrowserEnvironment } from "../auth/browser.ts";
import type { OAuthAuthorizer } from "../auth/oauth-authorizer.ts";
import { settlesWithin, STOP_LIMIT } from "../base/clock.ts";
import type { Env } from "../base/paths.ts";
import { ownCommand } from "../base/runtime.ts";
import type { HubOptions } from "../hub/options.ts";
import {
  type ResolvedRemote,
  type ResolvedServer,
  resolveRemote,
  resolveServer,
  type SchemeResolvers,
} from "../manifest/resolve.ts";
import type { ExternalServer, RemoteServer, StdioServer } from "../manifest/schema.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import type { Secrets } from "../secrets/secrets.ts";
import type { HttpTransportKind, KnownTransport } from "../transport/http/target.ts";
import { Redactor } from "../transport/redact.ts";
import type { ServerTransport } from "../transport/transport.ts";
import type { CommandContext } from "./command.ts";

/** The variable by which `toolmux bench` has a hub put a tap in front of each server that it starts; no server gets it. */
export const PROXY_VARIABLE = "TOOLMUX_TAP";

/** What is started, and what in its place if it is not there. */
interface Program {
  readonly command: string;
  readonly args: readonly string[];
  readonly others?: readonly Pick<Program, "command" | "args">[] | undefined;
}

/** Its value. @param delay by which what a server says is held back, in ms; @param folder where taps report */
export function formatProxyVariable(folder: string, delay: number): string {
  return `${delay}:${folder}`;
}

/** The program with the tap in front of it that is wanted; else as it is. */
export function withBenchProxy<P extends Program>(program: P, env: Env): P {
  const [, delay, folder] = /^(\d+):(.+)$/s.exec(env[PROXY_VARIABLE] ?? "") ?? [];
  if (delay === undefined || folder === undefined) return program;
  const [own, ...before] = ownCommand();
  const tap = ({ command, args }: Pick<Program, "command" | "args">) => ({
    command: own,
    args: [...before, "demo", "tap", "--", folder, delay, command, ...args],
  });
  return { ...program, ...tap(program), others: program.others?.map(tap) };
}

/** For so long what a server was identified by is good for its start, in ms: a command is run once for both. */
const FRESH = 10_000;

/** What gives a hub the servers that are not in this process. */
export interface TransportFactory extends Pick<HubOptions, "identify" | "authorize" | "makeLink"> {
  /** Takes out of a text whatever was filled in for any server so far and must not be shown. */
  readonly redact: (text: string) => string;
  /** Waits a little for what must not be broken off. */
  readonly finish: () => Promise<void>;
}

/** Servers as they are in fact: processes, or reached over HTTP. */
interface RealOutside extends TransportFactory {
  readonly makeLink: (spec: ExternalServer, schemes: SchemeResolvers) => Promise<ServerTransport>;
}

/**
 * @param openAuthorizer is asked for one when the first server over HTTP wants it
 * @param findHubs gives what servers that are started get as the list of the hubs above them; by default what this process got
 */
export function openTransportFactory(
  world: CommandContext,
  openAuthorizer: () => Promise<Authorizer>,
  findHubs: () => Promise<string | undefined> = () => Promise.resolve(world.env[HUBS_VARIABLE]),
): RealOutside {
  let opened: Promise<Authorizer> | undefined;
  const authorizer = (): Promise<Authorizer> => (opened ??= openAuthorizer());
  const { env } = world;
  let hubs: Promise<string | undefined> | undefined;
  const known = new Known();
  const hubsAbove = (): Promise<string | undefined> => (hubs ??= findHubs());
  const fill = openFilling(world, known, hubsAbove);
  const ways = new Map<string, HttpTransportKind>();
  /** What was found of a server holds as long as it is reached where it was. */
  const wayfinderFor = ({ name, url }: RemoteServer): KnownTransport => {
    const key = JSON.stringify([name, url]);
    return {
      get known() {
        return ways.get(key);
      },
      found: (way) => void ways.set(key, way),
    };
  };
  return {
    redact: (text) => known.redact(text),
    finish: async () => {
      const settled = opened?.then((it) => it.settled()).catch(() => {});
      if (settled !== undefined) await settlesWithin(STOP_LIMIT, settled);
    },
    identify: (spec, schemes) => identify(spec, schemes).catch(() => undefined),
    makeLink: async (spec, schemes): Promise<ServerTransport> => {
      const { name: server, maxMessage } = spec;
      // Whatever starts processes, or goes anywhere, is loaded after the first answer to the client.
      if (spec.kind === "stdio") {
        const resolved = withBenchProxy(await fill.server(spec, schemes, "start"), env);
        const { openStdioTransport } = await import("../transport/stdio.ts");
        const hubEnv = { ...env, [HUBS_VARIABLE]: await hubsAbove() };
        return openStdioTransport({ ...resolved, server, maxMessage, hubEnv });
      }
      const resolved = await fill.remote(spec, schemes, "start");
      const { openHttpTransport } = await import("../transport/http/transport.ts");
      const credentials = (await authorizer()).credentialsFor(spec, resolved);
      const { transport } = spec;
      const wayfinder = wayfinderFor(spec);
      const said = { server, transport, maxMessage };
      const link = openHttpTransport({ ...resolved, ...said, credentials, wayfinder, env });
      known.watch(server, link);
      return link;
    },
    authorize: async (spec, schemes, challenge, proceeding) => {
      const resolved = await fill.remote(spec, schemes, "look");
      await (await authorizer()).authorize(spec, resolved, challenge, proceeding);
    },
  };

  async function identify(
    spec: ExternalServer,
    schemes: SchemeResolvers,
  ): Promise<Awaited<ReturnType<HubOptions["identify"]>>> {
    if (spec.kind === "stdio") {
      const resolved = await fill.server(spec, schemes, "look");
      return { ...resolved, url: undefined, principal: undefined };
    }
    const { url, headers, bearerToken: key } = await fill.remote(spec, schemes, "look");
    return { command: "", args: [], cwd: undefined, env: headers, url: url.href, principal: key };
  }
}

/** Fills in specifications: anew for each start, but for a look what the last start, or look, has found. */
interface Filling {
  server(
    spec: StdioServer,
    schemes: SchemeResolvers,
    why: "start" | "look",
  ): Promise<ResolvedServer>;
  remote(
    spec: RemoteServer,
    schemes: SchemeResolvers,
    why: "start" | "look",
  ): Promise<ResolvedRemote>;
}

/** What must not be shown of all servers. */
class Known {
  readonly #secrets = new Set<string>();
  #redactor: Redactor | undefined;
  /** The last one to each server: what it bears by now it knows itself. */
  readonly #links = new Map<string, ServerTransport>();

  watch(server: string, link: ServerTransport): void {
    this.#links.set(server, link);
  }

  add<Resolved extends { readonly secrets: readonly string[] }>(resolved: Resolved): Resolved {
    const before = this.#secrets.size;
    for (const secret of resolved.secrets) this.#secrets.add(secret);
    if (this.#secrets.size > before) this.#redactor = undefined;
    return resolved;
  }

  redact(text: string): string {
    this.#redactor ??= new Redactor([...this.#secrets]);
    let shown = this.#redactor.apply(text);
    for (const link of this.#links.values()) shown = link.redact(shown);
    return shown;
  }
}

function openFilling(
  world: CommandContext,
  known: Known,
  findHubs: () => Promise<string | undefined>,
): Filling {
  const { env, cwd } = world;
  const schemesFor = openSchemeResolvers(world, findHubs);
  return {
    server: remember(async (spec: StdioServer, schemes) =>
      known.add(await resolveServer(spec, env, cwd, schemesFor(spec, schemes))),
    ),
    remote: remember(async (spec: RemoteServer, schemes) =>
      known.add(await resolveRemote(spec, env, cwd, schemesFor(spec, schemes))),
    ),
  };
}

/** What was found of a specification with the plugins in force. */
interface Memory<Resolved> {
  readonly schemes: SchemeResolvers;
  readonly found: Promise<Resolved>;
  /** Until when a start may use it, in ms of the process's own clock: once, if it was a look that has found it. */
  freshUntil: number;
}

function remember<Spec extends ExternalServer, Resolved>(
  resolve: (spec: Spec, schemes: SchemeResolvers) => Promise<Resolved>,
) {
  const memories = new WeakMap<Spec, Memory<Resolved>>();
  return (spec: Spec, schemes: SchemeResolvers, why: "start" | "look"): Promise<Resolved> => {
    const known = memories.get(spec);
    const isKnown = known?.schemes === schemes;
    if (isKnown && (why === "look" || performance.now() < known.freshUntil)) {
      if (why === "start") known.freshUntil = 0;
      return known.found;
    }
    const found = resolve(spec, schemes);
    const freshUntil = why === "look" ? performance.now() + FRESH : 0;
    memories.set(spec, { schemes, found, freshUntil });
    // What was missing may be there the next time.
    found.catch(() => memories.get(spec)?.found === found && memories.delete(spec));
    return found;
  };
}

/**
 * Makes the schemes that one specification is filled in with, once: those of plugins, and where they have none of that name
 * the hub's own, which ask for each value once. Their code is loaded when a value is wanted.
 * @param findHubs as of `openOutside`, for commands
 */
export function openSchemeResolvers(
  world: Pick<CommandContext, "env" | "platform">,
  findHubs: () => Promise<string | undefined> = () => Promise.resolve(world.env[HUBS_VARIABLE]),
): (spec: ExternalServer, schemes: SchemeResolvers) => SchemeResolvers {
  const { env } = world;
  let opened: Promise<Secrets> | undefined;
  const open = async (): Promise<Secrets> =>
    (await import("../secrets/secrets.ts")).openSecrets(world);
  return (spec, schemes) => {
    const { baseDir, secretSources } = spec;
    const secret = async (name: string): Promise<string> =>
      (await (opened ??= open())).require(name, secretSources);
    const cmd = async (text: string): Promise<string> => {
      const { runSecretCommand } = await import("../secrets/command.ts");
      return runSecretCommand(text, {
        cwd: baseDir,
        env: { ...env, [HUBS_VARIABLE]: await findHubs() },
      });
    };
    return new Map([["secret", askOnce(secret)], ["cmd", askOnce(cmd)], ...schemes]);
  };
}

function askOnce(ask: (path: string) => Promise<string>): (path: string) => Promise<string> {
  const asked = new Map<string, Promise<string>>();
  return (path) => {
    const answer = asked.get(path) ?? ask(path);
    asked.set(path, answer);
    return answer;
  };
}

/** Shows a person a page to log in at. Never rejects. */
export type ShowLoginPage = (url: string, server: string) => Promise<void>;

/** What gets this user's hubs into servers; nothing of it is loaded before somebody calls this. */
export async function openUserAuthorizer(
  world: Pick<CommandContext, "env" | "platform">,
  openUrl: ShowLoginPage,
): Promise<OAuthAuthorizer> {
  const { env } = world;
  const [
    { openOAuthAuthorizer: openAuthorizer },
    { openSecrets },
    { withFileLock: withLock },
    { makeFetch: dialer },
  ] = await Promise.all([
    import("../auth/oauth-authorizer.ts"),
    import("../secrets/secrets.ts"),
    import("../process/file-lock.ts"),
    import("../transport/http-client/fetch.ts"),
  ]);
  const { file: store, folder } = openSecrets(world);
  return openAuthorizer({
    store,
    lock: (name, signal, work, limit) =>
      withLock(join(folder, "locks", name.replaceAll("/", "-")), signal, work, { limit }),
    dial: ({ ca }) => dialer({ ca, env }),
    openUrl,
  });
}

/** Opens the browser, or says where to go if there is none. */
export function showLoginPage(
  desktop: BrowserEnvironment,
  tell: (level: "info" | "warn", text: string, server: string) => void,
): ShowLoginPage {
  return async (url, server) => {
    const { openBrowser } = await import("../auth/browser.ts");
    if (await openBrowser(url, desktop)) {
      tell("info", "a browser was opened to log in", server);
    } else {
      tell("warn", `no browser could be opened; log in at ${url}`, server);
    }
  };
}
