import { Buffer } from "node:buffer";
import { joinPieces, type Piece, textOf, utf8 } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import { JsonObject } from "../../base/json.ts";
import type { Section, SectionEntry } from "../section.ts";
import { shownName } from "./given-call.ts";
import { type AnsweringToolName, ARGUMENT_LIMITS, type HubToolName } from "./hub-tools.ts";
import { firstSentence, signatureOf } from "./signature.ts";
import type { SearchOptions, SearchResult } from "./tool-index.ts";
import { ToolNames } from "./tool-names.ts";
import { likeness, squash } from "./words.ts";

/** Maximum sizes of answers, in bytes of JSON, and of a server's instructions in one, in UTF-16 units. */
const LIMITS = { search: 16 * 1024, describe: 64 * 1024, instructions: 2048, names: 1000 } as const;

/** A server whose tools can be searched. */
export interface AnswerServer {
  readonly name: string;
  readonly instructions: string | undefined;
  /** Whether the server has ever listed its tools. */
  readonly isListed: boolean;
}

/** The context on which the answers of the hub's tools depend. */
export interface AnswerContext {
  /** The tools that the models may call. Nothing else is known to the hub's own tools. */
  readonly tools: Section;
  /** In the order of the manifest. */
  readonly servers: readonly AnswerServer[];
  /** Number of hits of a search that does not set it. */
  readonly limit: number;
  /** Searches `tools`. */
  search(query: string, options: Omit<SearchOptions, "visible">): Promise<SearchResult>;
  /** The definition of a tool, byte for byte as a list with all tools has it. */
  definitionOf(entry: SectionEntry): Uint8Array;
  /** The tools that `select_tools` has selected, in the order of their selection. */
  selected(): readonly SectionEntry[];
  /** Replaces the selected tools by other ones, before the answer. */
  select(entries: readonly SectionEntry[]): void;
}

/**
 * Answers a call of one of the hub's tools. The servers should be listed before.
 * @param given the arguments of the call
 * @returns the result of `tools/call`, as JSON
 * @throws {HubError} invalidParams
 */
export async function answerHubTool(
  tool: AnsweringToolName,
  given: JsonObject,
  context: AnswerContext,
): Promise<Uint8Array> {
  const args = new Arguments(tool, given);
  switch (tool) {
    case "search_tools":
      return search(readSearch(args), context);
    case "describe_tools":
      return describe(readNames(args), context);
    case "select_tools":
      return select(readSelection(args), context);
  }
}

/** The arguments of a call of one of the hub's tools. A member that is null is absent. */
class Arguments {
  readonly #tool: HubToolName;
  readonly #object: JsonObject;

  constructor(tool: HubToolName, object: JsonObject) {
    this.#tool = tool;
    this.#object = object;
  }

  error(key: string, expected: string): HubError {
    return new HubError("invalidParams", `${this.#tool}: ${key} must be ${expected}.`);
  }

  has(key: string): boolean {
    return this.#value(key) !== undefined;
  }

  string(key: string): string | undefined {
    const value = this.#value(key);
    if (value === undefined || typeof value === "string") return value;
    throw this.error(key, "a string");
  }

  /** A query for a search. @throws {HubError} invalidParams if it is empty or too long */
  query(key: string): string {
    const text = this.string(key);
    const max = ARGUMENT_LIMITS.query;
    if (text !== undefined && text.trim() !== "" && hasAtMost(text, max)) return text;
    throw this.error(key, `a string of 1 to ${max} characters`);
  }

  limit(key: string, max: number): number | undefined {
    const value = this.#value(key);
    if (value === undefined) return undefined;
    if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= max)
      return value;
    throw this.error(key, `an integer from 1 to ${max}`);
  }

  boolean(key: string): boolean | undefined {
    const value = this.#value(key);
    if (value === undefined || typeof value === "boolean") return value;
    throw this.error(key, "true or false");
  }

  strings(key: string, max: number): readonly string[] | undefined {
    const value = this.#value(key);
    if (value === undefined) return undefined;
    const isFitting = Array.isArray(value) && value.length <= max;
    if (isFitting && value.every((each) => typeof each === "string")) return value;
    throw this.error(key, `an array of at most ${max} strings`);
  }

  #value(key: string): unknown {
    return this.#object.value(key) ?? undefined;
  }
}

