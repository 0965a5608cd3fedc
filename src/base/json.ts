/**
 * A scanner over the bytes of one JSON text. It checks the whole grammar (RFC 8259) and yields byte ranges instead of
 * values, so that ids, arguments, schemas and tools can be sliced without parsing and stringifying them. It has no
 * side effects and keeps no state between calls: the shared scratch stack is used only during a call.
 */
import { type ByteRange, cachedText, type Edit, startsWithAt, textOf, utf8 } from "./bytes.ts";

/** A view of the bytes as 32-bit words. It starts at the first aligned byte. */
export function toInt32View({ buffer, byteOffset, length }: Uint8Array): Int32Array {
  const start = (byteOffset + 3) & ~3;
  return new Int32Array(buffer, start, Math.max(byteOffset + length - start, 0) >> 2);
}

/**
 * Skips 4-byte words that contain no special character: no quote, backslash or control character. The test subtracts
 * from the whole word, which sets the top bit of each byte that is a special character. A borrow can set the top bit of
 * another byte, but only in a word that also contains a special character.
 * @param int32View view of the bytes
 * @param at the index to start at. The scan starts with the whole word that contains it, so the three bytes before `at`
 * must not be special
 * @returns the byte index of the first word that contains a special character, or the end of the last word
 */
export function skipPlainChars(
  int32View: Int32Array,
  { byteOffset }: Uint8Array,
  at: number,
): number {
  const start = int32View.byteOffset - byteOffset;
  let i = (at - start) >> 2;
  for (; i < int32View.length; i++) {
    const word = int32View[i] as number;
    const control = word - 0x20202020;
    const quote = (word ^ 0x22222222) - 0x01010101;
    const backslash = (word ^ 0x5c5c5c5c) - 0x01010101;
    if (((control | quote | backslash) & ~word & 0x80808080) !== 0) break;
  }
  return start + i * 4;
}

/** One member of an object: its decoded key, and the byte range `[start, end)` of its value. */
export interface JsonMember {
  readonly key: string;
  readonly start: number;
  readonly end: number;
}

/**
 * The default limit on nesting. No real message needs more, and deeper nesting would overflow the stack of peers with
 * recursive parsers.
 */
const MAX_DEPTH = 2048;
/** A `maxDepth` without limit, for values that are only skipped. Each level of nesting takes one byte of memory. */
export const ANY_DEPTH = Number.POSITIVE_INFINITY;
/**
 * Maximum number of recorded members or elements. Each record takes more memory than its text, so without this limit a
 * message could exhaust the memory.
 */
const MAX_ITEMS = 100_000;
const scratchStack = new Uint8Array(MAX_DEPTH);

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
export const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
export const COMMA = 0x2c;
export const COLON = 0x3a;

/** The parsed value of a byte range that has been scanned. */
export function parseRange(bytes: Uint8Array, range: ByteRange): unknown {
  return JSON.parse(textOf(bytes, range.start, range.end));
}

export function isJsonObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An own property of a parsed object or array; undefined if there is no such property, or `value` is neither. */
export function propertyOf(value: unknown, key: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return Object.getOwnPropertyDescriptor(value, key)?.value;
}

/** The index of the first byte at or after `at` that is not JSON white space. */
export function skipWhitespace(bytes: Uint8Array, at: number): number {
  let i = at;
  for (;;) {
    const byte = bytes[i];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return i;
    i++;
  }
}

/**
 * The members of the object at `at`, in order, duplicates included; undefined if the object is not well-formed, or has
 * too many members.
 * @param wantedKeys the keys of the members to return; by default all
 * @param maxDepth limit on the nesting of the object's values
 */
