import { endWithin, settlesWithin, STOP_LIMIT } from "../base/clock.ts";
import { suggestName } from "../manifest/problems.ts";
import { HubError, usageError } from "../base/errors.ts";
import { isLoopback } from "../base/loopback.ts";
import type { Env } from "../base/paths.ts";
import type { Hub } from "../hub/hub.ts";
import { count } from "../base/format.ts";
import process from "node:process";
import type { HttpSettings, RunningHttpServer, ServedHub } from "../frontend/http/server.ts";
import { StdioServerTransport } from "../frontend/stdio.ts";
import { isRunnable, LIMIT_DEFAULTS, type Manifest } from "../manifest/manifest.ts";
import { describeModeFault } from "../manifest/modes.ts";
import type { ManifestWatcher } from "../manifest/watch.ts";
import {
  type HttpAddress,
  type HttpOptions,
  TOKEN_NAME,
  withManifestToken,
} from "./http-address.ts";
import {
  type CommandLog,
  type ManifestWithHashes,
  loadOptions,
} from "../operations/load-manifest.ts";
import type { CommandContext, Invocation } from "../cli/command.ts";
import { eventKindsAtLevel, formatLogRecord, makeLogRecord } from "../terminal/log.ts";
import { openHub, openSnapshots, type PluginSetup } from "./open-hub.ts";
import type { ReloadableHub } from "./reload.ts";
import type { HubRecording } from "./recording.ts";
import { type ServerSubset, subsetOf } from "../upstream/profile.ts";
import type { Control } from "./control.ts";
import type { HubDashboard } from "./dashboard.ts";

/** Delay of work that can wait until the first response is sent, such as watching the manifest, in ms. */
const BACKGROUND_DELAY = 100;
/**
 * Delays before the control socket is opened, in ms: `afterClient` after the first client has initialized, so that
 * the response to the client is sent first; or `afterStart` after the start of the hub, if that is earlier.
 */
const CONTROL_DELAY = { afterClient: 20, afterStart: 1000 };
/** Interval for checking whether the parent process has changed, in ms. */
const PARENT_CHECK_MS = 2000;

const NO_TOKEN_WARNING =
  "no token is required: every user of this machine can call every tool; --token auto creates a token";

/** The hub's output for people: log records and plain text, both on stderr. */
export interface HostOutput {
  readonly log: CommandLog;
  print(text: string): void;
}

export interface ServeCommandOptions extends HttpOptions {
  readonly stdio: boolean;
  readonly mode: string | undefined;
  readonly servers: string | undefined;
  readonly dashboard: boolean;
  readonly record: string | undefined;
  readonly "record-limit": string | undefined;
  readonly approval: "auto" | "always" | undefined;
  readonly "approve-all": boolean;
}

export interface ServeOptions {
  readonly invocation: Invocation<ServeCommandOptions>;
  readonly context: CommandContext;
  readonly output: HostOutput;
  readonly loaded: ManifestWithHashes;
  /** The HTTP address from the command line; if undefined, the hub serves only stdio. */
  readonly requestedAddress: HttpAddress | undefined;
  readonly changes?: ManifestChanges | undefined;
}

/** Changes that a command makes to the manifest that it serves. */
export interface ManifestChanges {
  readonly prepare: (manifest: Manifest) => Manifest;
  /** Whether there may be no manifest at all. */
  readonly mayBeAbsent: boolean;
}

/**
 * Runs the hub of `toolmux serve`: serves clients with the servers of a manifest, until a signal, the control API or
 * the end of the stdio client ends the hub.
 * @returns the exit code
 */
