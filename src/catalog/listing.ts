import { Buffer } from "node:buffer";
import { type ByteRange, utf8 } from "../base/bytes.ts";
import {
  ANY_DEPTH,
  type JsonMember,
  JsonObject,
  lastMember,
  OPEN_BRACE,
  readString,
  scanArray,
  scanObject,
  type ScannedItems,
  skipValue,
} from "../base/json.ts";
import { mergeSkillsCapability } from "./skills.ts";

export const KINDS = ["tools", "prompts", "resources", "resourceTemplates", "skills"] as const;
export type Kind = (typeof KINDS)[number];

/**
 * Maximum nesting depth of an entry; entries that are nested deeper are shown to no client. Some parsers stop at depth
 * 200, and the list around the entry adds to the depth.
 */
export const MAX_ENTRY_DEPTH = 128;

/**
 * The result of checking an entry. `sound`: official clients of all protocol versions can read it unchanged. `nested`:
 * it is nested too deep. `unnamed`: it has no usable key. An entry that is `nested` or `unnamed` is shown to no client;
 * its bytes are replaced by an object that has only the key.
 */
export type ItemValidity = "sound" | "nested" | "unnamed";

/** One entry of a server's listing. Unless the entry was changed, its bytes are exactly those that the server sent. */
export interface ListedItem {
  /** The name, URI or URI template that the server lists; requests to the server use it. */
  readonly key: string;
  readonly bytes: Uint8Array;
  /** The ranges of the key in `bytes`. There may be several, because an object may have the same member twice. */
  readonly keys: readonly ByteRange[];
  /** The value of `_meta`, if it is an object. */
  readonly meta: ByteRange | undefined;
  /**
   * The result of the check when the entry was read. Undefined: the entry must still be checked against the schema of
   * the client's protocol version (conformance.ts).
   */
  readonly state?: ItemValidity;
  /** The bytes that the server sent, if `bytes` differs from them. */
  readonly original?: Uint8Array;
}

/** Whether some client may be shown the item. For a given client, this may depend on its protocol version. */
export function isShowable({ state }: ListedItem): boolean {
  return state === undefined || state === "sound";
}

/** Whether official clients of all versions can read an entry unchanged. @param members all members of the entry */
export type ConformanceCheck = (
  entry: Uint8Array,
  kind: Kind,
  members: readonly JsonMember[],
) => boolean;

export interface ListPage {
  readonly items: readonly ListedItem[];
  /** The number of entries without a usable key; no request can name them. */
  readonly unnamedCount: number;
  /** Whether the page has more entries than the given maximum. */
  readonly isTruncated: boolean;
  readonly nextCursor: string | undefined;
  /** Whether there is a `nextCursor` that is neither a string nor null. */
  readonly hasOddCursor: boolean;
}

/**
 * Maximum number of entries of one kind that are read from a server. They are kept in memory, and each may take several
 * KiB.
 */
export const MAX_ITEMS = 200_000;
/** Maximum number of entries scanned in one page, above the size of any real page. */
const MAX_SCANNED_ENTRIES = 10_000_000;

/**
 * Reads a list result such as `{"tools":[…],"nextCursor":"…"}`.
 * @param kind the kind of the entries, which is also the name of the member that holds them
 * @param max the maximum number of entries that are read
 * @param isConforming whether official clients of all protocol versions can read an entry unchanged
 * @returns undefined if the result does not have that form
 */
export function readPage(
  bytes: Uint8Array,
  result: ByteRange,
  kind: Kind,
  max: number = MAX_ITEMS,
  isConforming?: ConformanceCheck,
): ListPage | undefined {
  const object = scanObject(bytes, result.start, PAGE_MEMBERS[kind], ANY_DEPTH);
  if (object === undefined || object.end !== result.end) return undefined;
  const list = lastMember(object.items, kind);
  const entries = list && scanEntries(bytes, list.start);
  if (entries === undefined) return undefined;
  const items: ListedItem[] = [];
  const isTruncated = entries.scanned.items.length > max;
  const accepted = isTruncated ? entries.scanned.items.slice(0, max) : entries.scanned.items;
  for (const { start, end } of accepted) {
    const item =
      entries.areWithinDepth || skipValue(bytes, start, MAX_ENTRY_DEPTH) === end
        ? readItem(bytes.subarray(start, end), kind, isConforming)
        : readTooDeep(bytes.subarray(start, end), kind);
    if (item !== undefined) items.push(item);
  }
  const next = lastMember(object.items, "nextCursor");
  const nextCursor = readString(bytes, next);
  const isNull = next !== undefined && bytes[next.start] === NULL_START;
  return {
    items,
    unnamedCount: accepted.length - items.length,
    isTruncated,
    nextCursor,
    hasOddCursor: next !== undefined && !isNull && nextCursor === undefined,
  };
}