export function scanObject(
  bytes: Uint8Array,
  at: number,
  wantedKeys?: readonly string[],
  maxDepth = MAX_DEPTH,
): ScannedItems<JsonMember> | undefined {
  if (bytes[at] !== OPEN_BRACE) return undefined;
  const items: JsonMember[] = [];
  let i = skipWhitespace(bytes, at + 1);
  if (bytes[i] === CLOSE_BRACE) return { items, end: i + 1 };
  for (;;) {
    const keyEnd = skipString(bytes, i);
    if (keyEnd < 0) return undefined;
    const colon = skipWhitespace(bytes, keyEnd);
    if (bytes[colon] !== COLON) return undefined;
    const start = skipWhitespace(bytes, colon + 1);
    const end = skipValue(bytes, start, maxDepth);
    if (end < 0 || items.length === MAX_ITEMS) return undefined;
    const key = decodeString(bytes, i + 1, keyEnd - 1);
    if (wantedKeys === undefined || wantedKeys.includes(key)) items.push({ key, start, end });
    i = skipWhitespace(bytes, end);
    if (bytes[i] === CLOSE_BRACE) return { items, end: i + 1 };
    if (bytes[i] !== COMMA) return undefined;
    i = skipWhitespace(bytes, i + 1);
  }
}

/**
 * The members of the object at `at`, however deeply their values are nested; none if the object is not well-formed. For
 * results that are relayed without being read. If the nesting exceeds `MAX_DEPTH`, the values are not checked: only
 * their brackets are counted.
 */
export function scanTopLevel(bytes: Uint8Array, at: number): readonly JsonMember[] {
  const scanned = scanObject(bytes, at)?.items;
  if (scanned !== undefined || bytes[at] !== OPEN_BRACE) return scanned ?? [];
  const items: JsonMember[] = [];
  let i = skipWhitespace(bytes, at + 1);
  while (items.length < MAX_ITEMS) {
    const start = skipKey(bytes, i);
    const end = start < 0 ? -1 : skipBalanced(bytes, start);
    if (end < 0) return [];
    items.push({ key: decodeString(bytes, i + 1, skipString(bytes, i) - 1), start, end });
    i = skipWhitespace(bytes, end);
    if (bytes[i] === CLOSE_BRACE) return items;
    if (bytes[i] !== COMMA) return [];
    i = skipWhitespace(bytes, i + 1);
  }
  return [];
}

/** The index after the value at `at`, or -1. Inside an object or array, only strings and bracket depth are checked. */
function skipBalanced(bytes: Uint8Array, at: number): number {
  const byte = bytes[at];
  if (byte !== OPEN_BRACE && byte !== OPEN_BRACKET) return skipValue(bytes, at);
  let depth = 0;
  let i = at;
  while (i < bytes.length) {
    const next = bytes[i];
    if (next === QUOTE) {
      i = skipString(bytes, i);
      if (i < 0) return -1;
      continue;
    }
    i++;
    if (next === OPEN_BRACE || next === OPEN_BRACKET) depth++;
    else if (next === CLOSE_BRACE || next === CLOSE_BRACKET) depth--;
    if (depth === 0) return i;
  }
  return -1;
}

/**
 * The elements of the array at `at`; undefined if the array is not well-formed, or has more than `maxItems` elements.
 * @param maxDepth limit on the nesting of the array's elements
 */
export function scanArray(
  bytes: Uint8Array,
  at: number,
  maxItems = MAX_ITEMS,
  maxDepth = MAX_DEPTH,
): ScannedItems<ByteRange> | undefined {
  if (bytes[at] !== OPEN_BRACKET) return undefined;
  const items: ByteRange[] = [];
  let i = skipWhitespace(bytes, at + 1);
  if (bytes[i] === CLOSE_BRACKET) return { items, end: i + 1 };
  for (;;) {
    const end = skipValue(bytes, i, maxDepth);
    if (end < 0 || items.length === maxItems) return undefined;
    items.push({ start: i, end });
    i = skipWhitespace(bytes, end);
    if (bytes[i] === CLOSE_BRACKET) return { items, end: i + 1 };
    if (bytes[i] !== COMMA) return undefined;
    i = skipWhitespace(bytes, i + 1);
  }
}

