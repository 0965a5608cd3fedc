import { join } from "node:path";
import type { Authorizer } from "../auth/authorizer.ts";
import type { BrowserEnvironment } from "../auth/browser.ts";
import type { OAuthAuthorizer } from "../auth/oauth-authorizer.ts";
import { STOP_LIMIT } from "../base/grace-periods.ts";
import { settlesWithin } from "../base/clock.ts";
import type { Env, SystemEnvironment } from "../base/paths.ts";
import { ownCommand } from "../base/runtime.ts";
import { valueNamesOf } from "../manifest/client-values.ts";
import type { Filling, HubOptions } from "./options.ts";
import {
  type ResolvedRemote,
  type ResolvedServer,
  resolveRemote,
  resolveServer,
  type SchemeResolvers,
} from "../manifest/resolve.ts";
import type { ExternalServer, RemoteServer, StdioServer } from "../manifest/manifest.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import type { Secrets } from "../secrets/secrets.ts";
import type {
  ConnectionCookies,
  HttpTransportKind,
  KnownTransport,
} from "../transport/http/target.ts";
import { Redactor } from "../transport/redact.ts";
import type { ServerTransport } from "../transport/transport.ts";

/**
 * Environment variable by which `toolmux bench` makes a hub put a stdio proxy in front of each server that it starts.
 * It is not passed on to servers.
 */
export const PROXY_VARIABLE = "TOOLMUX_BENCH_PROXY";

/** A command, and the commands to use instead if it is not installed. */
interface LaunchedCommand {
  readonly command: string;
  readonly args: readonly string[];
  readonly alternatives?: readonly Pick<LaunchedCommand, "command" | "args">[] | undefined;
}

/**
 * Formats the value of PROXY_VARIABLE.
 * @param folder the folder into which the proxies write their reports
 * @param delay delay of the server's output, in ms
 */
export function formatProxyVariable(folder: string, delay: number): string {
  return `${delay}:${folder}`;
}

/** The command, run through the stdio proxy if PROXY_VARIABLE is set in `env`; else unchanged. */
export function withBenchProxy<P extends LaunchedCommand>(target: P, env: Env): P {
  const [, delay, folder] = /^(\d+):(.+)$/s.exec(env[PROXY_VARIABLE] ?? "") ?? [];
  if (delay === undefined || folder === undefined) return target;
  const [ownExecutable, ...firstArgs] = ownCommand();
  const throughProxy = ({ command, args }: Pick<LaunchedCommand, "command" | "args">) => ({
    command: ownExecutable,
    args: [...firstArgs, "internal", "stdio-proxy", folder, delay, command, ...args],
  });
  return {
    ...target,
    ...throughProxy(target),
    alternatives: target.alternatives?.map(throughProxy),
  };
}

/**
 * Time for which an entry that was resolved to identify a server may be reused when the server starts, in ms. This
 * makes each `${cmd:…}` run only once.
 */
const REUSE_TIME = 10_000;

/** Creates transports to stdio and HTTP servers, with their credentials. */
export interface TransportFactory extends Pick<
  HubOptions,
  "resolveIdentity" | "authorize" | "openTransport"
> {
  /** Removes from a text all secrets that were resolved for servers so far. */
  readonly redact: (text: string) => string;
  /** Waits a limited time for writes of tokens that have begun and must not be interrupted. */
  readonly finish: () => Promise<void>;
}

interface ExternalTransportFactory extends TransportFactory {
  readonly openTransport: (
    spec: ExternalServer,
    schemes: SchemeResolvers,
    cookies?: ConnectionCookies,
    filling?: Filling,
  ) => Promise<ServerTransport>;
}

/**
 * Opens a factory for transports to servers.
 * @param openAuthorizer called when the first HTTP server needs an authorizer
 * @param findHubs returns the value of HUBS_VARIABLE for started servers: the list of the hubs above them; by default
 * this process's own value
 */
