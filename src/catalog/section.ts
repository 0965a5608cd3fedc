import { Buffer } from "node:buffer";
import { joinPieces, type Piece, pieceSize } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { JsonObject } from "../base/json.ts";
import type { Request } from "../jsonrpc/message.ts";
import { type CacheHint, type Kind, type ListedItem, NO_CACHING } from "./listing.ts";

/** The destination of a request for an item; computed before the request arrives. */
export interface Route {
  readonly kind: Kind;
  readonly server: string;
  /** The name or URI that clients see (exposed). */
  readonly name: string;
  /** The name or URI of the item at its server. */
  readonly remoteName: string;
  /** `remoteName` as JSON, ready to be inserted into a request. */
  readonly remoteNameJson: Uint8Array;
  readonly limits: RouteTimeouts;
  /**
   * The listed item; undefined if the server does not list it, for example if the URI is an expansion of a template.
   */
  readonly item: ListedItem | undefined;
}

export interface ListedRoute extends Route {
  readonly item: ListedItem;
}

/** Time limits of a request, in ms. */
export interface RouteTimeouts {
  /** Time limit since the start of the request, or since its last progress notification. */
  readonly timeout: number;
  /** Time limit since the start of the request, regardless of progress. */
  readonly maxTimeout: number;
}

/** One entry of a section: its route and the bytes that clients see. */
export interface SectionEntry {
  /** The name or URI that clients see (exposed). */
  readonly name: string;
  /** The name in the catalog of all servers; set if `name` is meant for a client that sees only one server. */
  readonly fullCatalogName?: string | undefined;
  readonly server: string;
  /** The name or URI of the item at its server. */
  readonly remoteName: string;
  /** Whether a tool's annotations say that it changes nothing; always true for entries that are not tools. */
  readonly isReadOnly: boolean;
  /** The listed item, with the name or URI at the server. */
  readonly item: ListedItem;
  /** The route to the entry; always the same object. */
  readonly route: ListedRoute;
  /** The entry as JSON, as clients see it; always the same object. */
  readonly bytes: Uint8Array;
  appendTo(pieces: Piece[]): void;
}

/** Entries per page of a list. Large, because some clients read only the first page. */
const PAGE_SIZE = 1000;

export interface SectionInfo {
  readonly cacheHint: CacheHint;
  /** The servers of protocol 2026-07-28 (modern) that may have entries in the section. */
  readonly modernServers: ReadonlySet<string>;
  /** The `_meta` of the list, as JSON. */
  readonly listMeta?: string | undefined;
}

const NO_INFO: SectionInfo = { cacheHint: NO_CACHING, modernServers: new Set() };

/** All entries of one kind that clients can see, by the name or URI that they see (exposed name); immutable. */
export class Section {
  readonly kind: Kind;
  readonly info: SectionInfo;
  readonly #entries: ReadonlyMap<string, SectionEntry>;
  /** The exposed names, in the order of the list. All sections of catalogs are sorted. */
  readonly #names: readonly string[];
  #routes: readonly ListedRoute[] | undefined;
  #byRemoteName: ReadonlyMap<string, readonly SectionEntry[]> | undefined;
  #result: Uint8Array | undefined;
  #byteLengths: ReadonlyMap<string, number> | undefined;
  #lastComparison: { readonly other: Section; readonly isSame: boolean } | undefined;

  /**
   * @param entries by exposed name
   * @param names the exposed names in the order of the list; by default those of `entries`, sorted
   */
  constructor(
    kind: Kind,
    entries: ReadonlyMap<string, SectionEntry>,
    info: SectionInfo = NO_INFO,
    names: readonly string[] = [...entries.keys()].sort(),
  ) {
    this.kind = kind;
    this.info = info;
    this.#entries = entries;
    this.#names = names;
  }

  get size(): number {
    return this.#names.length;
  }

  /** All entries, in the order of the list. */
  get entries(): readonly SectionEntry[] {
    return this.#names.flatMap((name) => this.#entries.get(name) ?? []);
  }

