import { resolve } from "node:path";
import type { GenericSchema } from "valibot";
import { notesOf } from "../fields.ts";
import type {
  AgentConfig,
  FileConfig,
  LaunchConfig,
  ModelConfig,
  PluginConfig,
  ServerConfig,
  SourceFile,
} from "./file-config.ts";
import { BUILT_IN_SCHEMES, parseTemplate, unknownSchemeMessage } from "../interpolate.ts";
import { readModes } from "../modes.ts";
import { readNamedClients } from "../named-clients.ts";
import {
  describeValue,
  findNearest,
  type KeyPath,
  type Problem,
  type SpecSource,
} from "../problems.ts";
import {
  DEFAULT_SECRET_SETTINGS,
  agentNameProblem,
  agentFilesSchema,
  defaultsSchema,
  fileSchema,
  hubLimitsSchema,
  fleetSchema,
  hubSchema,
  manifestAgentSchema,
  manifestModelSchema,
  manifestServerSchema,
  modelSchema,
  pluginSchema,
  registrySchema,
  SECRET_SOURCES,
  type SecretSettings,
  secretsSchema,
  type ServerInput,
  serverSchema,
  SOURCE_NAMES,
  telemetrySchema,
  toolSearchSchema,
} from "../schema.ts";
import { createTable, isTable, type Table } from "../table.ts";
import { readToolsets } from "../toolsets.ts";
import { validate, type ValidationResult } from "../validate.ts";

/** Reads a manifest file in toolmux's schema and collects all its problems. */
export function readManifestFile(root: unknown, source: SourceFile): FileConfig {
  const { file, baseDir } = source;
  const checked = validate(fileSchema, root, { file, path: [] });
  const table = isTable(root) ? root : {};
  const settings = readHubSettings(table, source);
  const secrets = readSecretSettings(table, file);
  const search = readSettings(registrySchema, table, "search", file);
  const toolSearch = readSettings(toolSearchSchema, table, "toolSearch", file);
  const limits = readSettings(hubLimitsSchema, table, "limits", file);
  const telemetry = readSettings(telemetrySchema, table, "telemetry", file);
  const serverTable = readServers(table["servers"] ?? {}, source, ["servers"], secrets.settings);
  const modelTable = readModels(table["models"] ?? {}, source, secrets.settings);
  const agentTable = readAgents(table["agents"] ?? {}, source);
  const files = readSettings(agentFilesSchema, table, "agentFiles", file);
  const fileTable = table["agentFiles"];
  const toolsetTable = isTable(fileTable) ? fileTable["toolsets"] : undefined;
  const { toolsets, problems: toolsetProblems } = readToolsets(toolsetTable, source);
  const pluginList = readPlugins(table["plugins"] ?? [], file);
  const modeTable = readModes(table["modes"] ?? {}, source);
  const clientList = readNamedClients(table["clients"] ?? [], source);
  const fleet = readFleet(table["fleet"], source);
  return {
    file,
    baseDir,
    ...settings,
    secrets: secrets.settings,
    registries: search.ok ? search.value.directories : undefined,
    toolSearch: toolSearch.ok ? toolSearch.value : undefined,
    limits: limits.ok ? limits.value : undefined,
    telemetry:
      telemetry.ok && isTable(table["telemetry"])
        ? { input: telemetry.value, file, baseDir }
        : undefined,
    servers: serverTable.servers,
    models: modelTable.models,
    agents: agentTable.agents,
    agentFiles:
      files.ok && "agentFiles" in table ? { ...files.value, toolsets, file, baseDir } : undefined,
    plugins: pluginList.plugins,
    modes: modeTable.modes,
    clients: clientList.clients,
    fleet: fleet.fleet,
    problems: [
      ...(checked.ok ? [] : checked.problems),
      ...settings.problems,
      ...secrets.problems,
      ...(search.ok ? [] : search.problems),
      ...(toolSearch.ok ? [] : toolSearch.problems),
      ...(limits.ok ? [] : limits.problems),
      ...(telemetry.ok ? [] : telemetry.problems),
      ...serverTable.problems,
      ...modelTable.problems,
      ...agentTable.problems,
      ...(files.ok ? toolsetProblems : files.problems),
      ...pluginList.problems,
      ...modeTable.problems,
      ...clientList.problems,
      ...fleet.problems,
    ],
    schemeProblems: [...serverTable.schemeProblems, ...modelTable.schemeProblems],
    notes: [],
  };
}

