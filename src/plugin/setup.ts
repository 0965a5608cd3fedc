import { type Clock, systemClock } from "../base/clock.ts";
import type { EventBus, HubEvent, LogLevel } from "../base/events.ts";
import type { Env } from "../base/paths.ts";
import type { UnplacedProblem, Problem } from "../manifest/problems.ts";
import type { Manifest, PluginSpec } from "../manifest/schema.ts";
import { BUILT_IN_SCHEMES } from "../manifest/interpolate.ts";
import { settlesWithin } from "../base/grace.ts";
import type { Loaders } from "./builtin.ts";
import { describeFault } from "./errors.ts";
import { type HostParts, listen, makeHost } from "./host.ts";
import { type Loaded, loadPlugin } from "./load.ts";
import { Member } from "./instance.ts";
import type { Parts } from "./plugin.ts";
import {
  completeServers,
  failServers,
  type Fault,
  findMissing,
  findStrays,
  placeFaults,
  type ServerFault,
} from "./servers.ts";
import { disposeAll, PluginSet } from "./plugin-set.ts";

/** What plugins are set up with. */
export interface Surroundings {
  readonly bus: EventBus;
  readonly env: Env;
  /** The hub's state folder, absolute. */
  readonly stateFolder: string;
  readonly clock?: Clock;
  /** The built-in plugins. */
  readonly loaders?: Loaders;
  /** Time limit for a plugin's `setup`, in ms. */
  readonly setupLimit?: number;
}

/** A manifest with its plugins set up; it contains the plugins' servers. */
export type Equipped =
  | { readonly ok: true; readonly manifest: Manifest; readonly plugins: PluginSet }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/** Default time limit for a plugin's `setup`, in ms. */
const SETUP_LIMIT = 30_000;
/** Schemes of toolmux itself, and those with a meaning in other clients' files. */
const RESERVED = new Set(["env", "file", "input", ...BUILT_IN_SCHEMES]);

let sets = 0;
/** The log events of plugins; of all plugin sets, as two exist while one replaces the other. */
const echoes = new WeakSet<HubEvent>();

/**
 * Loads all plugins of a manifest, validates their options and sets them up in order. With any problem, all are
 * disposed. Never rejects.
 */
export async function setUpPlugins(whole: Manifest, world: Surroundings): Promise<Equipped> {
  const loading = await Promise.all(whole.plugins.map((spec) => loadPlugin(spec, world.loaders)));
  const loaded: Loaded[] = [];
  const faults: Fault[] = [];
  for (const [i, result] of loading.entries()) {
    const spec = whole.plugins[i];
    if (result.ok) loaded.push(result.loaded);
    else if (spec) faults.push(...result.problems.map((complaint) => faultOf(spec, complaint)));
  }
  if (faults.length > 0) return refuse(faults);
  const names = loaded.map(({ plugin }) => plugin.name);
  const known = await failServers(whole, findStrays(whole, names));
  const { bus, clock = systemClock, setupLimit = SETUP_LIMIT } = world;
  const abort = new AbortController();
  const running: { set?: PluginSet } = {};
  const parts: HostParts = {
    ...world,
    signal: abort.signal,
    hub: () => running.set?.hub,
    isEcho: (event) => echoes.has(event),
  };
  const log = (level: LogLevel, text: string): void => {
    const event: HubEvent = { kind: "log", level, source: "hub", text };
    echoes.add(event);
    bus.emit(event);
  };
  const members: Member[] = [];
  for (const [i, { plugin, path, options }] of loaded.entries()) {
    const entry = whole.plugins[i];
    if (entry === undefined) break;
    const spec = { ...entry, path };
    const member = new Member({ spec, plugin, clock, log });
    members.push(member);
    const run = async (): Promise<Parts> => plugin.setup(options, makeHost(member, parts));
    const fault = await setUp(member, run(), setupLimit);
    if (fault !== undefined) faults.push(faultOf(spec, fault));
    if (faults.length > 0) break;
  }
  const number = ++sets;
  // A plugin whose `setup` failed has no servers.
  const manifest =
    faults.length === 0 ? await failServers(known, findMissing(known, members)) : known;
  const { servers, faults: clashes } = completeServers(manifest, members, number);
  faults.push(...[...findClashes(members), ...clashes].map(toFault));
  if (faults.length > 0) {
    await disposeAll(members, abort);
    return refuse(faults);
  }
  const set = new PluginSet(number, members, abort);
  running.set = set;
  for (const member of members) {
    const { parts: own } = member;
    if (own.event) listen(member, parts, (event) => own.event?.(event), own.events, bus);
  }
  return { ok: true, manifest: { ...manifest, servers }, plugins: set };
}

