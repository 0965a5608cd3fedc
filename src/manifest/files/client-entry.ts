/**
 * Converts entries of servers in the files of MCP clients to the manifest's keys, as leniently as these clients do.
 * Loading a client's file and importing its servers both begin with `normalizeClientEntry`.
 */

import { count } from "../../base/format.ts";
import { APPROVAL_LEVELS } from "../approval-levels.ts";
import type { ApprovalLevel } from "../manifest.ts";
import { describeValue, formatPath, type KeyPath, printPathKey } from "../problems.ts";
import { serverSchema, toolsSchema } from "../schema.ts";
import { nameInvisible } from "../syntax/stray-character.ts";
import { createTable, isTable, type Table, tableWithoutNulls } from "../table.ts";
import {
  findGuardKey,
  type GuardKey,
  looksLikeGuard,
  plainKey,
  stricterLevel,
} from "./guard-keys.ts";
import { SELF_REASON, startsItself } from "./own-entry.ts";

/** The parts of a client's entry that have a meaning in a manifest. The client's placeholders are not resolved. */
export interface ClientEntry {
  readonly target: ProcessTarget | RemoteTarget;
  /** The server's name for people; undefined if the entry has none, or if it equals the server's name. */
  readonly title: string | undefined;
  readonly description: string | undefined;
  /** The entry's table `tools` and its guards (`GUARD_KEYS`) of single tools, in the manifest's form. */
  readonly tools: Table | undefined;
  /** The level that its guards set for all its tools; undefined if they set none. */
  readonly approval: ApprovalLevel | undefined;
  /** The names of the tools that the client runs without asking the user. */
  readonly autoApproved: readonly string[];
  /** The keys of the entry that `autoApproved` is from. */
  readonly autoApprovalKeys: readonly string[];
  readonly isDisabled: boolean;
  /** Keys that clients have, but that have no effect in this entry, such as the `headers` of a process. */
  readonly unused: readonly string[];
  /** What was read otherwise than it is written; each text is a clause, such as "args is one text …". */
  readonly notes: readonly string[];
  /** The remaining keys, which this module does not interpret. */
  readonly rest: ReadonlyMap<string, unknown>;
}

/** A server that is started as a process. */
export interface ProcessTarget {
  readonly kind: "process";
  readonly command: string;
  readonly args: readonly string[];
  /** Has no prototype. */
  readonly env: Readonly<Record<string, string>>;
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
  /** Has no prototype. */
  readonly headers: Readonly<Record<string, string>>;
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
      /** Completes the sentence "this server is left out: …". Contains no value of the entry. */
      readonly reason: string;
      /** The key in the entry that the reason is about; empty if it is about the entry. */
      readonly path: KeyPath;
      readonly rest: ReadonlyMap<string, unknown>;
    };

/**
 * Converts one entry. Null is absent. A value that cannot be read is a reason to leave the server out if the server
 * would start otherwise without a part of what its owner wrote; else its key is in `unused`.
 * @param name the server's name in the client's file
 */
export function normalizeClientEntry(raw: unknown, name?: string): NormalizedEntry {
  if (!isTable(raw)) {
    const reason = "its entry is not a table";
    return { ok: false, isDisabled: false, reason, path: [], rest: new Map() };
  }
  const reader = new EntryReader(normalizeCommand(tableWithoutNulls(raw)));
  const isDisabled = reader.readDisabled();
  const target = reader.readTarget();
  const { tools, approval } = reader.readGuards();
  const title = reader.readTitle();
  const description = reader.readDescription();
  const { names: autoApproved, keys: autoApprovalKeys } = reader.readAutoApproved();
  reader.refuseUnknownGuards();
  const { rest } = reader;
  const general = reader.unsupportedReason(name, target);
  const fault = general === undefined ? reader.fault : { reason: general, path: [] };
  if (fault !== undefined) return { ok: false, isDisabled, ...fault, rest };
  if (target === undefined)
    return { ok: false, isDisabled, reason: missingReason(rest), path: [], rest };
  return {
    ok: true,
    entry: {
      target,
      title: title === name ? undefined : title,
      description,
      tools,
      approval,
      autoApproved,
      autoApprovalKeys,
      isDisabled,
      unused: reader.listUnused(),
      notes: reader.notes,
      rest,
    },
  };
}

