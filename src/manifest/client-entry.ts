import { missCommand, readSettings } from "./read.ts";
import { describe, printKey, printPath, type Complaint } from "./problems.ts";
import { defaultsSchema, serverSchema } from "./schema.ts";
import type { Draft, Reading } from "./file-config.ts";
import { ITSELF, startsItself } from "./own-entry.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/**
 * Reads a file written for an MCP client: `mcpServers`, or `servers` as in VS Code. Unknown keys and invalid limits are
 * ignored, and an entry that cannot be run affects only itself. `hub` and `defaults` are toolmux's own keys here, too.
 */
export function readForeign(root: Table): Reading {
  const servers = new Map<string, Draft>();
  const settings = readSettings(root);
  const complaints: Complaint[] = [...settings.complaints];
  const notes: string[] = [];
  const ignored = new Set<string>();
  // A client's file must not cause code to be loaded.
  if ("plugins" in root) ignored.add("plugins");
  // Nor a command to be run for a value.
  if ("secrets" in root) ignored.add("secrets");
  const groups = ["servers", "mcpServers"].filter((key) => key in root);
  if (groups.length === 0) notes.push("has neither mcpServers nor servers in it");
  for (const group of groups) {
    const table = root[group];
    if (!isTable(table)) {
      const message = `expected a table of servers, found ${describe(table, false)}`;
      complaints.push({ path: [group], at: "value", message });
      continue;
    }
    for (const [name, entry] of Object.entries(table)) {
      const draft = readEntry([group, name], entry, ignored, notes);
      servers.set(name, draft);
      if (draft.kind === "unsupported" && draft.enabled) {
        notes.push(`server ${JSON.stringify(name)} is left out: ${draft.reason}`);
      }
    }
  }
  if (ignored.size > 0) {
    notes.push(`keys that mean nothing to toolmux were ignored: ${[...ignored].join(", ")}`);
  }
  return { ...settings, servers, plugins: [], complaints, unclaimed: [], notes };
}

function readEntry(
  path: readonly string[],
  entry: unknown,
  ignored: Set<string>,
  notes: string[],
): Draft {
  if (!isTable(entry)) {
    return { kind: "unsupported", enabled: true, path, reason: "its entry is no table" };
  }
  const enabled = entry["disabled"] !== true && entry["enabled"] !== false;
  const reason = findObstacle(entry, path.at(-1));
  if (reason !== undefined) return { kind: "unsupported", enabled, path, reason };
  const server = dropLimits(translate(entry, ignored), path, enabled ? notes : []);
  const checked = validate(serverSchema, { ...server, enabled }, path);
  const { command, url } = checked.ok ? checked.value : {};
  if (checked.ok && command !== undefined) {
    const program = { kind: "command", command } as const;
    return { kind: "stdio", syntax: "foreign", path, program, input: checked.value };
  }
  if (checked.ok && url !== undefined) {
    return { kind: "remote", syntax: "foreign", path, url, input: checked.value };
  }
  const complaints = [
    ...("command" in server || "url" in server ? [] : [missCommand(path)]),
    ...(checked.ok ? [] : checked.complaints),
  ];
  return { kind: "unsupported", enabled, path, reason: printFaults(complaints, path) };
}

const LIMITS = new Set(Object.keys(defaultsSchema.entries));

/** Drops limits that are invalid here: another client may use such a key with another meaning. */
function dropLimits(server: Table, path: readonly string[], notes: string[]): Table {
  const kept = createTable<unknown>();
  for (const [key, value] of Object.entries(server)) {
    const checked = LIMITS.has(key) ? validate(defaultsSchema, { [key]: value }, path) : undefined;
    if (checked?.ok !== false) kept[key] = value;
    else {
      const faults = printFaults(checked.complaints, [...path, key]);
      notes.push(`server ${JSON.stringify(path.at(-1))}: ${key} is ignored: ${faults}`);
    }
  }
  return kept;
}