/** Whether `test` holds for every value of the well-formed object at `at`. */
export function everyMemberValue(
  bytes: Uint8Array,
  at: number,
  test: (start: number) => boolean,
): boolean {
  let i = skipWhitespace(bytes, at + 1);
  while (bytes[i] === QUOTE) {
    const start = skipKey(bytes, i);
    const end = start < 0 ? -1 : skipValue(bytes, start);
    if (end < 0 || !test(start)) return false;
    i = skipWhitespace(bytes, end);
    if (bytes[i] === COMMA) i = skipWhitespace(bytes, i + 1);
  }
  return true;
}

export interface ScannedItems<T> {
  readonly items: readonly T[];
  /** The index after the closing brace or bracket. */
  readonly end: number;
}

/** The last member with that key: of duplicate keys the last one wins, as in JSON.parse. */
export function lastMember(members: readonly JsonMember[], key: string): JsonMember | undefined {
  for (let i = members.length - 1; i >= 0; i--) {
    const member = members[i];
    if (member?.key === key) return member;
  }
  return undefined;
}

/**
 * An object in a JSON text. Its members are scanned, their values are not parsed. Of duplicate keys the last one
 * counts, as in JSON.parse.
 */
export class JsonObject {
  readonly bytes: Uint8Array;
  /** The members in order, duplicates included. */
  readonly members: readonly JsonMember[];

  /** @param members all members of the object, as scanned in these bytes */
  constructor(bytes: Uint8Array, members: readonly JsonMember[]) {
    this.bytes = bytes;
    this.members = members;
  }

  /** The object at the start of a range; an object without members if there is no range or no well-formed object. */
  static at(bytes: Uint8Array, range: Pick<ByteRange, "start"> | undefined): JsonObject {
    const items = range && scanObject(bytes, skipWhitespace(bytes, range.start))?.items;
    return new JsonObject(bytes, items ?? NO_MEMBERS);
  }

  /** The object in a text that consists of one object; an object without members for any other text. */
  static of(bytes: Uint8Array): JsonObject {
    return JsonObject.at(bytes, START);
  }

  member(key: string): JsonMember | undefined {
    return lastMember(this.members, key);
  }

  /**
   * All members with that key. For code that must treat duplicates alike, because parsers differ on which one counts.
   */
  all(key: string): JsonMember[] {
    return this.members.filter((member) => member.key === key);
  }

  /** The decoded string with that key; undefined if the value is not a string, or is missing. */
  string(key: string): string | undefined {
    return readString(this.bytes, this.member(key));
  }

  /** The parsed value with that key; undefined if it is missing. */
  value(key: string): unknown {
    const member = this.member(key);
    return member && parseRange(this.bytes, member);
  }

  /** The object with that key; an object without members if the value is not an object, or is missing. */
  object(key: string): JsonObject {
    return JsonObject.at(this.bytes, this.member(key));
  }

  /** The members of all objects with that key, for code that must treat duplicates alike. */
  everyObject(key: string): JsonObject {
    const members = this.all(key).flatMap((it) => JsonObject.at(this.bytes, it).members);
    return new JsonObject(this.bytes, members);
  }

  /** The elements of the array with that key; none if the value is not an array, or is missing. */
  elements(key: string): readonly ByteRange[] {
    const member = this.member(key);
    return (member && scanArray(this.bytes, member.start)?.items) ?? NO_ELEMENTS;
  }

  /** Like `elements`, but as objects. An element that is not an object becomes an object without members. */
  objects(key: string): readonly JsonObject[] {
    return this.elements(key).map((element) => JsonObject.at(this.bytes, element));
  }
}
const START = { start: 0 } as const;
const NO_MEMBERS: readonly JsonMember[] = [];
const NO_ELEMENTS: readonly ByteRange[] = [];

/** The decoded string of a range; undefined if the value is no string, or has a broken escape. Never throws. */
export function readString(bytes: Uint8Array, range: ByteRange | undefined): string | undefined {
  if (range === undefined || bytes[range.start] !== QUOTE) return undefined;
  try {
    return decodeString(bytes, range.start + 1, range.end - 1);
  } catch {
    return undefined;
  }
}