function missingReason(rest: ReadonlyMap<string, unknown>): string {
  const reason = "it has neither a command nor a url";
  const hidden = [...rest.keys()].map(nameInvisible).find((name) => name !== undefined);
  return hidden === undefined ? reason : `${reason}, but a key with ${hidden}`;
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
  "command args env environment environment_variables cwd url serverUrl httpUrl type transport headers http_headers env_http_headers bearer_token_env_var env_vars oauth auth envFile source name title description icon gallery version id trust autoApprove alwaysAllow required metadata".split(
    " ",
  ),
);

/** Keys by which clients run tools without asking: permissions, no guards. As in `plainKey`. */
const PERMISSION_LISTS = new Set(["autoapprove", "alwaysallow"]);

/** Keys that switch a server off, and those that switch it on, as their letters in lower case. */
const DISABLING_KEYS = new Set("disabled isdisabled disable inactive".split(" "));
const ENABLING_KEYS = new Set("enabled isenabled enable active isactive".split(" "));

/** The keys of an entry that switch its server on or off, each with the value that does what `enabled` says. */
export function switchesOf(
  entry: Table,
  enabled: boolean,
): readonly { readonly key: string; readonly value: boolean }[] {
  return Object.keys(entry).flatMap((key) => {
    if (ENABLING_KEYS.has(plainKey(key))) return [{ key, value: enabled }];
    return DISABLING_KEYS.has(plainKey(key)) ? [{ key, value: !enabled }] : [];
  });
}

/** The clients' keys for each OAuth setting of the manifest that is a text. */
const OAUTH_KEYS: Readonly<Record<string, readonly string[]>> = {
  clientId: ["clientId", "client_id", "CLIENT_ID"],
  clientSecret: ["clientSecret", "client_secret", "CLIENT_SECRET"],
};

const TRANSPORT_TYPE =
  /^(?:stdio|local|command|custom|builtin|remote|https?|sse|auto|streamable(?:[-_]?https?)?)$/i;

const REMOTE_TYPE = /^(?:remote|https?|sse|streamable(?:[-_]?https?)?)$/i;

