/** Edits of the objects in a JSON text; all other bytes keep their spelling. Pure. */

import { type Edit, type Range, utf8 } from "./bytes.ts";
import { type Member, skipSpace } from "./json.ts";

const COMMA = 0x2c;

/** Removes members from an object. @param members all of its members, in order; @param isRemoved tests a key */
export function removeMembers(
  bytes: Uint8Array,
  object: Pick<Range, "start">,
  members: readonly Member[],
  isDropped: (key: string) => boolean,
): Edit[] {
  const edits: Edit[] = [];
  /** Start of the next member, including its key, and the comma before it if that is removed with it. */
  let from = object.start + 1;
  let isFirst = true;
  for (const { key, end } of members) {
    const comma = skipSpace(bytes, end);
    const next = bytes[comma] === COMMA ? comma + 1 : end;
    if (!isDropped(key)) {
      isFirst = false;
      from = end;
      continue;
    }
    const to = isFirst ? next : end;
    const before = edits.at(-1);
    // Adjacent removals become one edit.
    const start = before?.end === from ? before.start : from;
    if (start < from) edits.pop();
    edits.push({ start, end: to, by: "" });
    from = to;
  }
  return edits;
}

/**
 * Appends members, so that they override earlier ones. @param json one or more `"key":value`, separated by commas;
 * @param object its range, braces included
 */
export function appendMembers(bytes: Uint8Array, object: Range, json: string): Edit {
  const at = object.end - 1;
  const isEmpty = skipSpace(bytes, object.start + 1) === at;
  return { start: at, end: at, by: utf8(isEmpty ? json : `,${json}`) };
}
