import {
  type Document,
  type ErrorCode,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  type Scalar,
  visit,
  type YAMLMap,
} from "yaml";
import type { ParsedFile, PositionFinder } from "../manifest/syntax/parse.ts";
import { type KeyPath, makePositionIndex, type Position } from "../manifest/problems.ts";
import { createTable } from "../manifest/table.ts";

const MAX_ALIASES = 100;
const MAX_DEPTH = 64;
/**
 * Maximum number of values. The value of an anchor counts again for each alias, so this limits the work of all code
 * that reads the values.
 */
const MAX_VALUES = 100_000;

/** The reason why a text is refused, and the offset of the place in the text. */
interface Refusal {
  readonly message: string;
  readonly offset: number;
}

/**
 * Parses one YAML 1.2 document (core schema), with the merge key `<<`. Refuses custom tags, duplicate keys, keys that
 * are not scalars, more than 100 aliases, and nesting deeper than 64. The caller limits the size of the text.
 * @throws {RangeError} if the text is nested so deeply that the parser fails
 */
export function parseYaml(text: string): ParsedFile {
  const lineCounter = new LineCounter();
  const positionAt = (offset: number): Position => {
    const { line, col } = lineCounter.linePos(offset);
    return { line: Math.max(line, 1), column: Math.max(col, 1) };
  };
  const early = refuseTokens(text);
  if (early !== undefined) {
    const position = makePositionIndex(text)(early.offset);
    return { ok: false, message: early.message, position };
  }
  const document = parseDocument(text, {
    lineCounter,
    prettyErrors: false,
    // The parser's check is slow, because it compares each key with all others of its map; `ValueReader` has its own.
    uniqueKeys: false,
    version: "1.2",
    schema: "core",
  });
  const [fault] = [...document.errors, ...document.warnings];
  if (fault !== undefined) {
    const message = `not valid YAML: ${describeFault(fault.code, fault.message)}`;
    return { ok: false, message, position: positionAt(fault.pos[0]) };
  }
  const reader = new ValueReader(document);
  const root = reader.readDocument();
  const { refusal } = reader;
  if (refusal !== undefined) {
    return { ok: false, message: refusal.message, position: positionAt(refusal.offset) };
  }
  const pairs = new Map<YAMLMap, ReadonlyMap<string, Pair>>();
  const find: PositionFinder = (path, at) => positionAt(findOffset(document, path, at, pairs));
  return { ok: true, root, duplicates: [], preparePositions: () => Promise.resolve(find) };
}

/** Refuses texts that are too long, too deeply nested or full of aliases before the parser spends time on them. */
function refuseTokens(text: string): Refusal | undefined {
  let count = 0;
  let depth = 0;
  let offset = 0;
  let aliases = 0;
  let before = "";
  for (const token of new Lexer().lex(text)) {
    if (++count > MAX_TOKENS) return { message: "is too long a YAML document", offset };
    // A scalar without quotes follows a control character.
    if (token.startsWith("*") && !CONTROL_TOKENS.has(before) && ++aliases > MAX_ALIASES)
      return { message: `has more than ${MAX_ALIASES} aliases`, offset };
    before = token;
    if (token === "[" || token === "{") depth++;
    else if (token === "]" || token === "}") depth--;
    if (depth > MAX_DEPTH) return { message: `is nested deeper than ${MAX_DEPTH}`, offset };
    // The lexer marks documents, flow scalars and the like with control characters that are not in the text.
    if (!CONTROL_TOKENS.has(token)) offset += token.length;
  }
  return undefined;
}
const MAX_TOKENS = 200_000;
const CONTROL_TOKENS = new Set(["\u0002", "\u0018", "\u001F"]);