/** The same for a manifest with the same plugins, which keep running. Never rejects. */
export async function keepPlugins(whole: Manifest, plugins: PluginSet): Promise<Equipped> {
  const { members, number } = plugins;
  const names = members.map(({ name }) => name);
  const missing = [...findStrays(whole, names), ...findMissing(whole, members)];
  const manifest = await failServers(whole, missing);
  const { servers, faults: clashes } = completeServers(manifest, members, number);
  const faults = clashes.map(toFault);
  if (faults.length > 0) return refuse(faults);
  return { ok: true, manifest: { ...manifest, servers }, plugins };
}

function faultOf({ origin }: PluginSpec, complaint: UnplacedProblem): Fault {
  return { file: origin.file, complaint };
}

/** @returns the problem, if any */
async function setUp(
  member: Member,
  promise: Promise<Parts>,
  limit: number,
): Promise<UnplacedProblem | undefined> {
  let outcome: { readonly parts: unknown } | { readonly thrown: unknown } | undefined;
  const done = promise.then(
    (parts: unknown) => (outcome = { parts }),
    (thrown: unknown) => (outcome = { thrown }),
  );
  await settlesWithin(limit, done);
  if (outcome === undefined) {
    // The result comes too late to be used, but has to be disposed.
    void promise.then((parts) => parts.dispose?.()).catch(() => {});
    return complain(member, `did not end within ${limit / 1000} s`);
  }
  if ("thrown" in outcome) {
    const { fault, place } = describeFault(outcome.thrown, member.spec.path);
    return complain(member, place === undefined ? fault : `${fault} (${place})`);
  }
  const strange = findStrange(outcome.parts);
  if (strange !== undefined) return complain(member, strange);
  member.parts = outcome.parts as Parts;
  return undefined;
}

function complain(member: Member, fault: string): UnplacedProblem {
  return blame(member, `plugin "${member.name}" failed in its setup: ${fault}`).complaint;
}

const FUNCTIONS = ["list", "call", "event", "dispose"] as const satisfies (keyof Parts)[];
const TABLES = ["secrets", "servers"] as const satisfies (keyof Parts)[];

/** What is invalid in the value that a `setup` has returned; undefined if nothing is. */
function findStrange(parts: unknown): string | undefined {
  if (typeof parts !== "object" || parts === null || Array.isArray(parts)) {
    return "it returned no object of parts";
  }
  const known = new Set<string>([...FUNCTIONS, ...TABLES, "events", "routes"]);
  const unknown = Object.keys(parts).find((key) => !known.has(key));
  if (unknown !== undefined) return `it returned "${unknown}", which is no part of a plugin`;
  const all = parts as Partial<Record<string, unknown>>;
  const wrong = FUNCTIONS.find((key) => !["function", "undefined"].includes(typeof all[key]));
  if (wrong !== undefined) return `its ${wrong} is no function`;
  const { events = [] } = all;
  const { routes } = parts as { readonly routes?: { readonly fetch?: unknown } | null };
  if (routes !== undefined && typeof routes?.fetch !== "function") {
    return "its routes have no fetch";
  }
  if (!(Array.isArray(events) && events.every((kind) => typeof kind === "string"))) {
    return "its events are no array of names";
  }
  for (const key of TABLES) {
    const table = all[key] ?? {};
    if (typeof table !== "object" || Array.isArray(table)) return `its ${key} are no object`;
    const strange = Object.entries(table).find(([, value]) => typeof value !== "function");
    if (strange !== undefined) return `its ${key}.${strange[0]} is no function`;
  }
  return undefined;
}

/** Schemes that a plugin may not have: malformed, reserved, or of another plugin. */
function findClashes(members: readonly Member[]): ServerFault[] {
  const owners = new Map<string, Member>();
  return members.flatMap((member) =>
    Object.keys(member.parts.secrets ?? {}).flatMap((scheme) => {
      const owner = owners.get(scheme);
      owners.set(scheme, owner ?? member);
      const fault = (message: string) => [{ member, message: `its scheme "${scheme}" ${message}` }];
      if (!/^[a-z][a-z0-9+.-]*$/.test(scheme)) return fault("is none: expected lower-case letters");
      if (RESERVED.has(scheme)) return fault("is toolmux's own");
      return owner === undefined ? [] : fault(`is also one of plugin "${owner.name}"`);
    }),
  );
}

function toFault({ member, message }: ServerFault): Fault {
  return blame(member, `plugin "${member.name}": ${message}`);
}

function blame({ spec }: Member, message: string): Fault {
  return faultOf(spec, { path: spec.origin.path, at: "key", message });
}

async function refuse(faults: readonly Fault[]): Promise<Equipped> {
  return { ok: false, problems: await placeFaults(faults) };
}
