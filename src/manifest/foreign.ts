import { missCommand, readSettings } from "./own.ts";
import { describe, printKey, printPath, type Complaint } from "./problem.ts";
import { defaultsSchema, serverSchema } from "./schema.ts";
import type { Draft, Reading } from "./reading.ts";
import { ITSELF, startsItself } from "./self.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { validate } from "./validate.ts";

/**
 * Reads a file that was written for an MCP client: `mcpServers`, or `servers` as VS Code has them. Keys that
 * we do not know are ignored, as are limits that are none, and an entry that cannot be run costs only itself.
 * `hub` and `defaults` are ours here too.
 */
export function readForeign(root: Table): Reading {
  const servers = new Map<string, Draft>();
  const settings = readSettings(root);
  const complaints: Complaint[] = [...settings.complaints];
  const notes: string[] = [];
  const ignored = new Set<string>();
  // Code is never loaded because of what stands in a client's file.
  if ("plugins" in root) ignored.add("plugins");
  // Nor is a command run to get a value.
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

/** Leaves out what is no limit of ours: another client may mean something else by such a key. */
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

/** What clients call the url of a server. */
const URL_KEYS = ["url", "serverUrl", "httpUrl"] as const;

function findObstacle(entry: Table, name: string | undefined): string | undefined {
  const { command, args } = entry;
  const types = [entry["type"], entry["transport"]];
  if (types.some((it) => typeof it === "string" && /^(?:wss?|websocket)$/i.test(it))) {
    return "servers over WebSocket are not supported";
  }
  // A client's file often starts toolmux, and toolmux starting itself would never end.
  return startsItself({ name, command, args }) ? ITSELF : undefined;
}

/** Clients mean something else by some of these, if anything. */
const NOT_TAKEN = new Set("plugin package runner transport auth oauth ca keyFile".split(" "));
const OURS = new Set(Object.keys(serverSchema.entries).filter((key) => !NOT_TAKEN.has(key)));
/** Understood by `readEntry`, `translateRemote` or `translateTools`, or of no consequence here. */
const SILENT = new Set(
  "type transport serverUrl httpUrl oauth name title description disabled disabledTools excludeTools includeTools".split(
    " ",
  ),
);

/** Puts a client's entry into our schema, leniently where clients are. */
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

/** A server with a url needs no more than that; what clients start themselves they do not go to. */
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
/** What clients and we call the same there. */
const OAUTH = new Set(["clientId", "clientSecret", "callbackPort", "scopes"]);

/** Clients show or hide tools by lists of names; a table of `tools` is ours already. */
function translateTools(entry: Table): Table | undefined {
  const { tools, includeTools, disabledTools, excludeTools } = entry;
  const allow = [tools, includeTools].find((it) => Array.isArray(it));
  const deny = [disabledTools, excludeTools].find((it) => Array.isArray(it));
  if (allow === undefined && deny === undefined) return undefined;
  return { ...(isTable(tools) && tools), ...(allow && { allow }), ...(deny && { deny }) };
}

/** Clients take `8080` and `true` for texts. */
function printScalar(value: unknown): unknown {
  return typeof value === "number" || typeof value === "boolean" ? String(value) : value;
}
