import { count } from "../../base/format.ts";
import { type InvalidModel, makeModelSpec, type Models, type ModelSpec } from "../agents.ts";
import type { HubLimitsInput } from "../call-limits.ts";
import { formatDuration } from "../fields.ts";
import type { FileConfig, LaunchConfig, ServerConfig } from "../files/file-config.ts";
import { formatPackage, packageCommand, runnersOf } from "../package.ts";
import {
  APPROVAL_DEFAULTS,
  type ApprovalDefaults,
  HUB_DEFAULTS,
  type HubSettings,
  LIMIT_DEFAULTS,
  type Limits,
  type PinLevel,
  type Manifest,
  type PromptRules,
  isRunnable,
  type ScanLevel,
  type ServerSpec,
  START_LIMIT,
  type StdioServer,
  TOOL_SEARCH_DEFAULTS,
  type ToolRules,
  type ToolSearchSettings,
} from "../manifest.ts";
import {
  type DefaultsInput,
  LIMIT_KEYS,
  type LimitsInput,
  type SecretSource,
  type ServerInput,
} from "../schema.ts";
import type { Problem } from "../problems.ts";
import { createTable, isTable } from "../table.ts";

/**
 * Whether a prefix is valid, so that `prefix + separator + tool` can be split in only one way. The empty prefix is
 * valid.
 */
export function isPrefix(text: string, separator: string): boolean {
  return (
    /^[A-Za-z0-9_-]*$/.test(text) &&
    !text.includes(separator) &&
    (text === "" || !(separator.includes(text.charAt(0)) || separator.includes(text.slice(-1))))
  );
}

/** Changes `text` as little as possible to make it a valid, non-empty prefix. */
export function sanitizePrefix(text: string, separator: string): string {
  const filler = separator === "_" ? "-" : "_";
  let prefix = text.replaceAll(/[^A-Za-z0-9_-]+/g, filler);
  // The loop ends, because the filler is shorter than the separator or differs from it.
  while (prefix.includes(separator)) prefix = prefix.replaceAll(separator, filler);
  while (prefix !== "" && separator.includes(prefix.charAt(0))) prefix = prefix.slice(1);
  while (prefix !== "" && separator.includes(prefix.slice(-1))) prefix = prefix.slice(0, -1);
  if (prefix !== "") return prefix;
  return isPrefix("server", separator) ? "server" : (symbolsFor(separator)[0] ?? "");
}

export interface PrefixAssignment {
  /** Prefixes by server name. */
  readonly prefixes: ReadonlyMap<string, string>;
  readonly problems: readonly Problem[];
  readonly notes: readonly string[];
}

interface PrefixOptions {
  readonly separator: string;
  /**
   * Whether a server has problems besides its prefix. Other servers may take the prefix that is configured for such a
   * server, but not the prefix that it is running with.
   */
  readonly isInvalid: (server: ServerConfig) => boolean;
  readonly runningPrefixes: ReadonlyMap<string, string>;
}

/**
 * Assigns every server its prefix. In manifests, an invalid or duplicate prefix is a problem. If two servers have the
 * same prefix, the problem is reported for the server that is not running, else for the later one. Servers of clients'
 * files cannot set a prefix: each gets the nearest prefix that is still free.
 */
