import { assignPrefixes } from "./prefix.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS } from "./schema.ts";
import type {
  HubSettings,
  Limits,
  LimitsInput,
  ServerInput,
  ServerSpec,
  ToolRules,
} from "./schema.ts";
import type { Fault, Placed, Source } from "./source.ts";
import { createTable } from "./table.ts";
import { printDuration } from "./units.ts";

/** The fewest characters that must be left for prefix, separator and tool name together. */
const LEAST_NAME = 16;

export interface Merged {
  readonly hub: HubSettings;
  readonly servers: readonly ServerSpec[];
  readonly faults: readonly Fault[];
  readonly notes: readonly string[];
}

/**
 * Puts the sources together: `hub` and `defaults` key by key, servers as a whole, the later source wins; the
 * defaults that come out apply to all servers. Checks the rules that go beyond one key.
 */
export function mergeSources(sources: readonly Source[]): Merged {
  const hub = sources.reduce<HubSettings>(
    (all, it) => ({ ...all, ...it.reading.hub }),
    HUB_DEFAULTS,
  );
  const limits = sources.reduce<Limits>(
    (all, it) => pickLimits(it.reading.defaults, all),
    LIMIT_DEFAULTS,
  );
  const placed = new Map<string, Placed>();
  for (const source of sources) {
    for (const [name, draft] of source.reading.servers) placed.set(name, { name, source, draft });
  }
  const servers = [...placed.values()];
  const { prefixes, faults, notes } = assignPrefixes(servers, hub.separator);
  return {
    hub,
    servers: servers.map((it) => resolve(it, limits, prefixes.get(it.name) ?? "")),
    faults: [
      ...checkRoom(hub, sources),
      ...checkDefaults(limits, sources),
      ...servers.flatMap((it) => checkLimits(it, limits)),
      ...faults,
    ],
    notes,
  };
}

function resolve({ name, source, draft }: Placed, defaults: Limits, prefix: string): ServerSpec {
  if (draft.kind === "unsupported") {
    return { kind: "unsupported", name, enabled: draft.enabled, prefix, reason: draft.reason };
  }
  const { input, syntax } = draft;
  return {
    kind: "stdio",
    name,
    enabled: input.enabled ?? true,
    prefix,
    command: input.command,
    args: input.args ?? [],
    env: input.env ?? createTable(),
    inheritEnv: input.inheritEnv ?? [],
    cwd: input.cwd,
    baseDir: source.baseDir,
    syntax,
    isolation: input.isolation ?? "shared",
    lazy: input.lazy ?? false,
    ...pickLimits(input, defaults),
    tools: resolveTools(input.tools),
  };
}

function pickLimits(input: LimitsInput, defaults: Limits): Limits {
  return {
    connectTimeout: input.connectTimeout ?? defaults.connectTimeout,
    callTimeout: input.callTimeout ?? defaults.callTimeout,
    maxCallTimeout: input.maxCallTimeout ?? defaults.maxCallTimeout,
    maxMessage: input.maxMessage ?? defaults.maxMessage,
    healthInterval: input.healthInterval ?? defaults.healthInterval,
    reconnect: { ...defaults.reconnect, ...input.reconnect },
    idleStop: input.idleStop ?? defaults.idleStop,
  };
}

function resolveTools(input: ServerInput["tools"]): ToolRules {
  return {
    allow: input?.allow,
    deny: input?.deny ?? [],
    rename: input?.rename ?? createTable(),
    timeout: input?.timeout ?? createTable(),
  };
}

function checkRoom(hub: HubSettings, sources: readonly Source[]): Fault[] {
  const room = hub.nameLimit - hub.clientPrefix.length;
  if (room >= LEAST_NAME) return [];
  const message = `nameLimit less the length of clientPrefix leaves ${room} characters for a name, at least ${LEAST_NAME} are needed`;
  return blame(sources, "hub", ["nameLimit", "clientPrefix"], message);
}

function checkDefaults(limits: Limits, sources: readonly Source[]): Fault[] {
  const message = describeOrder(limits);
  if (message === undefined) return [];
  return blame(sources, "defaults", ["callTimeout", "maxCallTimeout"], message);
}

/** A server that sets neither limit has them from the defaults, where they are checked. */
function checkLimits({ source, draft }: Placed, defaults: Limits): Fault[] {
  if (draft.kind === "unsupported") return [];
  const key = (["callTimeout", "maxCallTimeout"] as const).find(
    (it) => draft.input[it] !== undefined,
  );
  const message = key && describeOrder(pickLimits(draft.input, defaults));
  return message ? [{ source, path: [...draft.path, key], at: "value", message }] : [];
}

function describeOrder({ callTimeout, maxCallTimeout }: Limits): string | undefined {
  if (callTimeout <= maxCallTimeout) return undefined;
  const [call, max] = [printDuration(callTimeout), printDuration(maxCallTimeout)];
  return `callTimeout (${call}) is longer than maxCallTimeout (${max}); set maxCallTimeout to ${call} or more`;
}

/** The fault of the last source that sets one of the keys. */
function blame(
  sources: readonly Source[],
  part: "hub" | "defaults",
  keys: readonly string[],
  message: string,
): Fault[] {
  const source = sources.findLast(({ reading }) => keys.some((key) => key in reading[part]));
  const key = keys.find((it) => source !== undefined && it in source.reading[part]);
  if (source === undefined || key === undefined) return [];
  return [{ source, path: [part, key], at: "value", message }];
}
