import { printPackage, runnersOf, startPackage } from "./package.ts";
import { assignPrefixes } from "./prefix.ts";
import type { Draft, Program } from "./file-config.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS, START_LIMIT } from "./schema.ts";
import type {
  HubSettings,
  Limits,
  LimitsInput,
  ServerInput,
  ServerSpec,
  StdioServer,
  PromptRules,
  ToolRules,
} from "./schema.ts";
import type { SecretSource } from "./secrecy.ts";
import type { Fault, Placed, Source } from "./source.ts";
import { createTable, isTable } from "./table.ts";
import { printDuration } from "./units.ts";

/** The minimum number of characters for prefix, separator and tool name together. */
const LEAST_NAME = 16;

/** Pairs of limits: the first must not be longer than the second. */
const ORDERS = [
  ["callTimeout", "maxCallTimeout"],
  ["reconnect.base", "reconnect.max"],
] as const;

type Order = (typeof ORDERS)[number];

export interface Merged {
  readonly hub: HubSettings;
  readonly servers: readonly ServerSpec[];
  readonly defaults: Limits;
  readonly faults: readonly Fault[];
  readonly notes: readonly string[];
}

export interface MergeOptions {
  /** Server configs that have a problem already: they are not checked further, and take no prefix from others. */
  readonly wrong?: ReadonlySet<Draft>;
  /** The prefixes of running servers, which they keep. */
  readonly prefixesInForce?: ReadonlyMap<string, string>;
}

/**
 * Merges files: `hub` and `defaults` by key, servers as a whole; later files win. The merged defaults apply to all
 * servers. Checks the rules that involve several keys.
 */
export function mergeSources(
  sources: readonly Source[],
  { wrong = new Set(), prefixesInForce = new Map() }: MergeOptions = {},
): Merged {
  const hub = sources.reduce<HubSettings>(
    (all, it) => ({ ...all, ...it.reading.hub }),
    HUB_DEFAULTS,
  );
  const limits = sources.reduce<Limits>((all, it) => pickLimits(it.reading.defaults, all), {
    ...LIMIT_DEFAULTS,
    startLimit: START_LIMIT,
  });
  const placed = new Map<string, Placed>();
  for (const source of sources) {
    for (const [name, draft] of source.reading.servers) placed.set(name, { name, source, draft });
  }
  const said = [...placed.values()];
  const servers = said.map((it) => leaveOut(it, limits));
  const secretSources = sources.findLast(({ reading }) => reading.secrets?.sources)?.reading.secrets
    ?.sources;
  const limitFaults = new Map(
    servers.map((it) => [it.draft, wrong.has(it.draft) ? [] : checkLimits(it, limits)] as const),
  );
  const isWrong = ({ draft }: Placed): boolean =>
    wrong.has(draft) || (limitFaults.get(draft) ?? []).length > 0;
  const { prefixes, faults, notes } = assignPrefixes(servers, {
    separator: hub.separator,
    isWrong,
    inForce: prefixesInForce,
  });
  return {
    hub,
    defaults: limits,
    servers: servers.map((it) => resolve(it, limits, prefixes.get(it.name) ?? "", secretSources)),
    faults: [
      ...checkRoom(hub, sources),
      ...checkDefaults(limits, sources),
      ...[...limitFaults.values()].flat(),
      ...faults,
    ],
    notes: [...servers.flatMap((it, i) => (it === said[i] ? [] : noteAbsence(it))), ...notes],
  };
}

/** Contradictory limits in a client's file make only that server unsupported. */
function leaveOut(placed: Placed, defaults: Limits): Placed {
  const { draft } = placed;
  if (!("syntax" in draft) || draft.syntax !== "foreign") return placed;
  const [fault] = checkLimits(placed, defaults);
  if (fault === undefined) return placed;
  const { path, input } = draft;
  const reason = fault.message;
  return {
    ...placed,
    draft: { kind: "unsupported", enabled: input.enabled ?? true, path, reason },
  };
}

function noteAbsence({ name, source, draft }: Placed): readonly string[] {
  if (draft.kind !== "unsupported" || !draft.enabled) return [];
  return [`${source.file}: server ${JSON.stringify(name)} is left out: ${draft.reason}`];
}

function resolve(
  { name, source, draft }: Placed,
  defaults: Limits,
  prefix: string,
  secretSources: readonly SecretSource[] | undefined,
): ServerSpec {
  if (draft.kind === "unsupported") {
    return { kind: "unsupported", name, enabled: draft.enabled, prefix, reason: draft.reason };
  }
  const { input } = draft;
  const common = {
    name,
    enabled: input.enabled ?? true,
    prefix,
    isolation: input.isolation ?? "shared",
    era: input.era ?? "auto",
    lazy: input.lazy ?? false,
    ...pickLimits(input, defaults),
    tools: resolveToolRules(input.tools),
    prompts: resolveRules(input.prompts),
    ...(input.skills && { skills: input.skills }),
  };
  if (draft.kind === "plugin") {
    const origin = { file: source.file, path: draft.path };
    return { kind: "plugin", plugin: draft.plugin, origin, set: 0, ...common };
  }
  const origin = {
    baseDir: source.baseDir,
    syntax: draft.syntax,
    ...(secretSources && { secretSources }),
  };
  if (draft.kind === "remote") {
    return {
      kind: "remote",
      url: draft.url,
      transport: input.transport ?? "auto",
      headers: input.headers ?? createTable(),
      keyFile: input.keyFile,
      ca: input.ca,
      auth: input.auth ?? (input.oauth === undefined ? "auto" : "oauth"),
      oauth: input.oauth ?? {},
      ...origin,
      ...common,
    };
  }
  return {
    kind: "stdio",
    ...resolveProgram(draft.program, input, name),
    env: input.env ?? createTable(),
    inheritEnv: input.inheritEnv ?? [],
    cwd: input.cwd,
    ...origin,
    ...common,
  };
}

