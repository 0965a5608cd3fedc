import { Buffer } from "node:buffer";
import { joinPieces, utf8 } from "../bytes.ts";
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
  readonly route: ListedRoute;
  readonly bytes: Uint8Array;
}

/** So many entries are on one page: more than almost anybody has, as some clients ask for one page only. */
const PAGE = 1000;

/** What is to be known of a section beside its entries. */
export interface Origin {
  /** For how long it holds. */
  readonly hint: CacheHint;
  /** The servers of the modern era that may have something in it. */
  readonly modern: ReadonlySet<string>;
}

const NOWHERE: Origin = { hint: NO_CACHE, modern: new Set() };

/** Everything of one kind that clients can see, by exposed names; immutable. */
export class Section {
  readonly kind: Kind;
  readonly origin: Origin;
  /** Sorted by exposed name. */
  readonly routes: readonly ListedRoute[];
  /** The answer to a list request without a cursor, ready to be sent: `{"tools":[…]}`. */
  readonly result: Uint8Array;
  readonly #entries: readonly Entry[];
  readonly #byName: ReadonlyMap<string, Entry>;
  #compared: { readonly other: Section; readonly isSame: boolean } | undefined;

  constructor(kind: Kind, entries: ReadonlyMap<string, Entry>, origin: Origin = NOWHERE) {
    this.kind = kind;
    this.origin = origin;
    this.#byName = entries;
    this.#entries = [...entries.values()].sort((a, b) => (a.route.name < b.route.name ? -1 : 1));
    this.routes = this.#entries.map(({ route }) => route);
    this.result = this.#write(0);
  }

  find(name: string): ListedRoute | undefined {
    return this.#byName.get(name)?.route;
  }

  /** The answer to a list request with the cursor that says to go on after this name, whether that is still there or not. */
  page(after: string): Uint8Array {
    const next = this.#entries.findIndex(({ route }) => route.name > after);
    return this.#write(next < 0 ? this.#entries.length : next);
  }

  /** The same with other bytes for its entries; the very same if none has others. */
  dress(dress: (entry: Entry) => Uint8Array): Section {
    let isOther = false;
    const entries = new Map<string, Entry>();
    for (const [name, entry] of this.#byName) {
      const bytes = dress(entry);
      isOther ||= bytes !== entry.bytes;
      entries.set(name, bytes === entry.bytes ? entry : { route: entry.route, bytes });
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
    const [own, others] = [this.#entries, other.#entries];
    if (own === others) return true;
    return (
      own.length === others.length &&
      own.every(({ bytes }, i) => {
        const twin = others[i]?.bytes;
        return twin !== undefined && (bytes === twin || Buffer.compare(bytes, twin) === 0);
      })
    );
  }

  #write(from: number): Uint8Array {
    const shown = this.#entries.slice(from, from + PAGE);
    const last = shown.at(-1);
    const hasMore = last !== undefined && from + PAGE < this.#entries.length;
    const end = hasMore ? `],"nextCursor":"${writeCursor(this.kind, last.route.name)}"}` : "]}";
    return joinPieces([
      utf8(`{"${this.kind}":[`),
      ...shown.flatMap(({ bytes }, i) => (i === 0 ? [bytes] : [COMMA, bytes])),
      utf8(end),
    ]);
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

const COMMA = utf8(",");
