import { count } from "../base/format.ts";
import type { TextRedactor } from "../base/quote.ts";
import { conforms } from "../catalog/conformance.ts";
import {
  type CacheHint,
  KEY_MEMBERS,
  KIND_NOUNS,
  type Kind,
  type ListedItem,
  makeUnshowableItem,
  MAX_ITEMS,
  readPage,
  sameItems,
} from "../catalog/listing.ts";
import { applyEdits, joinPieces, textOf } from "../base/bytes.ts";
import {
  ANY_DEPTH,
  JsonObject,
  lastMember,
  parseRange,
  readString,
  removeMembers,
  scanObject,
} from "../base/json.ts";
import { LIST_METHODS } from "../protocol/legacy.ts";
import { MetaKey } from "../protocol/modern.ts";
import { headerAnnotationErrorOf } from "../protocol/param-headers.ts";
import { errorCodeOf, type Response } from "../jsonrpc/message.ts";
import { parseOwnResult, unexpectedAnswerError } from "./handshake-result.ts";

/** Limits of one listing. A longer listing is treated as endless, and is cut. */
const MAX_LISTING = { pages: 1000, bytes: 64 * 1024 * 1024 };

export type CacheHintTable = Map<Kind, CacheHint>;

export interface PagingOptions {
  readonly server: string;
  readonly kind: Kind;
  /** Removes secrets from quoted texts. */
  readonly redactor?: TextRedactor;
  requestPage(method: string, params: object | undefined): Promise<Response>;
  /** The table to which the listing's cache hint is added; undefined if the server sends no cache hints. */
  readonly cacheHints?: CacheHintTable;
  /** The map to which the `_meta` of the list is added, as JSON. */
  readonly listMeta: Map<Kind, string>;
  /** Reports a fault of the server that does not end the listing. */
  warn(text: string): void;
}

/**
 * Lists all items of a kind, over all pages; an endless listing is cut.
 * @throws {HubError} handshakeFailed, or an error that `requestPage` throws
 */
export async function listAll(options: PagingOptions): Promise<readonly ListedItem[]> {
  const { server, kind } = options;
  const items: ListedItem[] = [];
  let unnamedCount = 0;
  /** Returns the items. If entries without a name were left out, adds one hidden item that represents all of them. */
  const finish = (): ListedItem[] => {
    if (unnamedCount > 0) items.push(makeUnshowableItem("", kind, "unnamed"));
    return items;
  };
  const noun = KIND_NOUNS[kind];
  const cursors = new Set<string>();
  let previous: readonly ListedItem[] = [];
  let size = 0;
  let cursor: string | undefined;
  options.cacheHints?.delete(kind);
  options.listMeta.delete(kind);
  for (;;) {
    const params = cursor === undefined ? undefined : { cursor };
    const response = await options.requestPage(LIST_METHODS[kind], params);
    if (response.outcome === "error") {
      if (kind === "resourceTemplates" && isMethodNotFound(response)) return finish();
      // Many servers write an empty cursor for "no more", which is a cursor by the specification.
      if (cursor === "" || (cursor !== undefined && errorCodeOf(response) === INVALID_PARAMS)) {
        options.warn(`It refuses its own cursor, so its list of ${noun}s may be incomplete.`);
        return finish();
      }
      parseOwnResult(server, response, "list", options.redactor);
    }
    const capacity = MAX_ITEMS - items.length;
    const page = readPage(response.bytes, response.body, kind, capacity, conforms);
    if (page === undefined) {
      throw unexpectedAnswerError(server, "list", `sent a list of ${noun}s that is malformed`);
    }
    if (options.cacheHints !== undefined) readCacheHint(response, kind, options.cacheHints);
    if (cursor === undefined) readListMeta(response, kind, options.listMeta);
    unnamedCount += page.unnamedCount;
    if (page.unnamedCount > 0) options.warn(describeUnnamed(page.unnamedCount, kind));
    for (const item of page.items) items.push(item);
    size += response.end - response.start;
    cursor = page.nextCursor;
    if (page.hasOddCursor) {
      const text = `The nextCursor of its list of ${noun}s is not a text, so the list may be incomplete.`;
      options.warn(text);
    }
    if (page.isTruncated || (cursor !== undefined && items.length === MAX_ITEMS)) {
      options.warn(`Only the first ${MAX_ITEMS} ${noun}s are listed.`);
      return finish();
    }
    if (cursor === undefined) return finish();
    const full = cursors.size === MAX_LISTING.pages || size > MAX_LISTING.bytes;
    const isSamePage = page.items.length > 0 && sameItems(page.items, previous);
    if (full || isSamePage || cursors.has(cursor)) {
      options.warn(`The list of ${noun}s never ends (nextCursor); it was cut.`);
      return withoutRepetitions(finish());
    }
    cursors.add(cursor);
    previous = page.items;
  }
}

