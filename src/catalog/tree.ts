import { type Range, textOf } from "../bytes.ts";
import { skipSpace, skipValue, stringOf } from "../json.ts";

/**
 * A JSON value by its meaning: white space, the spelling of strings and the order of an object's members are gone.
 * Nothing else is: numbers keep their digits, and a key that comes twice both values, as parsers differ on which counts.
 */
export type Tree = Scalar | List | Table;

/** JSON text: of what is neither list nor table, and of what is nested too deep to look into. */
export type Scalar = string;

export interface List {
  readonly kind: "list";
  readonly items: readonly Tree[];
}

export type Member = readonly [key: string, value: Tree];

/** Sorted by key; members of one key in the order in which they came. */
export interface Table {
  readonly kind: "table";
  readonly members: readonly Member[];
}

/** What is nested deeper is kept as it is spelled: no schema is, and recursion needs an end. */
const MAX_DEPTH = 100;

const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;

/** Reads the value that starts where the range does, of a text that was scanned before. Its time is in proportion to the length, however deep it is. */
export function readTree(bytes: Uint8Array, range: Range): Tree {
  let at = range.start;
  let depth = 0;

  const readValue = (): Tree => {
    const open = bytes[at];
    if (depth === MAX_DEPTH || (open !== OPEN_BRACE && open !== OPEN_BRACKET)) return readScalar();
    depth++;
    const value: Tree =
      open === OPEN_BRACE
        ? { kind: "table", members: readEach(readMember).sort(byKey) }
        : { kind: "list", items: readEach(readValue) };
    depth--;
    return value;
  };

  const readScalar = (): Scalar => {
    const start = at;
    at = skipValue(bytes, start);
    const text = stringOf(bytes, { start, end: at });
    return text === undefined ? textOf(bytes, start, at) : JSON.stringify(text);
  };

  const readMember = (): Member => {
    const start = at;
    at = skipValue(bytes, start);
    const key = stringOf(bytes, { start, end: at }) ?? "";
    at = skipSpace(bytes, skipSpace(bytes, at) + 1);
    return [key, readValue()];
  };

  /** From an opening bracket or brace to the byte after the closing one. */
  const readEach = <T>(read: () => T): T[] => {
    const open = bytes[at] ?? 0;
    const all: T[] = [];
    at = skipSpace(bytes, at + 1);
    // "{" and "}", "[" and "]" are two apart in ASCII.
    if (bytes[at] === open + 2) {
      at++;
      return all;
    }
    for (;;) {
      all.push(read());
      at = skipSpace(bytes, at);
      if (bytes[at++] !== COMMA) return all;
      at = skipSpace(bytes, at);
    }
  };

  return readValue();
}

/** The tree as compact JSON: two trees have the same text exactly if they are the same. */
export function writeTree(tree: Tree): string {
  const pieces: string[] = [];
  const write = (value: Tree): void => {
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

function byKey([a]: Member, [b]: Member): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
