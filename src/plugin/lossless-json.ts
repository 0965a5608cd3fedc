import { Buffer } from "node:buffer";
import type { ByteRange } from "../base/bytes.ts";
import {
  COLON,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipString,
  skipValue,
  skipWhitespace,
} from "../base/json.ts";

/** A value in a JSON text; `source.slice(start, end)` is its text. */
export type JsonTextPart = ByteRange & { readonly source: string } & (
    | { readonly kind: "object"; readonly members: readonly JsonTextMember[] }
    | { readonly kind: "array"; readonly elements: readonly JsonTextPart[] }
    /** An object or array whose members were not read, because it is nested deeper than the limit. */
    | { readonly kind: "closed" }
    /** A string, number, boolean or null. */
    | { readonly kind: "scalar" }
  );

/** A member of an object. */
export interface JsonTextMember {
  readonly key: string;
  /** The key's JSON text, with its quotes. */
  readonly name: string;
  readonly value: JsonTextPart;
}

/** Maximum nesting that is read: each level is a recursive call. */
const MAX_LEVELS = 500;

/**
 * Reads the ranges of a JSON text's parts, without parsing the values. Members with duplicate keys are all included,
 * in order; for JSON.parse, the last one counts.
 * @param levels nesting to read, at most 500; deeper objects and arrays are `closed`
 * @returns undefined if the text is malformed, at whatever depth
 */
export function readJsonText(text: string, levels = 1): JsonTextPart | undefined {
  return new JsonTextReader(text).read(Math.min(levels, MAX_LEVELS));
}

/**
 * The JSON text of the value of the member `key`; of duplicate members, the last one counts. Undefined if there is no
 * such member, or if `text` is not an object.
 */
export function memberTextOf(text: string, key: string): string | undefined {
  const part = readJsonText(text);
  if (part?.kind !== "object") return undefined;
  const member = part.members.findLast((each) => each.key === key);
  return member && textOfPart(member.value);
}

/**
 * The JSON text of an object with changed values. Unchanged members keep their text and order; new ones come last.
 * @param object its JSON text, or the part that `readJsonText` returned
 * @param changes JSON texts by key, not validated; undefined removes a member
 * @throws {TypeError} if `object` is not a JSON object
 */
export function rewriteMembers(
  object: string | JsonTextPart,
  changes: Readonly<Record<string, string | undefined>>,
): string {
  const part = typeof object === "string" ? readJsonText(object) : object;
  if (part?.kind !== "object") throw new TypeError("expected an object, or the JSON text of one");
  const remaining = new Map(Object.entries(changes));
  const members = part.members.flatMap(({ key, name, value }) => {
    if (!Object.hasOwn(changes, key)) return [`${name}:${textOfPart(value)}`];
    const changed = remaining.get(key);
    remaining.delete(key);
    return changed === undefined ? [] : [`${name}:${changed}`];
  });
  for (const [key, value] of remaining) {
    if (value !== undefined) members.push(`${JSON.stringify(key)}:${value}`);
  }
  return `{${members.join(",")}}`;
}

function textOfPart({ source, start, end }: JsonTextPart): string {
  return source.slice(start, end);
}

/**
 * Converts a text to one byte per UTF-16 code unit, so that an index means the same position in the bytes and in the
 * text. Every non-ASCII unit becomes 0x80: such units occur only in strings, whose content does not matter here.
 */
function toSingleBytes(text: string): Buffer {
  const utf8 = Buffer.from(text);
  if (utf8.length === text.length) return utf8;
  const bytes = Buffer.allocUnsafe(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = Math.min(text.charCodeAt(i), 0x80);
  return bytes;
}

class JsonTextReader {
  readonly #source: string;
  readonly #bytes: Uint8Array;
  /** Whether JSON.parse accepts the whole text; undefined until it is needed. */
  #isJson: boolean | undefined;

  constructor(source: string) {
    this.#source = source;
    this.#bytes = toSingleBytes(source);
  }

  read(levels: number): JsonTextPart | undefined {
    const bytes = this.#bytes;
    const part = this.#part(skipWhitespace(bytes, 0), levels);
    return part !== undefined && skipWhitespace(bytes, part.end) === bytes.length
      ? part
      : undefined;
  }

  #part(start: number, levels: number): JsonTextPart | undefined {
    const source = this.#source;
    const open = this.#bytes[start];
    const isNested = open === OPEN_BRACE || open === OPEN_BRACKET;
    if (!isNested || levels <= 0) {
      const end = this.#skip(start, isNested);
      return end < 0 ? undefined : { kind: isNested ? "closed" : "scalar", source, start, end };
    }
    if (open === OPEN_BRACKET) {
      const elements: JsonTextPart[] = [];
      const end = this.#items(start, (at) => {
        const element = this.#part(at, levels - 1);
        if (element === undefined) return -1;
        elements.push(element);
        return element.end;
      });
      return end < 0 ? undefined : { kind: "array", source, start, end, elements };
    }
    const members: JsonTextMember[] = [];
    const end = this.#items(start, (at) => {
      const member = this.#member(at, levels - 1);
      if (member === undefined) return -1;
      members.push(member);
      return member.value.end;
    });
    return end < 0 ? undefined : { kind: "object", source, start, end, members };
  }

  #member(at: number, levels: number): JsonTextMember | undefined {
    const bytes = this.#bytes;
    const end = skipString(bytes, at);
    const colon = end < 0 ? -1 : skipWhitespace(bytes, end);
    if (bytes[colon] !== COLON) return undefined;
    const value = this.#part(skipWhitespace(bytes, colon + 1), levels);
    if (value === undefined) return undefined;
    const name = this.#source.slice(at, end);
    const key = name.includes("\\") ? (JSON.parse(name) as string) : name.slice(1, -1);
    return { key, name, value };
  }

  /**
   * Reads the items of an object or array.
   * @param start the index of the opening brace or bracket
   * @param read reads an item and returns the index after it, or -1 if it is malformed
   * @returns the index after the closing brace or bracket, or -1 if the text is malformed
   */
  #items(start: number, read: (at: number) => number): number {
    const bytes = this.#bytes;
    // In ASCII, a closing brace or bracket is two above the opening one.
    const close = (bytes[start] ?? 0) + 2;
    let at = skipWhitespace(bytes, start + 1);
    if (bytes[at] === close) return at + 1;
    for (;;) {
      const end = read(at);
      if (end < 0) return -1;
      at = skipWhitespace(bytes, end);
      if (bytes[at] === close) return at + 1;
      if (bytes[at] !== COMMA) return -1;
      at = skipWhitespace(bytes, at + 1);
    }
  }

  /** Skips a value without reading its parts. @returns the index after it, or -1 if it is malformed */
  #skip(start: number, isNested: boolean): number {
    const bytes = this.#bytes;
    const end = skipValue(bytes, start);
    if (end >= 0 || !isNested) return end;
    // The scanner has rejected the text: it is malformed, or nested too deep. If JSON.parse accepts it, it is only nested
    // too deep, and its end is found by counting brackets.
    this.#isJson ??= isJson(this.#source);
    if (!this.#isJson) return -1;
    let at = start;
    let depth = 0;
    do {
      const byte = bytes[at];
      if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth++;
      else if (byte === OPEN_BRACE + 2 || byte === OPEN_BRACKET + 2) depth--;
      at = byte === QUOTE ? skipString(bytes, at) : at + 1;
    } while (depth > 0);
    return at;
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