/** The items without those that repeat the first of their key byte for byte: pages of an endless list come several times. */
function withoutRepetitions(items: readonly ListedItem[]): readonly ListedItem[] {
  const first = new Map<string, ListedItem>();
  return items.filter((item) => {
    const same = first.get(item.key);
    if (same === undefined) first.set(item.key, item);
    return same === undefined || !sameItems([item], [same]);
  });
}

/**
 * Leaves out the tools that cannot be called over HTTP: those with an invalid annotation of an argument that must also
 * be sent as an HTTP header.
 */
export function dropUncallableTools(
  tools: readonly ListedItem[],
  warn: (text: string) => void,
): readonly ListedItem[] {
  return tools.filter((tool) => {
    const error = headerAnnotationErrorOf(tool);
    if (error !== undefined) warn(`Tool "${tool.key}" was left out: ${error}.`);
    return error === undefined;
  });
}

function describeUnnamed(number: number, kind: Kind): string {
  const subject = number === 1 ? `A ${KIND_NOUNS[kind]}` : count(number, KIND_NOUNS[kind]);
  return `${subject} without a ${KEY_MEMBERS[kind]} ${number === 1 ? "was" : "were"} left out.`;
}

/** Maximum time to live, in ms. A longer time to live of a server is lowered to this. */
const MAX_TTL = 24 * 60 * 60_000;

const HINT_MEMBERS = ["ttlMs", "cacheScope"];

/**
 * Reads the cache hint of a page (caching) and combines it with those of earlier pages: the shortest time to live
 * counts, and `private` overrides `public`.
 */
function readCacheHint({ bytes, body }: Response, kind: Kind, hints: CacheHintTable): void {
  const members = scanObject(bytes, body.start, HINT_MEMBERS, ANY_DEPTH)?.items ?? [];
  const ttlRange = lastMember(members, "ttlMs");
  const value = ttlRange && parseRange(bytes, ttlRange);
  const previous = hints.get(kind);
  const ttlMs = typeof value === "number" && value >= 0 ? Math.min(value, MAX_TTL) : 0;
  const isPublic = readString(bytes, lastMember(members, "cacheScope")) === "public";
  hints.set(kind, {
    ttlMs: Math.min(ttlMs, previous?.ttlMs ?? ttlMs),
    cacheScope: isPublic && previous?.cacheScope !== "private" ? "public" : "private",
  });
}

/**
 * Maximum size of the `_meta` of a list, in bytes. A larger one is dropped, because the hub sends it with each list.
 */
const MAX_META_LENGTH = 64 * 1024;

/** Reads the `_meta` of a list's first page, without the members that a modern server sends only for the hub. */
function readListMeta({ bytes, body }: Response, kind: Kind, listMeta: Map<Kind, string>): void {
  const meta = lastMember(scanObject(bytes, body.start, ["_meta"])?.items ?? [], "_meta");
  const { members } = JsonObject.at(bytes, meta);
  if (meta === undefined || meta.end - meta.start > MAX_META_LENGTH) return;
  const isServer = (key: string): boolean => key === MetaKey.server;
  if (members.every(({ key }) => isServer(key))) return;
  const own = bytes.subarray(0, meta.end);
  const edits = removeMembers(own, meta, members, isServer);
  listMeta.set(kind, textOf(joinPieces(applyEdits(own, edits, meta.start))));
}

/**
 * Whether the server does not know the method. Many servers declare `resources`, which implies templates, but do not
 * know the method that lists templates.
 */
function isMethodNotFound(response: Response): boolean {
  return errorCodeOf(response) === METHOD_NOT_FOUND;
}
const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
