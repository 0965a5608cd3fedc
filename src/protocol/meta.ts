import { type JsonMember, scanObject } from "../base/json.ts";

/** Messages in larger buffers are not cached, in bytes: the cache would keep the buffer alive. */
const LONGEST = 256 * 1024;

const NONE: readonly JsonMember[] = [];
const last: { bytes: Uint8Array | undefined; start: number; items: readonly JsonMember[] } = {
  bytes: undefined,
  start: 0,
  items: NONE,
};

/**
 * The members of a `_meta`; empty if it is not an object. Several readers scan the same `_meta` in a row, so the last
 * scan is cached.
 * @param bytes of a received message, which are never modified
 */
export function membersOfMeta(
  bytes: Uint8Array,
  { start }: Pick<JsonMember, "start">,
): readonly JsonMember[] {
  if (last.bytes === bytes && last.start === start) return last.items;
  const items = scanObject(bytes, start)?.items ?? NONE;
  if (bytes.length <= LONGEST) {
    last.bytes = bytes;
    last.start = start;
    last.items = items;
  }
  return items;
}