export async function serveHub({
  invocation,
  context,
  output,
  loaded,
  requestedAddress,
  changes,
}: ServeOptions): Promise<number> {
  const { log } = output;
  const { mode } = invocation.options;
  const faultOf = ({ modes = [] }: Manifest): string | undefined =>
    mode === undefined ? undefined : describeModeFault(mode, modes);
  const fault = faultOf(loaded.manifest);
  if (fault !== undefined) throw usageError(fault);
  const subset = readServerNames(invocation.options.servers);
  const { httpToken, clients: named = [] } = loaded.manifest;
  const address =
    requestedAddress &&
    (await withManifestToken(requestedAddress, httpToken, context, named.length > 0));
  const findClients = async (manifest: Manifest): Promise<HttpSettings["clients"]> => {
    if ((manifest.clients ?? []).length === 0) return undefined;
    const { resolveHttpClients } = await import("../hub/http-clients.ts");
    return resolveHttpClients(manifest, context, (text) => log("warn", text));
  };
  const clients = address && (await findClients(loaded.manifest));
  if (address !== undefined && address.token === undefined && clients === undefined)
    log("warn", NO_TOKEN_WARNING);
  if (invocation.options.dashboard) requireDashboardAddress(address, loaded.manifest);
  const recording = await openRequestedRecording(invocation.options, context, address, log);
  const opened = await openHub(loaded.manifest, context, log, {
    kinds: eventKindsAtLevel(invocation.logLevel),
    snapshots: openSnapshots(context, log, "exact"),
    makeTransportWrapper: recording?.makeTransportWrapper,
    secrets: [address?.token, ...(clients ?? []).map(({ token }) => token)].filter(
      (token) => token !== undefined,
    ),
    mode,
    ...(loaded.manifest.hub.control && {
      howToBeAsked: `start "toolmux approvals --watch --hub ${process.pid}" in a terminal`,
    }),
    minimumApproval: invocation.options["approve-all"] ? "all" : invocation.options.approval,
    prepare: changes?.prepare,
    openAgents: async (options) => {
      const { openClientAgents } = await import("./client-agents.ts");
      return openClientAgents(options);
    },
    choose: (manifest) => {
      checkServerNames(subset, manifest);
      return manifest;
    },
  });
  const { hub, close } = opened;
  const startedAt = Date.now();
  recording?.manifest(opened.manifest);
  const limit = messageLimit(loaded.manifest);
  const isOnStdio = address === undefined || invocation.options.stdio;
  const stopped = Promise.withResolvers<void>();
  let hasFailed = false;
  const endings = [untilSignal(context.signal), stopped.promise];
  const stdio = isOnStdio ? new StdioServerTransport(limit) : undefined;
  if (stdio !== undefined) {
    const accepted = hub
      .accept(recording?.recordClient(stdio) ?? stdio, context.signal, subset, "stdio")
      .then(() => {
        if (stdio.fault === undefined) return undefined;
        log("error", `The connection of the client on stdio was ended: ${stdio.fault}`);
        hasFailed = true;
        // A defect in the handling of this client does not end the hub for those on HTTP.
        return address === undefined ? undefined : new Promise<void>(() => {});
      });
    endings.push(accepted, untilParentGone());
  }
  let isClosing = false;
  let watcher: ManifestWatcher | undefined;
  const isWatching = Promise.withResolvers<void>();
  const checkManifest = (): void => void watcher?.check();
  // A hub that serves only HTTP outlives its terminal, so SIGHUP reloads its manifest. A hub on stdio ends at SIGHUP.
  if (!isOnStdio) context.hangupHandlers.add(checkManifest);
  const followChanges = async (): Promise<void> => {
    const { followManifest } = await import("./reload.ts");
    if (isClosing) return;
    const setUpPlugins: PluginSetup = async (manifest, current) => {
      const prepared = await opened.setUpPlugins(manifest, current);
      if (prepared.ok) recording?.manifest(prepared.manifest);
      return prepared;
    };
    const options = {
      ...loadOptions(invocation, context),
      runningPrefixes: () => hub.prefixes,
    };
    const prepare: ReloadableHub["prepare"] = async (manifest) => {
      const missing = faultOf(manifest);
      if (missing !== undefined)
        return { refusal: `toolmux was started with --mode ${mode}. ${missing}` };
      const next = address && (await findClients(manifest));
      opened.addSecrets((next ?? []).map(({ token }) => token));
      return () => httpServer?.setClients(next);
    };
    watcher = followManifest({ hub, setUpPlugins, prepare }, options, loaded, log);
    isWatching.resolve();
    await printStartNotes(loaded.manifest, isOnStdio, invocation, output, context.env);
  };
  setTimeout(() => void followChanges(), BACKGROUND_DELAY).unref();
  let httpServer: RunningHttpServer | undefined;
  const control = openControlLater(hub, loaded.manifest, async () => {
    const { openControl } = await import("./control.ts");
    return openControl({
      hub,
      manifest: loaded.manifest,
      invocation,
      context,
      log,
      startedAt,
      maxMessage: limit,
      redact: opened.redact,
      endpoints: () => [...(isOnStdio ? ["stdio"] : []), ...(httpServer ? [httpServer.url] : [])],
      reload: async () => {
        await isWatching.promise;
        await watcher?.check();
      },
      stop: () => stopped.resolve(),
    });
  });
  let ownDashboard: HubDashboard | undefined;
  try {
    if (invocation.options.dashboard) {
      const { makeHubDashboard } = await import("./dashboard.ts");
      ownDashboard = await makeHubDashboard(
        () => control.open(),
        context,
        (text) => log("error", text),
      );
    }
    if (address !== undefined) {
      const servedHub = recording?.recordHttp(hub) ?? hub;
      httpServer = await startHttp(servedHub, {
        ...address,
        clients,
        subset,
        maxMessage: limit,
        evictsIdle: loaded.manifest.hub.evictSessions,
        logFault: (text) => log("error", text),
        ...(ownDashboard !== undefined && { mounted: ownDashboard }),
      }).catch(async (error: unknown) => {
        const { listenErrorOf } = await import("./listen-error.ts");
        throw await listenErrorOf(address, error, context);
      });
    }
    if (httpServer !== undefined) {
      printAddress(httpServer, loaded.manifest, invocation, output);
      if (address !== undefined) await printTokenPlace(httpServer, address, invocation, output);
      await ownDashboard?.announce(httpServer.url, invocation, output);
    }
    await Promise.race(endings);
  } finally {
    isClosing = true;
    context.hangupHandlers.delete(checkManifest);
    watcher?.close();
    // Starts to close the control socket, but awaits this last: a client that still reads from the socket delays the
    // closing, and the end of the servers must not wait for that client.
    const controlClosed = control.close();
    const closeAll = async (): Promise<void> => {
      await ownDashboard?.close();
      await httpServer?.close();
      await close();
      await controlClosed;
    };
    await closeBefore(stdio?.inputEndedAt, closeAll);
    await recording?.close();
  }
  if (stdio?.outputError !== undefined) throw stdio.outputError;
  return hasFailed ? 1 : 0;
}