function assignPrefixes(
  servers: readonly ServerConfig[],
  { separator, isInvalid, runningPrefixes }: PrefixOptions,
): PrefixAssignment {
  const prefixes = new Map<string, string>();
  const problems: Problem[] = [];
  const notes: string[] = [];
  const owners = new Map<string, ServerConfig>();

  const assign = (server: ServerConfig, prefix: string) => {
    prefixes.set(server.name, prefix);
    if (isEnabled(server) && prefix !== "") owners.set(prefix, server);
  };

  for (const server of servers) {
    const prefix = runningPrefixes.get(server.name) ?? "";
    if (isInvalid(server) && isEnabled(server) && prefix !== "") owners.set(prefix, server);
  }
  const assignOrReport = (server: ServerConfig): void => {
    const configured = configuredPrefixOf(server);
    const prefix = configured ?? server.name;
    const owner = isEnabled(server) ? owners.get(prefix) : undefined;
    const isClash = owner !== undefined && owner !== server;
    const message = isPrefix(prefix, separator)
      ? isClash && duplicatePrefixMessage(prefix, owner, server)
      : invalidPrefixMessage(server.name, configured, separator);
    if (message === false) assign(server, prefix);
    else {
      const { file, path } = server;
      problems.push(
        configured === undefined
          ? { file, path, at: "key", message }
          : { file, path: [...path, "prefix"], at: "value", message },
      );
    }
  };

  const manifestServers = servers.filter(isFromManifest);
  const validServers = manifestServers.filter((server) => !isInvalid(server));
  const isRunning = (server: ServerConfig): boolean =>
    runningPrefixes.get(server.name) === (configuredPrefixOf(server) ?? server.name);
  for (const server of validServers.filter(isRunning)) assignOrReport(server);
  for (const server of validServers.filter((it) => !isRunning(it))) assignOrReport(server);

  for (const server of servers.filter((it) => !isFromManifest(it))) {
    const configured = configuredPrefixOf(server) ?? server.name;
    const nearest =
      configured === "" && server.name !== "" ? "" : sanitizePrefix(configured, separator);
    const isClaimed = isEnabled(server) && nearest !== "";
    const prefix = isClaimed ? freePrefix(nearest, separator, owners) : nearest;
    assign(server, prefix);
    if (prefix !== configured && server.kind !== "unsupported") {
      const name = JSON.stringify(server.name);
      notes.push(`${server.file}: server ${name} gets the prefix "${prefix}"`);
    }
  }

  // Invalid servers come last, so that they do not take a prefix from a valid server. Their prefixes are checked only
  // to report problems.
  for (const server of manifestServers.filter(isInvalid)) assignOrReport(server);
  return { prefixes, problems, notes };
}

/** `base` if it is free, else `base` with the shortest suffix that makes it free. */
function freePrefix(base: string, separator: string, taken: ReadonlyMap<string, unknown>): string {
  const symbols = symbolsFor(separator);
  for (let length = 1; taken.has(base) && symbols.length > 0; length++) {
    const free = symbols.map((it) => base + it.repeat(length)).find((it) => !taken.has(it));
    if (free !== undefined) return free;
  }
  return base;
}

/** The characters for suffixes: allowed anywhere in a prefix, and not in the separator. */
function symbolsFor(separator: string): readonly string[] {
  return "23456789abcdefghijklmnopqrstuvwxyz01".split("").filter((it) => !separator.includes(it));
}

function invalidPrefixMessage(
  name: string,
  configured: string | undefined,
  separator: string,
): string {
  const prefix = configured ?? name;
  const what = `the ${configured === undefined ? "name" : "prefix"} ${JSON.stringify(prefix)}`;
  const advice = `${configured === undefined ? "add" : "write"} prefix = "${sanitizePrefix(prefix, separator)}"`;
  return `${what} ${describePrefixFault(prefix, separator)}; ${advice}`;
}

/** Describes why a text is not valid as a prefix. */
function describePrefixFault(prefix: string, separator: string): string {
  const [invalid] = /[^A-Za-z0-9_-]/u.exec(prefix) ?? [];
  if (invalid !== undefined) {
    const character = /\s/.test(invalid) ? "a space" : JSON.stringify(invalid);
    return `has ${character}, which the names of tools cannot have`;
  }
  const verb = prefix.includes(separator) ? "has" : "begins or ends with a character of";
  return `${verb} "${separator}", which separates a prefix from the name of a tool`;
}

function duplicatePrefixMessage(prefix: string, owner: ServerConfig, server: ServerConfig): string {
  const names = [owner, server].map(({ name }) => JSON.stringify(name)).join(" and ");
  return `the servers ${names} have the same prefix "${prefix}"; set another prefix for one of them: prefix = "…"`;
}

function isFromManifest(server: ServerConfig): boolean {
  if (server.kind === "plugin" || server.kind === "fleet") return true;
  return "syntax" in server && server.syntax === "toolmux";
}

function isEnabled(server: ServerConfig): boolean {
  return server.kind !== "unsupported" && server.input.enabled !== false;
}

function configuredPrefixOf(server: ServerConfig): string | undefined {
  return server.kind === "unsupported" ? undefined : server.input.prefix;
}

/** The minimum number of characters for prefix, separator and tool name together. */
const MIN_NAME_ROOM = 16;

/** Pairs of limits: the first must not be longer than the second. */
const LIMIT_ORDERS = [
  ["callTimeout", "maxCallTimeout"],
  ["reconnect.base", "reconnect.max"],
] as const;

type LimitOrder = (typeof LIMIT_ORDERS)[number];

/** The merged manifest without its plugins, and the problems and notes of merging. */
/** The tenant as which a hub uses the servers of its fleet, unless `fleet.tenant` is set. */
export const DEFAULT_TENANT = "default";

