import process from "node:process";
import type {
  ConfigSource,
  FileConfig,
  LaunchConfig,
  PluginConfig,
  ServerConfig,
} from "./file-config.ts";
import { BUILT_IN_SCHEMES, parseTemplate, unknownSchemeMessage } from "./interpolate.ts";
import { runnersOf, VARIABLE_NAME } from "./package.ts";
import { describeValue, type KeyPath, type UnplacedProblem } from "./problems.ts";
import {
  DEFAULT_SECRET_SETTINGS,
  defaultsSchema,
  fileSchema,
  type HttpToken,
  hubSchema,
  pluginSchema,
  PROCESS_KEYS,
  readSecretSettings,
  registrySchema,
  REMOTE_KEYS,
  type SecretSettings,
  type ServerInput,
  serverSchema,
} from "./schema.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/* The manifest's table `search`: the registries that `toolmux search` uses. */

/** Reads the table `search` of a manifest. @returns `registries` undefined if it is not set or invalid */
export function readRegistrySettings(table: Table): {
  readonly registries: readonly string[] | undefined;
  readonly problems: readonly UnplacedProblem[];
} {
  const checked = validate(registrySchema, table["search"] ?? {}, ["search"]);
  return checked.ok
    ? { registries: checked.value.directories, problems: [] }
    : { registries: undefined, problems: checked.problems };
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

/**
 * A problem for every placeholder that is not supported in the token. Those of plugins are not, because plugins are
 * loaded later.
 */
export function findTokenProblems(token = ""): readonly UnplacedProblem[] {
  const place = { path: ["hub", "httpToken"], at: "value" } as const;
  return parseTemplate(token, "toolmux").flatMap((part) => {
    if (part.kind === "fault") return [{ ...place, message: `found ${part.message}` }];
    if (part.kind !== "scheme" || part.scheme === "secret") return [];
    return [{ ...place, message: `found ${unknownSchemeMessage(part.scheme)}` }];
  });
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
    problems: [
      ...[hub, defaults].flatMap((checked) => (checked.ok ? [] : checked.problems)),
      ...findTokenProblems(httpToken),
    ],
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
    const checked = validate(serverSchema, entry, path);
    if (!checked.ok) problems.push(...checked.problems);
    else problems.push(...packageProblemsOf(checked.value, path));
    if (isTable(entry)) {
      const placeholders = placeholderProblemsOf(entry, path, secretSettings);
      problems.push(...conflictingKeysOf(entry, path), ...placeholders.problems);
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

/** Problems of `package` in combination with other keys of the server. */
function packageProblemsOf(
  { package: packageSpec, runner, env = {} }: ServerInput,
  base: KeyPath,
): UnplacedProblem[] {
  if (packageSpec === undefined) return [];
  const { origin } = packageSpec;
  const runners = runnersOf(origin);
  const isWrongRunner = runner !== undefined && !runners.includes(runner);
  const invalidNames = Object.keys(env).filter(
    (name) => origin === "docker" && !VARIABLE_NAME.test(name),
  );
  const message = `cannot run a package of ${origin}; expected one of ${runners.join(", ")}`;
  return [
    ...(isWrongRunner ? [{ path: [...base, "runner"], at: "value", message } as const] : []),
    ...invalidNames.map((name): UnplacedProblem => {
      const path = [...base, "env", name];
      return { path, at: "key", message: "cannot be the name of a variable of a container" };
    }),
  ];
}

/** Problems of keys that cannot occur together: a server is either a process, or remote, or part of a plugin. */
function conflictingKeysOf(entry: Table, base: KeyPath): UnplacedProblem[] {
  const mainKeys = MAIN_KEYS.filter((key) => key in entry);
  const [first, ...others] = mainKeys;
  if (first === undefined) return [missingCommandProblem(base)];
  const excludedKeys = MAIN_KEYS.flatMap((main) => EXCLUDED_KEYS[main]);
  const misplaced = [...new Set(excludedKeys)].filter(
    (key) => key in entry && !EXCLUDED_KEYS[first].includes(key),
  );
  return [
    ...others.map((key): UnplacedProblem => {
      const message = `cannot stand beside ${first}: a server is either started with a command or from a package, or has a url, or is part of a plugin`;
      return { path: [...base, key], at: "key", message };
    }),
    ...misplaced.map((key): UnplacedProblem => {
      const message = `cannot stand beside ${first}, ${EXCLUSION_REASONS[first]}`;
      return { path: [...base, key], at: "key", message };
    }),
  ];
}

type MainKey = "plugin" | "url" | "package" | "command";

/** The keys that determine the kind of server; the first that is present counts. */
const MAIN_KEYS: readonly MainKey[] = ["plugin", "url", "package", "command"];
/** The keys of a process, however it is started. */
const PROCESS_ONLY_KEYS = PROCESS_KEYS.filter(
  (key) => !["command", "package", "runner"].includes(key),
);
const EXCLUDED_KEYS: Readonly<Record<MainKey, readonly string[]>> = {
  plugin: [],
  url: REMOTE_KEYS.filter((key) => key !== "url"),
  package: [...PROCESS_ONLY_KEYS, "runner"],
  command: PROCESS_ONLY_KEYS,
};
const EXCLUSION_REASONS: Readonly<Record<MainKey, string>> = {
  plugin: "which neither starts a process nor goes anywhere",
  url: "where no process is started",
  package: "which starts a process and goes nowhere",
  command: "which is started as it is, and goes nowhere",
};

/** The problem of a server without any main key. */
export function missingCommandProblem(base: KeyPath): UnplacedProblem {
  return { path: [...base, "command"], at: "value", message: "is missing" };
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

/** Finds every `${…}` that is invalid (`problems`), or that only a plugin can resolve (`schemeProblems`). */
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