/**
 * Maximum time from the end of stdin to the end of the hub, in ms. What is still running then is killed when the process
 * exits. Clients wait about 2 s before they send SIGTERM.
 */
const INPUT_END_LIMIT = 1800;

/** Lateness of a timer, in ms, that shows that the process was suspended. */
const SUSPENDED = 150;

/** Closes the hub; if stdin has ended, within `INPUT_END_LIMIT` after that. */
async function closeBefore(
  inputEndedAt: number | undefined,
  close: () => Promise<void>,
): Promise<void> {
  if (inputEndedAt === undefined) return close();
  const timeLeft = Math.max(0, inputEndedAt + INPUT_END_LIMIT - performance.now());
  endWithin(timeLeft);
  const closed = close();
  const due = performance.now() + timeLeft;
  if (await settlesWithin(timeLeft, closed)) return;
  // The whole process stood still meanwhile, so its servers did not get their time.
  if (performance.now() > due + SUSPENDED) await settlesWithin(STOP_LIMIT, closed);
}

/** The control API of a hub, which is opened when it is needed. */
interface LazyControl {
  /** Opens the control API now, or returns it if it is open already. */
  open(): Promise<Control>;
  /** Closes the control API, or prevents it from being opened. */
  close(): Promise<void>;
}

/**
 * Opens the control API and its socket in the background, unless the manifest sets `control = false`.
 * @param open opens the control API; never rejects
 */