export interface MergedManifest extends Omit<Manifest, "plugins" | "sources"> {
  readonly problems: readonly Problem[];
  readonly notes: readonly string[];
}

export interface MergeOptions {
  /** Servers that already have a problem. They are not checked further, and other servers may use their prefixes. */
  readonly invalid?: ReadonlySet<ServerConfig>;
  /** The prefixes of running servers. These servers keep their prefixes. */
  readonly runningPrefixes?: ReadonlyMap<string, string>;
}

/**
 * Merges files: `hub`, `defaults`, `toolSearch` and `limits` by key, servers as a whole; later files win. The merged defaults apply to all
 * servers. Checks the rules that involve several keys.
 */
export function mergeConfigs(
  configs: readonly FileConfig[],
  { invalid = new Set(), runningPrefixes = new Map() }: MergeOptions = {},
): MergedManifest {
  const hub = configs.reduce<HubSettings>(
    (all, config) => ({ ...all, ...config.hub }),
    HUB_DEFAULTS,
  );
  const defaults = configs.reduce<Limits>((all, config) => limitsOf(config.defaults, all), {
    ...LIMIT_DEFAULTS,
    startLimit: START_LIMIT,
  });
  const approval = configs.reduce<ApprovalDefaults>(
    (all, config) => ({ ...all, ...approvalDefaultsOf(config.defaults) }),
    APPROVAL_DEFAULTS,
  );
  const pin = configs.findLast(({ defaults: own }) => own.pin !== undefined)?.defaults.pin;
  const scan = configs.findLast(({ defaults: own }) => own.scan !== undefined)?.defaults.scan;
  const toolSearch = configs.reduce<ToolSearchSettings>(
    (all, config) => ({ ...all, ...config.toolSearch }),
    TOOL_SEARCH_DEFAULTS,
  );
  const limits = configs.reduce<HubLimitsInput>(
    (all, config) => ({ ...all, ...config.limits }),
    {},
  );
  const secretSources = configs.findLast(({ secrets }) => secrets?.sources)?.secrets?.sources;
  const listed = [...new Map(configs.flatMap((config) => [...config.servers])).values()];
  const servers = listed.map((server) => markUnsupported(server, defaults));
  const limitProblems = new Map(
    servers.map((server) => [server, invalid.has(server) ? [] : checkLimits(server, defaults)]),
  );
  const isInvalid = (server: ServerConfig): boolean =>
    invalid.has(server) || (limitProblems.get(server) ?? []).length > 0;
  const { prefixes, problems, notes } = assignPrefixes(servers, {
    separator: hub.separator,
    isInvalid,
    runningPrefixes,
  });
  const fleet = configs.findLast((config) => config.fleet !== undefined)?.fleet;
  const tenant = fleet?.tenant ?? DEFAULT_TENANT;
  return {
    hub,
    httpToken: configs.findLast(({ httpToken }) => httpToken !== undefined)?.httpToken,
    registries: configs.findLast(({ registries }) => registries !== undefined)?.registries,
    toolSearch,
    limits,
    telemetry: configs.findLast(({ telemetry }) => telemetry !== undefined)?.telemetry,
    agentFiles: configs.findLast(({ agentFiles }) => agentFiles !== undefined)?.agentFiles,
    fleet,
    defaults,
    models: mergeModels(configs, secretSources),
    approval,
    servers: servers.map((server) =>
      withScanLevel(
        toServerSpec(
          server,
          { ...defaults, pin },
          prefixes.get(server.name) ?? "",
          secretSources,
          tenant,
        ),
        scan,
      ),
    ),
    problems: [
      ...checkNameRoom(hub, configs),
      ...checkDefaults(defaults, configs),
      ...[...limitProblems.values()].flat(),
      ...problems,
    ],
    notes: [
      ...servers.flatMap((server, i) => (server === listed[i] ? [] : noteUnsupported(server))),
      ...notes,
    ],
  };
}

/** Merges the models of all files. A model of a later file replaces one of the same name as a whole. */
function mergeModels(
  configs: readonly FileConfig[],
  secretSources: readonly SecretSource[] | undefined,
): Models {
  const listed = new Map(configs.flatMap(({ models }) => [...(models ?? [])]));
  return new Map(
    [...listed].map(([name, { input, baseDir }]): [string, ModelSpec | InvalidModel] => {
      // The model's table is invalid. `loadManifest` adds the problems later, with their positions.
      if (input === undefined) return [name, { name, problems: [] }];
      const { model = "", ...others } = input;
      return [name, makeModelSpec({ name, model, baseDir, secretSources, ...others })];
    }),
  );
}

