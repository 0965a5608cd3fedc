import { Buffer } from "node:buffer";
import { joinPieces, type Piece } from "../bytes.ts";
import type { Item, Kind } from "./item.ts";
import { type CacheHint, NO_CACHE } from "./offer.ts";

/** Where a request for something goes, precomputed. */
export interface Route {
  readonly kind: Kind;
  readonly server: string;
  /** What clients call it: the exposed name or URI. */
  readonly name: string;
  /** What the server calls it. */
  readonly remoteName: string;
  /** That as JSON, ready to be put into a request. */
  readonly remoteNameJson: Uint8Array;
  readonly limits: Limits;
  /** The entry of it, if it is listed. */
  readonly item: Item | undefined;
}

/** The route to something that is listed. */
export interface ListedRoute extends Route {
  readonly item: Item;
}

/** How long a request may take, in ms. */
export interface Limits {
  /** From its start, and again from each progress notification. */
  readonly timeout: number;
  /** In all. */
  readonly maxTimeout: number;
}

/** One entry of a list: where it leads, and how clients see it. */
export interface Entry {
  /** What clients call it. */
  readonly name: string;
  readonly server: string;
  /** The very same each time. */
  readonly route: ListedRoute;
  /** The very same each time. */
  readonly bytes: Uint8Array;
  /** Adds the same bytes to others, for whoever joins them at once. */
  addTo(pieces: Piece[]): void;
}

/** So many entries are on one page: more than almost anybody has, as some clients ask for one page only. */
const PAGE = 1000;

/** What is to be known of a section beside its entries. */
export interface Origin {
  /** For how long it holds. */
  readonly hint: CacheHint;
  /** The servers of the modern era that may have something in it. */
  readonly modern: ReadonlySet<string>;
  /** The `_meta` of the list, as JSON. */
  readonly meta?: string | undefined;
}

const NOWHERE: Origin = { hint: NO_CACHE, modern: new Set() };

/** Everything of one kind that clients can see, by exposed names; immutable. */
export class Section {
  readonly kind: Kind;
  readonly origin: Origin;
  readonly #entries: ReadonlyMap<string, Entry>;
  /** Sorted. */
  readonly #names: readonly string[];
  #routes: readonly ListedRoute[] | undefined;
  #byRemoteName: ReadonlyMap<string, readonly ListedRoute[]> | undefined;
  #result: Uint8Array | undefined;
  #compared: { readonly other: Section; readonly isSame: boolean } | undefined;

  /** @param entries by exposed names */
  constructor(kind: Kind, entries: ReadonlyMap<string, Entry>, origin: Origin = NOWHERE) {
    this.kind = kind;
    this.origin = origin;
    this.#entries = entries;
    this.#names = [...entries.keys()].sort();
  }

  /** How many entries there are. */
  get size(): number {
    return this.#names.length;
  }

  /** Sorted by exposed name. */
  get entries(): readonly Entry[] {
    return this.#names.flatMap((name) => this.#entries.get(name) ?? []);
  }

  /** Sorted by exposed name. */
  get routes(): readonly ListedRoute[] {
    return (this.#routes ??= this.#names.flatMap((name) => this.find(name) ?? []));
  }

  /** The answer to a list request without a cursor, ready to be sent: `{"tools":[…]}`. */
  get result(): Uint8Array {
    return (this.#result ??= this.#write(0));
  }

  find(name: string): ListedRoute | undefined {
    return this.#entries.get(name)?.route;
  }

  /** The entries that their servers call so, of each server at most one; sorted by exposed name. */
  findRemote(remoteName: string): readonly ListedRoute[] {
    this.#byRemoteName ??= Map.groupBy(this.routes, (route) => route.remoteName);
    return this.#byRemoteName.get(remoteName) ?? [];
  }

  /** The answer to a list request with the cursor that says to go on after this name, whether that is still there or not. */
  page(after: string): Uint8Array {
    const next = this.#names.findIndex((name) => name > after);
    return this.#write(next < 0 ? this.#names.length : next);
  }

  /** The same with other bytes for those entries of which `dress` makes some; the very same if there are none. */
  dress(dress: (entry: Entry) => Uint8Array | undefined): Section {
    let isOther = false;
    const entries = new Map<string, Entry>();
    for (const [name, entry] of this.#entries) {
      const bytes = dress(entry);
      isOther ||= bytes !== undefined;
      entries.set(name, bytes === undefined ? entry : new Dressed(entry, bytes));
    }
    return isOther ? new Section(this.kind, entries, this.origin) : this;
  }

  /** Whether clients see the same. As many clients have the same two to compare, the last answer is remembered. */
  isSame(other: Section): boolean {
    if (this.#compared?.other !== other) {
      this.#compared = { other, isSame: this.#compare(other) };
    }
    return this.#compared.isSame;
  }

  #compare(other: Section): boolean {
    if (this.size !== other.size || this.origin.meta !== other.origin.meta) return false;
    for (const [name, entry] of this.#entries) {
      const twin = other.#entries.get(name);
      // Those of servers that have not changed are the very same, and nobody has asked for their bytes.
      if (entry === twin) continue;
      if (twin === undefined || Buffer.compare(entry.bytes, twin.bytes) !== 0) return false;
    }
    return true;
  }

  #write(from: number): Uint8Array {
    const shown = this.#names.slice(from, from + PAGE);
    const last = shown.at(-1);
    const hasMore = last !== undefined && from + PAGE < this.size;
    const { meta } = this.origin;
    const cursor = hasMore ? `,"nextCursor":"${writeCursor(this.kind, last)}"` : "";
    const end = `]${cursor}${meta === undefined ? "" : `,"_meta":${meta}`}}`;
    const pieces: Piece[] = [`{"${this.kind}":[`];
    for (const name of shown) {
      if (pieces.length > 1) pieces.push(",");
      this.#entries.get(name)?.addTo(pieces);
    }
    pieces.push(end);
    return joinPieces(pieces);
  }
}

/** An entry with other bytes. */
class Dressed implements Entry {
  readonly name: string;
  readonly server: string;
  readonly bytes: Uint8Array;
  readonly #entry: Entry;

  constructor(entry: Entry, bytes: Uint8Array) {
    this.name = entry.name;
    this.server = entry.server;
    this.bytes = bytes;
    this.#entry = entry;
  }

  get route(): ListedRoute {
    return this.#entry.route;
  }

  addTo(pieces: Piece[]): void {
    pieces.push(this.bytes);
  }
}

/** What says after which name to go on with a list. */
export function writeCursor(list: string, after: string): string {
  return Buffer.from(JSON.stringify([list, after])).toString("base64url");
}

/** The name after which a cursor says to go on; undefined if it is none of that list's. One of an older catalog is as good as any. */
export function readCursor(list: string, cursor: string): string | undefined {
  try {
    const [own, after] = JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown[];
    return own === list && typeof after === "string" ? after : undefined;
  } catch {
    return undefined;
  }
}