/** The index after the value at `at`; -1 if it is not well-formed, or nested deeper than `maxDepth`. */
export function skipValue(bytes: Uint8Array, at: number, maxDepth = MAX_DEPTH): number {
  let stack = scratchStack;
  let i = at;
  let depth = 0;
  for (;;) {
    // A value is expected at i.
    const byte = bytes[i];
    if (byte === QUOTE) {
      i = skipString(bytes, i);
      if (i < 0) return -1;
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (depth === maxDepth) return -1;
      if (depth === stack.length) stack = growStack(stack);
      stack[depth++] = byte;
      i = skipWhitespace(bytes, i + 1);
      if (bytes[i] === byte + 2) {
        depth--;
        i++;
      } else if (byte === OPEN_BRACE) {
        i = skipKey(bytes, i);
        if (i < 0) return -1;
        continue;
      } else {
        continue;
      }
    } else {
      i = skipScalar(bytes, i);
      if (i < 0) return -1;
    }
    // A value ended at i: expect closing brackets, then a comma or the end.
    for (;;) {
      if (depth === 0) return i;
      i = skipWhitespace(bytes, i);
      const open = stack[depth - 1];
      const next = bytes[i];
      if (next === COMMA) {
        i = skipWhitespace(bytes, i + 1);
        if (open === OPEN_BRACE) {
          i = skipKey(bytes, i);
          if (i < 0) return -1;
        }
        break;
      }
      // "{" and "}", "[" and "]" are two apart in ASCII.
      if (open === undefined || next !== open + 2) return -1;
      depth--;
      i++;
    }
  }
}

/** Copies a stack to one of twice the size; `scratchStack` itself keeps its size. */
function growStack(stack: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const longer = new Uint8Array(stack.length * 2);
  longer.set(stack);
  return longer;
}

/** The index of the value whose key starts at `at`; -1 if key and colon are not well-formed. */
function skipKey(bytes: Uint8Array, at: number): number {
  const end = skipString(bytes, at);
  if (end < 0) return -1;
  const colon = skipWhitespace(bytes, end);
  return bytes[colon] === COLON ? skipWhitespace(bytes, colon + 1) : -1;
}

/** 1 for every byte that is not special inside a string. Look-ups in this table are most of the cost of a scan. */
const IS_PLAIN_CHAR = new Uint8Array(256).fill(1, 0x20);
IS_PLAIN_CHAR[QUOTE] = 0;
IS_PLAIN_CHAR[BACKSLASH] = 0;

/**
 * Number of plain bytes in a row after which the rest of a string is scanned four bytes at a time. The preparation for
 * such a scan takes as long as scanning this many bytes one by one.
 */
const MIN_WORD_SCAN = 48;

/** The index after the string at `at`; -1 if there is no well-formed string. */
export function skipString(bytes: Uint8Array, at: number): number {
  if (bytes[at] !== QUOTE) return -1;
  const length = bytes.length;
  let int32View: Int32Array | undefined;
  let i = at + 1;
  while (i < length) {
    const wordScanStart = i + MIN_WORD_SCAN;
    while (i < wordScanStart && IS_PLAIN_CHAR[bytes[i] as number] === 1) i++;
    if (i === wordScanStart) {
      int32View ??= toInt32View(bytes);
      i = skipPlainChars(int32View, bytes, i);
      while (IS_PLAIN_CHAR[bytes[i] as number] === 1) i++;
    }
    const byte = bytes[i];
    if (byte === QUOTE) return i + 1;
    if (byte !== BACKSLASH) return -1;
    if (bytes[i + 1] === 0x75 /* u */) {
      for (let k = i + 2; k < i + 6; k++) if (!isHex(bytes[k])) return -1;
      i += 6;
    } else {
      if (!isEscape(bytes[i + 1])) return -1;
      i += 2;
    }
  }
  return -1;
}

