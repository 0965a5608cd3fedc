import process from "node:process";
import type {
  ConfigSource,
  FileConfig,
  LaunchConfig,
  PluginConfig,
  ServerConfig,
} from "./file-config.ts";
import { BUILT_IN_SCHEMES, parseTemplate, unknownSchemeMessage } from "./interpolate.ts";
import { describeValue, findNearest, type KeyPath, type UnplacedProblem } from "./problems.ts";
import type { HttpToken } from "./manifest.ts";
import {
  DEFAULT_SECRET_SETTINGS,
  defaultsSchema,
  fileSchema,
  hubSchema,
  manifestServerSchema,
  pluginSchema,
  registrySchema,
  SECRET_SOURCES,
  type SecretSettings,
  secretsSchema,
  type ServerInput,
  SOURCE_NAMES,
} from "./schema.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/* The manifest's table `search`: the registries that `toolmux search` uses. */

/** Reads the table `search` of a manifest. @returns `registries` undefined if it is not set or invalid */
function readRegistrySettings(table: Table): {
  readonly registries: readonly string[] | undefined;
  readonly problems: readonly UnplacedProblem[];
} {
  const checked = validate(registrySchema, table["search"] ?? {}, ["search"]);
  return checked.ok
    ? { registries: checked.value.directories, problems: [] }
    : { registries: undefined, problems: checked.problems };
}

/** Reads the table `secrets` of a manifest. */
function readSecretSettings(secretsTable: Table): {
  readonly settings: SecretSettings;
  readonly problems: readonly UnplacedProblem[];
} {
  const checked = validate(secretsSchema, secretsTable["secrets"] ?? {}, ["secrets"]);
  if (checked.ok) {
    const { sources, commands = false } = checked.value;
    return { settings: { sources, commands }, problems: [] };
  }
  const problems = checked.problems.map((problem) =>
    suggestSource(problem, secretsTable["secrets"]),
  );
  // `commands` counts even if other settings of the table are invalid: otherwise every `${cmd:…}` would be reported as
  // not allowed, too.
  const commands = isTable(secretsTable["secrets"]) && secretsTable["secrets"]["commands"] === true;
  return { settings: { sources: undefined, commands }, problems };
}

const KEYCHAIN_ADVICE =
  'found "keychain", where secrets are no longer looked for: take it out, and set each secret that is there again (toolmux secret set NAME)';

/**
 * If the problem is an unknown secret source, adds to the message the source that was probably meant, or what to do
 * instead of naming a source of earlier versions. The schema cannot say so itself: the advice comes after what was
 * found, which `validate` adds.
 */
