/** Edits of the objects in a JSON text; all other bytes keep their spelling. Pure. */

import { type Edit, type ByteRange, utf8 } from "./bytes.ts";
import { type JsonMember, skipWhitespace } from "./json.ts";

const COMMA = 0x2c;

/** Removes members from an object. @param members all of its members, in order; @param isRemoved tests a key */
export function removeMembers(
  bytes: Uint8Array,
  object: Pick<ByteRange, "start">,
  members: readonly JsonMember[],
  isRemoved: (key: string) => boolean,
): Edit[] {
  const edits: Edit[] = [];
  /** Start of the next member, including its key, and the comma before it if that is removed with it. */
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
    // Adjacent removals become one edit.
    const start = previous?.end === from ? previous.start : from;
    if (start < from) edits.pop();
    edits.push({ start, end: to, replacement: "" });
    from = to;
  }
  return edits;
}

/**
 * Appends members, so that they override earlier ones. @param json one or more `"key":value`, separated by commas;
 * @param object its range, braces included
 */
export function appendMembers(bytes: Uint8Array, object: ByteRange, json: string): Edit {
  const at = object.end - 1;
  const isEmpty = skipWhitespace(bytes, object.start + 1) === at;
  return { start: at, end: at, replacement: utf8(isEmpty ? json : `,${json}`) };
}