/** Whether a text has at most this number of characters, as `maxLength` of JSON Schema counts them. */
function hasAtMost(text: string, max: number): boolean {
  return text.length <= max || (text.length <= 2 * max && Array.from(text).length <= max);
}

type Detail = "brief" | "signature" | "full";

interface AskedSearch {
  readonly query: string;
  readonly server: string | undefined;
  readonly limit: number | undefined;
  readonly detail: Detail;
}

function readSearch(args: Arguments): AskedSearch {
  const query = args.query("query");
  const detail = args.string("detail") ?? "signature";
  if (detail !== "brief" && detail !== "signature" && detail !== "full")
    throw args.error("detail", '"brief", "signature" or "full"');
  return {
    query,
    server: args.string("server"),
    limit: args.limit("limit", ARGUMENT_LIMITS.hits),
    detail,
  };
}

/** One hit, as it is shown. The members that take the most room can be left out. */
interface ShownHit {
  readonly name: string;
  readonly server: string;
  readonly description: string;
  readonly signature?: string;
  readonly inputSchema?: unknown;
  readonly readOnly?: true;
}

async function search(asked: AskedSearch, context: AnswerContext): Promise<Uint8Array> {
  const { query, limit = context.limit, detail } = asked;
  const { tools, servers } = context;
  let server: string | undefined;
  if (asked.server !== undefined) {
    const known = knownServers(servers, tools);
    server = serverNamed(asked.server, known);
    if (server === undefined) return errorResult(unknownServerText(asked.server, known));
  }
  const found = await context.search(query, { limit, server });
  const hits = found.hits.map(({ entry }) => shownHit(entry, detail));
  const waiting = servers.filter(({ isListed }) => !isListed);
  const names = waiting.map(({ name }) => name);
  return encodeSearch(hits, {
    matches: found.matches,
    available: found.available,
    ...(names.length > 0 && { waiting: fitting(names) }),
    ...(!found.isComplete && { indexing: true }),
    ...(hits.length === 0 && {
      hint: `Nothing found. ${serversText(knownServers(servers, tools))}`,
    }),
  });
}

function shownHit(entry: SectionEntry, detail: Detail): ShownHit {
  const tool = JsonObject.of(entry.item.bytes);
  const hit = {
    name: entry.name,
    server: entry.server,
    description: firstSentence(tool.string("description") ?? ""),
  };
  const readOnly = entry.isReadOnly ? ({ readOnly: true } as const) : {};
  if (detail === "brief") return { ...hit, ...readOnly };
  const inputSchema = tool.value("inputSchema");
  if (detail === "full") return { ...hit, inputSchema, ...readOnly };
  return { ...hit, signature: signatureOf(inputSchema), ...readOnly };
}

/** The result of a search of at most 16 KiB: the signatures and schemas of the last hits are left out first. */
function encodeSearch(hits: readonly ShownHit[], more: object): Uint8Array {
  const sizes = hits.map((hit) => Buffer.byteLength(JSON.stringify(hit)) + 1);
  const room = LIMITS.search - Buffer.byteLength(JSON.stringify(more)) - 32;
  let size = sizes.reduce((sum, each) => sum + each, 0);
  const kept = [...hits];
  let isCut = false;
  for (let at = kept.length - 1; at >= 0 && size > room; at--) {
    const { name, server, description, readOnly } = kept[at] as ShownHit;
    const brief = { name, server, description, ...(readOnly && { readOnly }) };
    size -= (sizes[at] ?? 0) - Buffer.byteLength(JSON.stringify(brief)) - 1;
    kept[at] = brief;
    isCut = true;
  }
  while (size > room && kept.length > 1) {
    const last = kept.pop();
    size -= Buffer.byteLength(JSON.stringify(last)) + 1;
  }
  return structuredResult(JSON.stringify({ tools: kept, ...more, ...(isCut && { cut: true }) }));
}