/** The parser's errors in words. They never quote the text, which may contain secrets. */
const FAULTS: Readonly<Partial<Record<ErrorCode, string>>> = {
  ALIAS_PROPS: "an alias (*) cannot have an anchor or a tag",
  BAD_ALIAS: "an alias (*) needs a name; a text that begins with * needs quotes",
  BAD_COLLECTION_TYPE: "the tag does not fit its value",
  BAD_DIRECTIVE: "this is not a directive; a text that begins with % needs quotes",
  BAD_DQ_ESCAPE: "this is not an escape sequence; write \\\\ for a backslash, or use single quotes",
  BAD_INDENT:
    "the line is not indented as the lines that it belongs to, or a bracket is not closed",
  BAD_PROP_ORDER: "an anchor or a tag is in the wrong place",
  BAD_SCALAR_START: "a text that begins with this character needs quotes",
  BLOCK_AS_IMPLICIT_KEY:
    "a key is inside the value of another one; a text with a colon needs quotes, and keys of one table the same indentation",
  BLOCK_IN_FLOW: "a comma or a closing bracket is missing",
  KEY_OVER_1024_CHARS: "the key is longer than 1024 characters",
  MISSING_CHAR: "a closing quote or bracket, or a colon after a key, is missing",
  MULTILINE_IMPLICIT_KEY: "a colon is missing after the key",
  MULTIPLE_ANCHORS: "a value has two anchors",
  MULTIPLE_DOCS: "a second document begins here; a file of agents has one",
  MULTIPLE_TAGS: "a value has two tags",
  RESOURCE_EXHAUSTION: "nested too deeply",
  TAB_AS_INDENT: "a tab indents this line; indent it with spaces",
  TAG_RESOLVE_FAILED: "tags are not supported",
  UNEXPECTED_TOKEN: "this cannot be here; a text with special characters needs quotes",
};

function describeFault(code: ErrorCode, message: string): string {
  if (message.includes("call stack")) return "nested too deeply";
  return FAULTS[code] ?? "syntax error";
}

/** Keys of tables and arrays of texts. In them, a number or a boolean without quotes is the text as it is written. */
const TEXT_KEYS = new Set(["args", "env", "headers"]);

/** How a value is read: `texts` has texts inside, `text` is one. */
type ReadMode = "plain" | "texts" | "text";

/**
 * Reads the values of a YAML document. Mappings become objects without a prototype. Reading stops at the first reason to
 * refuse the document, which is kept in `refusal`.
 */
class ValueReader {
  refusal: Refusal | undefined;
  readonly #document: Document.Parsed;
  readonly #anchors = new Map<string, Node>();
  #values = 0;

  constructor(document: Document.Parsed) {
    this.#document = document;
  }

  readDocument(): unknown {
    visit(this.#document, {
      Node: (_key, node) => {
        // The parser also knows tags beyond the core schema, such as !!binary.
        if ("tag" in node && typeof node.tag === "string" && !CORE_TAGS.test(node.tag)) {
          this.#refuse(node, "has a tag, which is not supported");
          return visit.BREAK;
        }
        return undefined;
      },
    });
    if (this.refusal !== undefined) return undefined;
    return this.#read(this.#document.contents, 0, "plain");
  }

  #read(node: unknown, depth: number, mode: ReadMode): unknown {
    if (this.refusal !== undefined || !isNode(node)) return null;
    if (depth > MAX_DEPTH) return this.#refuse(node, `is nested deeper than ${MAX_DEPTH}`);
    if (++this.#values > MAX_VALUES) {
      return this.#refuse(node, `has more than ${MAX_VALUES} values`);
    }
    if (isAlias(node)) {
      const target = this.#anchors.get(node.source);
      // An anchor is known only after its whole value has been read, so no value can contain itself.
      if (target === undefined) return this.#refuse(node, "has an alias of an unknown anchor");
      return this.#read(target, depth + 1, mode);
    }
    const value = this.#readCollection(node, depth, mode);
    if ("anchor" in node && typeof node.anchor === "string") this.#anchors.set(node.anchor, node);
    return value;
  }

  #readCollection(node: Node, depth: number, mode: ReadMode): unknown {
    const inner = mode === "texts" ? "text" : "plain";
    if (isScalar(node)) return readScalar(node, mode === "text");
    if (isSeq(node)) return node.items.map((item) => this.#read(item, depth + 1, inner));
    if (!isMap(node)) return null;
    const table = createTable<unknown>();
    const merged: unknown[] = [];
    for (const pair of node.items) {
      const { key, value } = isPair(pair) ? pair : { key: undefined, value: undefined };
      if (!isScalar(key)) {
        return this.#refuse(isNode(key) ? key : node, "has a key that is not a text");
      }
      const name = String(key.value);
      if (name === "<<" && key.type === "PLAIN") {
        merged.push(...[this.#read(value, depth + 1, mode)].flat());
        continue;
      }
      if (name in table) return this.#refuse(key, "sets a key twice; remove one of the two");
      const isOfTexts = mode !== "texts" && TEXT_KEYS.has(name);
      table[name] = this.#read(value, depth + 1, isOfTexts ? "texts" : inner);
    }
    for (const source of merged) {
      if (typeof source !== "object" || source === null) {
        return this.#refuse(node, "has a merge key (<<) whose value is no table");
      }
      for (const [name, value] of Object.entries(source)) {
        if (!(name in table)) table[name] = value;
      }
    }
    return table;
  }

  #refuse(node: Node, message: string): undefined {
    this.refusal ??= { message, offset: node.range?.[0] ?? 0 };
    return undefined;
  }
}
function readScalar({ value, source }: Scalar, isText: boolean): unknown {
  const isWritten = isText && source !== undefined;
  if (typeof value === "boolean") return isWritten ? source : value;
  if (typeof value !== "number" && typeof value !== "bigint") return value;
  return isWritten ? source : Number(value);
}

