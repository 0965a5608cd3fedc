import { basename } from "node:path";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { expandHome } from "../base/paths.ts";
import { ITSELF, startsItself } from "../manifest/own-entry.ts";
import { createTable, isTable, type Table } from "../manifest/table.ts";
import type { Client, Home } from "./client.ts";
import { escape, type Input, type Origin, respell, WORKSPACE } from "./forms.ts";

/** A server in the manifest's schema: `command`, `args`, `env`, … or `url`, `headers`, …. */
export type OwnEntry = Readonly<Record<string, unknown>>;

/** The result of translating an entry of a client's file. */
export type Translated =
  | {
      readonly ok: true;
      readonly entry: OwnEntry;
      /** What differs from the client's entry: ends of sentences. */
      readonly notes: readonly string[];
      /** The secrets that must be set before the server can be used. */
      readonly wanted: readonly string[];
    }
  /** `reason` is the end of a sentence. */
  | { readonly ok: false; readonly reason: string };

export interface EntryPlace {
  readonly client: Client;
  readonly home: Home;
  /** Absolute. */
  readonly file: string;
  /** The server's name in the manifest. */
  readonly server: string;
  /** The project folder that the entry belongs to, where the file says so. */
  readonly project: string | undefined;
  readonly inputs: ReadonlyMap<string, Input>;
}

/** Keys that are translated below, or that matter only inside the client. */
const KNOWN = new Set(
  "command args env environment environment_variables cwd url serverUrl httpUrl type transport headers http_headers env_http_headers bearer_token_env_var env_vars disabled enabled tools includeTools enabled_tools enabledTools disabledTools disabled_tools excludeTools oauth auth envFile source name title description icon gallery version id trust autoApprove alwaysAllow isActive required metadata".split(
    " ",
  ),
);

/**
 * Translates a client's entry to the manifest's schema, as leniently as clients read it. Reads no file but the one that
 * the entry names as `envFile`.
 */
export async function translate(raw: unknown, place: EntryPlace): Promise<Translated> {
  if (!isTable(raw)) return { ok: false, reason: "its entry is no table" };
  const given = flatten(raw);
  const obstacle = findObstacle(given);
  if (obstacle !== undefined) return { ok: false, reason: obstacle };
  const pen = new Pen({ ...place, forms: place.client.forms });
  const url = [given["url"], given["serverUrl"], given["httpUrl"]].find(isText);
  const entry =
    isText(given["command"]) && given["command"] !== ""
      ? await readProcess(given, place, pen)
      : url === undefined
        ? undefined
        : readRemote(given, url, pen);
  if (entry === undefined) return { ok: false, reason: "it has neither a command nor a url" };
  if (pen.fault !== undefined) return { ok: false, reason: pen.fault };
  const limits = readLimits(given, place.client);
  const known = new Set([...KNOWN, ...place.client.limits.map(({ key }) => key)]);
  const strange = Object.keys(given).filter((key) => !known.has(key));
  if (strange.length > 0) pen.notes.push(`${strange.join(", ")} not taken over`);
  const off = given["disabled"] === true || given["enabled"] === false;
  return {
    ok: true,
    entry: { ...entry, ...limits, ...readTools(given), ...(off && { enabled: false }) },
    notes: pen.notes,
    wanted: pen.wanted,
  };
}

/** Translates texts to the manifest's placeholders and collects notes, required secrets and the first fault. */
class Pen {
  readonly notes: string[] = [];
  readonly wanted: string[] = [];
  fault: string | undefined;
  readonly #origin: Origin;

  constructor(origin: Origin) {
    this.#origin = origin;
  }