/**
 * Validates a table of optional settings under a key of the root. If there is none, no schema is made, because making
 * one takes longer than all else that is done with a small manifest.
 */
function readSettings<Settings extends object>(
  schema: () => GenericSchema<unknown, Settings>,
  root: Table,
  key: string,
  file: string,
): ValidationResult<Settings | Partial<Settings>> {
  const settings = root[key] ?? undefined;
  if (settings === undefined) return { ok: true, value: {} as Partial<Settings> };
  return validate(schema(), settings, { file, path: [key] });
}

function readFleet(
  entry: unknown,
  { file, baseDir }: SourceFile,
): Pick<FileConfig, "fleet" | "problems"> {
  if (entry === undefined || entry === null) return { fleet: undefined, problems: [] };
  const checked = validate(fleetSchema(), entry, { file, path: ["fleet"] });
  if (!checked.ok) return { fleet: undefined, problems: checked.problems };
  return { fleet: { ...checked.value, file, baseDir }, problems: [] };
}

function readSecretSettings(
  root: Table,
  file: string,
): { readonly settings: SecretSettings; readonly problems: readonly Problem[] } {
  const checked = readSettings(secretsSchema, root, "secrets", file);
  if (checked.ok) {
    const { sources, commands = false } = checked.value;
    return { settings: { sources, commands }, problems: [] };
  }
  const table = root["secrets"];
  const problems = checked.problems.map((problem) => suggestSource(problem, table));
  // `commands` counts even if other settings of the table are invalid: otherwise every `${cmd:…}` would be reported as
  // not allowed, too.
  const commands = isTable(table) && table["commands"] === true;
  return { settings: { sources: undefined, commands }, problems };
}

const KEYCHAIN_ADVICE =
  'found "keychain", which is not supported any more: remove it, and set each secret again with: toolmux secret set NAME';

/**
 * Completes the problem of an unknown secret source: its message suggests the source that was probably meant or, for
 * the source `keychain` of earlier versions, says what to do instead.
 */
function suggestSource(problem: Problem, table: unknown): Problem {
  const [, key, at] = problem.path;
  const sources = isTable(table) ? table["sources"] : undefined;
  if (key !== "sources" || typeof at !== "number" || !Array.isArray(sources)) return problem;
  const found: unknown = sources[at];
  if (found === "keychain") return { ...problem, message: KEYCHAIN_ADVICE };
  const nearest = typeof found === "string" ? findNearest(found, SECRET_SOURCES) : undefined;
  if (nearest === undefined || nearest === found) return problem;
  return {
    ...problem,
    message: `expected one of ${SOURCE_NAMES}, found ${describeValue(found, true)}; did you mean "${nearest}"?`,
  };
}

function readPlugins(list: unknown, file: string): Pick<FileConfig, "plugins" | "problems"> {
  if (!Array.isArray(list)) {
    const message = `expected an array of tables, found ${describeValue(list, false)}`;
    const advice = isTable(list) ? "; in TOML, write [[plugins]] before each plugin" : "";
    const problem = { file, path: ["plugins"], at: "value", message: message + advice } as const;
    return { plugins: [], problems: [problem] };
  }
  const plugins: PluginConfig[] = [];
  const problems: Problem[] = [];
  for (const [index, entry] of (list as readonly unknown[]).entries()) {
    const path = ["plugins", index];
    const checked = validate(pluginSchema(), entry, { file, path });
    if (checked.ok) plugins.push({ path, input: checked.value });
    else problems.push(...checked.problems);
  }
  return { plugins, problems };
}