const NULL_START = 0x6e;

/** The ranges of the entries, and whether all are within MAX_ENTRY_DEPTH. */
function scanEntries(
  bytes: Uint8Array,
  at: number,
): { readonly scanned: ScannedItems<ByteRange>; readonly areWithinDepth: boolean } | undefined {
  const shallow = scanArray(bytes, at, MAX_SCANNED_ENTRIES, MAX_ENTRY_DEPTH);
  const scanned = shallow ?? scanArray(bytes, at, MAX_SCANNED_ENTRIES, ANY_DEPTH);
  return scanned && { scanned, areWithinDepth: shallow !== undefined };
}

/** The member of an entry that holds its key. */
export const KEY_MEMBERS: Readonly<Record<Kind, string>> = {
  tools: "name",
  prompts: "name",
  resources: "uri",
  resourceTemplates: "uriTemplate",
  skills: "uri",
};

/** The members of a page that are read. */
const PAGE_MEMBERS = mapKinds((kind) => [kind, "nextCursor"]);

/** The members of an entry that are read. */
const READ_MEMBERS = mapKinds((kind) => [KEY_MEMBERS[kind], "_meta"]);

/** Reads one entry; undefined if it is not an object with a key. */
export function readItem(
  bytes: Uint8Array,
  kind: Kind,
  isConforming?: ConformanceCheck,
): ListedItem | undefined {
  const keyName = KEY_MEMBERS[kind];
  const all = isConforming && scanObject(bytes, 0)?.items;
  const members =
    all?.filter(({ key }) => key === keyName || key === "_meta") ??
    scanObject(bytes, 0, READ_MEMBERS[kind])?.items;
  if (members === undefined) return undefined;
  const key = readString(bytes, lastMember(members, keyName));
  if (key === undefined) return undefined;
  const meta = lastMember(members, "_meta");
  return {
    key,
    bytes,
    // Without `_meta`, all of `members` are keys, so the array itself is used: a second array for each item would cost
    // memory.
    keys: meta === undefined ? members : members.filter((member) => member.key === keyName),
    meta: meta !== undefined && bytes[meta.start] === OPEN_BRACE ? meta : undefined,
    ...(all !== undefined && isConforming?.(bytes, kind, all) === true && CONFORMING),
  };
}
const CONFORMING = { state: "sound" } as const;

/** Reads an entry that is nested too deep; only its key is kept. */
function readTooDeep(bytes: Uint8Array, kind: Kind): ListedItem | undefined {
  const keyName = KEY_MEMBERS[kind];
  const member = lastMember(scanObject(bytes, 0, [keyName], ANY_DEPTH)?.items ?? [], keyName);
  const key = readString(bytes, member);
  return key === undefined ? undefined : makeUnshowableItem(key, kind, "nested");
}

/** Makes a placeholder for an entry that no client can be shown. */
export function makeUnshowableItem(
  key: string,
  kind: Kind,
  state: "nested" | "unnamed",
): ListedItem {
  const bytes = utf8(JSON.stringify({ [KEY_MEMBERS[kind]]: key }));
  return { key, bytes, keys: [], meta: undefined, state };
}

/** The hints in a tool's annotations that tell whether a call can safely be repeated. */
export interface ToolAnnotations {
  readonly readOnly: boolean;
  readonly idempotent: boolean;
}

export const NO_ANNOTATIONS: ToolAnnotations = { readOnly: false, idempotent: false };

/** Reads a tool's annotations; a missing hint is false (schema, ToolAnnotations). */
export function readAnnotations(item: ListedItem): ToolAnnotations {
  const hints = JsonObject.of(item.bytes).object("annotations");
  return {
    readOnly: hints.value("readOnlyHint") === true,
    idempotent: hints.value("idempotentHint") === true,
  };
}

