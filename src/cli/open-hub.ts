import process from "node:process";
import type { Authorizer } from "../auth/authorizer.ts";
import { settlesWithin, STOP_LIMIT } from "../base/clock.ts";
import { EventBus, type EventKind, type HubEvent } from "../base/events.ts";
import { stateFolder } from "../base/paths.ts";
import { Hub } from "../hub/hub.ts";
import type { TransportWrapper } from "../hub/options.ts";
import { manifestError } from "../manifest/problems.ts";
import type { Manifest } from "../manifest/schema.ts";
import type { PluginSet } from "../plugin/plugin-set.ts";
import type { PreparedManifest } from "../plugin/setup.ts";
import { memorySnapshots, type Snapshots } from "../snapshot/snapshots.ts";
import { makeLogRecord, recordOfEvent, redactRecord } from "../terminal/log.ts";
import { redirectConsole } from "../terminal/stderr.ts";
import { Redactor } from "../transport/redact.ts";
import type { CommandContext } from "./command.ts";
import { listHubs, refuseLoop } from "./hub-loop.ts";
import type { CommandLog } from "./load-manifest.ts";
import { openTransportFactory, type TransportFactory } from "./transport-factory.ts";

/** Delay, in ms, so that the hub starts its servers first. */
const SETTLING = 100;

/**
 * Ends orphaned processes of killed hubs in the background.
 * @param tell receives the number of ended processes, if there were any
 * @returns closes the hub and waits for both, STOP_LIMIT at most
 */
export function sweepOrphansInBackground(
  hub: Hub,
  tell: (count: number) => void,
): () => Promise<void> {
  let sweeping: Promise<void> | undefined;
  const begin = (): Promise<void> => (sweeping ??= sweep(tell));
  const timer = setTimeout(() => void begin(), SETTLING);
  timer.unref();
  return async () => {
    clearTimeout(timer);
    // What is still running then ends with this process.
    await settlesWithin(STOP_LIMIT, Promise.all([hub.close(), begin()]));
  };
}

async function sweep(tell: (count: number) => void): Promise<void> {
  // Process modules are loaded after the client's first response.
  const { sweepOrphans } = await import("../process/orphans.ts");
  const count = await sweepOrphans();
  if (count > 0) tell(count);
}

export interface OpenHubOptions {
  /** Kinds of events to log; by default only log events, because commands print the rest themselves. */
  readonly kinds?: readonly EventKind[];
  /** Stored listings; by default none, because commands print what servers say now. */
  readonly snapshots?: Snapshots;
  /** Selects from the manifest, including servers of its plugins; by default all. May throw. */
  readonly choose?: (manifest: Manifest) => Manifest;
  /** Whether servers may be authorized, with the user's help if need be; default true. */
  readonly authorizes?: boolean;
  /** Makes the wrapper of every server's transport. @param redact removes secrets from a text */
  readonly openTap?: ((redact: (text: string) => string) => TransportWrapper) | undefined;
  /** Additional values to redact. */
  readonly secrets?: readonly string[];
  /** Creates the transports of servers; by default as the manifest says. */
  readonly outside?: TransportFactory;
}

/** An open hub, and how to close it. */
export interface OpenedHub {
  readonly hub: Hub;
  readonly bus: EventBus;
  /** The manifest in force, including the servers of its plugins. */
  readonly manifest: Manifest;
  readonly equip: PluginSetup;
  /** Redacts all resolved secrets of servers so far. */
  readonly redact: (text: string) => string;
  /** Closes the hub and everything that belongs to it; must be called in any case. */
  readonly close: () => Promise<void>;
}

/** Sets up a manifest's plugins; with `stay`, keeps that set. Without plugins there is no set. Never rejects. */
export type PluginSetup = (
  manifest: Manifest,
  stay?: PluginSet,
) => Promise<PreparedManifest | Bare>;

interface Bare {
  readonly ok: true;
  readonly manifest: Manifest;
  readonly plugins: undefined;
}

