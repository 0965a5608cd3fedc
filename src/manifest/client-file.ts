import { missingCommandProblem, readHubSettings } from "./read.ts";
import {
  describeValue,
  formatPath,
  printPathKey,
  type UnplacedProblem,
  validate,
} from "./problems.ts";
import { defaultsSchema, serverSchema } from "./schema.ts";
import type { FileConfig, ServerConfig } from "./file-config.ts";
import { SELF_REASON, startsItself } from "./own-entry.ts";
import { createTable, isTable, type Table } from "./table.ts";

/**
 * Reads a file written for an MCP client: `mcpServers`, or `servers` as in VS Code. Unknown keys and invalid limits are
 * ignored, and an entry that cannot be run affects only itself. `hub` and `defaults` are toolmux's own keys here, too.
 */
export function readClientFile(root: Table): FileConfig {
  const servers = new Map<string, ServerConfig>();
  const settings = readHubSettings(root);
  const problems: UnplacedProblem[] = [...settings.problems];
  const notes: string[] = [];
  const ignored = new Set<string>();
  // A client's file must not make toolmux load plugin code.
  if ("plugins" in root) ignored.add("plugins");
  // A client's file must not allow `${cmd:…}` (`secrets.commands`), which runs commands.
  if ("secrets" in root) ignored.add("secrets");
  const groups = ["servers", "mcpServers"].filter((key) => key in root);
  if (groups.length === 0) notes.push("has neither mcpServers nor servers in it");
  for (const group of groups) {
    const table = root[group];
    if (!isTable(table)) {
      const message = `expected a table of servers, found ${describeValue(table, false)}`;
      problems.push({ path: [group], at: "value", message });
      continue;
    }
    for (const [name, entry] of Object.entries(table)) {
      const serverConfig = readClientEntry([group, name], entry, ignored, notes);
      servers.set(name, serverConfig);
      if (serverConfig.kind === "unsupported" && serverConfig.enabled) {
        notes.push(`server ${JSON.stringify(name)} is left out: ${serverConfig.reason}`);
      }
    }
  }
  if (ignored.size > 0) {
    notes.push(`keys that mean nothing to toolmux were ignored: ${[...ignored].join(", ")}`);
  }
  return { ...settings, servers, plugins: [], problems, schemeProblems: [], notes };
}

function readClientEntry(
  path: readonly string[],
  entry: unknown,
  ignored: Set<string>,
  notes: string[],
): ServerConfig {
  if (!isTable(entry)) {
    return { kind: "unsupported", enabled: true, path, reason: "its entry is no table" };
  }
  const enabled = entry["disabled"] !== true && entry["enabled"] !== false;
  const reason = unsupportedReasonOf(entry, path.at(-1));
  if (reason !== undefined) return { kind: "unsupported", enabled, path, reason };
  const server = dropInvalidLimits(
    translateClientEntry(entry, ignored),
    path,
    enabled ? notes : [],
  );
  const checked = validate(serverSchema, { ...server, enabled }, path);
  const { command, url } = checked.ok ? checked.value : {};
  if (checked.ok && command !== undefined) {
    const program = { kind: "command", command } as const;
    return { kind: "stdio", syntax: "client", path, launch: program, input: checked.value };
  }
  if (checked.ok && url !== undefined) {
    return { kind: "remote", syntax: "client", path, url, input: checked.value };
  }
  const problems = [
    ...("command" in server || "url" in server ? [] : [missingCommandProblem(path)]),
    ...(checked.ok ? [] : checked.problems),
  ];
  return { kind: "unsupported", enabled, path, reason: formatProblems(problems, path) };
}

const LIMIT_KEYS = new Set(Object.keys(defaultsSchema.entries));