export function openTransportFactory(
  context: SystemEnvironment,
  openAuthorizer: () => Promise<Authorizer>,
  findHubs: () => Promise<string | undefined> = () => Promise.resolve(context.env[HUBS_VARIABLE]),
): ExternalTransportFactory {
  let opened: Promise<Authorizer> | undefined;
  const authorizer = (): Promise<Authorizer> => (opened ??= openAuthorizer());
  const { env } = context;
  const secrets = new SecretRedactor();
  const resolver = openEntryResolver(context, secrets, findHubs);
  const transportKinds = new Map<string, HttpTransportKind>();
  /**
   * The cache of the HTTP transport that was detected for a server, such as SSE. An entry is valid as long as the
   * server has the same URL, in which clients may have filled in other values.
   */
  const knownTransportFor = ({ name }: RemoteServer, { url }: ResolvedRemote): KnownTransport => {
    const key = JSON.stringify([name, url.href]);
    return {
      get kind() {
        return transportKinds.get(key);
      },
      remember: (transportKind) => void transportKinds.set(key, transportKind),
    };
  };
  return {
    redact: (text) => secrets.redact(text),
    finish: async () => {
      const settled = opened?.then((it) => it.settled()).catch(() => {});
      if (settled !== undefined) await settlesWithin(STOP_LIMIT, settled);
    },
    resolveIdentity: (spec, schemes, filling) =>
      identify(spec, schemes, filling).catch(() => undefined),
    openTransport: async (spec, schemes, cookies, filling): Promise<ServerTransport> => {
      const { name: server, maxMessage } = spec;
      // The code for processes and network is loaded at the first start of a server, because the answer to `initialize`
      // does not need it.
      if (spec.kind === "stdio") {
        const entry = await resolver.server(spec, schemes, "start", filling);
        const resolved = withBenchProxy(entry, env);
        // The folder of the process of a shared hub means nothing to a client.
        const cwd = entry.cwd ?? (filling?.origin && spec.baseDir);
        const { openStdioTransport } = await import("../transport/stdio.ts");
        const hubEnv = { ...env, [HUBS_VARIABLE]: await findHubs() };
        return openStdioTransport({
          ...resolved,
          cwd,
          server,
          maxMessage,
          hubEnv,
          morePath: filling?.path,
        });
      }
      const resolved = await resolver.remote(spec, schemes, "start", filling);
      const { HttpTransport } = await import("../transport/http/transport.ts");
      const credentials = (await authorizer()).credentialsFor(spec, resolved);
      const { transport } = spec;
      const knownTransport = knownTransportFor(spec, resolved);
      const settings = { server, transport, maxMessage };
      const httpTransport = new HttpTransport({
        ...resolved,
        ...settings,
        credentials,
        knownTransport,
        cookies,
        env,
      });
      secrets.addTransport(server, httpTransport);
      return httpTransport;
    },
    authorize: async (spec, schemes, challenge, options, filling) => {
      const resolved = await resolver.remote(spec, schemes, "identify", filling);
      await (await authorizer()).authorize(spec, resolved, challenge, options);
    },
  };

  async function identify(
    spec: ExternalServer,
    schemes: SchemeResolvers,
    filling: Filling | undefined,
  ): Promise<Awaited<ReturnType<HubOptions["resolveIdentity"]>>> {
    if (spec.kind === "stdio") {
      const resolved = await resolver.server(spec, schemes, "identify", filling);
      return { ...resolved, url: undefined, principal: undefined };
    }
    const resolved = await resolver.remote(spec, schemes, "identify", filling);
    const { url, headers, bearerToken: key } = resolved;
    return { command: "", args: [], cwd: undefined, env: headers, url: url.href, principal: key };
  }
}

/**
 * Resolves the placeholders (`${…}`) of servers' entries. With the purpose "identify", any earlier result may be
 * reused. With "start", placeholders are resolved anew, unless "identify" has just done that. Results are kept for each
 * client that fills in a specification, and never given to another one.
 */
interface EntryResolver {
  server(
    spec: StdioServer,
    schemes: SchemeResolvers,
    purpose: "start" | "identify",
    filling: Filling | undefined,
  ): Promise<ResolvedServer>;
  remote(
    spec: RemoteServer,
    schemes: SchemeResolvers,
    purpose: "start" | "identify",
    filling: Filling | undefined,
  ): Promise<ResolvedRemote>;
}

/** Removes from texts all secrets that were resolved for servers so far. */
class SecretRedactor {
  readonly #secrets = new Set<string>();
  #redactor: Redactor | undefined;
  /** The latest transport of each server, which can redact the server's current credentials. */
  readonly #transports = new Map<string, ServerTransport>();

  addTransport(server: string, transport: ServerTransport): void {
    this.#transports.set(server, transport);
  }

