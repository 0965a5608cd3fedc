import type { RefusedClient } from "../base/alerts.ts";
import { endWithin, STOP_LIMIT } from "../base/grace-periods.ts";
import { settlesWithin } from "../base/clock.ts";
import { checkServerNames } from "../manifest/problems.ts";
import { HubError, usageError } from "../base/errors.ts";
import { SHARED_ENDPOINT, STDIO_ENDPOINT } from "../base/hub-endpoints.ts";
import { isLoopback } from "../base/loopback.ts";
import type { Hub } from "../hub/hub.ts";
import process from "node:process";
import type { HttpSettings, RunningHttpServer, ServedHub } from "../frontend/http/server.ts";
import { StdioServerTransport } from "../frontend/stdio.ts";
import type { Exposure } from "../manifest/exposures.ts";
import { type Manifest, messageLimit } from "../manifest/manifest.ts";
import { PARENT_VARIABLE, untilParentGone } from "../process/parent-process.ts";
import { describeModeFault } from "../manifest/modes.ts";
import type { ManifestWatcher } from "../manifest/watch.ts";
import { type HttpAddress, withManifestToken } from "./http-address.ts";
import {
  type CommandLog,
  type ManifestWithHashes,
  loadOptions,
} from "../operations/load-manifest.ts";
import type { HostContext } from "./context.ts";
import type { ManifestChoice } from "../operations/context.ts";
import type { MinimumApproval } from "../approval/policy.ts";
import type { LogLevel } from "../base/hub-events.ts";
import { eventKindsAtLevel, makeLogRecord } from "../terminal/log.ts";
import { openHub, openSnapshots, type PluginSetup } from "./open-hub.ts";
import type { ReloadableHub } from "./reload.ts";
import type { HubRecording, RecordingRequest } from "./recording.ts";
import type { FleetDocument } from "../control/schemas.ts";
import type { ServerSubset } from "../upstream/profile.ts";
import type { Control } from "./control.ts";
import type { SharedHub } from "./shared-hub.ts";
import type { HubDashboard, ServedDashboard } from "./dashboard.ts";

/** Delay of work that can wait until the first response is sent, such as watching the manifest, in ms. */
const BACKGROUND_DELAY = 100;
/**
 * Delays before the control socket is opened, in ms: `afterClient` after the first client has initialized, so that
 * the response to the client is sent first; or `afterStart` after the start of the hub, if that is earlier. The
 * control socket of a shared hub is opened as soon as clients can attach: whoever finds the one may use the other.
 */
const CONTROL_DELAY = { afterClient: 20, afterStart: 1000 };
/** `HubOptions.startDelay`: most clients ask for a list a few ms after the answer to `initialize`. */
const START_DELAY = 50;

const NO_TOKEN_WARNING =
  "no token is required: every user of this machine can call every tool; --token auto creates a token";

/** Receives what people are told of a hub besides its log. Who passes it decides where and how that is shown. */
export interface HostNotices {
  /** The HTTP server of the hub accepts requests. */
  onListening(url: string, address: HttpAddress, manifest: Manifest): Promise<void>;
  /** The dashboard of the hub is served. */
  onDashboard(dashboard: ServedDashboard): Promise<void>;
  /** Other processes can attach clients to the hub. @param path the path of its attach socket */
  onShared(path: string, manifest: Manifest): void;
  /** The hub waits for a client on stdin. */
  onStdio(manifest: Manifest): Promise<void>;
}

export interface ServeOptions {
  readonly context: HostContext;
  readonly log: CommandLog;
  /** The level from which on events of the hub are logged. */
  readonly logLevel: LogLevel;
  readonly notices: HostNotices;
  /** The manifests, which are read again when they change. */
  readonly choice: ManifestChoice;
  readonly loaded: ManifestWithHashes;
  /** The HTTP address, without the token of the manifest; if undefined, the hub serves only stdio. */
  readonly requestedAddress: HttpAddress | undefined;
  /** Whether a hub with an HTTP address serves stdio, too. */
  readonly stdio: boolean;
  /** The mode that all clients are limited to. */
  readonly mode: string | undefined;
  /** The form in which clients get their tools, in place of `hub.expose`. */
  readonly expose?: Exposure | undefined;
  /** The servers that clients see; undefined: all. */
  readonly subset: ServerSubset | undefined;
  readonly dashboard: boolean;
  readonly recording: RecordingRequest | undefined;
  readonly minimumApproval: MinimumApproval | undefined;
  /** Present: the hub serves the clients that other processes attach to it, and none on stdio. */
  readonly shared?: ServeSharedOptions | undefined;
  readonly changes?: ManifestChanges | undefined;
}