/** Drops limits that toolmux's schema rejects: another client may use the same key with another meaning. */
function dropInvalidLimits(server: Table, path: readonly string[], notes: string[]): Table {
  const kept = createTable<unknown>();
  for (const [key, value] of Object.entries(server)) {
    const checked = LIMIT_KEYS.has(key)
      ? validate(defaultsSchema, { [key]: value }, path)
      : undefined;
    if (checked?.ok !== false) kept[key] = value;
    else {
      const problemText = formatProblems(checked.problems, [...path, key]);
      notes.push(`server ${JSON.stringify(path.at(-1))}: ${key} is ignored: ${problemText}`);
    }
  }
  return kept;
}

function formatProblems(problems: readonly UnplacedProblem[], base: readonly string[]): string {
  const problemText = problems.map(({ path, message }) =>
    `${formatPath(path.slice(base.length))} ${message}`.trim(),
  );
  return problemText.join("; ");
}

/** The keys that clients use for a server's URL. */
const URL_KEYS = ["url", "serverUrl", "httpUrl"] as const;

function unsupportedReasonOf(entry: Table, name: string | undefined): string | undefined {
  const { command, args } = entry;
  const types = [entry["type"], entry["transport"]];
  if (types.some((it) => typeof it === "string" && /^(?:wss?|websocket)$/i.test(it))) {
    return "servers over WebSocket are not supported";
  }
  // Clients' files often have an entry that starts toolmux, which must not start itself.
  return startsItself({ name, command, args }) ? SELF_REASON : undefined;
}

/** Manifest keys that MCP clients do not have, or use with another meaning. */
const EXCLUDED_KEYS = new Set("plugin package runner transport auth oauth ca keyFile".split(" "));
const ACCEPTED_KEYS = new Set(
  Object.keys(serverSchema.entries).filter((key) => !EXCLUDED_KEYS.has(key)),
);
/**
 * Keys that are not copied, and not reported as ignored either: `readClientEntry`, `translateRemote` or
 * `translateTools` handles them, or they do not affect how the server is run.
 */
const HANDLED_KEYS = new Set(
  "type transport serverUrl httpUrl oauth name title description disabled disabledTools excludeTools includeTools".split(
    " ",
  ),
);

/** Translates a client's entry to the manifest's schema, as leniently as clients read it. */
function translateClientEntry(entry: Table, ignored: Set<string>): Table {
  const manifestEntry = createTable<unknown>();
  for (const [key, value] of Object.entries(entry)) {
    if (ACCEPTED_KEYS.has(key) && value !== null) manifestEntry[key] = value;
    if (!ACCEPTED_KEYS.has(key) && !HANDLED_KEYS.has(key)) ignored.add(printPathKey(key));
  }
  Object.assign(manifestEntry, translateRemote(entry));
  const { args, env } = manifestEntry;
  if (Array.isArray(args)) manifestEntry["args"] = args.map(scalarToText);
  if (isTable(env)) {
    const variables = createTable<unknown>();
    for (const [key, value] of Object.entries(env)) {
      if (value !== null) variables[key] = scalarToText(value);
    }
    manifestEntry["env"] = variables;
  }
  const tools = translateTools(entry);
  if (tools !== undefined) manifestEntry["tools"] = tools;
  return manifestEntry;
}

/** The entry's remote-server keys as manifest keys; none if it has a command, because clients then run the command. */
function translateRemote(entry: Table): Table {
  const key = URL_KEYS.find((it) => typeof entry[it] === "string");
  if (key === undefined || "command" in entry) return {};
  const isSse = [entry["type"], entry["transport"]].includes("sse");
  const { oauth } = entry;
  const known = Object.entries(isTable(oauth) ? oauth : {}).filter(([name]) =>
    OAUTH_KEYS.has(name),
  );
  return {
    url: entry[key],
    ...(isSse && { transport: "sse" }),
    ...(known.length > 0 && { auth: "auto", oauth: Object.fromEntries(known) }),
  };
}
/** OAuth keys with the same name and meaning in clients and manifests. */
const OAUTH_KEYS = new Set(["clientId", "clientSecret", "callbackPort", "scopes"]);

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

/** Converts numbers and booleans to strings: MCP clients accept them where a string is expected. */
function scalarToText(value: unknown): unknown {
  return typeof value === "number" || typeof value === "boolean" ? String(value) : value;
}
