import { Buffer } from "node:buffer";
import type { Range } from "../bytes.ts";
import { lastMember, scanArray, scanObject, stringOf, valueOf } from "../json.ts";

/** One entry of a server's listing, as the bytes that the server sent. Era-free: nothing is added or removed. */
export interface Item {
  /** The server's own name for it. */
  readonly name: string;
  readonly bytes: Uint8Array;
  /** Where the bytes spell the name: each `name` member's value. */
  readonly names: readonly Range[];
  /** The value of `_meta`, if that is an object. */
  readonly meta: Range | undefined;
}

/** One page of a listing. */
export interface Page {
  readonly items: readonly Item[];
  /** Entries that have no usable name, which nobody could call. */
  readonly unnamed: number;
  readonly nextCursor: string | undefined;
}

/** More entries than any server has; what a server lists is kept, so there has to be an end. */
const MAX_ENTRIES = 1_000_000;

/**
 * Reads a list result such as `{"tools":[…],"nextCursor":"…"}`.
 * @param key the member that holds the entries.
 * @returns undefined if the result is not of that form.
 */
export function readPage(bytes: Uint8Array, result: Range, key: string): Page | undefined {
  const object = scanObject(bytes, result.start);
  if (object === undefined || object.end !== result.end) return undefined;
  const list = lastMember(object.items, key);
  const entries = list && scanArray(bytes, list.start, MAX_ENTRIES);
  if (entries === undefined) return undefined;
  const items: Item[] = [];
  for (const range of entries.items) {
    const item = readItem(bytes.subarray(range.start, range.end));
    if (item !== undefined) items.push(item);
  }
  return {
    items,
    unnamed: entries.items.length - items.length,
    nextCursor: stringOf(bytes, lastMember(object.items, "nextCursor")),
  };
}

/** Reads one entry; undefined if it is no object with a name. */
export function readItem(bytes: Uint8Array): Item | undefined {
  const members = scanObject(bytes, 0)?.items;
  if (members === undefined) return undefined;
  const name = stringOf(bytes, lastMember(members, "name"));
  if (name === undefined) return undefined;
  const meta = lastMember(members, "_meta");
  return {
    name,
    bytes,
    names: members.filter((member) => member.key === "name"),
    meta: meta !== undefined && bytes[meta.start] === 0x7b ? meta : undefined,
  };
}

/** What a tool's annotations say about repeating a call; false where they are silent (schema, ToolAnnotations). */
export function readHints(item: Item): { readOnly: boolean; idempotent: boolean } {
  const members = scanObject(item.bytes, 0)?.items ?? [];
  const annotations = lastMember(members, "annotations");
  const hints = annotations && scanObject(item.bytes, annotations.start)?.items;
  const says = (key: string): boolean => {
    const member = lastMember(hints ?? [], key);
    return member !== undefined && valueOf(item.bytes, member) === true;
  };
  return { readOnly: says("readOnlyHint"), idempotent: says("idempotentHint") };
}

/** Whether two listings are the same, byte for byte and in the same order. */
export function sameItems(a: readonly Item[], b: readonly Item[]): boolean {
  return (
    a.length === b.length &&
    a.every((item, i) => {
      const other = b[i];
      return other !== undefined && Buffer.compare(item.bytes, other.bytes) === 0;
    })
  );
}