/** A variable in a list, as `NAME=value` or `NAME: value`. */
const VARIABLE_PAIR = /^([A-Za-z_][\w.-]*)(?:=|:\s+)(.*)$/s;
/** A header in a list, as `Name: value` or `Name=value`. */
const HEADER_PAIR = /^([!#$%&'*+.^_`|~\w-]+?)\s*[:=]\s*(.*)$/s;

/** Normalizes a `command` that is an array, or a table with `path`, `args` and `env`. */
function normalizeCommand(raw: Table): Table {
  const { command } = raw;
  if (Array.isArray(command)) {
    const [first, ...rest] = command as readonly unknown[];
    const { args = [] } = raw;
    const own: readonly unknown[] = Array.isArray(args) ? args : [args];
    return { ...raw, command: first, args: [...rest, ...own] };
  }
  if (!isTable(command)) return raw;
  const { path, args, env, ...others } = command;
  const normalized = { ...raw, command: path, args: args ?? raw["args"], env: env ?? raw["env"] };
  const more = createTable<unknown>();
  for (const [key, value] of Object.entries(others)) more[`command.${key}`] = value;
  return { ...normalized, ...more };
}

/** Reads the keys of one entry, and records which keys were used. */
class EntryReader {
  /** The first value that makes the entry unusable; undefined if there is none. */
  fault: { readonly reason: string; readonly path: KeyPath } | undefined;
  readonly notes: string[] = [];
  readonly #fields: Table;
  /** The keys that were read, so that every other key can be reported. */
  readonly #used = new Set<string>();
  readonly #unused: string[] = [];
  /** Tools that a guard excepts. */
  readonly #guards = new Guards();

  constructor(fields: Table) {
    this.#fields = fields;
  }

  /** The keys that are neither read here nor known to matter only inside a client. */
  get rest(): ReadonlyMap<string, unknown> {
    const entries = Object.entries(this.#fields);
    return new Map(
      entries.filter(
        ([key, value]) => value !== undefined && !KNOWN_KEYS.has(key) && !this.#used.has(key),
      ),
    );
  }

  listUnused(): readonly string[] {
    const known = Object.entries(this.#fields).filter(
      ([key, value]) => KNOWN_KEYS.has(key) && !this.#used.has(key) && !isEmpty(value),
    );
    return [...known.map(([key]) => key), ...this.#unused];
  }

  /** Whether the entry is switched off, under any of the clients' names for that. */
  readDisabled(): boolean {
    let isDisabled = false;
    for (const key of Object.keys(this.#fields)) {
      // Also with spaces or invisible characters in it.
      const plain = key.toLowerCase().replaceAll(/[^a-z]/g, "");
      if (DISABLING_KEYS.has(plain)) isDisabled = this.#flag(key) === true || isDisabled;
      if (ENABLING_KEYS.has(plain)) isDisabled = this.#flag(key) === false || isDisabled;
    }
    return isDisabled;
  }

  /** The target of an entry. If an entry has both a command and a URL, its type decides, or else the command counts. */
  readTarget(): ProcessTarget | RemoteTarget | undefined {
    const { type } = this.#fields;
    const remote = isString(type) && REMOTE_TYPE.test(type) ? this.#readRemote() : undefined;
    if (remote !== undefined) return remote;
    const command = this.#text("command");
    return command === undefined ? this.#readRemote() : this.#readProcess(command);
  }

  #readProcess(command: string): ProcessTarget {
    this.#takeType();
    return {
      kind: "process",
      command,
      args: this.#words("args"),
      env: this.#texts(VARIABLE_PAIR, "NAME=value", "env", "environment", "environment_variables"),
      inheritEnv: this.#variableNames("env_vars"),
      cwd: this.#text("cwd"),
      envFile: this.#text("envFile"),
    };
  }

  #readRemote(): RemoteTarget | undefined {
    const url = this.#text("url") ?? this.#text("serverUrl") ?? this.#text("httpUrl");
    if (url === undefined) return undefined;
    const envHeaders = this.#take("env_http_headers");
    const variables = Object.entries(isTable(envHeaders) ? envHeaders : {});
    if (envHeaders !== undefined && !isTable(envHeaders))
      this.#refuse(["env_http_headers"], "a table of names of variables", envHeaders);
    for (const [header, variable] of variables) {
      if (!isString(variable))
        this.#refuse(["env_http_headers", header], "the name of a variable", variable);
    }
    return {
      kind: "remote",
      url,
      isSse: this.#takeType(),
      headers: this.#texts(HEADER_PAIR, "Name: value", "headers", "http_headers"),
      envHeaders: new Map(
        variables.filter((entry): entry is [string, string] => isString(entry[1])),
      ),
      bearerVariable: this.#text("bearer_token_env_var"),
      oauth: this.#readOAuth(),
    };
  }

  /** Reads `type` and `transport`, of which only SSE makes a difference. @returns whether it is SSE */
  #takeType(): boolean {
    let isSse = false;
    for (const key of ["type", "transport"]) {
      const value = this.#fields[key];
      if (isString(value) && TRANSPORT_TYPE.test(value)) this.#used.add(key);
      isSse ||= isString(value) && value.toLowerCase() === "sse";
    }
    return isSse;
  }

  #readOAuth(): Table {
    const oauth = createTable<unknown>();
    const key = ["oauth", "auth"].find((it) => isTable(this.#fields[it]));
    if (key === undefined) return oauth;
    const found = this.#take(key);
    const table = isTable(found) ? found : {};
    const used = new Set<string>();
    const read = (name: string, from: string, value: unknown): void => {
      oauth[name] = value;
      used.add(from);
    };
    for (const [name, keys] of Object.entries(OAUTH_KEYS)) {
      const from = keys.find((it) => isString(table[it]));
      if (from !== undefined) read(name, from, table[from]);
    }
    const { scopes, callbackPort } = table;
    if (isString(scopes) && scopes.trim() !== "") read("scopes", "scopes", splitWords(scopes));
    if (Array.isArray(scopes) && scopes.every(isString)) read("scopes", "scopes", scopes);
    if (typeof callbackPort === "number") read("callbackPort", "callbackPort", callbackPort);
    for (const [inner, value] of Object.entries(table)) {
      if (!used.has(inner) && !isEmpty(value)) this.#unused.push(formatPath([key, inner]));
    }
    return oauth;
  }

  /** Reads the guards of the entry (`GUARD_KEYS`): which tools may be used, and which calls a person has to allow. */
  readGuards(): {
    readonly tools: Table | undefined;
    readonly approval: ApprovalLevel | undefined;
  } {
    const guards = this.#guards;
    const { tools } = this.#fields;
    const table = isTable(tools) ? tools : undefined;
    if (table !== undefined) this.#used.add("tools");
    for (const key of Object.keys(this.#fields)) {
      const guard = table !== undefined && key === "tools" ? undefined : findGuardKey(key);
      if (guard !== undefined) this.#readGuard(guard, [key], this.#take(key));
    }
    const own = table === undefined ? undefined : this.#readToolsTable(table);
    if (guards.allow !== undefined && own !== undefined && "allow" in own)
      this.#fail(["tools"], "tools.allow and another list of its tools contradict each other");
    const rules = guards.mergeInto(own ?? {});
    const isEmptyTable = Object.keys(rules).length === 0;
    return { tools: isEmptyTable ? undefined : rules, approval: guards.approval };
  }

  /** Reads what clients have in a table `tools`. @returns the keys of the manifest's table `tools` in it */
  #readToolsTable(table: Table): Table {
    const own = createTable<unknown>();
    const hasInclude = Object.keys(table).some((key) => plainKey(key) === "include");
    for (const [key, value] of Object.entries(table)) {
      const path = ["tools", key];
      const guard = findGuardKey(`tools.${key}`);
      if (key in toolsSchema.entries) own[key] = value;
      else if (guard?.effect === "deny" && hasInclude) this.#names(path, value);
      else if (guard !== undefined) this.#readGuard(guard, path, value);
      else if (isTable(value) && Object.keys(value).some(isGuardOfTool))
        this.#readToolTable(key, value);
      else if (looksLikeGuard(key)) this.#failUnknownGuard(path);
      else own[key] = value;
    }
    return own;
  }

  /** Reads the table of one tool. */
  #readToolTable(tool: string, table: Table): void {
    for (const [key, value] of Object.entries(table)) {
      const path = ["tools", tool, key];
      const guard = findGuardKey(`tools.NAME.${key}`);
      if (guard !== undefined) this.#readGuard(guard, path, value, tool);
      else if (isGuardOfTool(key)) this.#failUnknownGuard(path);
      else this.#unused.push(formatPath(path));
    }
  }

  /** @param tool the only tool that the guard is about; undefined: all */
  #readGuard(guard: GuardKey, path: KeyPath, value: unknown, tool?: string): void {
    if (value === undefined || value === null) return;
    const guards = this.#guards;
    const { effect } = guard;
    if (effect === "allow" || effect === "deny") {
      const names = this.#names(path, value);
      if (names !== undefined) guards.addNames(effect, names);
    } else if (effect === "requireApproval") this.#readRequireApproval(path, value);
    else {
      const { levels } = effect;
      const level = isString(value) && Object.hasOwn(levels, value) ? levels[value] : undefined;
      const words = Object.keys(levels).map((word) => `"${word}"`);
      if (level === undefined) this.#refuse(path, `one of ${words.join(", ")}`, value);
      else if (level !== null) guards.ask(level, tool);
      else if (tool !== undefined) guards.permitted.push(tool);
    }
  }

  #readRequireApproval(path: KeyPath, value: unknown): void {
    const guards = this.#guards;
    const word = isString(value) ? value.toLowerCase() : value;
    if (word === true || word === "always") guards.ask("always");
    else if (word === false || word === "never") return;
    else if (Array.isArray(value)) {
      for (const name of this.#names(path, value) ?? []) guards.ask("always", name);
    } else if (isTable(value)) {
      guards.ask("always");
      for (const [key, listed] of Object.entries(value)) {
        const isFilter = isTable(listed) && Object.keys(listed).join() === "tool_names";
        const names = this.#names([...path, key], isFilter ? listed["tool_names"] : listed);
        if (key === "never") guards.permitted.push(...(names ?? []));
        else if (key !== "always") this.#failUnknownGuard([...path, key]);
      }
    } else this.#refuse(path, `"always", "never", true, false, a list or a table`, value);
  }

  /** Refuses the entry if a key that no client is known to have, at any depth, may guard it. */
  refuseUnknownGuards(): void {
    const { metadata, gallery } = this.#fields;
    for (const [key, value] of [...this.rest, ...Object.entries({ metadata, gallery })]) {
      const isOwn = Object.hasOwn(serverSchema.entries, key);
      if (!isOwn && !PERMISSION_LISTS.has(plainKey(key))) this.#refuseGuardIn([key], value);
    }
  }

  /** Refuses the entry if this key may guard it, or one of the keys in its value. */
  #refuseGuardIn(path: KeyPath, value: unknown): void {
    const key = path.at(-1);
    if (typeof key === "string" && looksLikeGuard(key)) this.#failUnknownGuard(path);
    if (isTable(value) || Array.isArray(value)) {
      for (const [inner, each] of Object.entries(value as object))
        this.#refuseGuardIn([...path, Array.isArray(value) ? Number(inner) : inner], each);
    }
  }

  #failUnknownGuard(path: KeyPath): void {
    const reason = `${formatPath(path)} may guard its tools, but no client with this key is known; write tools.allow, tools.deny or approval in its place`;
    this.#fail(path, reason);
  }

  readTitle(): string | undefined {
    return this.#shownText("title") ?? this.#shownText("name");
  }

  readDescription(): string | undefined {
    return this.#shownText("description");
  }

  /**
   * The tools that the client runs without asking. Permissions and no guards: one that cannot be read is ignored. To be
   * read after the guards, which may have exceptions.
   */
  readAutoApproved(): { readonly names: readonly string[]; readonly keys: readonly string[] } {
    const names = [...this.#guards.permitted];
    const keys: string[] = [];
    for (const [key, list] of Object.entries(this.#fields)) {
      if (!PERMISSION_LISTS.has(plainKey(key)) || isEmpty(list)) continue;
      this.#used.add(key);
      if (Array.isArray(list) && list.every(isString)) {
        names.push(...list);
        keys.push(key);
      } else this.#noteIgnored(key, "an array of names", list);
    }
    const { trust } = this.#fields;
    if (trust !== undefined && typeof trust !== "boolean")
      this.#noteIgnored("trust", "true or false", trust);
    return { names, keys };
  }

  #noteIgnored(key: string, expected: string, found: unknown): void {
    this.#used.add(key);
    this.notes.push(
      `${printPathKey(key)} is ignored: expected ${expected}, found ${describeValue(found, false)}`,
    );
  }

  /** The reason why nothing can run this entry, whatever its other keys say. */
  unsupportedReason(
    name: string | undefined,
    target: ProcessTarget | RemoteTarget | undefined,
  ): string | undefined {
    const { type, transport, source, command } = this.#fields;
    if ([type, transport].some((it) => isString(it) && /^(?:wss?|websocket)$/i.test(it))) {
      return "servers over WebSocket are not supported";
    }
    if (source === "custom") this.#used.add("source");
    if (source === "extension" && command === undefined) {
      return "only the extension that it belongs to can start it";
    }
    // Clients' files often contain toolmux, which must not start itself.
    const args = target?.kind === "process" ? target.args : [];
    return startsItself({ name, command, args }) ? SELF_REASON : undefined;
  }

  #take(key: string): unknown {
    this.#used.add(key);
    return this.#fields[key];
  }

  #refuse(path: KeyPath, expected: string, found: unknown): undefined {
    return this.#fail(
      path,
      `${formatPath(path)} expected ${expected}, found ${describeValue(found, false)}`,
    );
  }

  #fail(path: KeyPath, reason: string): undefined {
    this.fault ??= { reason, path };
    return undefined;
  }

  #text(key: string): string | undefined {
    const value = this.#fields[key];
    if (value === undefined || value === "") return undefined;
    this.#used.add(key);
    return isString(value) ? value : this.#refuse([key], "a string", value);
  }

  /** A text for people: if it is none, the server can do without it. */
  #shownText(key: string): string | undefined {
    const value = this.#fields[key];
    if (!isString(value) || value === "") return undefined;
    this.#used.add(key);
    return value;
  }

  #flag(key: string): boolean | undefined {
    const value = this.#take(key);
    if (typeof value === "boolean") return value;
    const word = scalarToText(value);
    if (word !== undefined && /^\s*(?:true|yes|on|1)\s*$/i.test(word)) return true;
    if (word !== undefined && /^\s*(?:false|no|off|0)\s*$/i.test(word)) return false;
    return this.#refuse([key], "true or false", value);
  }

  /** The items of an array of texts; a single text is split at its spaces if that is plain. */
  #words(key: string): readonly string[] {
    const value = this.#take(key);
    if (value === undefined) return [];
    if (isString(value)) {
      // What quotes, backslashes and the like mean depends on the program that splits the text.
      const hasSpaceInReference = value
        .split("${")
        .some((part, index) => index > 0 && /^[^}\s]*\s/.test(part));
      if (hasSpaceInReference || /["'\\`]/.test(value)) {
        return this.#refuse([key], "an array of strings", value) ?? [];
      }
      const words = splitWords(value);
      if (words.length > 0)
        this.notes.push(`${key} is one text, which is read as ${count(words.length, "argument")}`);
      return words;
    }
    const items: readonly unknown[] = Array.isArray(value) ? value : [value];
    return items.flatMap((item, index) => {
      const text = scalarToText(item);
      if (text !== undefined) return [text];
      if (!Array.isArray(value)) return this.#refuse([key], "an array of strings", value) ?? [];
      return this.#refuse([key, index], "a string", item) ?? [];
    });
  }

  /**
   * The texts of the first of these keys that is set: a table of texts, or an array of pairs.
   * @param form the form of a pair, for messages
   */
  #texts(pair: RegExp, form: string, ...keys: readonly string[]): Record<string, string> {
    const texts = createTable<string>();
    const key = keys.find((it) => this.#fields[it] !== undefined && this.#fields[it] !== "");
    if (key === undefined) return texts;
    const value = this.#take(key);
    const add = (path: KeyPath, name: string, inner: unknown): void => {
      const text = scalarToText(inner);
      if (text === undefined) this.#refuse(path, "a string", inner);
      else if (name in texts) this.#fail(path, `${formatPath(path)} sets the same name again`);
      else texts[name] = text;
    };
    if (isTable(value)) {
      for (const [name, inner] of Object.entries(value)) add([key, name], name, inner);
      return texts;
    }
    const separator = pair === VARIABLE_PAIR ? /\s/ : /[\r\n]/;
    const isSinglePair = isString(value) && !separator.test(value);
    if (!Array.isArray(value) && !isSinglePair) {
      this.#refuse([key], `a table, or an array of texts such as "${form}"`, value);
      return texts;
    }
    const items: readonly unknown[] = Array.isArray(value) ? value : [value];
    for (const [index, item] of items.entries()) {
      const path = [key, index];
      const [, name, text] = isString(item) ? (pair.exec(item) ?? []) : namedValueOf(item);
      if (isString(name) && name !== "" && text !== undefined) add(path, name, text);
      else this.#refuse(path, `a text such as "${form}"`, item);
    }
    return texts;
  }

  /** Names of variables; Codex also allows `{ name, source }` for a variable. */
  #variableNames(key: string): readonly string[] {
    const value = this.#take(key);
    if (value === undefined) return [];
    if (!Array.isArray(value)) return this.#refuse([key], "an array of names", value) ?? [];
    return (value as readonly unknown[]).flatMap((item, index) => {
      const name = isTable(item) ? item["name"] : item;
      return isString(name) ? [name] : (this.#refuse([key, index], "a name", item) ?? []);
    });
  }

  /** A list of names of tools; a single text has them with commas between. Undefined if it cannot be read. */
  #names(path: KeyPath, value: unknown): readonly string[] | undefined {
    const items: unknown = isString(value)
      ? value.split(",").flatMap((name) => name.trim() || [])
      : value;
    if (!Array.isArray(items)) return this.#refuse(path, "an array of names", value);
    for (const [index, item] of (items as readonly unknown[]).entries()) {
      const at = isString(value) ? path : [...path, index];
      if (!isString(item) || item === "" || (isString(value) && /\s/.test(item)))
        return this.#refuse(at, isString(value) ? "an array of names" : "a name", item);
      if (item.includes("[")) return this.#refuse(at, "a name, or a pattern with * and ?", item);
    }
    return items as readonly string[];
  }
}