  /** The routes of all entries, sorted by exposed name. */
  get routes(): readonly ListedRoute[] {
    return (this.#routes ??= this.#names.flatMap((name) => this.find(name) ?? []));
  }

  /** The size of all entries as JSON, as clients see them, in bytes. */
  get byteLength(): number {
    let size = 0;
    for (const length of this.byteLengths.values()) size += length;
    return size;
  }

  /** The size of the entries of each server as JSON, as clients see them, in bytes. */
  get byteLengths(): ReadonlyMap<string, number> {
    if (this.#byteLengths !== undefined) return this.#byteLengths;
    const sizes = new Map<string, number>();
    for (const entry of this.entries) {
      const pieces: Piece[] = [];
      entry.appendTo(pieces);
      let size = sizes.get(entry.server) ?? 0;
      for (const piece of pieces) size += pieceSize(piece);
      sizes.set(entry.server, size);
    }
    return (this.#byteLengths = sizes);
  }

  /** The result of a list request without a cursor, as JSON: `{"tools":[…]}`. */
  get result(): Uint8Array {
    return (this.#result ??= this.#formatPage(0));
  }

  find(name: string): ListedRoute | undefined {
    return this.#entries.get(name)?.route;
  }

  /** The routes to items with this name or URI at their server, at most one per server; sorted by exposed name. */
  findRemote(remoteName: string): readonly ListedRoute[] {
    return this.remoteEntries(remoteName).map(({ route }) => route);
  }

  /** The result of a list request that continues after this exposed name, which need not exist any more. */
  pageAfter(afterName: string): Uint8Array {
    // A name that exists is looked for, because the names of a list with selected tools are not sorted.
    const at = this.#names.indexOf(afterName);
    const next = at >= 0 ? at + 1 : this.#names.findIndex((name) => name > afterName);
    return this.#formatPage(next < 0 ? this.#names.length : next);
  }

  /**
   * Replaces the bytes of each entry for which `bytesFor` returns bytes. Returns the same section if it returns none.
   */
  withBytes(bytesFor: (entry: SectionEntry) => Uint8Array | undefined): Section {
    let isChanged = false;
    const entries = new Map<string, SectionEntry>();
    for (const [name, entry] of this.#entries) {
      const bytes = bytesFor(entry);
      isChanged ||= bytes !== undefined;
      entries.set(name, bytes === undefined ? entry : new EntryWithBytes(entry, bytes));
    }
    return isChanged ? new Section(this.kind, entries, this.info) : this;
  }

  /** A section with only the entries for which `isShown` returns true. */
  filter(isShown: (entry: SectionEntry) => boolean): Section {
    const entries = new Map<string, SectionEntry>();
    const names = this.#names.filter((name) => {
      const entry = this.#entries.get(name);
      if (entry === undefined || !isShown(entry)) return false;
      entries.set(name, entry);
      return true;
    });
    return names.length === this.size ? this : new Section(this.kind, entries, this.info, names);
  }

  /** The section with another `_meta` of its list; undefined: none. */
  withListMeta(listMeta: string | undefined): Section {
    if (listMeta === this.info.listMeta) return this;
    return new Section(this.kind, this.#entries, { ...this.info, listMeta }, this.#names);
  }

  /** The section with another cache hint. */
  withCacheHint(cacheHint: CacheHint): Section {
    return new Section(this.kind, this.#entries, { ...this.info, cacheHint }, this.#names);
  }

  /** The entry with this exposed name. */
  entry(name: string): SectionEntry | undefined {
    return this.#entries.get(name);
  }

  /** The entries with this name or URI at their server, at most one per server; sorted by exposed name. */
  remoteEntries(remoteName: string): readonly SectionEntry[] {
    this.#byRemoteName ??= Map.groupBy(this.entries, (entry) => entry.remoteName);
    return this.#byRemoteName.get(remoteName) ?? [];
  }

  /**
   * Whether clients see no difference between the sections. The last comparison is cached, because the same two
   * sections are compared for each client.
   */
  equals(other: Section): boolean {
    if (this === other) return true;
    if (this.#lastComparison?.other !== other) {
      this.#lastComparison = { other, isSame: this.#compare(other) };
    }
    return this.#lastComparison.isSame;
  }

  #compare(other: Section): boolean {
    if (this.size !== other.size || this.info.listMeta !== other.info.listMeta) return false;
    for (const [name, entry] of this.#entries) {
      const counterpart = other.#entries.get(name);
      // Entries of unchanged servers are the same object. They are skipped, because their bytes would be created only
      // for the comparison.
      if (entry === counterpart) continue;
      if (counterpart === undefined || Buffer.compare(entry.bytes, counterpart.bytes) !== 0)
        return false;
    }
    return true;
  }

  #formatPage(from: number): Uint8Array {
    const shown = this.#names.slice(from, from + PAGE_SIZE);
    const last = shown.at(-1);
    const hasMore = last !== undefined && from + PAGE_SIZE < this.size;
    const { listMeta } = this.info;
    const cursor = hasMore ? `,"nextCursor":"${encodeCursor(this.kind, last)}"` : "";
    const end = `]${cursor}${listMeta === undefined ? "" : `,"_meta":${listMeta}`}}`;
    const pieces: Piece[] = [`{"${this.kind}":[`];
    for (const name of shown) {
      if (pieces.length > 1) pieces.push(",");
      this.#entries.get(name)?.appendTo(pieces);
    }
    pieces.push(end);
    return joinPieces(pieces);
  }
}

class EntryWithBytes implements SectionEntry {
  readonly name: string;
  readonly server: string;
  readonly bytes: Uint8Array;
  readonly #entry: SectionEntry;

  constructor(entry: SectionEntry, bytes: Uint8Array) {
    this.name = entry.name;
    this.server = entry.server;
    this.bytes = bytes;
    this.#entry = entry;
  }

  get fullCatalogName(): string | undefined {
    return this.#entry.fullCatalogName;
  }

  get remoteName(): string {
    return this.#entry.remoteName;
  }

  get isReadOnly(): boolean {
    return this.#entry.isReadOnly;
  }

  get item(): ListedItem {
    return this.#entry.item;
  }

  get route(): ListedRoute {
    return this.#entry.route;
  }

  appendTo(pieces: Piece[]): void {
    pieces.push(this.bytes);
  }
}

/** Encodes the cursor that continues a list after a name. */
export function encodeCursor(list: string, after: string): string {
  return Buffer.from(JSON.stringify([list, after])).toString("base64url");
}

/**
 * Decodes a cursor to the name to continue after; undefined if it is not a cursor of that list. Cursors of older
 * catalogs stay valid.
 */
export function decodeCursor(list: string, cursor: string): string | undefined {
  try {
    const [own, after] = JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown[];
    return own === list && typeof after === "string" ? after : undefined;
  } catch {
    return undefined;
  }
}

/** The difference between two versions of a list. All names are those that clients see. */
export interface SectionDiff {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Entries with the same name but other content, another server or another name at the server. */
  readonly altered: readonly string[];
  /** Entries with the same name but another server or another name at the server. */
  readonly moved: readonly { readonly from: ListedRoute; readonly to: ListedRoute }[];
}

/** Compares two sections of one kind; undefined if clients see no difference. */
export function diffSections(before: Section, after: Section): SectionDiff | undefined {
  const added: string[] = [];
  const altered: string[] = [];
  const moved: { from: ListedRoute; to: ListedRoute }[] = [];
  for (const to of after.routes) {
    const from = before.find(to.name);
    // Unchanged routes are usually the same object.
    if (from === to) continue;
    if (from === undefined) added.push(to.name);
    else if (from.server !== to.server || from.remoteName !== to.remoteName) {
      moved.push({ from, to });
      altered.push(to.name);
    } else if (Buffer.compare(from.item.bytes, to.item.bytes) !== 0) {
      altered.push(to.name);
    }
  }
  const hasRemoved = before.size + added.length > after.size;
  const removed = hasRemoved
    ? before.routes.filter(({ name }) => after.find(name) === undefined)
    : [];
  if (removed.length + added.length + altered.length === 0) return undefined;
  return { added, removed: removed.map(({ name }) => name), altered, moved };
}

/**
 * The name after which a page of a list starts; undefined if the request has no cursor, or the cursor null.
 * @throws {HubError} invalidParams if the cursor is not one of that list
 */
export function readCursorParam(list: string, { bytes, params }: Request): string | undefined {
  const object = JsonObject.at(bytes, params);
  const value = object.value("cursor");
  if (value === undefined || value === null) return undefined;
  const cursor = typeof value === "string" ? value : undefined;
  const after = cursor === undefined ? undefined : decodeCursor(list, cursor);
  if (after !== undefined) return after;
  throw new HubError("invalidParams", "The cursor is not valid.");
}
