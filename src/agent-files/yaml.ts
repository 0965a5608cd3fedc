import {
  type Document,
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
  visit,
  type YAMLMap,
} from "yaml";
import type { ParsedFile, PositionFinder } from "../manifest/parse.ts";
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

/** Refuses texts that are too long or too deeply nested before the parser spends time on them. */
function refuseTokens(text: string): Refusal | undefined {
  let count = 0;
  let depth = 0;
  let offset = 0;
  for (const token of new Lexer().lex(text)) {
    if (++count > MAX_TOKENS) return { message: "is too long a YAML document", offset };
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

/** The parser's message if it has only plain words: other messages quote the text, which may contain secrets. */
function describeFault(code: string, message: string): string {
  if (code === "TAG_RESOLVE_FAILED") return "tags are not supported";
  if (message.includes("call stack")) return "nested too deeply";
  return /^[\w ,:;.()'-]+$/.test(message) ? message : "syntax error";
}

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
    let aliases = 0;
    visit(this.#document, {
      Node: (_key, node) => {
        if (isAlias(node) && ++aliases > MAX_ALIASES) {
          this.#refuse(node, `has more than ${MAX_ALIASES} aliases`);
          return visit.BREAK;
        }
        // The parser also knows tags beyond the core schema, such as !!binary.
        if ("tag" in node && typeof node.tag === "string" && !CORE_TAGS.test(node.tag)) {
          this.#refuse(node, "has a tag, which is not supported");
          return visit.BREAK;
        }
        return undefined;
      },
    });
    if (this.refusal !== undefined) return undefined;
    return this.#read(this.#document.contents, 0);
  }

  #read(node: unknown, depth: number): unknown {
    if (this.refusal !== undefined || !isNode(node)) return null;
    if (depth > MAX_DEPTH) return this.#refuse(node, `is nested deeper than ${MAX_DEPTH}`);
    if (++this.#values > MAX_VALUES) {
      return this.#refuse(node, `has more than ${MAX_VALUES} values`);
    }
    if (isAlias(node)) {
      const target = this.#anchors.get(node.source);
      // An anchor is known only after its whole value has been read, so no value can contain itself.
      if (target === undefined) return this.#refuse(node, "has an alias of an unknown anchor");
      return this.#read(target, depth + 1);
    }
    const value = this.#readCollection(node, depth);
    if ("anchor" in node && typeof node.anchor === "string") this.#anchors.set(node.anchor, node);
    return value;
  }

  #readCollection(node: Node, depth: number): unknown {
    if (isScalar(node)) return typeof node.value === "bigint" ? Number(node.value) : node.value;
    if (isSeq(node)) return node.items.map((item) => this.#read(item, depth + 1));
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
        merged.push(...[this.#read(value, depth + 1)].flat());
        continue;
      }
      if (name in table) return this.#refuse(key, "sets a key twice; remove one of the two");
      table[name] = this.#read(value, depth + 1);
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
      let known = pairs.get(node);
      if (known === undefined) {
        const named = node.items.flatMap((item) =>
          isScalar(item.key) ? [[String(item.key.value), item] as const] : [],
        );
        pairs.set(node, (known = new Map(named.toReversed())));
      }
      const pair = known.get(String(step));
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