/** The guards of an entry together: each makes it stricter. */
class Guards {
  /** The tools that all lists allow; undefined: no list restricts them. */
  allow: readonly string[] | undefined;
  approval: ApprovalLevel | undefined;
  /** The tools that a guard excepts. */
  readonly permitted: string[] = [];
  readonly #deny: string[] = [];
  readonly #levels = new Map<string, ApprovalLevel>();

  addNames(effect: "allow" | "deny", names: readonly string[]): void {
    if (effect === "deny") this.#deny.push(...names);
    else if (!names.includes("*"))
      this.allow = this.allow?.filter((name) => names.includes(name)) ?? names;
  }

  ask(level: ApprovalLevel, tool?: string): void {
    if (tool === undefined) this.approval = stricterLevel(this.approval, level);
    else this.#levels.set(tool, stricterLevel(this.#levels.get(tool), level) ?? level);
  }

  /** The manifest's table `tools` with these guards in it. A value of `own` that the manifest refuses stays as it is. */
  mergeInto(own: Table): Table {
    const { deny = [], approval = {} } = own;
    const levels = createTable<unknown>();
    for (const [tool, level] of this.#levels) {
      const other = isTable(approval) ? APPROVAL_LEVELS.find((it) => it === approval[tool]) : level;
      levels[tool] = stricterLevel(level, other);
    }
    return {
      ...own,
      ...(this.allow !== undefined && { allow: this.allow }),
      ...(this.#deny.length > 0 &&
        Array.isArray(deny) && { deny: [...(deny as readonly unknown[]), ...this.#deny] }),
      ...(this.#levels.size > 0 && isTable(approval) && { approval: { ...approval, ...levels } }),
    };
  }
}

/** Whether a key in the table of one tool guards it, or may do so. */
function isGuardOfTool(key: string): boolean {
  const isSwitch = ["enabled", "disabled"].includes(plainKey(key));
  return isSwitch || looksLikeGuard(key) || findGuardKey(`tools.NAME.${key}`) !== undefined;
}

/** The name and the value of a pair that is written as a table, in the places of a match of `VARIABLE_PAIR`. */
function namedValueOf(item: unknown): readonly [unknown?, unknown?, unknown?] {
  if (!isTable(item)) return [];
  return [undefined, item["name"] ?? item["key"], item["value"]];
}

/** Converts a number or boolean to text, because MCP clients accept them where a text is expected. */
function scalarToText(value: unknown): string | undefined {
  if (isString(value)) return value;
  const isPlain = typeof value === "boolean" || (typeof value === "number" && isFinite(value));
  return isPlain ? String(value) : undefined;
}

function splitWords(text: string): readonly string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}

function isEmpty(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  if (isTable(value)) return Object.keys(value).length === 0;
  return value === undefined || value === "" || value === false;
}

function isString(value: unknown): value is string {
  return typeof value === "string";
}
