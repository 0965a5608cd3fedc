/**
 * Converts entries of servers in the files of MCP clients to the manifest's keys, as leniently as these clients do.
 * Loading a client's file and importing its servers both begin with `normalizeClientEntry`.
 */

import { SELF_REASON, startsItself } from "./own-entry.ts";
import { createTable, isTable, type Table } from "./table.ts";

/** The parts of a client's entry that have a meaning in a manifest. The client's placeholders are not resolved. */
export interface ClientEntry {
  readonly target: ProcessTarget | RemoteTarget;
  /** The server's name for people; undefined if the entry has none, or if it equals the server's name. */
  readonly title: string | undefined;
  readonly description: string | undefined;
  /** The entry's table `tools`, or its lists of tools converted to `allow` and `deny`; in the manifest's form. */
  readonly tools: Table | undefined;
  /** The names of the tools that the client runs without asking the user. */
  readonly autoApproved: readonly string[];
  readonly isDisabled: boolean;
  /** The remaining keys, which this module does not interpret. */
  readonly rest: ReadonlyMap<string, unknown>;
}

/** A server that is started as a process. */
export interface ProcessTarget {
  readonly kind: "process";
  readonly command: string;
  readonly args: readonly unknown[];
  readonly env: Table;
  /** Names of variables that the server gets from the hub's environment. */
  readonly inheritEnv: readonly string[];
  readonly cwd: string | undefined;
  readonly envFile: string | undefined;
}

/** A server at a URL. */
export interface RemoteTarget {
  readonly kind: "remote";
  readonly url: string;
  readonly isSse: boolean;
  readonly headers: Table;
  /** The headers whose values come from environment variables: header name → variable name. */
  readonly envHeaders: ReadonlyMap<string, string>;
  /** The name of the variable with the bearer token. */
  readonly bearerVariable: string | undefined;
  /** The OAuth settings of the entry: `clientId`, `clientSecret`, `callbackPort` and `scopes`, where set. */
  readonly oauth: Table;
}

export type NormalizedEntry =
  | { readonly ok: true; readonly entry: ClientEntry }
  | {
      readonly ok: false;
      readonly isDisabled: boolean;
      /** Completes the sentence "this server is left out: …". */
      readonly reason: string;
      readonly rest: ReadonlyMap<string, unknown>;
    };

/** Converts one entry. @param name the server's name in the client's file */
export function normalizeClientEntry(raw: unknown, name?: string): NormalizedEntry {
  if (!isTable(raw)) {
    return { ok: false, isDisabled: false, reason: "its entry is not a table", rest: new Map() };
  }
  const fields = normalizeCommand(raw);
  const isDisabled = fields["disabled"] === true || fields["enabled"] === false;
  const rest = new Map(Object.entries(fields).filter(([key]) => !KNOWN_KEYS.has(key)));
  const reason = unsupportedReasonOf(fields, name);
  if (reason !== undefined) return { ok: false, isDisabled, reason, rest };
  const target = targetOf(fields);
  if (target === undefined) {
    return { ok: false, isDisabled, reason: "it has neither a command nor a url", rest };
  }
  const title = [fields["title"], fields["name"]].find((text) => isString(text) && text !== "");
  const { description } = fields;
  return {
    ok: true,
    entry: {
      target,
      title: isString(title) && title !== name ? title : undefined,
      description: isString(description) && description !== "" ? description : undefined,
      tools: toolsOf(fields),
      autoApproved: [fields["autoApprove"], fields["alwaysAllow"]]
        .flatMap(asArray)
        .filter(isString),
      isDisabled,
      rest,
    },
  };
}

/**
 * The absolute path of the toolmux executable that an entry starts; undefined if the entry starts another program, or
 * names toolmux without an absolute path.
 */
export function findOwnExecutable(raw: unknown): string | undefined {
  const { command, args } = isTable(raw) ? normalizeCommand(raw) : {};
  const isSelf = isString(command) && command.startsWith("/") && startsItself({ command, args });
  return isSelf ? command : undefined;
}

/** Keys that this module reads, or that matter only inside the client. */
const KNOWN_KEYS = new Set(
  "command args env environment environment_variables cwd url serverUrl httpUrl type transport headers http_headers env_http_headers bearer_token_env_var env_vars disabled enabled tools includeTools enabled_tools enabledTools disabledTools disabled_tools excludeTools oauth auth envFile source name title description icon gallery version id trust autoApprove alwaysAllow isActive required metadata".split(
    " ",
  ),
);