/**
 * Opens a hub, which starts its servers when its first client connects.
 * @throws {HubError} manifestInvalid if a plugin cannot be set up; hubLoop
 */
export async function openHub(
  whole: Manifest,
  world: CommandContext,
  tell: CommandLog,
  {
    kinds = ["log"],
    snapshots = memorySnapshots(),
    choose = (it) => it,
    authorizes = true,
    openTap,
    secrets = [],
    outside: given,
  }: OpenHubOptions = {},
): Promise<OpenedHub> {
  const { env, platform, claims } = world;
  await refuseLoop(whole, env, 1);
  const openAuthorizer = async (): Promise<Authorizer> => {
    const { openUserAuthorizer, showLoginPage } = await import("./transport-factory.ts");
    const show = showLoginPage(world, (level, text, server) =>
      log(level, makeLogRecord(level, text, { server })),
    );
    return openUserAuthorizer(world, show);
  };
  const {
    redact: redactFilled,
    authorize,
    finish,
    ...outside
  } = given ?? openTransportFactory(world, openAuthorizer, () => listHubs(whole, env));
  const redactor = new Redactor(secrets);
  const redact = (text: string): string => redactFilled(redactor.apply(text));
  const log: CommandLog = (level, what) => {
    tell(level, typeof what === "string" ? redact(what) : redactRecord(what, redact));
  };
  const bus = new EventBus();
  bus.subscribe((event) => tellEvent(event, log), kinds);
  let restore: (() => void) | undefined;
  const equip: PluginSetup = async (wanted, stay) => {
    if (wanted.plugins.length === 0) return { ok: true, manifest: wanted, plugins: undefined };
    restore ??= redirectConsole(log);
    const { reusePlugins, setUpPlugins } = await import("../plugin/setup.ts");
    if (stay !== undefined) return reusePlugins(wanted, stay);
    return setUpPlugins(wanted, { bus, env, stateFolder: stateFolder(env, platform) });
  };
  const equipped = await equip(whole);
  if (!equipped.ok) throw manifestError(equipped.problems);
  const { plugins } = equipped;
  let manifest: Manifest;
  try {
    manifest = choose(equipped.manifest);
  } catch (error) {
    await plugins?.dispose();
    throw error;
  }
  const hub = new Hub({
    manifest,
    bus,
    digest,
    snapshots,
    plugins,
    redact,
    tap: openTap?.(redact),
    ...outside,
    ...(authorizes && authorize && { authorize }),
  });
  const claim = (error: unknown): boolean => hub.activePlugins.claim(error);
  claims.add(claim);
  const end = sweepOrphansInBackground(hub, (count) => {
    log("info", `${count} processes of a hub that was killed were ended`);
  });
  const close = async (): Promise<void> => {
    try {
      await Promise.all([end(), finish()]);
    } finally {
      claims.delete(claim);
      restore?.();
    }
  };
  return { hub, bus, manifest, equip, redact, close };
}

/** Snapshots in the state folder. Disk access is loaded after the client's first response. */
export function openSnapshots({ env, platform }: CommandContext, log: CommandLog): Snapshots {
  let disk: Promise<Snapshots> | undefined;
  const open = async (): Promise<Snapshots> => {
    const { diskSnapshots } = await import("../snapshot/disk.ts");
    const warn = (text: string): void => log("warn", text);
    return diskSnapshots({ folder: stateFolder(env, platform), now: Date.now, warn });
  };
  const snapshots = (): Promise<Snapshots> => (disk ??= open());
  return {
    load: async (subject) => (await snapshots()).load(subject),
    save: async (subject, items, verdict) => (await snapshots()).save(subject, items, verdict),
    flush: async () => (await disk)?.flush(),
  };
}

function tellEvent(event: HubEvent, log: CommandLog): void {
  const record = recordOfEvent(event, Date.now());
  if (record !== undefined) log(record.level, record);
}

/** Hash for truncated names; loaded only if one is needed. */
function digest(text: string): Uint8Array {
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(text).digest();
}
