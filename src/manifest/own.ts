import { describe, type Complaint, type Path } from "./problem.ts";
import type { Draft, PluginDraft, Reading } from "./reading.ts";
import {
  defaultsSchema,
  fileSchema,
  hubSchema,
  pluginSchema,
  PROCESS_KEYS,
  serverSchema,
  type ServerInput,
} from "./schema.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { explainScheme, parseTemplate } from "./template.ts";
import { findTokenFaults } from "./token.ts";
import { validate } from "./validate.ts";

/** Reads a file in our own schema: whatever is wrong in it is a complaint. */
export function readOwn(root: unknown): Reading {
  const checked = validate(fileSchema, root, []);
  const table = isTable(root) ? root : {};
  const settings = readSettings(table);
  const listed = readServers(table["servers"] ?? {}, ["servers"]);
  const used = readPlugins(table["plugins"] ?? []);
  return {
    ...settings,
    servers: listed.servers,
    plugins: used.plugins,
    complaints: [
      ...(checked.ok ? [] : checked.complaints),
      ...settings.complaints,
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

/** Reads what a file says of the hub itself. */
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

/** Reads a table of servers in our own schema, found under `base`. */
export function readServers(
  table: unknown,
  base: Path,
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
    if (isTable(entry)) {
      const forms = findFaults(entry, path);
      complaints.push(...findContradictions(entry, path), ...forms.faults);
      unclaimed.push(...forms.unclaimed);
    }
    if (name === "") complaints.push({ path, at: "key", message: "a server needs a name" });
    servers.set(name, makeDraft(checked.ok ? checked.value : standIn(entry), path));
  }
  return { servers, complaints, unclaimed };
}

/** One with neither command nor plugin has a complaint and so will never be used. */
function makeDraft(input: ServerInput, path: Path): Draft {
  const { command = "", plugin } = input;
  return plugin === undefined
    ? { kind: "stdio", syntax: "toolmux", path, command, input }
    : { kind: "plugin", path, plugin, input };
}

/** A server is either a process or a part of a plugin. */
function findContradictions(entry: Table, base: Path): Complaint[] {
  if (!("plugin" in entry)) return "command" in entry ? [] : [missCommand(base)];
  return PROCESS_KEYS.filter((key) => key in entry).map((key) => ({
    path: [...base, key],
    at: "key",
    message:
      key === "command"
        ? "cannot stand beside plugin: a server is either started with a command or part of a plugin"
        : "cannot stand beside plugin, which starts no process",
  }));
}

/** The complaint about a server that says nothing of what it is. */
export function missCommand(base: Path): Complaint {
  return { path: [...base, "command"], at: "value", message: "is missing" };
}

/** What the rules between servers need to know of one that has a complaint and so will never be used. */
function standIn(entry: unknown): ServerInput {
  const { prefix, enabled } = isTable(entry) ? entry : createTable<unknown>();
  return {
    ...(typeof prefix === "string" && { prefix }),
    ...(typeof enabled === "boolean" && { enabled }),
  };
}

/** Every `${…}` that could never be filled in, or by a plugin only. */
function findFaults(
  { command, cwd, args, env }: Table,
  base: Path,
): { readonly faults: readonly Complaint[]; readonly unclaimed: readonly Complaint[] } {
  const texts: (readonly [Path, unknown])[] = [
    [["command"], command],
    [["cwd"], cwd],
    ...(Array.isArray(args) ? args : []).map((text: unknown, i) => [["args", i], text] as const),
    ...Object.entries(isTable(env) ? env : {}).map(([key, text]) => [["env", key], text] as const),
  ];
  const faults: Complaint[] = [];
  const unclaimed: Complaint[] = [];
  for (const [keys, text] of texts) {
    const place = { path: [...base, ...keys], at: "value" } as const;
    for (const part of parseTemplate(typeof text === "string" ? text : "", "toolmux")) {
      if (part.kind === "fault") faults.push({ ...place, message: `found ${part.message}` });
      if (part.kind !== "scheme") continue;
      unclaimed.push({ ...place, message: `found ${explainScheme(part.scheme)}` });
    }
  }
  return { faults, unclaimed };
}