/** Normalizes a `command` that is an array, or a table with `path`, `args` and `env`. */
function normalizeCommand(raw: Table): Table {
  const { command } = raw;
  if (Array.isArray(command)) {
    const [first, ...rest] = command as readonly unknown[];
    return { ...raw, command: first, args: [...rest, ...asArray(raw["args"])] };
  }
  if (!isTable(command)) return raw;
  const { path, args, env } = command;
  return { ...raw, command: path, args: args ?? raw["args"], env: env ?? raw["env"] };
}

function unsupportedReasonOf(fields: Table, name: string | undefined): string | undefined {
  const { command, args, type, transport, source } = fields;
  if ([type, transport].some((it) => isString(it) && /^(?:wss?|websocket)$/i.test(it))) {
    return "servers over WebSocket are not supported";
  }
  if (source === "extension" && !("command" in fields)) {
    return "only the extension that it belongs to can start it";
  }
  // Clients' files often contain toolmux, which must not start itself.
  return startsItself({ name, command, args }) ? SELF_REASON : undefined;
}

/** The target of an entry. If an entry has both a command and a URL, clients run the command. */
function targetOf(fields: Table): ProcessTarget | RemoteTarget | undefined {
  const { command, cwd, envFile } = fields;
  if (isString(command) && command !== "") {
    // Codex also allows `{ name, source }` for a variable.
    const names = asArray(fields["env_vars"]).map((it) => (isTable(it) ? it["name"] : it));
    return {
      kind: "process",
      command,
      args: asArray(fields["args"]),
      env: tableIn(fields, "env", "environment", "environment_variables"),
      inheritEnv: names.filter(isString),
      cwd: isString(cwd) ? cwd : undefined,
      envFile: isString(envFile) ? envFile : undefined,
    };
  }
  const url = [fields["url"], fields["serverUrl"], fields["httpUrl"]].find(isString);
  if (url === undefined) return undefined;
  const variables = Object.entries(tableIn(fields, "env_http_headers"));
  const bearer = fields["bearer_token_env_var"];
  return {
    kind: "remote",
    url,
    isSse: [fields["type"], fields["transport"]].includes("sse"),
    headers: tableIn(fields, "headers", "http_headers"),
    envHeaders: new Map(variables.filter((entry): entry is [string, string] => isString(entry[1]))),
    bearerVariable: isString(bearer) ? bearer : undefined,
    oauth: oauthOf(fields),
  };
}

/** The clients' keys for each OAuth setting of the manifest. */
const OAUTH_KEYS: Readonly<Record<string, readonly string[]>> = {
  clientId: ["clientId", "client_id", "CLIENT_ID"],
  clientSecret: ["clientSecret", "client_secret", "CLIENT_SECRET"],
};

function oauthOf(fields: Table): Table {
  const oauth = createTable<unknown>();
  const table = [fields["oauth"], fields["auth"]].find(isTable) ?? {};
  for (const [name, keys] of Object.entries(OAUTH_KEYS)) {
    const value = keys.map((key) => table[key]).find(isString);
    if (value !== undefined) oauth[name] = value;
  }
  const { scopes, callbackPort } = table;
  if (Array.isArray(scopes) && scopes.every(isString)) oauth["scopes"] = scopes;
  if (typeof callbackPort === "number") oauth["callbackPort"] = callbackPort;
  return oauth;
}

function toolsOf(fields: Table): Table | undefined {
  const namesIn = (...keys: readonly string[]): readonly string[] =>
    keys.map((key) => asArray(fields[key]).filter(isString)).find((it) => it.length > 0) ?? [];
  const allow = namesIn("tools", "includeTools", "enabled_tools", "enabledTools");
  const deny = namesIn("disabledTools", "disabled_tools", "excludeTools");
  const isAll = allow.length === 0 || allow.includes("*");
  const tools = {
    ...(isTable(fields["tools"]) && fields["tools"]),
    ...(!isAll && { allow }),
    ...(deny.length > 0 && { deny }),
  };
  return Object.keys(tools).length === 0 ? undefined : tools;
}

/** The first table that is found under one of the keys, without its null values; an empty table if there is none. */
function tableIn(fields: Table, ...keys: readonly string[]): Table {
  const table = createTable<unknown>();
  const found = keys.map((key) => fields[key]).find(isTable) ?? {};
  for (const [key, value] of Object.entries(found)) if (value !== null) table[key] = value;
  return table;
}

/** Converts a number or boolean to text, because MCP clients accept them where a text is expected. */
export function scalarToText(value: unknown): unknown {
  return typeof value === "number" || typeof value === "boolean" ? String(value) : value;
}

function asArray(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : [];
}

function isString(value: unknown): value is string {
  return typeof value === "string";
}
