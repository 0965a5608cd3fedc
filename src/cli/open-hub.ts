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

/** For what can wait until the hub has started its servers, in ms. */
const SETTLING = 100;

/**
 * Ends, beside the work of a hub, what other hubs have left behind because they were killed.
 * @param tell is given the number of processes, if there were any
 * @returns what closes the hub and waits for both, STOP_LIMIT at most
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
    // What has not ended by then ends with this process.
    await settlesWithin(STOP_LIMIT, Promise.all([hub.close(), begin()]));
  };
}

async function sweep(tell: (count: number) => void): Promise<void> {
  // Whatever deals with processes is loaded after the first answer to the client.
  const { sweepOrphans } = await import("../process/orphans.ts");
  const count = await sweepOrphans();
  if (count > 0) tell(count);
}

export interface OpenHubOptions {
  /** The events that are logged; by default only what the servers and the hub say, as commands tell the rest. */
  readonly kinds?: readonly EventKind[];
  /** What is remembered of servers; by default nothing, as commands tell what servers say now. */
  readonly snapshots?: Snapshots;
  /** What of the manifest is wanted, its plugins' servers included; by default all. May throw. */
  readonly choose?: (manifest: Manifest) => Manifest;
  /** Whether servers may be authorized, with a person's help if need be; true by default. */
  readonly authorizes?: boolean;
  /** Makes what is put into every server's link. @param redact takes out of a text what must not be shown */
  readonly openTap?: ((redact: (text: string) => string) => TransportWrapper) | undefined;
  /** What is not shown beside what the servers were given. */
  readonly secrets?: readonly string[];
  /** What gives the hub its servers; by default what the manifest says. */
  readonly outside?: TransportFactory;
}

/** A hub, and how whoever opened it closes it. */
export interface OpenedHub {
  readonly hub: Hub;
  readonly bus: EventBus;
  /** The manifest in force, the servers of its plugins included. */
  readonly manifest: Manifest;
  readonly equip: PluginSetup;
  /** Takes out of a text whatever was filled in for any server so far and must not be shown. */
  readonly redact: (text: string) => string;
  /** Ends the hub with all that belongs to it; to be called however its work went. */
  readonly close: () => Promise<void>;
}

/**
 * Sets up a manifest's plugins, unless they are those in force, which `stay`. A manifest without plugins has no set of them.
 * Never rejects.
 */
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
 * Makes a hub, which starts its servers when its first client has come.
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

/** Keeps listings in the state folder. Whatever touches the disk is loaded after the first answer to the client. */
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

/** Needed only for names that have to be shortened, so it is loaded only then. */
function digest(text: string): Uint8Array {
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(text).digest();
}