/** If the limits of a server in a client's file contradict each other, makes only that server unsupported. */
function markUnsupported(server: ServerConfig, defaults: Limits): ServerConfig {
  if (!("syntax" in server) || server.syntax !== "client") return server;
  const [problem] = checkLimits(server, defaults);
  if (problem === undefined) return server;
  const { name, file, baseDir, path, input } = server;
  const enabled = input.enabled ?? true;
  const { path: faultPath, message: reason } = problem;
  return { kind: "unsupported", name, file, baseDir, path, enabled, reason, faultPath };
}

function noteUnsupported(server: ServerConfig): readonly string[] {
  if (server.kind !== "unsupported" || !server.enabled) return [];
  return [`${server.file}: server ${JSON.stringify(server.name)} is ignored: ${server.reason}`];
}

/** A server with the level of the scan from the table `defaults`, unless it has one of its own. */
function withScanLevel(spec: ServerSpec, scan: ScanLevel | undefined): ServerSpec {
  const takesDefault = scan !== undefined && isRunnable(spec) && spec.scan === undefined;
  return takesDefault ? { ...spec, scan } : spec;
}

function toServerSpec(
  server: ServerConfig,
  { pin: defaultPin, ...defaults }: Limits & { readonly pin: PinLevel | undefined },
  prefix: string,
  secretSources: readonly SecretSource[] | undefined,
  tenant: string,
): ServerSpec {
  const { name, file, baseDir, path } = server;
  if (server.kind === "unsupported") {
    const { enabled, reason } = server;
    return { kind: "unsupported", name, enabled, prefix, reason };
  }
  const { input } = server;
  const common = {
    name,
    enabled: input.enabled ?? true,
    prefix,
    ...(input.title !== undefined && { title: input.title }),
    ...(input.description !== undefined && { description: input.description }),
    ...(input.icon !== undefined && { icon: input.icon }),
    isolation: input.isolation ?? "auto",
    era: input.era ?? "auto",
    lazy: input.lazy ?? false,
    ...limitsOf(input, defaults),
    ...(input.approval !== undefined && { approval: input.approval }),
    ...(input.approvalWait !== undefined && { approvalWait: input.approvalWait }),
    ...(input.limits && { limits: input.limits }),
    ...((input.pin ?? defaultPin) !== undefined && { pin: input.pin ?? defaultPin }),
    ...(input.scan !== undefined && { scan: input.scan }),
    ...(input.scanIgnore !== undefined && { scanIgnore: input.scanIgnore }),
    tools: toolRulesOf(input.tools),
    prompts: promptRulesOf(input.prompts),
    ...(input.skills && { skills: input.skills }),
  };
  if (server.kind === "plugin") {
    return { kind: "plugin", plugin: server.plugin, origin: { file, path }, set: 0, ...common };
  }
  if (server.kind === "fleet") {
    const [machine, fleet] = server.fleet.includes("/")
      ? server.fleet.split("/", 2)
      : [undefined, server.fleet];
    const spread = input.spread ?? "sticky";
    // On NATS there is the modern era only.
    return {
      kind: "fleet",
      ...common,
      fleet: fleet ?? "",
      machine,
      tenant,
      spread,
      isFound: false,
      era: "modern",
    };
  }
  const origin = { baseDir, syntax: server.syntax, ...(secretSources && { secretSources }) };
  if (server.kind === "remote") {
    return {
      kind: "remote",
      url: server.url,
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
    ...launchOf(server.launch, input, name),
    env: input.env ?? createTable(),
    inheritEnv: input.inheritEnv ?? [],
    cwd: input.cwd,
    ...origin,
    ...common,
  };
}

/** The command of a server. A package is run by the first of its runners that is installed when the server starts. */
function launchOf(
  program: LaunchConfig,
  { args = [], env = {}, inheritEnv = [] }: ServerInput,
  server: string,
): Pick<StdioServer, "command" | "args" | "package"> {
  if (program.kind === "command") return { command: program.command, args };
  const { package: packageSpec, runner } = program;
  const variables = [...new Set([...Object.keys(env), ...inheritEnv])];
  const runners = runner === undefined ? runnersOf(packageSpec.origin) : [runner];
  const [first, ...others] = runners.map((one) =>
    packageCommand(packageSpec, one, variables, server),
  );
  const { command, leadingArgs: before } = first ?? { command: "", leadingArgs: [] };
  return {
    command,
    args: [...before, ...args],
    package: {
      name: formatPackage(packageSpec),
      alternatives: others,
      leadingArgCount: before.length,
    },
  };
}

function limitsOf(input: LimitsInput, defaults: Limits): Limits {
  const { startLimit, ...limits } = defaults;
  const own = LIMIT_KEYS.filter((key) => input[key] !== undefined).map((key) => [key, input[key]]);
  return {
    ...(input.connectTimeout === undefined && startLimit !== undefined && { startLimit }),
    ...limits,
    ...(Object.fromEntries(own) as LimitsInput),
    reconnect: { ...defaults.reconnect, ...input.reconnect },
  };
}

function approvalDefaultsOf({
  approval,
  agentApproval,
  approvalWait: wait,
  approvalTimeout: timeout,
}: DefaultsInput): Partial<ApprovalDefaults> {
  return {
    ...(approval !== undefined && { approval }),
    ...(agentApproval !== undefined && { agentApproval }),
    ...(wait !== undefined && { wait }),
    ...(timeout !== undefined && { timeout }),
  };
}

function toolRulesOf(input: ServerInput["tools"]): ToolRules {
  const { timeout = createTable<number>(), describe, meta } = input ?? {};
  const { annotations, approval, limits } = input ?? {};
  return {
    ...promptRulesOf(input),
    timeout,
    ...(describe && { describe }),
    ...(meta && { meta }),
    ...(annotations && { annotations }),
    ...(approval && { approval }),
    ...(limits && { limits }),
  };
}

function promptRulesOf(input: ServerInput["prompts"]): PromptRules {
  return {
    allow: input?.allow,
    deny: input?.deny ?? [],
    rename: input?.rename ?? createTable(),
  };
}

function checkNameRoom(hub: HubSettings, configs: readonly FileConfig[]): Problem[] {
  const room = hub.nameLimit - hub.clientPrefix.length;
  if (room >= MIN_NAME_ROOM) return [];
  const message = `nameLimit minus the length of clientPrefix leaves ${count(room, "character")} for a name; a name needs at least ${MIN_NAME_ROOM}`;
  return problemAtSetting(configs, "hub", ["nameLimit", "clientPrefix"], message);
}

function checkDefaults(limits: Limits, configs: readonly FileConfig[]): Problem[] {
  return LIMIT_ORDERS.flatMap((order) => {
    const message = orderProblem(limits, order);
    return message === undefined ? [] : problemAtSetting(configs, "defaults", order, message);
  });
}

/**
 * Checks each pair of limits of which the server itself sets at least one. Pairs of defaults are checked separately.
 */
function checkLimits(server: ServerConfig, defaults: Limits): Problem[] {
  if (server.kind === "unsupported") return [];
  const { input, file, path } = server;
  return LIMIT_ORDERS.flatMap((order): Problem[] => {
    const key = order.find((it) => isSet(input, it));
    const message = key && orderProblem(limitsOf(input, defaults), order);
    return message ? [{ file, path: [...path, ...key.split(".")], at: "value", message }] : [];
  });
}

function orderProblem(limits: Limits, [lesser, greater]: LimitOrder): string | undefined {
  const [shorter, longer] = [getLimit(limits, lesser), getLimit(limits, greater)];
  if (shorter <= longer) return undefined;
  const [shorterText, longerText] = [formatDuration(shorter), formatDuration(longer)];
  return `${lesser} (${shorterText}) is longer than ${greater} (${longerText}); set ${greater} to ${shorterText} or more`;
}

/** The value of a limit, in ms. */
function getLimit(limits: Limits, key: LimitOrder[number]): number {
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

/** Makes a problem whose place is the last file that sets one of the keys. */
export function problemAtSetting(
  configs: readonly FileConfig[],
  table: "hub" | "defaults",
  keys: readonly string[],
  message: string,
): Problem[] {
  const config = configs.findLast((it) => keys.some((key) => isSet(it[table], key)));
  const key = keys.find((it) => config !== undefined && isSet(config[table], it));
  if (config === undefined || key === undefined) return [];
  return [{ file: config.file, path: [table, ...key.split(".")], at: "value", message }];
}

/** Whether a key has a value; dots separate nested tables. */
function isSet(settings: object, key: string): boolean {
  const keys = key.split(".");
  const find = (inner: unknown, name: string) => (isTable(inner) ? inner[name] : undefined);
  return keys.reduce<unknown>(find, settings) !== undefined;
}