export interface ServeSharedOptions {
  /** Whether the hub ends when it has had no client for `hub.linger`. */
  readonly endsWithoutClients: boolean;
}

/** What a hub without a fleet says of it. */
const NO_FLEET: FleetDocument = {
  isConfigured: false,
  url: [],
  denied: [],
  exported: [],
  requests: { total: 0, refused: 0, open: 0 },
  machines: [],
  imported: [],
};

/** Changes that a command makes to the manifest that it serves. */
export interface ManifestChanges {
  readonly prepare: (manifest: Manifest) => Manifest;
  /** Whether there may be no manifest at all. */
  readonly mayBeAbsent: boolean;
}

/** The clients of `[[clients]]`, and those whose tokens are refused. */
interface FoundClients {
  readonly clients: HttpSettings["clients"];
  readonly refused: readonly RefusedClient[];
}

/**
 * Serves clients with the servers of a manifest, until a signal, the control API or the end of the stdio client ends
 * the hub, or, if it is shared, until it has had no client for some time.
 * @returns whether the hub ended without a defect in the handling of its stdio client
 */
export async function serveHub(options: ServeOptions): Promise<boolean> {
  const { context, log, notices, loaded, requestedAddress, mode, subset, changes } = options;
  const faultOf = ({ modes = [] }: Manifest): string | undefined =>
    mode === undefined ? undefined : describeModeFault(mode, modes);
  const fault = faultOf(loaded.manifest);
  if (fault !== undefined) throw usageError(fault);
  const { httpToken, clients: named = [] } = loaded.manifest;
  const address =
    requestedAddress &&
    (await withManifestToken(requestedAddress, httpToken, context, named.length > 0));
  const findClients = async (manifest: Manifest): Promise<FoundClients> => {
    const refused: RefusedClient[] = [];
    if (address === undefined || (manifest.clients ?? []).length === 0)
      return { clients: undefined, refused };
    const { resolveHttpClients } = await import("../hub/http-clients.ts");
    const found = await resolveHttpClients(manifest, context, (text, client) => {
      log("warn", text);
      refused.push({ client, text: `${text.charAt(0).toUpperCase()}${text.slice(1)}.` });
    });
    return { clients: found, refused };
  };
  const { clients, refused: refusedAtStart } = await findClients(loaded.manifest);
  if (address !== undefined && address.token === undefined && clients === undefined)
    log("warn", NO_TOKEN_WARNING);
  if (options.dashboard) requireDashboardAddress(address, loaded.manifest);
  const recording = await openRequestedRecording(options, address);
  let holders = clients;
  let shared: SharedHub | undefined;
  const opened = await openHub(loaded.manifest, context, log, {
    kinds: eventKindsAtLevel(options.logLevel),
    snapshots: openSnapshots(context, log, "exact"),
    startDelay: START_DELAY,
    makeTransportWrapper: recording?.makeTransportWrapper,
    secrets: [address?.token, ...(clients ?? []).map(({ token }) => token)].filter(
      (token) => token !== undefined,
    ),
    mode,
    expose: options.expose,
    ...(loaded.manifest.hub.control && {
      isWatchable: true,
      keepsEvents: true,
      howToBeAsked: `start "toolmux approvals --watch --hub ${process.pid}" in a terminal`,
    }),
    minimumApproval: options.minimumApproval,
    telemetry: "ofHub",
    prepare: changes?.prepare,
    ...(options.shared !== undefined && {
      isShared: true,
      sweepsFirst: true,
      hubsAbove: () => shared?.outerHubs ?? [],
    }),
    openAgents: async (agentOptions) => {
      const { openClientAgents } = await import("./client-agents.ts");
      const { DEFAULT_PRINCIPAL } = await import("../frontend/http/principals.ts");
      const tokenOf = (name: string): string | undefined =>
        name === DEFAULT_PRINCIPAL
          ? address?.token
          : holders?.find((holder) => holder.name === name)?.token;
      return openClientAgents({ ...agentOptions, tokenOf });
    },
    choose: (manifest) => {
      checkServerNames(
        subset?.names ?? [],
        manifest.servers.map(({ name }) => name),
      );
      return manifest;
    },
  });
  const { hub, close } = opened;
  hub.setRefusedClients(refusedAtStart);
  const startedAt = Date.now();
  recording?.manifest(opened.manifest);
  const limit = messageLimit(loaded.manifest);
  const isOnStdio = options.shared === undefined && (address === undefined || options.stdio);
  const stopped = Promise.withResolvers<void>();
  let hasFailed = false;
  let isEnding = false;
  const ended = (why: string) => (): void => {
    if (!isEnding) log("info", `the hub ends: ${why}`);
    isEnding = true;
  };
  const endings = [
    untilSignal(context.signal).then(ended("a signal has arrived")),
    stopped.promise.then(ended("it was stopped through the control API")),
  ];
  const stdio = isOnStdio ? new StdioServerTransport(limit) : undefined;
  if (stdio !== undefined) {
    const accepted = hub
      .accept(recording?.recordClient(stdio) ?? stdio, context.signal, { subset, kind: "stdio" })
      .then(() => {
        if (stdio.fault === undefined) return undefined;
        log("error", `The connection of the client on stdio was ended: ${stdio.fault}`);
        hasFailed = true;
        // A defect in the handling of this client does not end the hub for those on HTTP.
        return address === undefined ? undefined : new Promise<void>(() => {});
      });
    endings.push(
      accepted.then(ended("the client on stdio has left")),
      untilParentGone().then(ended("its parent process has ended")),
    );
  } else if (context.env[PARENT_VARIABLE] === String(process.ppid))
    endings.push(untilParentGone().then(ended("the dashboard that has started it has ended")));
  let inForce = loaded.manifest;
  const isOfFleet = (): boolean => inForce.fleet !== undefined;
  let isClosing = false;
  let watcher: ManifestWatcher | undefined;
  const isWatching = Promise.withResolvers<void>();
  const checkManifest = (): void => void watcher?.check();
  // A hub that serves no client on stdio outlives its terminal, so SIGHUP reloads its manifest. A hub on stdio ends at SIGHUP.
  if (!isOnStdio) context.hangupHandlers.add(checkManifest);
  const followChanges = async (): Promise<void> => {
    const { followManifest } = await import("./reload.ts");
    if (isClosing) return;
    const setUpPlugins: PluginSetup = async (manifest, current) => {
      const prepared = await opened.setUpPlugins(manifest, current);
      if (prepared.ok) recording?.manifest(prepared.manifest);
      return prepared;
    };
    const loading = {
      ...loadOptions(options.choice, context),
      runningPrefixes: () => hub.prefixes,
    };
    const prepare: ReloadableHub["prepare"] = async (manifest) => {
      const missing = faultOf(manifest);
      if (missing !== undefined)
        return { refusal: `toolmux was started with --mode ${mode}. ${missing}` };
      const { clients: next, refused } = await findClients(manifest);
      opened.addSecrets((next ?? []).map(({ token }) => token));
      return () => {
        shared?.setManifest(manifest);
        httpServer?.setClients(next);
        holders = next;
        hub.setRefusedClients(refused);
        const wasOfFleet = isOfFleet();
        inForce = manifest;
        if (wasOfFleet || isOfFleet())
          void opened.openFleet().then((fleet) => fleet.configure(manifest, hub));
      };
    };
    const { configureTelemetry } = opened;
    const reloadable = { hub, setUpPlugins, prepare, configureTelemetry };
    watcher = followManifest(reloadable, loading, loaded, log);
    isWatching.resolve();
    if (isOnStdio) await notices.onStdio(loaded.manifest);
    warnUnsupported(loaded.manifest, log);
  };
  setTimeout(() => void followChanges(), BACKGROUND_DELAY).unref();
  let httpServer: RunningHttpServer | undefined;
  const controlDelay = options.shared === undefined ? CONTROL_DELAY.afterStart : undefined;
  const control = openControlLater(hub, loaded.manifest, controlDelay, async () => {
    const { openControl } = await import("./control.ts");
    return openControl({
      hub,
      manifest: loaded.manifest,
      choice: options.choice,
      context,
      log,
      startedAt,
      maxMessage: limit,
      redact: opened.redact,
      takeEvents: opened.takeEvents,
      endpoints: () => [
        ...(isOnStdio ? [STDIO_ENDPOINT] : []),
        ...(options.shared === undefined ? [] : [SHARED_ENDPOINT]),
        ...(httpServer ? [httpServer.url] : []),
      ],
      describeFleetServer: async (spec) => {
        const { describeFleetServer } = await import("./fleet-document.ts");
        return describeFleetServer(await opened.openFleet(), spec);
      },
      fleet: async (pings) => {
        if (!isOfFleet()) return NO_FLEET;
        const { describeFleet } = await import("./fleet-document.ts");
        return describeFleet(await opened.openFleet(), hub, pings);
      },
      reload: async () => {
        await isWatching.promise;
        await watcher?.check();
      },
      stop: (drain) => {
        if (shared === undefined || drain === undefined) stopped.resolve();
        else void shared.drain(drain).then(() => stopped.resolve());
      },
    });
  });
  let ownDashboard: HubDashboard | undefined;
  try {
    if (options.dashboard) {
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
        metrics: {
          isServed: () => hub.servesMetrics,
          read: (accept) => hub.readMetrics(accept),
        },
        logFault: (text) => log("error", text),
        isTracing: () => hub.tracer !== undefined,
        ...(ownDashboard !== undefined && { mounted: ownDashboard }),
      }).catch(async (error: unknown) => {
        const { listenErrorOf } = await import("./listen-error.ts");
        throw await listenErrorOf(address, error, context);
      });
    }
    if (loaded.manifest.fleet !== undefined) {
      const fleet = await opened.openFleet();
      fleet.join(hub);
    }
    if (httpServer !== undefined && address !== undefined) {
      hub.startEarly(subset);
      await notices.onListening(httpServer.url, address, loaded.manifest);
      const served = await ownDashboard?.publish(httpServer.url, (text) => log("warn", text));
      if (served !== undefined) await notices.onDashboard(served);
    }
    if (options.shared !== undefined) {
      const { openSharedHub } = await import("./shared-hub.ts");
      shared = await openSharedHub({
        ...options.shared,
        hub,
        manifest: loaded.manifest,
        context,
        log,
        signal: context.signal,
        maxMessage: limit,
      });
      endings.push(shared.ended.then((why) => ended(why)()));
      notices.onShared(shared.path, loaded.manifest);
      if (loaded.manifest.hub.control) void control.open();
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
      await shared?.close();
      await ownDashboard?.close();
      await httpServer?.close();
      await close();
      await controlClosed;
    };
    await closeBefore(stdio?.inputEndedAt, closeAll);
    await recording?.close();
  }
  if (stdio?.outputError !== undefined) throw stdio.outputError;
  return !hasFailed;
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
 * @param delay time after which it is opened at the latest, in ms; undefined: when a client comes, or `open` is called
 * @param open opens the control API; never rejects
 */
