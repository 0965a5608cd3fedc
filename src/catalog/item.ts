import { Buffer } from "node:buffer";
import { type Range, utf8 } from "../bytes.ts";
import {
  ANY_DEPTH,
  lastMember,
  type Member,
  type Scanned,
  scanArray,
  scanObject,
  skipValue,
  stringOf,
  valueOf,
} from "../json.ts";

/** What servers list. */
export const KINDS = ["tools", "prompts", "resources", "resourceTemplates", "skills"] as const;
export type Kind = (typeof KINDS)[number];

/** An entry nested deeper is shown to no client: parsers of some stop at 200, and a list is nested itself. */
export const DEEPEST_ENTRY = 128;

/**
 * What is known of an entry. `sound`: official clients of both eras can read it as it is. `nested`, `unnamed`: no client can be
 * shown it, and its bytes are only those of its key.
 */
export type ItemState = "sound" | "nested" | "unnamed";

/** One entry of a server's listing, as the bytes that the server sent. Era-free: nothing is added or removed. */
export interface Item {
  /** What requests call it: the server's own name, URI or URI template for it. */
  readonly key: string;
  readonly bytes: Uint8Array;
  /** Where the bytes spell the key: the value of each member that has it. */
  readonly keys: readonly Range[];
  /** The value of `_meta`, if that is an object. */
  readonly meta: Range | undefined;
  /** undefined: it has to be checked against the schema of its client's era (catalog/conform.ts). */
  readonly state?: ItemState;
  /** The bytes that the server sent, where these are others. */
  readonly raw?: Uint8Array;
}

/** Whether clients may be shown it, as far as that is known without their era. */
export function isShowable({ state }: Item): boolean {
  return state === undefined || state === "sound";
}

/** Whether an entry can be read by official clients of both eras as it is. @param members all of its own */
export type SoundCheck = (entry: Uint8Array, kind: Kind, members: readonly Member[]) => boolean;

/** One page of a listing. */
export interface Page {
  readonly items: readonly Item[];
  /** Entries that have no usable key, which nobody could ask for. */
  readonly unnamed: number;
  /** There are more entries than were to be read. */
  readonly isCut: boolean;
  readonly nextCursor: string | undefined;
}

/** So many entries of one kind are read of a server: they are kept, and each takes some KiB in the end. */
export const MOST_ITEMS = 200_000;
/** More entries than any page has. */
const MAX_ENTRIES = 10_000_000;

/**
 * Reads a list result such as `{"tools":[…],"nextCursor":"…"}`.
 * @param kind also the member that holds the entries.
 * @param most so many of them are read
 * @param isSound whether an entry can be read by official clients of both eras as it is
 * @returns undefined if the result is not of that form.
 */
export function readPage(
  bytes: Uint8Array,
  result: Range,
  kind: Kind,
  most: number = MOST_ITEMS,
  isSound?: SoundCheck,
): Page | undefined {
  const object = scanObject(bytes, result.start, PAGE_MEMBERS[kind], ANY_DEPTH);
  if (object === undefined || object.end !== result.end) return undefined;
  const list = lastMember(object.items, kind);
  const entries = list && readEntries(bytes, list.start);
  if (entries === undefined) return undefined;
  const items: Item[] = [];
  const isCut = entries.scanned.items.length > most;
  const read = isCut ? entries.scanned.items.slice(0, most) : entries.scanned.items;
  for (const { start, end } of read) {
    const item =
      entries.areFlat || skipValue(bytes, start, DEEPEST_ENTRY) === end
        ? readItem(bytes.subarray(start, end), kind, isSound)
        : readNested(bytes.subarray(start, end), kind);
    if (item !== undefined) items.push(item);
  }
  return {
    items,
    unnamed: read.length - items.length,
    isCut,
    nextCursor: stringOf(bytes, lastMember(object.items, "nextCursor")),
  };
}

/** Where the entries are, and whether none is nested deeper than clients can read: one scan tells both. */
function readEntries(
  bytes: Uint8Array,
  at: number,
): { readonly scanned: Scanned<Range>; readonly areFlat: boolean } | undefined {
  const flat = scanArray(bytes, at, MAX_ENTRIES, DEEPEST_ENTRY);
  const scanned = flat ?? scanArray(bytes, at, MAX_ENTRIES, ANY_DEPTH);
  return scanned && { scanned, areFlat: flat !== undefined };
}

/** The member of an entry that has its key. */
export const KEY_MEMBERS: Readonly<Record<Kind, string>> = {
  tools: "name",
  prompts: "name",
  resources: "uri",
  resourceTemplates: "uriTemplate",
  skills: "uri",
};

/** What is read of a page of each kind. */
const PAGE_MEMBERS = eachKind((kind) => [kind, "nextCursor"]);

/** What is read of an entry of each kind. */
const READ_MEMBERS = eachKind((kind) => [KEY_MEMBERS[kind], "_meta"]);

/** Reads one entry; undefined if it is no object with a key. */
export function readItem(bytes: Uint8Array, kind: Kind, isSound?: SoundCheck): Item | undefined {
  const own = KEY_MEMBERS[kind];
  const all = isSound && scanObject(bytes, 0)?.items;
  const members =
    all?.filter(({ key }) => key === own || key === "_meta") ??
    scanObject(bytes, 0, READ_MEMBERS[kind])?.items;
  if (members === undefined) return undefined;
  const key = stringOf(bytes, lastMember(members, own));
  if (key === undefined) return undefined;
  const meta = lastMember(members, "_meta");
  return {
    key,
    bytes,
    // There are as many in memory as tools.
    keys: meta === undefined ? members : members.filter((member) => member.key === own),
    meta: meta !== undefined && bytes[meta.start] === 0x7b ? meta : undefined,
    ...(all !== undefined && isSound?.(bytes, kind, all) === true && SOUND),
  };
}
const SOUND = { state: "sound" } as const;

/** One that is nested too deep: only its key is kept. */
function readNested(bytes: Uint8Array, kind: Kind): Item | undefined {
  const own = KEY_MEMBERS[kind];
  const member = lastMember(scanObject(bytes, 0, [own], ANY_DEPTH)?.items ?? [], own);
  const key = stringOf(bytes, member);
  return key === undefined ? undefined : makeHidden(key, kind, "nested");
}

/** Stands for entries that no client can be shown. */
export function makeHidden(key: string, kind: Kind, state: "nested" | "unnamed"): Item {
  const bytes = utf8(JSON.stringify({ [KEY_MEMBERS[kind]]: key }));
  return { key, bytes, keys: [], meta: undefined, state };
}

/** What is known about repeating a call. */
export interface Hints {
  readonly readOnly: boolean;
  readonly idempotent: boolean;
}

export const NO_HINTS: Hints = { readOnly: false, idempotent: false };

/** What a tool's annotations say about repeating a call; false where they are silent (schema, ToolAnnotations). */
export function readHints(item: Item): Hints {
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

/** Something for each kind, made in their order. */
export function eachKind<T>(make: (kind: Kind) => T): Readonly<Record<Kind, T>> {
  return {
    tools: make("tools"),
    prompts: make("prompts"),
    resources: make("resources"),
    resourceTemplates: make("resourceTemplates"),
    skills: make("skills"),
  };
}