function openControlLater(
  hub: Hub,
  { hub: { control: isWanted } }: Manifest,
  open: () => Promise<Control>,
): LazyControl {
  let isClosed = !isWanted;
  let opening: Promise<Control> | undefined;
  let unsubscribe = (): void => {};
  const begin = (): Promise<Control> => {
    unsubscribe();
    if (isClosed) return Promise.reject(new HubError("hubNotRunning", "The hub is closing."));
    opening ??= open();
    return opening;
  };
  if (!isWanted) return { open: begin, async close() {} };
  const beginLater = (): void => {
    if (!isClosed) void begin();
  };
  const timer = setTimeout(beginLater, CONTROL_DELAY.afterStart);
  timer.unref();
  unsubscribe = hub.subscribe(
    (event) => {
      if (event.kind !== "client" || event.change !== "changed") return;
      unsubscribe();
      setTimeout(beginLater, CONTROL_DELAY.afterClient).unref();
    },
    ["client"],
  );
  return {
    open: begin,
    async close() {
      isClosed = true;
      unsubscribe();
      clearTimeout(timer);
      await (await opening)?.close();
    },
  };
}

/** The servers that `--servers` names; undefined: all. @throws {HubError} usage */
function readServerNames(list: string | undefined): ServerSubset | undefined {
  if (list === undefined) return undefined;
  const names = list.split(",").map((name) => name.trim());
  if (names.includes("")) throw usageError("--servers needs names of servers: --servers files,git");
  return subsetOf(names);
}

/** Checks the names that `--servers` gives. @throws {HubError} usage if there is no such server */
function checkServerNames(subset: ServerSubset | undefined, { servers }: Manifest): void {
  const known = servers.map(({ name }) => name);
  const missing = subset?.names?.find((name) => !known.includes(name));
  if (missing === undefined) return;
  throw usageError(`There is no server "${missing}".${suggestName(missing, known)}`);
}

/** Checks that the dashboard can be served at this address. @throws {HubError} usage if it cannot */
function requireDashboardAddress(
  address: HttpAddress | undefined,
  { hub: { control } }: Manifest,
): void {
  if (address === undefined) {
    throw usageError("--dashboard serves a page over HTTP: it needs --http, such as --http 8700.");
  }
  if (!isLoopback(address.hostname)) {
    throw usageError(
      `--dashboard is refused on ${address.hostname}, because other machines can reach it and the page can run commands here. Listen on 127.0.0.1, and use the page from another machine with ssh -L ${address.port}:127.0.0.1:${address.port} HOST.`,
    );
  }
  if (!control) {
    throw usageError(
      "The manifest has control = false under [hub], so there is no dashboard: remove that line, or start without --dashboard.",
    );
  }
}

/** Opens the recording of `--record`. Without that option, the code for recordings is not loaded. */
async function openRequestedRecording(
  { record: path, "record-limit": limit }: ServeCommandOptions,
  context: CommandContext,
  address: HttpAddress | undefined,
  log: CommandLog,
): Promise<HubRecording | undefined> {
  if (path === undefined) {
    if (limit === undefined) return undefined;
    throw usageError("--record-limit is the size limit of a recording: it needs --record.");
  }
  const { openHubRecording: open } = await import("./recording.ts");
  const secrets = address?.token === undefined ? [] : [address.token];
  return open(path, limit, context, secrets, (text) => log("warn", text));
}

