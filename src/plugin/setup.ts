import { formatDuration } from "../base/format.ts";
import { isJsonObject } from "../base/json.ts";
import { type Clock, settlesWithin, systemClock } from "../base/clock.ts";
import type { EventBus, HubEvent, LogLevel } from "../base/hub-events.ts";
import type { Env } from "../base/paths.ts";
import type { Problem } from "../manifest/problems.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { BUILT_IN_SCHEMES } from "../manifest/interpolate.ts";
import { addPositionsLater } from "../manifest/syntax/positions.ts";
import { type LoadedPlugin, loadPlugin, type PluginLoaders } from "./load.ts";
import { describePluginFault, formatPluginFault } from "./errors.ts";
import { makePluginHost, type PluginHostOptions, subscribeEvents } from "./host.ts";
import { PluginInstance } from "./instance.ts";
import type { Parts } from "./plugin.ts";
import {
  addPluginServers,
  findMissingServers,
  findUnknownServers,
  markServersInvalid,
  type PluginResourceProblem,
} from "./provided-servers.ts";
import { disposeAll, PluginSet } from "./plugin-set.ts";

/** Options for setting up plugins. */
export interface SetupOptions {
  readonly bus: EventBus;
  readonly env: Env;
  /** The hub's state folder, absolute. */
  readonly stateFolder: string;
  readonly clock?: Clock;
  /** The built-in plugins. */
  readonly loaders?: PluginLoaders;
  /** Time limit for a plugin's `setup`, in ms. */
  readonly setupTimeout?: number;
}

/** A manifest with its plugins set up; it contains the plugins' servers. */
export type PreparedManifest =
  | { readonly ok: true; readonly manifest: Manifest; readonly plugins: PluginSet }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/** Default time limit for a plugin's `setup`, in ms. */
const SETUP_TIMEOUT = 30_000;
/** Schemes that plugins may not define: toolmux's own, and those with a meaning in MCP clients' files. */
const RESERVED_SCHEMES = new Set(["env", "file", "input", ...BUILT_IN_SCHEMES]);

let setCount = 0;
/** The log events of plugins of all plugin sets: two sets exist while one replaces the other. */
const pluginLogEvents = new WeakSet<HubEvent>();

/**
 * Loads all plugins of a manifest, validates their options and sets them up in order. If there is any problem, all
 * plugins are disposed. Never rejects.
 */
export async function setUpPlugins(
  declared: Manifest,
  setupOptions: SetupOptions,
): Promise<PreparedManifest> {
  const loading = await Promise.all(
    declared.plugins.map((spec) => loadPlugin(spec, setupOptions.loaders)),
  );
  const loaded: LoadedPlugin[] = [];
  const problems: Problem[] = [];
  for (const result of loading) {
    if (result.ok) loaded.push(result.loaded);
    else problems.push(...result.problems);
  }
  if (problems.length > 0) return failedSetup(problems);
  const names = loaded.map(({ plugin }) => plugin.name);
  const checked = await markServersInvalid(declared, findUnknownServers(declared, names));
  const { bus, clock = systemClock, setupTimeout = SETUP_TIMEOUT } = setupOptions;
  const abort = new AbortController();
  const running: { set?: PluginSet } = {};
  const hostOptions: PluginHostOptions = {
    ...setupOptions,
    signal: abort.signal,
    hub: () => running.set?.hub,
    isPluginLog: (event) => pluginLogEvents.has(event),
  };
  const log = (level: LogLevel, text: string): void => {
    const event: HubEvent = { kind: "log", level, source: "hub", text };
    pluginLogEvents.add(event);
    bus.emit(event);
  };
  const instances: PluginInstance[] = [];
  for (const [i, { plugin, path, options }] of loaded.entries()) {
    const entry = declared.plugins[i];
    if (entry === undefined) break;
    const spec = { ...entry, path };
    const instance = new PluginInstance({ spec, plugin, clock, log });
    instances.push(instance);
    const run = async (): Promise<Parts> =>
      plugin.setup(options, makePluginHost(instance, hostOptions));
    const problem = await setUp(instance, run(), setupTimeout);
    if (problem !== undefined) problems.push(problem);
    if (problems.length > 0) break;
  }
  const number = ++setCount;
  // After a failed `setup`, servers that no plugin provides are not reported, because the failed plugin may provide
  // them.
  const manifest =
    problems.length === 0
      ? await markServersInvalid(checked, findMissingServers(checked, instances))
      : checked;
  const { servers, problems: conflicts } = addPluginServers(manifest, instances, number);
  problems.push(...[...findSchemeConflicts(instances), ...conflicts].map(toPluginProblem));
  if (problems.length > 0) {
    await disposeAll(instances, abort);
    return failedSetup(problems);
  }
  const set = new PluginSet(number, instances, abort);
  running.set = set;
  for (const instance of instances) {
    const { hooks } = instance;
    if (hooks.event)
      subscribeEvents(instance, hostOptions, (event) => hooks.event?.(event), hooks.events);
  }
  return { ok: true, manifest: { ...manifest, servers }, plugins: set };
}