function openControlLater(
  hub: Hub,
  { hub: { control: isWanted } }: Manifest,
  delay: number | undefined,
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
  const timer = delay === undefined ? undefined : setTimeout(beginLater, delay);
  timer?.unref();
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

/** Opens the recording, if one is asked for. Otherwise the code for recordings is not loaded. */
async function openRequestedRecording(
  { recording, context, log }: ServeOptions,
  address: HttpAddress | undefined,
): Promise<HubRecording | undefined> {
  if (recording === undefined) return undefined;
  const { openHubRecording: open } = await import("./recording.ts");
  const secrets = address?.token === undefined ? [] : [address.token];
  return open(recording, context, secrets, (text) => log("warn", text));
}

/** Starts the HTTP server. Its code is loaded here, so a hub on stdio starts without it. */
async function startHttp(hub: ServedHub, settings: HttpSettings): Promise<RunningHttpServer> {
  const { startHttpServer } = await import("../frontend/http/server.ts");
  return startHttpServer(hub, settings);
}

function warnUnsupported({ servers }: Manifest, log: CommandLog): void {
  for (const spec of servers) {
    if (spec.kind !== "unsupported" || !spec.enabled) continue;
    const text = `this server cannot be used: ${spec.reason}`;
    log("warn", makeLogRecord("warn", text, { server: spec.name }));
  }
}

export function untilSignal(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (signal.aborted) resolve();
  });
}
