import { type Member, scanObject } from "../json.ts";

/** What came with more is not remembered, in bytes: it would be kept for nothing. */
const LONGEST = 256 * 1024;

const NONE: readonly Member[] = [];
const last: { bytes: Uint8Array | undefined; start: number; items: readonly Member[] } = {
  bytes: undefined,
  start: 0,
  items: NONE,
};

/**
 * The members of a `_meta`; none if it is no object. Who asks, its progress token, and what belongs to one hop are looked for
 * one after the other: the last one that was scanned is remembered.
 * @param bytes that a message came in, which nobody changes
 */
export function membersOfMeta(
  bytes: Uint8Array,
  { start }: Pick<Member, "start">,
): readonly Member[] {
  if (last.bytes === bytes && last.start === start) return last.items;
  const items = scanObject(bytes, start)?.items ?? NONE;
  if (bytes.length <= LONGEST) {
    last.bytes = bytes;
    last.start = start;
    last.items = items;
  }
  return items;
}