function readModels(
  table: unknown,
  { file, baseDir }: SourceFile,
  secretSettings: SecretSettings,
): Pick<FileConfig, "problems" | "schemeProblems"> & {
  readonly models: ReadonlyMap<string, ModelConfig>;
} {
  const models = new Map<string, ModelConfig>();
  if (!isTable(table)) {
    const message = `expected a table of models, found ${describeValue(table, false)}`;
    const problem = { file, path: ["models"], at: "value", message } as const;
    return { models, problems: [problem], schemeProblems: [] };
  }
  const problems: Problem[] = [];
  const schemeProblems: Problem[] = [];
  for (const [name, entry] of Object.entries(table)) {
    const path = ["models", name];
    const checked = validate(manifestModelSchema(), entry, { file, path });
    const own: Problem[] = checked.ok ? [] : [...checked.problems];
    if (isTable(entry)) {
      const templates = templatesIn(entry, modelSchema());
      const found = placeholderProblemsIn(templates, { file, path }, secretSettings);
      own.push(...found.problems);
      schemeProblems.push(...found.schemeProblems);
    }
    if (name === "") own.push({ file, path, at: "key", message: "a model needs a name" });
    problems.push(...own);
    const input = checked.ok && own.length === 0 ? checked.value : undefined;
    models.set(name, { name, file, baseDir, path, input });
  }
  return { models, problems, schemeProblems };
}

function readAgents(
  table: unknown,
  { file, baseDir }: SourceFile,
): Pick<FileConfig, "problems"> & { readonly agents: ReadonlyMap<string, AgentConfig> } {
  const agents = new Map<string, AgentConfig>();
  if (!isTable(table)) {
    const message = `expected a table of agents, found ${describeValue(table, false)}`;
    return { agents, problems: [{ file, path: ["agents"], at: "value", message }] };
  }
  const problems: Problem[] = [];
  for (const [name, entry] of Object.entries(table)) {
    const path = ["agents", name];
    const checked = validate(manifestAgentSchema(), entry, { file, path });
    if (!checked.ok) problems.push(...checked.problems);
    const message = agentNameProblem(name);
    if (message !== undefined) problems.push({ file, path, at: "key", message });
    const input = checked.ok && message === undefined ? checked.value : undefined;
    agents.set(name, { name, file, baseDir, path, input });
  }
  return { agents, problems };
}

/** Reads the tables `hub` and `defaults`. */
export function readHubSettings(
  table: Table,
  { file, baseDir }: SourceFile,
): Pick<FileConfig, "hub" | "httpToken" | "pinFile" | "defaults" | "problems"> {
  const hub = readSettings(hubSchema, table, "hub", file);
  const defaults = readSettings(defaultsSchema, table, "defaults", file);
  const { httpToken: text, pinFile, ...settings } = hub.ok ? hub.value : {};
  return {
    hub: settings,
    httpToken: text === undefined ? undefined : { text, file, baseDir },
    pinFile: pinFile === undefined ? undefined : resolve(baseDir, pinFile),
    defaults: defaults.ok ? defaults.value : {},
    problems: [hub, defaults].flatMap((checked) => (checked.ok ? [] : checked.problems)),
  };
}

/**
 * Reads a table of servers in the manifest's schema. `base`: the path of the table; `secretSettings`: the secret
 * settings of the same file.
 */