/** The characters that may follow a backslash, except "u". */
function isEscape(byte: number | undefined): boolean {
  switch (byte) {
    case QUOTE:
    case BACKSLASH:
    case 0x2f: // /
    case 0x62: // b
    case 0x66: // f
    case 0x6e: // n
    case 0x72: // r
    case 0x74: // t
      return true;
    default:
      return false;
  }
}

function isHex(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  const lower = byte | 0x20;
  return isDigit(byte) || (lower >= 0x61 && lower <= 0x66);
}

export function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

/** The index after the number, true, false or null at `at`; -1 if there is none. */
function skipScalar(bytes: Uint8Array, at: number): number {
  switch (bytes[at]) {
    case 0x74:
      return startsWithAt(bytes, at, TRUE) ? at + 4 : -1;
    case 0x66:
      return startsWithAt(bytes, at, FALSE) ? at + 5 : -1;
    case 0x6e:
      return startsWithAt(bytes, at, NULL) ? at + 4 : -1;
    default:
      return skipNumber(bytes, at);
  }
}

const TRUE = utf8("true");
const FALSE = utf8("false");
const NULL = utf8("null");

function skipNumber(bytes: Uint8Array, at: number): number {
  let i = at;
  if (bytes[i] === 0x2d) i++;
  if (bytes[i] === 0x30) i++;
  else if (isDigit(bytes[i])) i = skipDigits(bytes, i);
  else return -1;
  if (bytes[i] === 0x2e) {
    if (!isDigit(bytes[i + 1])) return -1;
    i = skipDigits(bytes, i + 1);
  }
  if (bytes[i] === 0x65 || bytes[i] === 0x45) {
    i++;
    if (bytes[i] === 0x2b || bytes[i] === 0x2d) i++;
    if (!isDigit(bytes[i])) return -1;
    i = skipDigits(bytes, i);
  }
  return i;
}

function skipDigits(bytes: Uint8Array, at: number): number {
  let i = at;
  while (isDigit(bytes[i])) i++;
  return i;
}

/** @throws {SyntaxError} if the string was not scanned, and has a broken escape */
function decodeString(bytes: Uint8Array, start: number, end: number): string {
  const cached = cachedText(bytes, start, end);
  if (cached?.hasBackslash === false) return cached.text;
  const text = cached?.text ?? textOf(bytes, start, end);
  return text.includes("\\") ? (JSON.parse(`"${text}"`) as string) : text;
}

/** Edits that remove members from an object. @param members all members, in order @param isRemoved tests a key */
export function removeMembers(
  bytes: Uint8Array,
  object: Pick<ByteRange, "start">,
  members: readonly JsonMember[],
  isRemoved: (key: string) => boolean,
): Edit[] {
  const edits: Edit[] = [];
  /**
   * The index at which the removal of the next member starts: after the previous member, before the comma; or after the
   * comma if no member has been kept so far.
   */
  let from = object.start + 1;
  let isFirst = true;
  for (const { key, end } of members) {
    const comma = skipWhitespace(bytes, end);
    const next = bytes[comma] === COMMA ? comma + 1 : end;
    if (!isRemoved(key)) {
      isFirst = false;
      from = end;
      continue;
    }
    const to = isFirst ? next : end;
    const previous = edits.at(-1);
    // Merges adjacent removals into one edit.
    const start = previous?.end === from ? previous.start : from;
    if (start < from) edits.pop();
    edits.push({ start, end: to, replacement: "" });
    from = to;
  }
  return edits;
}

/**
 * An edit that appends members to an object; they override earlier members with the same keys.
 * @param object range of the object, including its braces
 * @param json one or more `"key":value`, separated by commas
 */
export function appendMembers(bytes: Uint8Array, object: ByteRange, json: string): Edit {
  const at = object.end - 1;
  const isEmpty = skipWhitespace(bytes, object.start + 1) === at;
  return { start: at, end: at, replacement: utf8(isEmpty ? json : `,${json}`) };
}
