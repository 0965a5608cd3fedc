import { type JsonMember, scanObject } from "../base/json.ts";

/** Messages in larger buffers are not cached, in bytes: the cache would keep the buffer alive. */
const MAX_CACHED_BYTES = 256 * 1024;

const NO_MEMBERS: readonly JsonMember[] = [];
const lastScan: { bytes: Uint8Array | undefined; start: number; items: readonly JsonMember[] } = {
  bytes: undefined,
  start: 0,
  items: NO_MEMBERS,
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
  if (lastScan.bytes === bytes && lastScan.start === start) return lastScan.items;
  const items = scanObject(bytes, start)?.items ?? NO_MEMBERS;
  if (bytes.length <= MAX_CACHED_BYTES) {
    lastScan.bytes = bytes;
    lastScan.start = start;
    lastScan.items = items;
  }
  return items;
}