const serversOfTools = new WeakMap<Section, ReadonlySet<string>>();

/** The names of the servers that have tools for the client, or have not been listed yet. */
function knownServers(servers: readonly AnswerServer[], tools: Section): readonly string[] {
  let withTools = serversOfTools.get(tools);
  if (withTools === undefined) {
    withTools = new Set(tools.entries.map(({ server }) => server));
    serversOfTools.set(tools, withTools);
  }
  return servers
    .filter(({ name, isListed }) => !isListed || withTools.has(name))
    .map(({ name }) => name);
}

/** The server that a name stands for, also in another case and with other separators if that is only one. */
function serverNamed(name: string, known: readonly string[]): string | undefined {
  if (known.includes(name)) return name;
  const squashed = squash(name);
  const [only, ...others] = known.filter((each) => squash(each) === squashed);
  return others.length === 0 ? only : undefined;
}

function unknownServerText(name: string, known: readonly string[]): string {
  const similar = similarTo(name, known);
  const hint =
    similar.length > 0
      ? `Similar: ${similar.map((each) => `"${each}"`).join(", ")}.`
      : serversText(known);
  return `There is no server "${shownName(name)}". ${hint}`;
}

/** Likeness of the names of servers that are called similar. */
const MIN_LIKENESS = 0.3;

function similarTo(name: string, names: readonly string[]): readonly string[] {
  const asked = squash(name.slice(0, 200));
  return names
    .map((each) => ({ each, value: likeness(asked, squash(each)) }))
    .filter(({ value }) => value >= MIN_LIKENESS)
    .toSorted((a, b) => b.value - a.value)
    .slice(0, 3)
    .map(({ each }) => each);
}

function serversText(known: readonly string[]): string {
  return known.length === 0 ? "There are no servers." : `Servers: ${fitting(known).join(", ")}.`;
}

/** The first names, at most 1,000 characters together; then how many more there are. */
function fitting(names: readonly string[]): readonly string[] {
  const kept: string[] = [];
  let length = 0;
  for (const [at, name] of names.entries()) {
    length += name.length + 2;
    if (length > LIMITS.names) return [...kept, `and ${names.length - at} more`];
    kept.push(name);
  }
  return kept;
}

interface NotFound {
  /** The name as it was given, shortened. */
  readonly name: string;
  readonly similar: readonly string[];
}

function missing(name: string, similar: readonly string[]): NotFound {
  return { name: shownName(name), similar };
}

/** The tools that names stand for, each once, and the names that stand for none. */
function resolveAll(
  names: readonly string[],
  tools: Section,
): { readonly found: readonly SectionEntry[]; readonly notFound: readonly NotFound[] } {
  const all = ToolNames.of(tools);
  const found = new Set<SectionEntry>();
  const notFound: NotFound[] = [];
  for (const name of names) {
    const resolution = all.resolve(name);
    if (resolution.kind === "found") found.add(resolution.entry);
    else if (resolution.kind === "ambiguous")
      notFound.push(
        missing(
          name,
          resolution.entries.slice(0, 3).map((each) => each.name),
        ),
      );
    else notFound.push(missing(name, all.similar(name)));
  }
  return { found: [...found], notFound };
}

function readNames(args: Arguments): readonly string[] {
  const names = args.strings("names", ARGUMENT_LIMITS.described) ?? [];
  if (names.length > 0) return names;
  throw args.error("names", `an array of 1 to ${ARGUMENT_LIMITS.described} names of tools`);
}