/** Like `setUpPlugins`, for a manifest with the same plugins, which keep running. Never rejects. */
export async function reusePlugins(
  declared: Manifest,
  plugins: PluginSet,
): Promise<PreparedManifest> {
  const { plugins: members, number } = plugins;
  const names = members.map(({ name }) => name);
  const missing = [
    ...findUnknownServers(declared, names),
    ...findMissingServers(declared, members),
  ];
  const manifest = await markServersInvalid(declared, missing);
  const { servers, problems: conflicts } = addPluginServers(manifest, members, number);
  const problems = conflicts.map(toPluginProblem);
  if (problems.length > 0) return failedSetup(problems);
  return { ok: true, manifest: { ...manifest, servers }, plugins };
}

/** Sets up one plugin. @returns the problem, if any */
async function setUp(
  member: PluginInstance,
  promise: Promise<Parts>,
  timeout: number,
): Promise<Problem | undefined> {
  let outcome: { readonly parts: unknown } | { readonly thrown: unknown } | undefined;
  const done = promise.then(
    (parts: unknown) => (outcome = { parts }),
    (thrown: unknown) => (outcome = { thrown }),
  );
  await settlesWithin(timeout, done);
  if (outcome === undefined) {
    // A result that comes after the time limit is not used, but must be disposed.
    void promise.then((parts) => parts.dispose?.()).catch(() => {});
    return setupProblem(member, `did not end within ${formatDuration(timeout)}`);
  }
  if ("thrown" in outcome) {
    const fault = describePluginFault(outcome.thrown, member.spec.path);
    return setupProblem(member, formatPluginFault(fault));
  }
  const invalid = findInvalidHook(outcome.parts);
  if (invalid !== undefined) return setupProblem(member, invalid);
  member.hooks = outcome.parts as Parts;
  return undefined;
}

function setupProblem(member: PluginInstance, fault: string): Problem {
  return problemOfPlugin(member, `plugin "${member.name}" failed in its setup: ${fault}`);
}

const FUNCTION_HOOKS = [
  "list",
  "call",
  "event",
  "kept",
  "dispose",
] as const satisfies (keyof Parts)[];
const TABLE_HOOKS = ["secrets", "servers"] as const satisfies (keyof Parts)[];

/** Describes what is invalid in the value that a plugin's `setup` returned; undefined if it is valid. */
function findInvalidHook(hooks: unknown): string | undefined {
  if (typeof hooks !== "object" || hooks === null || Array.isArray(hooks)) {
    return "it returned no object of parts";
  }
  const known = new Set<string>([...FUNCTION_HOOKS, ...TABLE_HOOKS, "events", "routes"]);
  const unknown = Object.keys(hooks).find((key) => !known.has(key));
  if (unknown !== undefined) return `it returned "${unknown}", which is no part of a plugin`;
  const all = hooks as Partial<Record<string, unknown>>;
  const wrong = FUNCTION_HOOKS.find((key) => !["function", "undefined"].includes(typeof all[key]));
  if (wrong !== undefined) return `its ${wrong} is no function`;
  const { events = [] } = all;
  const { routes } = hooks as { readonly routes?: { readonly fetch?: unknown } | null };
  if (routes !== undefined && typeof routes?.fetch !== "function") {
    return "its routes have no fetch";
  }
  if (!(Array.isArray(events) && events.every((kind) => typeof kind === "string"))) {
    return "its events are no array of names";
  }
  for (const key of TABLE_HOOKS) {
    const table = all[key] ?? {};
    if (typeof table !== "object" || Array.isArray(table)) return `its ${key} are no object`;
    const invalidHook = Object.entries(table).find(
      ([, value]) => typeof value !== "function" && !(key === "servers" && isPluginServer(value)),
    );
    if (invalidHook !== undefined) return `its ${key}.${invalidHook[0]} is no function`;
  }
  return undefined;
}

function isPluginServer(value: unknown): boolean {
  if (!isJsonObject(value) || typeof value["open"] !== "function") return false;
  return ["shared", "perClient", undefined].some((isolation) => isolation === value["isolation"]);
}

/** Finds secret schemes that a plugin may not define: malformed ones, reserved ones, and those of another plugin. */
function findSchemeConflicts(members: readonly PluginInstance[]): PluginResourceProblem[] {
  const owners = new Map<string, PluginInstance>();
  return members.flatMap((member) =>
    Object.keys(member.hooks.secrets ?? {}).flatMap((scheme) => {
      const owner = owners.get(scheme);
      owners.set(scheme, owner ?? member);
      const fault = (message: string) => [{ member, message: `its scheme "${scheme}" ${message}` }];
      if (!/^[a-z][a-z0-9+.-]*$/.test(scheme))
        return fault("is not a valid scheme: expected lower-case letters");
      if (RESERVED_SCHEMES.has(scheme)) return fault("is toolmux's own");
      return owner === undefined ? [] : fault(`is also one of plugin "${owner.name}"`);
    }),
  );
}

function toPluginProblem({ member, message }: PluginResourceProblem): Problem {
  return problemOfPlugin(member, `plugin "${member.name}": ${message}`);
}

function problemOfPlugin({ spec }: PluginInstance, message: string): Problem {
  return { ...spec.origin, at: "key", message };
}

async function failedSetup(unplaced: readonly Problem[]): Promise<PreparedManifest> {
  return { ok: false, problems: await addPositionsLater(unplaced) };
}