/** A package is run by the first of its runners that is installed when the server starts. */
function resolveProgram(
  program: Program,
  { args = [], env = {}, inheritEnv = [] }: ServerInput,
  server: string,
): Pick<StdioServer, "command" | "args" | "package"> {
  if (program.kind === "command") return { command: program.command, args };
  const { package: named, runner } = program;
  const variables = [...new Set([...Object.keys(env), ...inheritEnv])];
  const runners = runner === undefined ? runnersOf(named.origin) : [runner];
  const [first, ...others] = runners.map((one) => startPackage(named, one, variables, server));
  const { command, before } = first ?? { command: "", before: [] };
  return {
    command,
    args: [...before, ...args],
    package: { name: printPackage(named), others, skip: before.length },
  };
}

function pickLimits(input: LimitsInput, defaults: Limits): Limits {
  const { startLimit } = defaults;
  const isSaid = input.connectTimeout !== undefined;
  return {
    ...(!isSaid && startLimit !== undefined && { startLimit }),
    connectTimeout: input.connectTimeout ?? defaults.connectTimeout,
    callTimeout: input.callTimeout ?? defaults.callTimeout,
    maxCallTimeout: input.maxCallTimeout ?? defaults.maxCallTimeout,
    maxMessage: input.maxMessage ?? defaults.maxMessage,
    healthInterval: input.healthInterval ?? defaults.healthInterval,
    reconnect: { ...defaults.reconnect, ...input.reconnect },
    idleStop: input.idleStop ?? defaults.idleStop,
  };
}

function resolveToolRules(input: ServerInput["tools"]): ToolRules {
  const { timeout = createTable<number>(), describe, meta, annotations } = input ?? {};
  return {
    ...resolveRules(input),
    timeout,
    ...(describe && { describe }),
    ...(meta && { meta }),
    ...(annotations && { annotations }),
  };
}

function resolveRules(input: ServerInput["prompts"]): PromptRules {
  return {
    allow: input?.allow,
    deny: input?.deny ?? [],
    rename: input?.rename ?? createTable(),
  };
}

function checkRoom(hub: HubSettings, sources: readonly Source[]): Fault[] {
  const room = hub.nameLimit - hub.clientPrefix.length;
  if (room >= LEAST_NAME) return [];
  const message = `nameLimit less the length of clientPrefix leaves ${room} characters for a name, at least ${LEAST_NAME} are needed`;
  return blame(sources, "hub", ["nameLimit", "clientPrefix"], message);
}

function checkDefaults(limits: Limits, sources: readonly Source[]): Fault[] {
  return ORDERS.flatMap((order) => {
    const message = describeOrder(limits, order);
    return message === undefined ? [] : blame(sources, "defaults", order, message);
  });
}

/** A server that sets neither limit of a pair has both from the defaults, which are checked separately. */
function checkLimits({ source, draft }: Placed, defaults: Limits): Fault[] {
  if (draft.kind === "unsupported") return [];
  const { input, path } = draft;
  return ORDERS.flatMap((order): Fault[] => {
    const key = order.find((it) => isSet(input, it));
    const message = key && describeOrder(pickLimits(input, defaults), order);
    return message ? [{ source, path: [...path, ...key.split(".")], at: "value", message }] : [];
  });
}

function describeOrder(limits: Limits, [lesser, greater]: Order): string | undefined {
  const [least, most] = [getLimit(limits, lesser), getLimit(limits, greater)];
  if (least <= most) return undefined;
  const [less, more] = [printDuration(least), printDuration(most)];
  return `${lesser} (${less}) is longer than ${greater} (${more}); set ${greater} to ${less} or more`;
}

/** ms. */
function getLimit(limits: Limits, key: Order[number]): number {
  switch (key) {
    case "callTimeout":
    case "maxCallTimeout":
      return limits[key];
    case "reconnect.base":
      return limits.reconnect.base;
    case "reconnect.max":
      return limits.reconnect.max;
  }
}

/** The problem, placed at the last file that sets one of the keys. */
function blame(
  sources: readonly Source[],
  part: "hub" | "defaults",
  keys: readonly string[],
  message: string,
): Fault[] {
  const source = sources.findLast(({ reading }) => keys.some((key) => isSet(reading[part], key)));
  const key = keys.find((it) => source !== undefined && isSet(source.reading[part], it));
  if (source === undefined || key === undefined) return [];
  return [{ source, path: [part, ...key.split(".")], at: "value", message }];
}

/** Whether a key has a value; dots separate nested tables. */
function isSet(settings: object, key: string): boolean {
  const keys = key.split(".");
  const find = (inner: unknown, name: string) => (isTable(inner) ? inner[name] : undefined);
  return keys.reduce<unknown>(find, settings) !== undefined;
}