const READ_ONLY_HINT = Buffer.from('"readOnlyHint"');
/** Cache by tool: whether it changes nothing. Filters ask this for each tool of a list. */
const readOnlyTools = new WeakMap<ListedItem, boolean>();

/** Whether a tool changes nothing, according to its annotations. */
export function isReadOnlyTool(item: ListedItem): boolean {
  let isReadOnly = readOnlyTools.get(item);
  if (isReadOnly === undefined) {
    const { buffer, byteOffset, length } = item.bytes;
    const mayBe = Buffer.from(buffer, byteOffset, length).includes(READ_ONLY_HINT);
    isReadOnly = mayBe && readAnnotations(item).readOnly;
    readOnlyTools.set(item, isReadOnly);
  }
  return isReadOnly;
}

/** Whether two lists have the same bytes in the same order. */
export function sameItems(a: readonly ListedItem[], b: readonly ListedItem[]): boolean {
  return (
    a.length === b.length &&
    a.every((item, i) => {
      const other = b[i];
      return other !== undefined && Buffer.compare(item.bytes, other.bytes) === 0;
    })
  );
}

/** Makes one value per kind, in the order of KINDS. */
export function mapKinds<T>(make: (kind: Kind) => T): Readonly<Record<Kind, T>> {
  return {
    tools: make("tools"),
    prompts: make("prompts"),
    resources: make("resources"),
    resourceTemplates: make("resourceTemplates"),
    skills: make("skills"),
  };
}

export type ItemsByKind = Readonly<Record<Kind, readonly ListedItem[]>>;

/** The listing of one server: its lists, instructions and capabilities. */
export interface ServerListing extends ItemsByKind {
  readonly instructions: string | undefined;
  /** The cache hints of the server's lists; undefined if its protocol version has none (legacy, up to 2025-11-25). */
  readonly hints?: CacheHints | undefined;
  /** The `_meta` of the server's list results, as JSON. */
  readonly metas?: ListMetas | undefined;
  /** The server's capabilities, apart from those for lists; undefined: not known. */
  readonly declared?: ServerCapabilities | undefined;
  /** What some machines with the server have instead of what is listed; absent if there is no such thing. */
  readonly differing?: readonly DifferingItem[] | undefined;
}

/** An item as some machines with a server have it, while others have the one that is listed under the same name. */
export interface DifferingItem {
  readonly kind: "tools" | "prompts";
  readonly item: ListedItem;
  /** The names of the machines. */
  readonly machines: readonly string[];
}

export type ListMetas = Readonly<Partial<Record<Kind, string>>>;

export type CapabilitySettings = Readonly<Record<string, object>>;

/** The capabilities that a server declares (MCP, lifecycle), except those for its lists. */
export interface ServerCapabilities {
  /** Whether the server declares `resources.subscribe`. */
  readonly canSubscribe: boolean;
  /**
   * The form of tasks that the server supports: of protocol 2025-11-25 (legacy) or 2026-07-28 (modern), or both;
   * undefined: none.
   */
  readonly tasks?: "legacy" | "modern" | "both" | undefined;
  readonly extensions: CapabilitySettings;
  readonly experimental: CapabilitySettings;
}

export interface CombinedCapabilities {
  readonly canSubscribe: boolean;
  readonly tasks: Readonly<Record<"legacy" | "modern", boolean>>;
  /** If several servers declare the same extension, the settings of the first apply. */
  readonly extensions: CapabilitySettings;
  readonly experimental: CapabilitySettings;
  /** Whether the capabilities of all servers are known. */
  readonly isComplete: boolean;
}

/** How long (in ms) and for whom a result may be cached (MCP, caching). */
export interface CacheHint {
  readonly ttlMs: number;
  readonly cacheScope: "public" | "private";
}

export type CacheHints = Readonly<Partial<Record<Kind, CacheHint>>>;

export const NO_CACHING: CacheHint = { ttlMs: 0, cacheScope: "private" };

export const EMPTY_LISTING: ServerListing = {
  tools: [],
  prompts: [],
  resources: [],
  resourceTemplates: [],
  skills: [],
  instructions: undefined,
};

/** The singular noun for an entry of each kind. */
export const KIND_NOUNS: Readonly<Record<Kind, string>> = {
  tools: "tool",
  prompts: "prompt",
  resources: "resource",
  resourceTemplates: "resource template",
  skills: "skill",
};

