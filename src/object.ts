/** Changes to the objects in a JSON text as edits of its bytes: what is not meant stays as it is spelled. Pure. */

import { type Edit, type Range, utf8 } from "./bytes.ts";
import { type Member, skipSpace } from "./json.ts";

const COMMA = 0x2c;

/** Takes members out of an object. @param members all of its members, in order; @param isDropped by key */
export function removeMembers(
  bytes: Uint8Array,
  object: Pick<Range, "start">,
  members: readonly Member[],
  isDropped: (key: string) => boolean,
): Edit[] {
  const edits: Edit[] = [];
  /** Where the next member begins, its key included, and the comma in front of it if there is one to go with it. */
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
    // What lies side by side goes as one.
    const start = before?.end === from ? before.start : from;
    if (start < from) edits.pop();
    edits.push({ start, end: to, by: "" });
    from = to;
  }
  return edits;
}

/** Adds members behind all others, so that they win. @param json `"key":value,…`, at least one; @param object with its braces */
export function appendMembers(bytes: Uint8Array, object: Range, json: string): Edit {
  const at = object.end - 1;
  const isEmpty = skipSpace(bytes, object.start + 1) === at;
  return { start: at, end: at, by: utf8(isEmpty ? json : `,${json}`) };
}
