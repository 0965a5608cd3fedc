import { Buffer, isUtf8 } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { mapKinds, type ListedItem, type ItemState, type Kind, KINDS } from "../catalog/listing.ts";
import type { ServerCapabilities, CacheHints, ListMetas, ServerListing } from "../catalog/offer.ts";
import type { Hmac } from "./hmac.ts";
import type { ToolMark } from "./tool-marks.ts";
import type { StoredSnapshot, EraVerdict } from "./snapshots.ts";

/*
 * A snapshot as a file. Its first line is the seal of all that follows. Then come, a line each, the file's own name,
 * when it was saved, the instructions, what the server speaks and for how long its lists hold, where the items' parts are, and the marks of the tools. The rest are the items,
 * kind by kind, each as the very bytes that the server sent and a line end.
 *
 *     <HMAC-SHA-256, hex>
 *     <name, hex>
 *     1700000000000
 *     {"text":"Read before you write.","verdict":{"era":"legacy","askedAt":1699000000000}}
 *     {"tools":[{"key":"read","size":44,"keys":[{"start":8,"end":14}]}],"prompts":[],…}
 *     [["read",{"since":1690000000000,"prints":{"description":"…"}}]]
 *     {"name":"read","description":"Reads a file"}
 *
 * What has the right seal was written by a hub of this installation: its form needs no check. The items themselves
 * are not looked at, as scanning those of all servers would be felt at each start.
 */

/** Part of what a file's name is made of: with another form there are other files. */
export const SNAPSHOT_FORMAT = 4;

const LF = 0x0a;
const SEAL_LENGTH = 64;

/** An item without its bytes. */
interface Entry {
  readonly key: string;
  /** Of its bytes. */
  readonly size: number;
  readonly keys: readonly ByteRange[];
  readonly meta?: ByteRange;
  /** Another hub need not check it again. With other rules for that there has to be another `FORMAT`. */
  readonly state?: ItemState;
}

/** The file of that name for a snapshot. */
export async function encodeSnapshot(
  name: string,
  { offer, verdict, savedAt, readMarks }: StoredSnapshot,
  seal: Hmac,
): Promise<Buffer> {
  const items = KINDS.flatMap((kind) => offer[kind]);
  const entries = mapKinds((kind) => offer[kind].map(toEntry));
  const json = [
    {
      text: offer.instructions,
      verdict,
      hints: offer.hints,
      metas: offer.metas,
      declared: offer.declared,
    },
    entries,
    [...readMarks()],
  ].map((it) => JSON.stringify(it));
  const head = ["0".repeat(SEAL_LENGTH), name, savedAt, ...json, ""].join("\n");
  const lineEnd = Buffer.of(LF);
  const file = Buffer.concat([Buffer.from(head), ...items.flatMap((it) => [it.bytes, lineEnd])]);
  file.write(await seal(file.subarray(SEAL_LENGTH + 1)), "latin1");
  return file;
}

/** The snapshot in a file; undefined if the file is not, to the last bit, what was written under that name, or not UTF-8. */
export async function decodeSnapshot(
  file: Buffer<ArrayBuffer>,
  name: string,
  seal: Hmac,
): Promise<StoredSnapshot | undefined> {
  // Older versions kept what servers sent without a check, and one such byte ends a strict client's session.
  if (!isUtf8(file)) return undefined;
  const sealed = file.subarray(SEAL_LENGTH + 1);
  if (textOf(file, 0, SEAL_LENGTH + 1) !== `${await seal(sealed)}\n`) return undefined;
  let at = SEAL_LENGTH + 1;
  const readLine = (): string => {
    const start = at;
    at = file.indexOf(LF, start) + 1;
    return textOf(file, start, at - 1);
  };
  if (readLine() !== name) return undefined;
  const savedAt = Number(readLine());
  const {
    text: instructions,
    verdict,
    hints,
    metas,
    declared,
  } = JSON.parse(readLine()) as {
    text?: string;
    verdict?: EraVerdict;
    hints?: CacheHints;
    metas?: ListMetas;
    declared?: ServerCapabilities;
  };
  const entries = JSON.parse(readLine()) as Record<Kind, Entry[]>;
  const marks = { start: at, end: file.indexOf(LF, at) };
  at = marks.end + 1;
  const readItem = ({ key, size, keys, meta, state }: Entry): ListedItem => {
    const bytes = file.subarray(at, at + size);
    at += size + 1;
    return { key, bytes, keys, meta, ...(state && { state }) };
  };
  const lists = mapKinds((kind) => entries[kind].map((entry) => readItem(entry)));
  const offer: ServerListing = {
    ...lists,
    instructions,
    ...(hints && { hints }),
    ...(metas && { metas }),
    ...(declared && { declared }),
  };
  const readMarks = () =>
    new Map(JSON.parse(textOf(file, marks.start, marks.end)) as [string, ToolMark][]);
  return { offer, verdict, savedAt, readMarks };
}

function toEntry({ key, bytes, keys, meta, state }: ListedItem): Entry {
  const size = bytes.length;
  return {
    key,
    size,
    keys: keys.map(toRange),
    ...(meta && { meta: toRange(meta) }),
    ...(state && { state }),
  };
}

function toRange({ start, end }: ByteRange): ByteRange {
  return { start, end };
}