const CORE_TAGS = /^tag:yaml\.org,2002:(?:str|int|float|bool|null|map|seq)$/;

/** The offset of the value at a path, or of its key; if the path does not exist, of the nearest value around it. */
function findOffset(
  document: Document.Parsed,
  path: KeyPath,
  at: "key" | "value",
  pairs: Map<YAMLMap, ReadonlyMap<string, Pair>>,
): number {
  let node: unknown = document.contents;
  let key: unknown;
  let isWhole = true;
  for (const step of path) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair = findPair(document, node, step, pairs);
      if (pair === undefined) isWhole = false;
      else [key, node] = [pair.key, pair.value];
    } else if (isSeq(node) && typeof step === "number" && step in node.items) {
      [key, node] = [undefined, node.items[step]];
    } else isWhole = false;
    if (!isWhole) break;
  }
  const chosen = (at === "key" || !isWhole) && key !== undefined ? key : (node ?? key);
  return isNode(chosen) ? (chosen.range?.[0] ?? 0) : 0;
}

/** The pair with this key in a table, or else in the tables that are merged into it (`<<`). */
function findPair(
  document: Document.Parsed,
  node: unknown,
  key: unknown,
  pairs: Map<YAMLMap, ReadonlyMap<string, Pair>>,
): Pair | undefined {
  const pending = [node];
  // The limit ends a circle of aliases.
  for (let count = 0; pending.length > 0 && count < MAX_ALIASES; count++) {
    const next = pending.shift();
    const table = isAlias(next) ? next.resolve(document) : next;
    if (isSeq(table)) pending.unshift(...table.items);
    if (!isMap(table)) continue;
    const named = pairsOf(table, pairs);
    const found = named.get(String(key));
    if (found !== undefined) return found;
    const merge = named.get("<<");
    if (merge !== undefined) pending.unshift(merge.value);
  }
  return undefined;
}

/** The pairs of a table by key; of those with equal keys, the first. @param pairs those of the tables that were asked for */
function pairsOf(
  table: YAMLMap,
  pairs: Map<YAMLMap, ReadonlyMap<string, Pair>>,
): ReadonlyMap<string, Pair> {
  let known = pairs.get(table);
  if (known === undefined) {
    const named = table.items.flatMap((item) =>
      isScalar(item.key) ? [[String(item.key.value), item] as const] : [],
    );
    pairs.set(table, (known = new Map(named.toReversed())));
  }
  return known;
}
