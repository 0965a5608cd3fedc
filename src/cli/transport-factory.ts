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

/**
 * Environment variable by which `toolmux bench` has a hub put a stdio proxy in front of each server it
 * starts; not passed on to servers.
 */
export const PROXY_VARIABLE = "TOOLMUX_TAP";

/** A command, and its alternatives if it is not installed. */
interface Program {
  readonly command: string;
  readonly args: readonly string[];
  readonly others?: readonly Pick<Program, "command" | "args">[] | undefined;
}

/** The variable's value. @param delay delay of the server's output, in ms; @param folder where proxies report */
export function formatProxyVariable(folder: string, delay: number): string {
  return `${delay}:${folder}`;
}

/** The command run through the stdio proxy, if the variable asks for it; else unchanged. */
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

/** How long a resolved entry is reused for the next start, in ms, so that its `${cmd:…}` runs once. */
const FRESH = 10_000;

/** Creates transports to stdio and HTTP servers, with their credentials. */
export interface TransportFactory extends Pick<HubOptions, "identify" | "authorize" | "makeLink"> {
  /** Redacts all resolved secrets of servers so far. */
  readonly redact: (text: string) => string;
  /** Waits a limited time for token writes that must not be interrupted. */
  readonly finish: () => Promise<void>;
}

/** The factory for child processes and HTTP. */
interface RealOutside extends TransportFactory {
  readonly makeLink: (spec: ExternalServer, schemes: SchemeResolvers) => Promise<ServerTransport>;
}

/**
 * @param openAuthorizer called when the first HTTP server needs one
 * @param findHubs the value of the variable that lists the hubs above a started server; by default this
 * process's own
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
  /** The transport kind detected for a server; kept while its URL is the same. */
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
      // Process and network modules are loaded after the client's first response.
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

/** Resolves entries: anew for each start ("start"), or cached from the last resolution ("look"). */
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

/** All secrets to be redacted. */
class Known {
  readonly #secrets = new Set<string>();
  #redactor: Redactor | undefined;
  /** The latest transport of each server, which knows its current credentials. */
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

/** A resolved entry, for the current plugins' resolvers. */
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
    // A missing value may be available next time.
    found.catch(() => memories.get(spec)?.found === found && memories.delete(spec));
    return found;
  };
}

/**
 * Makes the resolvers for entries: those of plugins, and the hub's own `secret` and `cmd`, which resolve each
 * value once. Their code is loaded on first use.
 * @param findHubs as in `openTransportFactory`; for the environment of commands
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

/** Shows the user a login page. Never rejects. */
export type ShowLoginPage = (url: string, server: string) => Promise<void>;

/**
 * The OAuth authorizer of this user: tokens are loaded, refreshed and stored by it. Its modules are loaded on
 * the first call.
 */
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

/** Opens the page in the user's browser; if there is none, logs its URL. */
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