  addSecrets<Resolved extends { readonly secrets: readonly string[] }>(
    resolved: Resolved,
  ): Resolved {
    const before = this.#secrets.size;
    for (const secret of resolved.secrets) this.#secrets.add(secret);
    if (this.#secrets.size > before) this.#redactor = undefined;
    return resolved;
  }

  redact(text: string): string {
    this.#redactor ??= new Redactor([...this.#secrets]);
    let shown = this.#redactor.apply(text);
    for (const transport of this.#transports.values()) shown = transport.redact(shown);
    return shown;
  }
}

function openEntryResolver(
  context: SystemEnvironment,
  redactor: SecretRedactor,
  findHubs: () => Promise<string | undefined>,
): EntryResolver {
  const schemesFor = openSchemeResolvers(context, findHubs);
  /** The arguments of `resolveServer` and `resolveRemote` after the specification. */
  const argumentsFor = (
    spec: ExternalServer,
    schemes: SchemeResolvers,
    filling: Filling | undefined,
  ) => {
    const { env, cwd } = filling?.origin ?? context;
    const homeEnv = filling?.origin === undefined ? undefined : context.env;
    const all = schemesFor(spec, schemes, filling?.path);
    return [env, cwd, all, undefined, homeEnv] as const;
  };
  return {
    server: cached(async (spec: StdioServer, schemes, filling) =>
      redactor.addSecrets(await resolveServer(spec, ...argumentsFor(spec, schemes, filling))),
    ),
    remote: cached(async (spec: RemoteServer, schemes, filling) =>
      redactor.addSecrets(await resolveRemote(spec, ...argumentsFor(spec, schemes, filling))),
    ),
  };
}

/**
 * A cached entry of a server, with its placeholders resolved. It is resolved again if the resolvers of plugins
 * (`schemes`) have changed.
 */
interface CachedEntry<Resolved> {
  readonly schemes: SchemeResolvers;
  readonly resolved: Promise<Resolved>;
  /** One start may reuse the entry until this time, in ms of `performance.now()`; 0 if no start may reuse it. */
  freshUntil: number;
}

/** Stands for the hub's own environment in the place of a client. */
const HUB_ITSELF = {};

function cached<Spec extends ExternalServer, Resolved>(
  resolve: (
    spec: Spec,
    schemes: SchemeResolvers,
    filling: Filling | undefined,
  ) => Promise<Resolved>,
) {
  /** The entries of each specification, by the origin of the values in them. */
  const entriesBySpec = new WeakMap<Spec, WeakMap<object, CachedEntry<Resolved>>>();
  return (
    spec: Spec,
    schemes: SchemeResolvers,
    purpose: "start" | "identify",
    filling: Filling | undefined,
  ): Promise<Resolved> => {
    const origin = valueNamesOf(spec).length === 0 ? HUB_ITSELF : (filling?.origin ?? HUB_ITSELF);
    const entries = entriesBySpec.get(spec) ?? new WeakMap<object, CachedEntry<Resolved>>();
    entriesBySpec.set(spec, entries);
    const entry = entries.get(origin);
    const isKnown = entry?.schemes === schemes;
    if (isKnown && (purpose === "identify" || performance.now() < entry.freshUntil)) {
      if (purpose === "start") entry.freshUntil = 0;
      return entry.resolved;
    }
    const resolved = resolve(spec, schemes, filling);
    const freshUntil = purpose === "identify" ? performance.now() + REUSE_TIME : 0;
    entries.set(origin, { schemes, resolved, freshUntil });
    // A failed result is not kept, because the missing value may be available next time.
    resolved.catch(() => entries.get(origin)?.resolved === resolved && entries.delete(origin));
    return resolved;
  };
}

/**
 * Makes the resolvers for the placeholders of an entry: those of plugins, and the hub's own `secret` and `cmd`. The
 * code of these two is loaded on first use, and they resolve each value once.
 * @param findHubs the value of HUBS_VARIABLE for the commands of `cmd`; by default this process's own value
 */
export function openSchemeResolvers(
  context: Pick<SystemEnvironment, "env" | "platform">,
  findHubs: () => Promise<string | undefined> = () => Promise.resolve(context.env[HUBS_VARIABLE]),
): (
  spec: Pick<ExternalServer, "baseDir" | "secretSources">,
  schemes: SchemeResolvers,
  morePath?: string,
) => SchemeResolvers {
  const { env } = context;
  let opened: Promise<Secrets> | undefined;
  const open = async (): Promise<Secrets> =>
    (await import("../secrets/secrets.ts")).openSecrets(context);
  return (spec, schemes, morePath) => {
    const { baseDir, secretSources } = spec;
    const secret = async (name: string): Promise<string> =>
      (await (opened ??= open())).require(name, secretSources);
    const cmd = async (text: string): Promise<string> => {
      const { runSecretCommand } = await import("../secrets/command.ts");
      return runSecretCommand(text, {
        cwd: baseDir,
        env: { ...env, [HUBS_VARIABLE]: await findHubs() },
        morePath,
      });
    };
    return new Map([["secret", oncePerPath(secret)], ["cmd", oncePerPath(cmd)], ...schemes]);
  };
}

function oncePerPath(
  resolve: (path: string) => Promise<string>,
): (path: string) => Promise<string> {
  const results = new Map<string, Promise<string>>();
  return (path) => {
    const result = results.get(path) ?? resolve(path);
    results.set(path, result);
    return result;
  };
}

/** Shows the user a login page. Never rejects. */
export type ShowLoginPage = (url: string, server: string) => Promise<void>;

/**
 * The OAuth authorizer of this user, which loads, refreshes and stores tokens. Its code is loaded on the first call.
 */
export async function openUserAuthorizer(
  context: Pick<SystemEnvironment, "env" | "platform">,
  openUrl: ShowLoginPage,
): Promise<OAuthAuthorizer> {
  const { env } = context;
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
  const { file: store, folder } = openSecrets(context);
  return openAuthorizer({
    store,
    lock: (name, signal, work, limit) =>
      withLock(join(folder, "locks", name.replaceAll("/", "-")), signal, work, {
        waitTimeout: limit,
      }),
    fetch: ({ ca }) => dialer({ ca, env }),
    openUrl,
  });
}

/** Opens the page in the user's browser; if there is none, logs its URL. */
export function showLoginPage(
  environment: BrowserEnvironment,
  log: (level: "info" | "warn", text: string, server: string) => void,
): ShowLoginPage {
  return async (url, server) => {
    const { openBrowser } = await import("../auth/browser.ts");
    if (await openBrowser(url, environment)) {
      log("info", "a browser was opened to log in", server);
    } else {
      log("warn", `no browser could be opened; log in at ${url}`, server);
    }
  };
}