function describe(names: readonly string[], context: AnswerContext): Uint8Array {
  const { found, notFound } = resolveAll(names, context.tools);
  const instructions = new Map(
    context.servers.map(({ name, instructions: text }) => [name, text?.trim()]),
  );
  const servers: Record<string, { instructions: string }> = Object.create(null) as never;
  const tools: Uint8Array[] = [];
  const omitted: string[] = [];
  let size = Buffer.byteLength(JSON.stringify(notFound));
  for (const entry of found) {
    const definition = context.definitionOf(entry);
    const { server } = entry;
    const text = server in servers ? undefined : instructions.get(server);
    const own = text === undefined || text === "" ? undefined : { instructions: shorten(text) };
    const more = definition.length + (own ? Buffer.byteLength(JSON.stringify(own)) : 0);
    // The first definition is shown whatever its size is.
    if (tools.length > 0 && size + more > LIMITS.describe) {
      omitted.push(entry.name);
      continue;
    }
    size += more;
    tools.push(definition);
    if (own !== undefined) servers[server] = own;
  }
  const rest = JSON.stringify({
    servers,
    notFound,
    ...(omitted.length > 0 && { omitted }),
  }).slice(1);
  const pieces: Piece[] = tools.flatMap((tool, at) => (at === 0 ? [tool] : [",", tool]));
  return structuredResult(textOf(joinPieces([utf8('{"tools":['), ...pieces, utf8(`],${rest}`)])));
}

function shorten(text: string): string {
  const { instructions: max } = LIMITS;
  const whole = text.toWellFormed();
  return whole.length <= max ? whole : `${whole.slice(0, max - 1).toWellFormed()}…`;
}

type AskedSelection = {
  readonly limit: number | undefined;
  readonly replace: boolean;
} & (
  | { readonly by: "names"; readonly names: readonly string[] }
  | { readonly by: "servers"; readonly names: readonly string[] }
  | { readonly by: "query"; readonly query: string }
);

function readSelection(args: Arguments): AskedSelection {
  const limit = args.limit("limit", ARGUMENT_LIMITS.selected);
  const common = { limit, replace: args.boolean("replace") ?? false };
  const names = args.strings("names", ARGUMENT_LIMITS.named);
  const servers = args.strings("servers", ARGUMENT_LIMITS.selected);
  const given = [names, servers].filter((list) => list !== undefined).length;
  if (given + Number(args.has("query")) !== 1)
    throw args.error("one of names, servers and query", "given, and only one of them");
  if (names !== undefined) return { ...common, by: "names", names };
  if (servers !== undefined) return { ...common, by: "servers", names: servers };
  return { ...common, by: "query", query: args.query("query") };
}

async function select(asked: AskedSelection, context: AnswerContext): Promise<Uint8Array> {
  const { tools } = context;
  let added: readonly SectionEntry[];
  let notFound: readonly NotFound[] = [];
  if (asked.by === "names") {
    ({ found: added, notFound } = resolveAll(asked.names, tools));
  } else if (asked.by === "servers") {
    const known = knownServers(context.servers, tools);
    const names = asked.names.map((name) => serverNamed(name, known));
    notFound = asked.names.flatMap((name, at) =>
      names[at] === undefined ? [missing(name, similarTo(name, known))] : [],
    );
    added = tools.entries.filter(({ server }) => names.includes(server));
  } else {
    const { query, limit = context.limit } = asked;
    added = (await context.search(query, { limit })).hits.map(({ entry }) => entry);
  }
  if (asked.by !== "query" && asked.limit !== undefined) added = added.slice(0, asked.limit);
  const before = context.selected();
  const kept = asked.replace ? [] : before;
  const keptNames = new Set(kept.map(({ name }) => name));
  const selection = [...kept, ...added.filter(({ name }) => !keptNames.has(name))];
  if (selection.length > ARGUMENT_LIMITS.selected) {
    const text = `At most ${ARGUMENT_LIMITS.selected} tools can be selected; with these there would be ${selection.length}. Nothing was changed: select fewer, or set replace.`;
    return errorResult(text);
  }
  const isSame =
    selection.length === before.length &&
    selection.every(({ name }, at) => name === before[at]?.name);
  if (!isSame) context.select(selection);
  const selected = added.map(({ name }) => name);
  return structuredResult(JSON.stringify({ selected, tools: selection.length, notFound }));
}

/** A result with structured content, and the same as text (MCP, structured content). @param json an object */
function structuredResult(json: string): Uint8Array {
  const content = JSON.stringify([{ type: "text", text: json }]);
  return utf8(`{"content":${content},"structuredContent":${json}}`);
}

function errorResult(text: string): Uint8Array {
  return utf8(JSON.stringify({ content: [{ type: "text", text }], isError: true }));
}
