import { type ByteRange, textOf } from "../base/bytes.ts";
import { skipWhitespace, skipValue, readString } from "../base/json.ts";

/**
 * A JSON value by its meaning: without white space, escapes and the order of object members. Numbers keep their digits,
 * and duplicate keys keep all their values, because parsers differ on which one counts.
 */
export type JsonTree = JsonScalar | JsonList | JsonTable;

/** JSON text of a value that is no array or object, or that is nested too deep. */
export type JsonScalar = string;

export interface JsonList {
  readonly kind: "list";
  readonly items: readonly JsonTree[];
}

export type JsonTreeMember = readonly [key: string, value: JsonTree];

/** Sorted by key; members with equal keys keep their order. */
export interface JsonTable {
  readonly kind: "table";
  readonly members: readonly JsonTreeMember[];
}

/** Values nested deeper are kept as JSON text. No real schema is that deep, and the recursion needs a bound. */
const MAX_DEPTH = 100;

const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;

/**
 * Reads the value at the start of the range, in text that was scanned before. Takes time linear in the length, at any
 * depth.
 */
export function parseTree(bytes: Uint8Array, range: ByteRange): JsonTree {
  let at = range.start;
  let depth = 0;

  const readValue = (): JsonTree => {
    const open = bytes[at];
    if (depth === MAX_DEPTH || (open !== OPEN_BRACE && open !== OPEN_BRACKET)) return readScalar();
    depth++;
    const value: JsonTree =
      open === OPEN_BRACE
        ? { kind: "table", members: readAll(readMember).sort(compareKeys) }
        : { kind: "list", items: readAll(readValue) };
    depth--;
    return value;
  };

  const readScalar = (): JsonScalar => {
    const start = at;
    at = skipValue(bytes, start);
    const text = readString(bytes, { start, end: at });
    return text === undefined ? textOf(bytes, start, at) : JSON.stringify(text);
  };

  const readMember = (): JsonTreeMember => {
    const start = at;
    at = skipValue(bytes, start);
    const key = readString(bytes, { start, end: at }) ?? "";
    at = skipWhitespace(bytes, skipWhitespace(bytes, at) + 1);
    return [key, readValue()];
  };

  /** Reads from an opening bracket or brace to the byte after the closing one. */
  const readAll = <T>(read: () => T): T[] => {
    const open = bytes[at] ?? 0;
    const all: T[] = [];
    at = skipWhitespace(bytes, at + 1);
    // In ASCII, "}" is "{" + 2, and "]" is "[" + 2.
    if (bytes[at] === open + 2) {
      at++;
      return all;
    }
    for (;;) {
      all.push(read());
      at = skipWhitespace(bytes, at);
      if (bytes[at++] !== COMMA) return all;
      at = skipWhitespace(bytes, at);
    }
  };

  return readValue();
}

/** Formats the tree as compact JSON: two trees have equal texts exactly if they are equal. */
export function formatTree(tree: JsonTree): string {
  const pieces: string[] = [];
  const write = (value: JsonTree): void => {
    if (typeof value === "string") {
      pieces.push(value);
    } else if (value.kind === "list") {
      pieces.push("[");
      value.items.forEach((item, i) => {
        if (i > 0) pieces.push(",");
        write(item);
      });
      pieces.push("]");
    } else {
      pieces.push("{");
      value.members.forEach(([key, member], i) => {
        pieces.push(i > 0 ? "," : "", JSON.stringify(key), ":");
        write(member);
      });
      pieces.push("}");
    }
  };
  write(tree);
  return pieces.join("");
}

function compareKeys([a]: JsonTreeMember, [b]: JsonTreeMember): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