function printFaults(complaints: readonly Complaint[], base: readonly string[]): string {
  const faults = complaints.map(({ path, message }) =>
    `${printPath(path.slice(base.length))} ${message}`.trim(),
  );
  return faults.join("; ");
}

/** The keys that clients use for a server's URL. */
const URL_KEYS = ["url", "serverUrl", "httpUrl"] as const;

function findObstacle(entry: Table, name: string | undefined): string | undefined {
  const { command, args } = entry;
  const types = [entry["type"], entry["transport"]];
  if (types.some((it) => typeof it === "string" && /^(?:wss?|websocket)$/i.test(it))) {
    return "servers over WebSocket are not supported";
  }
  // Clients' files often start toolmux; it must not start itself.
  return startsItself({ name, command, args }) ? ITSELF : undefined;
}

/** Manifest keys that clients do not have, or use with another meaning. */
const NOT_TAKEN = new Set("plugin package runner transport auth oauth ca keyFile".split(" "));
const OURS = new Set(Object.keys(serverSchema.entries).filter((key) => !NOT_TAKEN.has(key)));
/** Keys that are handled by `readClientEntry`, `translateRemote` or `translateTools`, or that do not matter here. */
const SILENT = new Set(
  "type transport serverUrl httpUrl oauth name title description disabled disabledTools excludeTools includeTools".split(
    " ",
  ),
);

/** Translates a client's entry to the manifest's schema, as leniently as clients read it. */
function translate(entry: Table, ignored: Set<string>): Table {
  const ours = createTable<unknown>();
  for (const [key, value] of Object.entries(entry)) {
    if (OURS.has(key) && value !== null) ours[key] = value;
    if (!OURS.has(key) && !SILENT.has(key)) ignored.add(printKey(key));
  }
  Object.assign(ours, translateRemote(entry));
  const { args, env } = ours;
  if (Array.isArray(args)) ours["args"] = args.map(printScalar);
  if (isTable(env)) {
    const variables = createTable<unknown>();
    for (const [key, value] of Object.entries(env)) {
      if (value !== null) variables[key] = printScalar(value);
    }
    ours["env"] = variables;
  }
  const tools = translateTools(entry);
  if (tools !== undefined) ours["tools"] = tools;
  return ours;
}

/** The manifest's keys of a remote server; empty for an entry with a command, because clients then start that. */
function translateRemote(entry: Table): Table {
  const key = URL_KEYS.find((it) => typeof entry[it] === "string");
  if (key === undefined || "command" in entry) return {};
  const isOld = [entry["type"], entry["transport"]].includes("sse");
  const { oauth } = entry;
  const known = Object.entries(isTable(oauth) ? oauth : {}).filter(([name]) => OAUTH.has(name));
  return {
    url: entry[key],
    ...(isOld && { transport: "sse" }),
    ...(known.length > 0 && { auth: "auto", oauth: Object.fromEntries(known) }),
  };
}
/** OAuth keys with the same name and meaning in clients and manifests. */
const OAUTH = new Set(["clientId", "clientSecret", "callbackPort", "scopes"]);

/**
 * Translates clients' lists of tool names to `tools.allow` and `tools.deny`; a table `tools` is in the manifest's form
 * already.
 */
function translateTools(entry: Table): Table | undefined {
  const { tools, includeTools, disabledTools, excludeTools } = entry;
  const allow = [tools, includeTools].find((it) => Array.isArray(it));
  const deny = [disabledTools, excludeTools].find((it) => Array.isArray(it));
  if (allow === undefined && deny === undefined) return undefined;
  return { ...(isTable(tools) && tools), ...(allow && { allow }), ...(deny && { deny }) };
}

/** Clients accept numbers and booleans as texts. */
function printScalar(value: unknown): unknown {
  return typeof value === "number" || typeof value === "boolean" ? String(value) : value;
}