/** Whether two listings are the same, byte for byte and in the same order. */
export function sameListings(a: ServerListing, b: ServerListing): boolean {
  return (
    a.instructions === b.instructions &&
    sameCacheHints(a.hints, b.hints) &&
    JSON.stringify(a.metas) === JSON.stringify(b.metas) &&
    JSON.stringify(a.declared) === JSON.stringify(b.declared) &&
    KINDS.every((kind) => sameItems(a[kind], b[kind])) &&
    sameDiffering(a.differing ?? [], b.differing ?? [])
  );
}

function sameDiffering(a: readonly DifferingItem[], b: readonly DifferingItem[]): boolean {
  const [own, other] = [a, b].map((all) => ({
    places: JSON.stringify(all.map(({ kind, machines }) => [kind, machines])),
    items: all.map(({ item }) => item),
  }));
  return own?.places === other?.places && sameItems(own?.items ?? [], other?.items ?? []);
}

function sameCacheHints(a: CacheHints | undefined, b: CacheHints | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return KINDS.every((kind) => {
    const [own, other] = [a[kind], b[kind]];
    return own?.ttlMs === other?.ttlMs && own?.cacheScope === other?.cacheScope;
  });
}

/** The cache hint of a combined list: the shortest TTL and the narrowest scope. */
export function mergeCacheHints(kind: Kind, listings: readonly ServerListing[]): CacheHint {
  let merged: CacheHint | undefined;
  for (const { hints, [kind]: items } of listings) {
    // A server of protocol 2026-07-28 (modern) that has no list of this kind, and so no cache hint for it, does not
    // limit the combined hint.
    if (hints !== undefined && hints[kind] === undefined && items.length === 0) continue;
    const { ttlMs, cacheScope } = hints?.[kind] ?? NO_CACHING;
    merged = {
      ttlMs: Math.min(ttlMs, merged?.ttlMs ?? ttlMs),
      cacheScope: merged?.cacheScope === "private" ? "private" : cacheScope,
    };
  }
  return merged ?? NO_CACHING;
}

/** The `_meta` of a combined list, as JSON; undefined unless exactly one server has one. */
export function mergeListMetas(kind: Kind, listings: readonly ServerListing[]): string | undefined {
  const [only, ...others] = listings.flatMap(({ metas }) => metas?.[kind] ?? []);
  return others.length === 0 ? only : undefined;
}

/**
 * Combines the servers' capabilities. Subscriptions and tasks cannot be announced to clients later, so they are
 * announced as long as the capabilities of some server are not known.
 * @param listings in the order of the manifest
 * @param isComplete whether `listings` has the known listing of every server
 */
export function mergeCapabilities(
  listings: readonly ServerListing[],
  isComplete: boolean,
): CombinedCapabilities {
  const all = listings.flatMap(({ declared }) => declared ?? []);
  const isKnown = isComplete && all.length === listings.length;
  const supportsTasks = (era: "legacy" | "modern"): boolean =>
    !isKnown || all.some(({ tasks }) => tasks === era || tasks === "both");
  const mergeSettings = (key: "extensions" | "experimental"): CapabilitySettings =>
    Object.fromEntries(all.flatMap((declared) => Object.entries(declared[key])).toReversed());
  return {
    canSubscribe: !isKnown || all.some(({ canSubscribe }) => canSubscribe),
    tasks: { legacy: supportsTasks("legacy"), modern: supportsTasks("modern") },
    extensions: {
      ...mergeSettings("extensions"),
      ...mergeSkillsCapability(all.map((each) => each.extensions)),
    },
    experimental: mergeSettings("experimental"),
    isComplete: isKnown,
  };
}

/** Combines the servers' instructions, each under its server's name; undefined if there are none. */
export function mergeInstructions(
  sources: readonly {
    readonly server: string;
    readonly listing: Pick<ServerListing, "instructions">;
  }[],
): string | undefined {
  const texts = sources.flatMap(({ server, listing }) => {
    const text = listing.instructions?.trim().toWellFormed();
    return text === undefined || text === "" ? [] : [`# ${server}\n\n${text}`];
  });
  return texts.length === 0 ? undefined : texts.join("\n\n");
}
