/**
 * host/: opens a hub in this process and serves it. `open-hub.ts` opens it, `serve-hub.ts` serves it until it ends: on
 * stdio and HTTP, with its control API (`control.ts`, `hub-setup.ts`), dashboard, recording and reloads. `agents.ts`
 * opens agents for a person at a terminal, for clients and for the control API. `nesting.ts` keeps hubs from starting
 * each other; `doctor/` has the checks of `toolmux doctor`. Nothing here reads the command line or prints: a command
 * passes typed options and gets notices. Main types: `OpenedHub`, below, and `HostContext` (`context.ts`). Start here
 * with `openHub`, then read `serve-hub.ts`.
 */
import { sha256 } from "../base/bytes.ts";
import { count } from "../base/format.ts";
import type { MinimumApproval } from "../approval/policy.ts";
import type { Authorizer } from "../auth/authorizer.ts";
import { STOP_LIMIT } from "../base/grace-periods.ts";
import { settlesWithin, systemClock } from "../base/clock.ts";
import {
  type DeliveredEvent,
  EventBus,
  type EventKind,
  keepEvents,
  OTHER_KINDS,
} from "../base/hub-events.ts";
import { stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { Hub } from "../hub/hub.ts";
import type { TransportWrapper } from "../hub/options.ts";
import { manifestError } from "../manifest/problems.ts";
import type { Exposure } from "../manifest/exposures.ts";
import { manifestIdentity } from "../manifest/identity.ts";
import { isRunnable, type Manifest } from "../manifest/manifest.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { PreparedManifest } from "../plugin/setup.ts";
import { diskSnapshots } from "../snapshot/disk.ts";
import { memorySnapshots, type Snapshots } from "../snapshot/snapshots.ts";
import { makeLogRecord, openEventRecorder, redactRecord } from "../terminal/log.ts";
import { redirectConsole } from "../terminal/stderr.ts";
import { Redactor } from "../transport/redact.ts";
import type { ClientAgents } from "../agent-tools/agent-tools.ts";
import { HubError } from "../base/errors.ts";
import type { ClientAgentsOptions } from "./client-agents.ts";
import type { HostContext } from "./context.ts";
import type { OpenTelemetryOptions, RunningTelemetry } from "./telemetry.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import type { Fleet } from "./fleet.ts";
import { hubListFor, checkHubLoop } from "./nesting.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import type { OuterHub } from "../process/outer-hubs.ts";
import { openTransportFactory, type TransportFactory } from "../hub/transport-factory.ts";

/** Delay before the hub looks for orphaned processes, in ms, so that it starts its servers first. */
const SWEEP_DELAY = 100;

/**
 * Ends orphans in the background: processes that killed hubs have left.
 * @param onEnded receives the number of ended processes, if there were any
 * @returns a function that closes the hub and ends the remaining orphans; it waits at most STOP_LIMIT ms
 */
function sweepOrphansInBackground(hub: Hub, onEnded: (ended: number) => void): () => Promise<void> {
  let sweeping: Promise<void> | undefined;
  const startSweep = (): Promise<void> => (sweeping ??= sweepOrphans(onEnded));
  const timer = setTimeout(() => void startSweep(), SWEEP_DELAY);
  timer.unref();
  return async () => {
    clearTimeout(timer);
    // Waits at most STOP_LIMIT. Work that is not finished by then is abandoned, because the process exits.
    await settlesWithin(STOP_LIMIT, Promise.all([hub.close(), startSweep()]));
  };
}

async function sweepOrphans(onEnded: (ended: number) => void): Promise<void> {
  // The code for processes is loaded here, after the client's first response, so that it does not delay that response.
  const { sweepOrphans: sweep } = await import("../process/orphans.ts");
  const ended = await sweep();
  if (ended > 0) onEnded(ended);
}

/**
 * Opens the saved listings of servers (what they listed in earlier runs). All commands and hubs of this user share
 * them.
 * @param reads `exact`: prefers the listing made for clients of the same era and capabilities, for a hub; `newest`:
 * takes the newest listing, for a command that shows it; `nothing`: for a command that asks the servers and only
 * saves their listings
 */
export function openSnapshots(
  { env, platform }: SystemEnvironment,
  log: CommandLog,
  reads: "exact" | "newest" | "nothing",
): Snapshots {
  const snapshots = diskSnapshots({
    folder: stateFolder(env, platform),
    now: Date.now,
    warn: (text) => log("warn", text),
    prefersNewest: reads === "newest",
  });
  if (reads !== "nothing") return snapshots;
  return {
    load: () => Promise.resolve(undefined),
    save: (key, listing, detectedEra) => snapshots.save(key, listing, detectedEra),
    flush: () => snapshots.flush(),
  };
}

/** Makes all servers lazy: they are started only when they are used, or when their listing is unknown. */
export function withoutEarlyStarts(manifest: Manifest): Manifest {
  const servers = manifest.servers.map((spec) =>
    isRunnable(spec) ? { ...spec, lazy: true } : spec,
  );
  return { ...manifest, servers };
}

/** Maximum number of events that are kept until the control API is opened, about a second after the start. */
const MAX_EARLY_EVENTS = 4096;

/** `HubOptions.howToBeAsked` of a command that calls tools in its own process. */
export const IN_A_TERMINAL = "run the command in a terminal";

export interface OpenHubOptions {
  /**
   * Kinds of events that are logged. By default only log events, because commands print the other information
   * themselves.
   */
  readonly kinds?: readonly EventKind[];
  /** Whether notes on what servers list are logged; default true. */
  readonly logsNotes?: boolean;
  /** Saved listings of servers. By default none, because commands print what servers list at present. */
  readonly snapshots?: Snapshots;
  /**
   * Selects the servers to use, from a manifest that includes the servers of plugins. By default all are used. May
   * throw.
   */
  readonly choose?: (manifest: Manifest) => Manifest;
  /** Opens the agents of the plugin `agents`; by default none can be used. */
  readonly openAgents?: ((options: ClientAgentsOptions) => Promise<ClientAgents>) | undefined;
  /** Changes each manifest before its plugins are set up. */
  readonly prepare?: ((manifest: Manifest) => Manifest) | undefined;
  /** See `HubOptions`. */
  readonly startDelay?: number | undefined;
  /** Whether the hub may authorize itself at servers, such as by a login in the user's browser; default true. */
  readonly authorizes?: boolean;
  /** Makes the wrapper that every server's transport gets. @param redact removes secrets from a text */
  readonly makeTransportWrapper?:
    ((redact: (text: string) => string) => TransportWrapper) | undefined;
  /** The minimum level of approvals from the command line. It can only raise the levels of the manifest. */
  readonly minimumApproval?: MinimumApproval | undefined;
  /** See `HubOptions`. */
  readonly howToBeAsked?: string | undefined;
  readonly isWatchable?: boolean | undefined;
  readonly isShared?: boolean | undefined;
  /**
   * Whether no server is started before the processes of killed hubs have ended: this hub takes the place of one that was
   * killed. Default: false, they are ended in the background.
   */
  readonly sweepsFirst?: boolean;
  /** Further hubs above this one, which its servers must not start: those above the clients of a shared hub. */
  readonly hubsAbove?: () => readonly OuterHub[];
  /** Whether the events from the start are kept until `OpenedHub.takeEvents`; default false. */
  readonly keepsEvents?: boolean;
  /** The name of a mode that all clients on stdio and HTTP are limited to. */
  readonly mode?: string | undefined;
  /** The form in which clients on stdio and HTTP get their tools, in place of `hub.expose`. */
  readonly expose?: Exposure | undefined;
  /** Values to redact, in addition to the resolved secrets of servers. */
  readonly secrets?: readonly string[];
  /** Creates the transports of servers; by default as the manifest says. */
  readonly transportFactory?: TransportFactory;
  /**
   * What sends traces and metrics: what the hub opens, if the manifest or the environment says where to; or what agents
   * have opened, who close it. Default: nothing is sent.
   */
  readonly telemetry?:
    "ofHub" | "ofCommand" | { readonly ofAgents: RunningTelemetry | undefined } | undefined;
}

/** An open hub, and how to close it. */
export interface OpenedHub {
  readonly hub: Hub;
  readonly bus: EventBus;
  /** The manifest in force, including the servers of its plugins. */
  readonly manifest: Manifest;
  readonly setUpPlugins: PluginSetup;
  /** Removes from a text all secrets that were resolved for servers so far. */
  readonly redact: (text: string) => string;
  /** Adds values to redact. */
  readonly addSecrets: (secrets: readonly string[]) => void;
  /** Takes the events that were kept, the oldest first; from then on, none are kept. */
  readonly takeEvents: () => readonly DeliveredEvent[];
  /** What the hub sends to a collector; undefined if neither the manifest nor the environment mentions it. */
  readonly telemetry: RunningTelemetry | undefined;
  /** Applies what another manifest says of traces and metrics. Never rejects. */
  readonly configureTelemetry: (manifest: Manifest) => Promise<void>;
  /** The hub as a member of its fleet. Its code is loaded here. */
  readonly openFleet: () => Promise<Fleet>;
  /** Closes the hub and everything that belongs to it; must be called in any case. */
  readonly close: () => Promise<void>;
}

/** Sets up the plugins of a manifest, or reuses the plugins `current` for it if they are given. Never rejects. */
export type PluginSetup = (
  manifest: Manifest,
  current?: PluginSet,
) => Promise<PreparedManifest | PluginlessSetup>;

interface PluginlessSetup {
  readonly ok: true;
  readonly manifest: Manifest;
  readonly plugins: undefined;
}

/**
 * Opens a hub, which starts its servers when its first client connects.
 * @throws {HubError} manifestInvalid if a plugin cannot be set up; hubLoop
 */
export async function openHub(
  loaded: Manifest,
  context: HostContext,
  print: CommandLog,
  {
    kinds = ["log"],
    logsNotes = true,
    snapshots = memorySnapshots(),
    choose = (it) => it,
    prepare = (it) => it,
    openAgents,
    startDelay,
    authorizes = true,
    makeTransportWrapper,
    mode,
    expose,
    secrets = [],
    minimumApproval,
    howToBeAsked,
    isWatchable,
    isShared,
    sweepsFirst = false,
    hubsAbove = () => [],
    keepsEvents = false,
    transportFactory: ownFactory,
    telemetry: sending,
  }: OpenHubOptions = {},
): Promise<OpenedHub> {
  const { env, platform, uncaughtErrorHandlers } = context;
  await checkHubLoop(loaded, env, 1);
  const openAuthorizer = async (): Promise<Authorizer> => {
    const { openUserAuthorizer, showLoginPage } = await import("../hub/transport-factory.ts");
    const show = showLoginPage(context, (level, text, server) =>
      log(level, makeLogRecord(level, text, { server })),
    );
    return openUserAuthorizer(context, show);
  };
  const {
    redact: redactResolved,
    authorize,
    finish,
    ...transportFactory
  } = ownFactory ??
  openTransportFactory(context, openAuthorizer, () => hubListFor(loaded, env, hubsAbove()));
  const values = new Set(secrets);
  let redactor = new Redactor(secrets);
  const addSecrets = (more: readonly string[]): void => {
    if (more.every((value) => values.has(value))) return;
    for (const value of more) values.add(value);
    redactor = new Redactor([...values]);
  };
  const redact = (text: string): string => redactResolved(redactor.apply(text));
  const log: CommandLog = (level, what) => {
    print(level, typeof what === "string" ? redact(what) : redactRecord(what, redact));
  };
  const bus = new EventBus();
  const takeEvents = keepsEvents ? keepEvents(bus, OTHER_KINDS, MAX_EARLY_EVENTS) : () => [];
  const recordOf = openEventRecorder();
  let isOpen = false;
  bus.subscribe((event) => {
    // The servers with which a hub begins are no news.
    if (!isOpen && event.kind === "server") return;
    if (logsNotes || event.kind !== "log" || event.isNote !== true) {
      const record = recordOf(event, Date.now());
      if (record !== undefined) log(record.level, record);
    }
  }, kinds);
  let restore: (() => void) | undefined;
  let inForce = loaded;
  const sharedTelemetry = typeof sending === "object" ? sending.ofAgents : undefined;
  let telemetry = sharedTelemetry;
  const tracer = (): Tracer | undefined => telemetry?.current.tracer;
  const setUpAll: PluginSetup = async (given, current) => {
    const target = prepare(given);
    if (target.plugins.length === 0) return { ok: true, manifest: target, plugins: undefined };
    restore ??= redirectConsole(log);
    const { reusePlugins, setUpPlugins } = await import("../plugin/setup.ts");
    const { pluginLoaders } = await import("../agent-tools/built-in-plugins.ts");
    // Plugins may outlive the manifest that they were set up for. Their agents are always those of the latest
    // manifest.
    const before = inForce;
    inForce = target;
    const manifest = (): Manifest => inForce;
    const loaders = pluginLoaders(manifest, async () => {
      if (openAgents !== undefined)
        return openAgents({ manifest, context, log, clock: systemClock, redact, tracer });
      const text = "This command does not run agents as tools: a hub of toolmux serve does.";
      const hint = "To run one here: toolmux run AGENT MESSAGE";
      throw new HubError("notSupported", text, { hint });
    });
    const setUp = { bus, env, stateFolder: stateFolder(env, platform), loaders };
    const done = await (current === undefined
      ? setUpPlugins(target, setUp)
      : reusePlugins(target, current));
    if (!done.ok) inForce = before;
    return done;
  };
  let fleet: Fleet | undefined;
  const openFleet = async (): Promise<Fleet> => {
    const { Fleet: Member } = await import("./fleet.ts");
    fleet ??= new Member({
      context,
      manifest: loaded,
      log: (level, text) => bus.emit({ kind: "log", level, source: "hub", text }),
      emit: (event) => bus.emit(event),
      addSecrets,
    });
    return fleet;
  };
  const prepared = await setUpAll(loaded);
  if (!prepared.ok) throw manifestError(prepared.problems);
  const { plugins } = prepared;
  let manifest: Manifest;
  try {
    manifest = choose(prepared.manifest);
  } catch (error) {
    await plugins?.dispose();
    throw error;
  }
  const onSwept = (ended: number): void => {
    const verb = ended === 1 ? "was" : "were";
    log("info", `${count(ended, "process", "processes")} of a hub that was killed ${verb} ended`);
  };
  const configureTelemetry = async (next: Manifest): Promise<void> => {
    if (telemetry !== undefined) {
      await telemetry.configure(next);
      return;
    }
    const warn = (text: string): void =>
      bus.emit({ kind: "log", level: "warn", source: "hub", text });
    const options = { context, redact, addSecrets, warn };
    telemetry = await openMentionedTelemetry(next, options, sending === "ofCommand");
    telemetry?.follow({ bus, redact });
  };
  // It is opened before the hub, whose first events are those of its servers.
  if (sharedTelemetry !== undefined) sharedTelemetry.follow({ bus, redact });
  else if (sending === "ofHub" || sending === "ofCommand") await configureTelemetry(manifest);
  const swept = sweepsFirst ? sweepOrphans(onSwept) : undefined;
  const hub = new Hub({
    manifest,
    bus,
    digest: sha256,
    snapshots,
    plugins,
    redact,
    minimumApproval,
    startDelay,
    howToBeAsked,
    isWatchable,
    isShared,
    openApprovals: async () => {
      const { diskApprovals } = await import("../approval/disk.ts");
      return diskApprovals(stateFolder(env, platform));
    },
    openQuotas: async () => {
      const { diskQuotas } = await import("../limits/disk-quotas.ts");
      return diskQuotas(stateFolder(env, platform), await manifestIdentity(loaded, env));
    },
    openBaselines: async () => {
      const { diskBaselines } = await import("../pins/disk.ts");
      return diskBaselines(stateFolder(env, platform));
    },
    mode,
    expose,
    wrapTransport: makeTransportWrapper?.(redact),
    ...transportFactory,
    ...(swept !== undefined && {
      openTransport: async (...args) => {
        await swept;
        return transportFactory.openTransport(...args);
      },
    }),
    ...(authorizes && authorize && { authorize }),
    openFleetTransport: async (spec) => (await openFleet()).openTransport(spec),
  });
  isOpen = true;
  telemetry?.attach(hub);
  const handleUncaught = (error: unknown): boolean => hub.activePlugins.attributeError(error);
  uncaughtErrorHandlers.add(handleUncaught);
  const closeHub = sweepOrphansInBackground(hub, onSwept);
  const close = async (): Promise<void> => {
    try {
      // Requests of other hubs end before their servers do, and requests to other hubs before the connection to NATS.
      await fleet?.stopExporting();
      await Promise.all([closeHub(), finish()]);
      await fleet?.close();
      if (telemetry !== sharedTelemetry) await telemetry?.close();
    } finally {
      uncaughtErrorHandlers.delete(handleUncaught);
      restore?.();
    }
  };
  return {
    hub,
    bus,
    manifest,
    setUpPlugins: setUpAll,
    redact,
    addSecrets,
    takeEvents,
    get telemetry() {
      return telemetry;
    },
    configureTelemetry: async (next) => {
      if (sending !== "ofHub") return;
      const before = telemetry;
      await configureTelemetry(next);
      if (before === undefined) telemetry?.attach(hub);
    },
    openFleet,
    close,
  };
}

/** Variables that set where traces go. */
const COLLECTOR_VARIABLES = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/** The time for which a command sends at its end what waits for a collector, in ms; once it is interrupted, as a hub. */
const COMMAND_FLUSH_LIMIT = 2000;

/**
 * Opens what sends traces and metrics; its code is loaded only here. Never rejects.
 * @returns undefined if neither the manifest nor the environment says anything about telemetry
 */
export async function openMentionedTelemetry(
  manifest: Manifest,
  options: OpenTelemetryOptions & { readonly context: Pick<HostContext, "signal"> },
  isOfCommand: boolean,
): Promise<RunningTelemetry | undefined> {
  const { env, signal } = options.context;
  const isMentioned =
    manifest.telemetry !== undefined ||
    COLLECTOR_VARIABLES.some((name) => (env[name] ?? "") !== "");
  if (!isMentioned) return undefined;
  const { openTelemetry } = await import("./telemetry.ts");
  const lastFlush = (): number | undefined =>
    isOfCommand && !signal.aborted ? COMMAND_FLUSH_LIMIT : undefined;
  return openTelemetry(manifest, { ...options, lastFlush });
}

/** Opens a hub to try servers: it logs no events, starts no login, and uses no saved listings but saves new ones. */
export function openTrialHub(
  manifest: Manifest,
  context: HostContext,
  log: CommandLog,
): Promise<OpenedHub> {
  const snapshots = openSnapshots(context, log, "nothing");
  return openHub(manifest, context, log, { kinds: [], authorizes: false, snapshots });
}