function suggestSource(problem: UnplacedProblem, secretsTable: unknown): UnplacedProblem {
  const [, key, at] = problem.path;
  const sources = isTable(secretsTable) ? secretsTable["sources"] : undefined;
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

/** The registries of the last file that names any. */
export function pickRegistries(sources: readonly ConfigSource[]): readonly string[] | undefined {
  return sources.findLast(({ fileConfig: reading }) => reading.registries !== undefined)?.fileConfig
    .registries;
}

/* `hub.httpToken`: the token that HTTP clients must send. */

/** The token of the last file that sets one. */
export function pickHttpToken(sources: readonly ConfigSource[]): HttpToken | undefined {
  const source = sources.findLast(({ fileConfig: reading }) => reading.httpToken !== undefined);
  const token = source?.fileConfig.httpToken;
  if (source === undefined || token === undefined) return undefined;
  return { text: token, file: source.file, baseDir: source.baseDir };
}

/** The warning for a plain-text token in a file that other users can read. */
export async function describeTokenExposure({
  text: token,
  file,
}: HttpToken): Promise<readonly string[]> {
  if (parseTemplate(token, "toolmux").some(({ kind }) => kind !== "text")) return [];
  const { stat } = process.getBuiltinModule("node:fs/promises");
  const mode = await stat(file).then(
    (stats) => stats.mode,
    () => 0,
  );
  if ((mode & OTHERS_READ) === 0) return [];
  return [
    `${file}: hub.httpToken stands there as it is, and others can read the file: write \${secret:NAME}, \${env:NAME} or \${file:PATH}, or keep the file to yourself (chmod 600)`,
  ];
}
/** The mode bits for reading by group and others. */
const OTHERS_READ = 0o044;

/** Reads a manifest file in toolmux's schema and collects all its problems. */
export function readManifestFile(root: unknown): FileConfig {
  const checked = validate(fileSchema, root, []);
  const table = isTable(root) ? root : {};
  const settings = readHubSettings(table);
  const secrets = readSecretSettings(table);
  const search = readRegistrySettings(table);
  const serverTable = readServers(table["servers"] ?? {}, ["servers"], secrets.settings);
  const pluginList = readPlugins(table["plugins"] ?? []);
  return {
    ...settings,
    secrets: secrets.settings,
    registries: search.registries,
    servers: serverTable.servers,
    plugins: pluginList.plugins,
    problems: [
      ...(checked.ok ? [] : checked.problems),
      ...settings.problems,
      ...secrets.problems,
      ...search.problems,
      ...serverTable.problems,
      ...pluginList.problems,
    ],
    schemeProblems: serverTable.schemeProblems,
    notes: [],
  };
}

function readPlugins(list: unknown): Pick<FileConfig, "plugins" | "problems"> {
  if (!Array.isArray(list)) {
    const message = `expected an array of tables, found ${describeValue(list, false)}`;
    const advice = isTable(list) ? "; in TOML each begins with [[plugins]]" : "";
    const problem: UnplacedProblem = { path: ["plugins"], at: "value", message: message + advice };
    return { plugins: [], problems: [problem] };
  }
  const plugins: PluginConfig[] = [];
  const problems: UnplacedProblem[] = [];
  for (const [index, entry] of (list as readonly unknown[]).entries()) {
    const path = ["plugins", index];
    const checked = validate(pluginSchema, entry, path);
    if (checked.ok) plugins.push({ path, input: checked.value });
    else problems.push(...checked.problems);
  }
  return { plugins, problems };
}

/** Reads the tables `hub` and `defaults`. */
export function readHubSettings(
  table: Table,
): Pick<FileConfig, "hub" | "httpToken" | "defaults" | "problems"> {
  const hub = validate(hubSchema, table["hub"] ?? {}, ["hub"]);
  const defaults = validate(defaultsSchema, table["defaults"] ?? {}, ["defaults"]);
  const { httpToken, ...settings } = hub.ok ? hub.value : {};
  return {
    hub: settings,
    httpToken,
    defaults: defaults.ok ? defaults.value : {},
    problems: [hub, defaults].flatMap((checked) => (checked.ok ? [] : checked.problems)),
  };
}

/** Reads a table of servers in the manifest's schema. `base`: its path; `secretSettings`: those of the same file. */
export function readServers(
  table: unknown,
  base: KeyPath,
  secretSettings: SecretSettings = DEFAULT_SECRET_SETTINGS,
): Pick<FileConfig, "servers" | "problems" | "schemeProblems"> {
  const servers = new Map<string, ServerConfig>();
  if (!isTable(table)) {
    const message = `expected a table of servers, found ${describeValue(table, false)}`;
    return { servers, problems: [{ path: base, at: "value", message }], schemeProblems: [] };
  }
  const problems: UnplacedProblem[] = [];
  const schemeProblems: UnplacedProblem[] = [];
  for (const [name, entry] of Object.entries(table)) {
    const path = [...base, name];
    const checked = validate(manifestServerSchema, entry, path);
    if (!checked.ok) problems.push(...checked.problems);
    if (isTable(entry)) {
      const placeholders = placeholderProblemsOf(entry, path, secretSettings);
      problems.push(...placeholders.problems);
      schemeProblems.push(...placeholders.schemeProblems);
    }
    if (name === "") problems.push({ path, at: "key", message: "a server needs a name" });
    servers.set(name, makeServerConfig(checked.ok ? checked.value : inputOfInvalid(entry), path));
  }
  return { servers, problems, schemeProblems };
}

/** Builds a server's config. A server without a main key already has a problem, so its config is never used. */
function makeServerConfig(input: ServerInput, path: KeyPath): ServerConfig {
  const { command = "", package: packageSpec, runner, url, plugin } = input;
  if (url !== undefined) return { kind: "remote", syntax: "toolmux", path, url, input };
  if (plugin !== undefined) return { kind: "plugin", path, plugin, input };
  const program: LaunchConfig =
    packageSpec === undefined
      ? { kind: "command", command }
      : { kind: "package", package: packageSpec, runner };
  return { kind: "stdio", syntax: "toolmux", path, launch: program, input };
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
  "found ${cmd:…}, which runs a command: the file has to allow that with commands = true under [secrets]";

/**
 * Finds every `${…}` that is invalid (`problems`), or that only a plugin can resolve (`schemeProblems`). No check of the
 * schema does so, because the same texts have another syntax in clients' files, and because other tables of the file
 * (`secrets.commands`) and of other files (`plugins`) determine what is valid.
 */
function placeholderProblemsOf(
  { command, cwd, args, env, url, headers, keyFile, ca, oauth }: Table,
  base: KeyPath,
  { commands }: SecretSettings,
): {
  readonly problems: readonly UnplacedProblem[];
  readonly schemeProblems: readonly UnplacedProblem[];
} {
  const inner = (key: string, value: unknown): (readonly [KeyPath, unknown])[] =>
    Object.entries(isTable(value) ? value : {}).map(
      ([name, entry]) => [[key, name], entry] as const,
    );
  const texts: (readonly [KeyPath, unknown])[] = [
    [["command"], command],
    [["cwd"], cwd],
    [["url"], url],
    [["keyFile"], keyFile],
    [["ca"], ca],
    ...(Array.isArray(args) ? args : []).map((value: unknown, i) => [["args", i], value] as const),
    ...inner("env", env),
    ...inner("headers", headers),
    ...inner("oauth", oauth),
  ];
  const problems: UnplacedProblem[] = [];
  const schemeProblems: UnplacedProblem[] = [];
  for (const [keys, value] of texts) {
    const place = { path: [...base, ...keys], at: "value" } as const;
    for (const part of parseTemplate(typeof value === "string" ? value : "", "toolmux")) {
      if (part.kind === "fault") problems.push({ ...place, message: `found ${part.message}` });
      if (part.kind === "scheme" && part.scheme === "cmd" && !commands) {
        problems.push({ ...place, message: COMMANDS_NOT_ALLOWED });
      }
      if (part.kind !== "scheme" || BUILT_IN_SCHEMES.has(part.scheme)) continue;
      schemeProblems.push({ ...place, message: `found ${unknownSchemeMessage(part.scheme)}` });
    }
  }
  return { problems, schemeProblems };
}