export function readServers(
  table: unknown,
  { file, baseDir }: SourceFile,
  base: KeyPath,
  secretSettings: SecretSettings = DEFAULT_SECRET_SETTINGS,
): Pick<FileConfig, "servers" | "problems" | "schemeProblems"> {
  const servers = new Map<string, ServerConfig>();
  if (!isTable(table)) {
    const message = `expected a table of servers, found ${describeValue(table, false)}`;
    return { servers, problems: [{ file, path: base, at: "value", message }], schemeProblems: [] };
  }
  const problems: Problem[] = [];
  const schemeProblems: Problem[] = [];
  for (const [name, entry] of Object.entries(table)) {
    const path = [...base, name];
    const checked = validate(manifestServerSchema, entry, { file, path });
    if (!checked.ok) problems.push(...checked.problems);
    if (isTable(entry)) {
      const templates = templatesIn(entry, serverSchema);
      const placeholders = placeholderProblemsIn(templates, { file, path }, secretSettings);
      problems.push(...placeholders.problems);
      schemeProblems.push(...placeholders.schemeProblems);
    }
    if (name === "") problems.push({ file, path, at: "key", message: "a server needs a name" });
    const input = checked.value ?? inputOfInvalid(entry);
    servers.set(name, { name, file, baseDir, path, ...kindOf(input), input });
  }
  return { servers, problems, schemeProblems };
}

/**
 * The kind of a server, with its main key. A server without a main key has a problem already, so its empty command is
 * never used.
 */
function kindOf({ command = "", package: packageSpec, runner, url, plugin, fleet }: ServerInput) {
  if (url !== undefined) return { kind: "remote", syntax: "toolmux", url } as const;
  if (plugin !== undefined) return { kind: "plugin", plugin } as const;
  if (fleet !== undefined) return { kind: "fleet", fleet } as const;
  const program: LaunchConfig =
    packageSpec === undefined
      ? { kind: "command", command }
      : { kind: "package", package: packageSpec, runner };
  return { kind: "stdio", syntax: "toolmux", launch: program } as const;
}

/** The keys of an invalid server that are still needed to check other servers. */
function inputOfInvalid(entry: unknown): ServerInput {
  const { prefix, enabled } = isTable(entry) ? entry : createTable<unknown>();
  return {
    ...(typeof prefix === "string" && { prefix }),
    ...(typeof enabled === "boolean" && { enabled }),
  };
}

const COMMANDS_NOT_ALLOWED =
  "found ${cmd:…}, which runs a command; to allow that, set commands = true in the table [secrets] of this file";

/** The values of the keys that may hold `${…}`, with their paths: the texts, and what is in arrays and tables of texts. */
function templatesIn(
  entry: Table,
  { entries }: { readonly entries: Readonly<Record<string, GenericSchema>> },
): readonly (readonly [KeyPath, unknown])[] {
  return Object.entries(entry).flatMap(([key, value]): (readonly [KeyPath, unknown])[] => {
    const schema = Object.hasOwn(entries, key) ? entries[key] : undefined;
    if (schema === undefined || notesOf(schema)?.template !== true) return [];
    if (Array.isArray(value)) return value.map((item: unknown, at) => [[key, at], item]);
    if (isTable(value)) return Object.entries(value).map(([name, item]) => [[key, name], item]);
    return [[[key], value]];
  });
}

/**
 * Finds every `${…}` that is invalid (`problems`), or that only a plugin can resolve (`schemeProblems`). The schema
 * cannot check placeholders: it also reads the files of clients, whose placeholders have another syntax, and which
 * placeholders are valid depends on the tables `secrets` and `plugins`.
 */
function placeholderProblemsIn(
  texts: readonly (readonly [KeyPath, unknown])[],
  { file, path: base }: SpecSource,
  { commands }: SecretSettings,
): Pick<FileConfig, "problems" | "schemeProblems"> {
  const problems: Problem[] = [];
  const schemeProblems: Problem[] = [];
  for (const [keys, value] of texts) {
    const place = { file, path: [...base, ...keys], at: "value" } as const;
    for (const part of parseTemplate(typeof value === "string" ? value : "", "toolmux")) {
      if (part.kind === "invalid") problems.push({ ...place, message: `found ${part.message}` });
      if (part.kind === "scheme" && part.scheme === "cmd" && !commands) {
        problems.push({ ...place, message: COMMANDS_NOT_ALLOWED });
      }
      if (part.kind !== "scheme" || BUILT_IN_SCHEMES.has(part.scheme)) continue;
      schemeProblems.push({ ...place, message: `found ${unknownSchemeMessage(part.scheme)}` });
    }
  }
  return { problems, schemeProblems };
}
