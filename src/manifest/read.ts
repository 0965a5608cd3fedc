import { describe, type Complaint, type Path } from "./problems.ts";
import { readSearch } from "./directories.ts";
import { runnersOf, VARIABLE } from "./package.ts";
import type { Draft, PluginDraft, Program, Reading } from "./file-config.ts";
import {
  defaultsSchema,
  fileSchema,
  hubSchema,
  pluginSchema,
  serverSchema,
  type ServerInput,
} from "./schema.ts";
import { PROCESS_KEYS } from "./process.ts";
import { REMOTE_KEYS } from "./remote.ts";
import { NO_RULES, readSecrets, type SecretRules } from "./secrecy.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { BUILT_IN, explainScheme, parseTemplate } from "./interpolate.ts";
import { findTokenFaults } from "./token.ts";
import { validate } from "./validate.ts";

/** Reads a manifest file in toolmux's schema and collects all its problems. */
export function readOwn(root: unknown): Reading {
  const checked = validate(fileSchema, root, []);
  const table = isTable(root) ? root : {};
  const settings = readSettings(table);
  const secrets = readSecrets(table);
  const search = readSearch(table);
  const listed = readServers(table["servers"] ?? {}, ["servers"], secrets.rules);
  const used = readPlugins(table["plugins"] ?? []);
  return {
    ...settings,
    secrets: secrets.rules,
    directories: search.directories,
    servers: listed.servers,
    plugins: used.plugins,
    complaints: [
      ...(checked.ok ? [] : checked.complaints),
      ...settings.complaints,
      ...secrets.complaints,
      ...search.complaints,
      ...listed.complaints,
      ...used.complaints,
    ],
    unclaimed: listed.unclaimed,
    notes: [],
  };
}

function readPlugins(list: unknown): Pick<Reading, "plugins" | "complaints"> {
  if (!Array.isArray(list)) {
    const message = `expected an array of tables, found ${describe(list, false)}`;
    const advice = isTable(list) ? "; in TOML each begins with [[plugins]]" : "";
    const complaint: Complaint = { path: ["plugins"], at: "value", message: message + advice };
    return { plugins: [], complaints: [complaint] };
  }
  const plugins: PluginDraft[] = [];
  const complaints: Complaint[] = [];
  for (const [index, entry] of (list as readonly unknown[]).entries()) {
    const path = ["plugins", index];
    const checked = validate(pluginSchema, entry, path);
    if (checked.ok) plugins.push({ path, input: checked.value });
    else complaints.push(...checked.complaints);
  }
  return { plugins, complaints };
}

/** Reads the tables `hub` and `defaults`. */
export function readSettings(
  table: Table,
): Pick<Reading, "hub" | "httpToken" | "defaults" | "complaints"> {
  const hub = validate(hubSchema, table["hub"] ?? {}, ["hub"]);
  const defaults = validate(defaultsSchema, table["defaults"] ?? {}, ["defaults"]);
  const { httpToken, ...settings } = hub.ok ? hub.value : {};
  return {
    hub: settings,
    httpToken,
    defaults: defaults.ok ? defaults.value : {},
    complaints: [
      ...[hub, defaults].flatMap((checked) => (checked.ok ? [] : checked.complaints)),
      ...findTokenFaults(httpToken),
    ],
  };
}

/** Reads a table of servers in the manifest's schema. `base`: its path; `secretSettings`: those of the same file. */
export function readServers(
  table: unknown,
  base: Path,
  rules: SecretRules = NO_RULES,
): Pick<Reading, "servers" | "complaints" | "unclaimed"> {
  const servers = new Map<string, Draft>();
  if (!isTable(table)) {
    const message = `expected a table of servers, found ${describe(table, false)}`;
    return { servers, complaints: [{ path: base, at: "value", message }], unclaimed: [] };
  }
  const complaints: Complaint[] = [];
  const unclaimed: Complaint[] = [];
  for (const [name, entry] of Object.entries(table)) {
    const path = [...base, name];
    const checked = validate(serverSchema, entry, path);
    if (!checked.ok) complaints.push(...checked.complaints);
    else complaints.push(...findMisfits(checked.value, path));
    if (isTable(entry)) {
      const forms = findFaults(entry, path, rules);
      complaints.push(...findContradictions(entry, path), ...forms.faults);
      unclaimed.push(...forms.unclaimed);
    }
    if (name === "") complaints.push({ path, at: "key", message: "a server needs a name" });
    servers.set(name, makeDraft(checked.ok ? checked.value : standIn(entry), path));
  }
  return { servers, complaints, unclaimed };
}

/** Without a main key, the server has a problem already and is never used. */
function makeDraft(input: ServerInput, path: Path): Draft {
  const { command = "", package: named, runner, url, plugin } = input;
  if (url !== undefined) return { kind: "remote", syntax: "toolmux", path, url, input };
  if (plugin !== undefined) return { kind: "plugin", path, plugin, input };
  const program: Program =
    named === undefined
      ? { kind: "command", command }
      : { kind: "package", package: named, runner };
  return { kind: "stdio", syntax: "toolmux", path, program, input };
}