/** Starts the HTTP server. Its code is loaded here, so a hub on stdio starts without it. */
async function startHttp(hub: ServedHub, settings: HttpSettings): Promise<RunningHttpServer> {
  const { startHttpServer } = await import("../frontend/http/server.ts");
  return startHttpServer(hub, settings);
}

/**
 * Prints the address of the HTTP server. It is printed at any log level, because only this line tells the port and
 * reports that the hub is ready.
 */
function printAddress(
  { url }: RunningHttpServer,
  manifest: Manifest,
  { logFormat }: Invocation,
  { print }: Pick<HostOutput, "print">,
): void {
  const text = `serving ${countServers(manifest)} at ${url} (servers start when the first client connects)`;
  print(formatLogRecord(makeLogRecord("info", text, { url }), logFormat));
}

/** Prints where the token that `--token auto` created is stored. The token itself is shown on a terminal only. */
async function printTokenPlace(
  { url }: RunningHttpServer,
  { token, tokenPlace }: HttpAddress,
  { logFormat }: Invocation,
  { print }: Pick<HostOutput, "print">,
): Promise<void> {
  if (tokenPlace === undefined || token === undefined) return;
  const place = `clients need the token ${TOKEN_NAME} from ${tokenPlace}`;
  const { isatty } = await import("node:tty");
  if (logFormat === "text" && isatty(2)) {
    const { formatRemoteClientEntry } = await import("../operations/server-description.ts");
    print(`${place}:\n\n${formatRemoteClientEntry(url, token)}\n`);
  } else {
    const text = `${place}; in a toolmux config it is \${secret:${TOKEN_NAME}}; run the same command in a terminal to see the settings for other clients`;
    print(formatLogRecord(makeLogRecord("info", text, { secret: TOKEN_NAME }), logFormat));
  }
}

function countServers({ servers }: Manifest): string {
  return count(servers.filter(({ enabled }) => enabled).length, "server");
}

function warnUnsupported({ servers }: Manifest, log: CommandLog): void {
  for (const spec of servers) {
    if (spec.kind !== "unsupported" || !spec.enabled) continue;
    const text = `this server cannot be used: ${spec.reason}`;
    log("warn", makeLogRecord("warn", text, { server: spec.name }));
  }
}

/** The largest message limit of all servers, in bytes. A longer message cannot be for any server. */
function messageLimit({ servers }: Manifest): number {
  const limits = servers.map((spec) => (isRunnable(spec) ? spec.maxMessage : 0));
  return Math.max(LIMIT_DEFAULTS.maxMessage, ...limits);
}

async function printStartNotes(
  manifest: Manifest,
  isOnStdio: boolean,
  { logFormat }: Invocation,
  { log, print }: Pick<HostOutput, "log" | "print">,
  env: Env,
): Promise<void> {
  const { isatty } = await import("node:tty");
  if (isOnStdio && logFormat === "text" && isatty(0)) print(await usageNote(manifest, env));
  warnUnsupported(manifest, log);
}

async function usageNote(manifest: Manifest, env: Env): Promise<string> {
  const { formatClientEntry } = await import("../operations/server-description.ts");
  return [
    `toolmux serves ${countServers(manifest)} on stdin and stdout, and waits for an MCP client.`,
    "An MCP client starts this command. Put this into the config of the client:",
    "",
    formatClientEntry(manifest.sources, env),
    "",
    "To try the servers here: toolmux list, toolmux call TOOL. To stop: Ctrl-C.",
  ].join("\n");
}

export function untilSignal(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (signal.aborted) resolve();
  });
}

/**
 * Resolves when the parent process has ended. The end of stdin is not enough: after a client was killed, another
 * process may keep stdin open.
 */
export function untilParentGone(): Promise<void> {
  const parent = process.ppid;
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      if (process.ppid !== parent) resolve();
    }, PARENT_CHECK_MS);
    timer.unref();
  });
}
