import { basename } from "node:path";
import { decode, readSmall } from "../manifest/file.ts";
import { expandHome } from "../manifest/folders.ts";
import { ITSELF, startsItself } from "../manifest/self.ts";
import { createTable, isTable, type Table } from "../manifest/table.ts";
import type { Client, Home } from "./client.ts";
import { escape, type Input, type Origin, respell, WORKSPACE } from "./forms.ts";

/** A server as our own files have it: `command`, `args`, `env`, … or `url`, `headers`, …. */
export type OwnEntry = Readonly<Record<string, unknown>>;

/** What an entry of a client's file comes to. */
export type Translated =
  | {
      readonly ok: true;
      readonly entry: OwnEntry;
      /** What is otherwise than in the client: ends of sentences. */
      readonly notes: readonly string[];
      /** The secrets that have to be set before it can be used. */
      readonly wanted: readonly string[];
    }
  /** `reason` is the end of a sentence. */
  | { readonly ok: false; readonly reason: string };

export interface EntryPlace {
  readonly client: Client;
  readonly home: Home;
  /** Absolute. */
  readonly file: string;
  /** The name that the server gets. */
  readonly server: string;
  /** The folder of the project that it belongs to, where the file says so. */
  readonly project: string | undefined;
  readonly inputs: ReadonlyMap<string, Input>;
}

/** Read here, or of no consequence elsewhere than in the client. */
const KNOWN = new Set(
  "command args env environment environment_variables cwd url serverUrl httpUrl type transport headers http_headers env_http_headers bearer_token_env_var env_vars disabled enabled tools includeTools enabled_tools enabledTools disabledTools disabled_tools excludeTools oauth auth envFile source name title description icon gallery version id trust autoApprove alwaysAllow isActive required metadata".split(
    " ",
  ),
);

/** Puts a client's entry into our own schema, leniently where clients are. Reads a file only where the entry names one (`envFile`). */
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

/** Writes texts in our own spelling, and remembers what there is to be said of that. */
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

/** Brings the forms that only some clients have into the one that most have: a command as a list, or as a table. */
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

/** The path of the toolmux that an entry starts; undefined: it starts something else, or whatever is found in PATH. */
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
  // Codex also knows `{ name, source }`.
  const names = list(given["env_vars"]).map((it) => (isTable(it) ? it["name"] : it));
  const inheritEnv = names.filter(isText);
  const said = isText(given["cwd"]) ? pen.write(given["cwd"]) : project && escape(project);
  // A server without a `cwd` starts where the hub was started.
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

/** What clients call what we call so. */
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

/** The longest that a call may take without being told a longest of all, in ms. */
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

/** The variables of a file that the entry names: `NAME=value` a line, in quotes or not. */
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
  // What stands in a project's folder may name any file of the user's.
  const isOwn = client.user(home).some((spot) => spot.file === file);
  const read = isOwn && path.startsWith("/") ? await readSmall(path, MAX_ENV_FILE) : undefined;
  const text = read?.kind === "read" ? decode(read.bytes) : undefined;
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