/** Problems of `package` with other keys of the server. */
function findMisfits({ package: named, runner, env = {} }: ServerInput, base: Path): Complaint[] {
  if (named === undefined) return [];
  const { origin } = named;
  const runners = runnersOf(origin);
  const isOther = runner !== undefined && !runners.includes(runner);
  const strange = Object.keys(env).filter((name) => origin === "docker" && !VARIABLE.test(name));
  const message = `cannot run a package of ${origin}; expected one of ${runners.join(", ")}`;
  return [
    ...(isOther ? [{ path: [...base, "runner"], at: "value", message } as const] : []),
    ...strange.map((name): Complaint => {
      const path = [...base, "env", name];
      return { path, at: "key", message: "cannot be the name of a variable of a container" };
    }),
  ];
}

/** Problems of keys that cannot occur together: a server is either a process, or remote, or part of a plugin. */
function findContradictions(entry: Table, base: Path): Complaint[] {
  const said = MAIN_KEYS.filter((key) => key in entry);
  const [first, ...others] = said;
  if (first === undefined) return [missCommand(base)];
  const foreign = MAIN_KEYS.flatMap((main) => KEYS_OF[main]);
  const misplaced = [...new Set(foreign)].filter(
    (key) => key in entry && !KEYS_OF[first].includes(key),
  );
  return [
    ...others.map((key): Complaint => {
      const message = `cannot stand beside ${first}: a server is either started with a command or from a package, or has a url, or is part of a plugin`;
      return { path: [...base, key], at: "key", message };
    }),
    ...misplaced.map((key): Complaint => {
      const message = `cannot stand beside ${first}, ${WITHOUT[first]}`;
      return { path: [...base, key], at: "key", message };
    }),
  ];
}

type MainKey = "plugin" | "url" | "package" | "command";

/** The keys that determine the kind of server; the first that is present counts. */
const MAIN_KEYS: readonly MainKey[] = ["plugin", "url", "package", "command"];
/** The keys of a process, however it is started. */
const STARTED = PROCESS_KEYS.filter((key) => !["command", "package", "runner"].includes(key));
const KEYS_OF: Readonly<Record<MainKey, readonly string[]>> = {
  plugin: [],
  url: REMOTE_KEYS.filter((key) => key !== "url"),
  package: [...STARTED, "runner"],
  command: STARTED,
};
const WITHOUT: Readonly<Record<MainKey, string>> = {
  plugin: "which neither starts a process nor goes anywhere",
  url: "where no process is started",
  package: "which starts a process and goes nowhere",
  command: "which is started as it is, and goes nowhere",
};

/** The problem of a server without any main key. */
export function missCommand(base: Path): Complaint {
  return { path: [...base, "command"], at: "value", message: "is missing" };
}

/** The keys of an invalid server that rules between servers still need. */
function standIn(entry: unknown): ServerInput {
  const { prefix, enabled } = isTable(entry) ? entry : createTable<unknown>();
  return {
    ...(typeof prefix === "string" && { prefix }),
    ...(typeof enabled === "boolean" && { enabled }),
  };
}

const NO_COMMANDS =
  "found ${cmd:…}, which runs a command: the file has to allow that with commands = true under [secrets]";

/** Finds every `${…}` that is invalid (`problems`), or that only a plugin can resolve (`schemeProblems`). */
function findFaults(
  { command, cwd, args, env, url, headers, keyFile, ca, oauth }: Table,
  base: Path,
  { commands }: SecretRules,
): { readonly faults: readonly Complaint[]; readonly unclaimed: readonly Complaint[] } {
  const inner = (key: string, value: unknown): (readonly [Path, unknown])[] =>
    Object.entries(isTable(value) ? value : {}).map(([name, text]) => [[key, name], text] as const);
  const texts: (readonly [Path, unknown])[] = [
    [["command"], command],
    [["cwd"], cwd],
    [["url"], url],
    [["keyFile"], keyFile],
    [["ca"], ca],
    ...(Array.isArray(args) ? args : []).map((text: unknown, i) => [["args", i], text] as const),
    ...inner("env", env),
    ...inner("headers", headers),
    ...inner("oauth", oauth),
  ];
  const faults: Complaint[] = [];
  const unclaimed: Complaint[] = [];
  for (const [keys, text] of texts) {
    const place = { path: [...base, ...keys], at: "value" } as const;
    for (const part of parseTemplate(typeof text === "string" ? text : "", "toolmux")) {
      if (part.kind === "fault") faults.push({ ...place, message: `found ${part.message}` });
      if (part.kind === "scheme" && part.scheme === "cmd" && !commands) {
        faults.push({ ...place, message: NO_COMMANDS });
      }
      if (part.kind !== "scheme" || BUILT_IN.has(part.scheme)) continue;
      unclaimed.push({ ...place, message: `found ${explainScheme(part.scheme)}` });
    }
  }
  return { faults, unclaimed };
}