  write(text: string): string {
    const spelled = respell(text, this.#origin);
    this.wanted.push(...spelled.wanted);
    this.fault ??= spelled.fault;
    return spelled.text;
  }

  writeAll(table: unknown): Record<string, string> {
    const written = createTable<string>();
    for (const [key, value] of Object.entries(isTable(table) ? table : {})) {
      if (value !== null) written[key] = this.write(isText(value) ? value : JSON.stringify(value));
    }
    return written;
  }
}

/** Normalizes a `command` that is an array, or a table with `path`, `args` and `env`. */
function flatten(raw: Table): Table {
  const { command } = raw;
  if (Array.isArray(command)) {
    const [first, ...rest] = command as readonly unknown[];
    return { ...raw, command: first, args: [...rest, ...list(raw["args"])] };
  }
  if (!isTable(command)) return raw;
  const { path, args, env } = command;
  return { ...raw, command: path, args: args ?? raw["args"], env: env ?? raw["env"] };
}

function findObstacle(given: Table): string | undefined {
  const { type, transport, source } = given;
  if ([type, transport].some((it) => isText(it) && /^(?:wss?|websocket)$/i.test(it))) {
    return "servers over WebSocket are not supported";
  }
  if (source === "extension" && !("command" in given)) {
    return "it comes with an extension, which alone knows how it is started";
  }
  return startsItself({ command: given["command"], args: given["args"] }) ? ITSELF : undefined;
}

/**
 * The absolute path of the toolmux that an entry starts; undefined if it starts another program, or finds toolmux by
 * PATH.
 */
export function findSelf(raw: unknown): string | undefined {
  const given = isTable(raw) ? flatten(raw) : {};
  const { command, args } = given;
  const isSelf = isText(command) && command.startsWith("/") && startsItself({ command, args });
  return isSelf ? command : undefined;
}

async function readProcess(given: Table, place: EntryPlace, pen: Pen): Promise<OwnEntry> {
  const { client, project } = place;
  const args = list(given["args"]).map((arg) => pen.write(String(arg)));
  const env = {
    ...(await readEnvFile(given["envFile"], place, pen)),
    ...pen.writeAll(given["env"] ?? given["environment"] ?? given["environment_variables"]),
  };
  // Codex also allows `{ name, source }`.
  const names = list(given["env_vars"]).map((it) => (isTable(it) ? it["name"] : it));
  const inheritEnv = names.filter(isText);
  const said = isText(given["cwd"]) ? pen.write(given["cwd"]) : project && escape(project);
  // A server without `cwd` starts in the hub's working directory.
  const cwd = said === WORKSPACE || said === "." ? undefined : said;
  if (cwd !== undefined && project === cwd) pen.notes.push(`only of the project ${project} there`);
  if (client.forms === "none" && /\$\{/.test(JSON.stringify([given["args"], given["env"]]))) {
    pen.notes.push("its ${…} are taken as they are, as that client fills in none");
  }
  return {
    command: pen.write(String(given["command"])),
    ...(args.length > 0 && { args }),
    ...(Object.keys(env).length > 0 && { env }),
    ...(inheritEnv.length > 0 && { inheritEnv }),
    ...(cwd !== undefined && { cwd }),
  };
}

function readRemote(given: Table, url: string, pen: Pen): OwnEntry {
  const headers = pen.writeAll(given["headers"] ?? given["http_headers"]);
  const variables = given["env_http_headers"];
  for (const [name, variable] of Object.entries(isTable(variables) ? variables : {})) {
    if (isText(variable)) headers[name] = `\${env:${variable}}`;
  }
  const bearer = given["bearer_token_env_var"];
  if (isText(bearer)) headers["Authorization"] = `Bearer \${env:${bearer}}`;
  const oauth = readOAuth(given, pen);
  const isOld = [given["type"], given["transport"]].includes("sse");
  return {
    url: pen.write(url),
    ...(isOld && { transport: "sse" }),
    ...(Object.keys(headers).length > 0 && { headers }),
    ...(oauth !== undefined && { auth: "auto", oauth }),
  };
}

/** The clients' keys for each OAuth setting of the manifest. */
const OAUTH: Readonly<Record<string, readonly string[]>> = {
  clientId: ["clientId", "client_id", "CLIENT_ID"],
  clientSecret: ["clientSecret", "client_secret", "CLIENT_SECRET"],
};

function readOAuth(given: Table, pen: Pen): OwnEntry | undefined {
  const table = [given["oauth"], given["auth"]].find(isTable);
  if (table === undefined) return undefined;
  const oauth: Record<string, unknown> = {};
  for (const [name, keys] of Object.entries(OAUTH)) {
    const value = keys.map((key) => table[key]).find(isText);
    if (value !== undefined) oauth[name] = pen.write(value);
  }
  const { scopes, callbackPort } = table;
  if (Array.isArray(scopes) && scopes.every(isText)) oauth["scopes"] = scopes;
  if (typeof callbackPort === "number") oauth["callbackPort"] = callbackPort;
  return Object.keys(oauth).length === 0 ? undefined : oauth;
}

/** The longest time limit that is taken over, in ms: above it, the manifest requires a maximum timeout as well. */
const MOST = 900_000;

function readLimits(given: Table, client: Client): OwnEntry {
  const limits: Record<string, unknown> = {};
  for (const { key, unit, limit } of client.limits) {
    const value = given[key];
    const ms = typeof value === "number" ? Math.round(value * unit) : 0;
    if (ms >= 1 && ms <= MOST) limits[limit] = ms % 1000 === 0 ? `${ms / 1000}s` : ms;
  }
  return limits;
}

function readTools(given: Table): OwnEntry {
  const pick = (...keys: readonly string[]): readonly string[] =>
    keys.map((key) => list(given[key]).filter(isText)).find((it) => it.length > 0) ?? [];
  const allow = pick("tools", "includeTools", "enabled_tools", "enabledTools");
  const deny = pick("disabledTools", "disabled_tools", "excludeTools");
  const isAll = allow.length === 0 || allow.includes("*");
  const tools = { ...(!isAll && { allow }), ...(deny.length > 0 && { deny }) };
  return Object.keys(tools).length === 0 ? {} : { tools };
}

/** In bytes. */
const MAX_ENV_FILE = 64 * 1024;

/** Reads the `envFile` of an entry: one `NAME=value` per line, quoted or not. */
async function readEnvFile(
  named: unknown,
  { client, home, file }: EntryPlace,
  pen: Pen,
): Promise<Record<string, string>> {
  const variables = createTable<string>();
  if (!isText(named)) return variables;
  const path = expandHome(
    named.replace("${userHome}", home.home).replace("${env:HOME}", home.home),
    {
      ...home.env,
      HOME: home.home,
    },
  );
  // A project's file is not trusted: it could name any file of the user.
  const isOwn = client.user(home).some((spot) => spot.file === file);
  const read =
    isOwn && path.startsWith("/") ? await readFileLimited(path, MAX_ENV_FILE) : undefined;
  const text = read?.kind === "read" ? decodeUtf8(read.bytes) : undefined;
  if (text === undefined) {
    pen.notes.push(`the variables of its envFile (${named}) not taken over`);
    return variables;
  }
  for (const line of text.split(/\r?\n/)) {
    const [, name, value = ""] = /^\s*(?:export\s+)?([\w.]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (name === undefined) continue;
    const quoted = /^(["'])(.*)\1$/.exec(value);
    variables[name] = escape(quoted?.[2] ?? value.replace(/\s+#.*$/, ""));
  }
  pen.notes.push(`the variables of ${path} as they are now, as ${basename(file)} names it`);
  return variables;
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]) : [];
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}
