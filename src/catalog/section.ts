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

/** Sorted by exposed name. */
export type Run = readonly Entry[];

export function byName(a: Entry, b: Entry): number {
  return a.route.name < b.route.name ? -1 : 1;
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
  readonly #entries: Run;
  readonly #byName: ReadonlyMap<string, Entry>;
  #result: Uint8Array | undefined;
  #compared: { readonly other: Section; readonly isSame: boolean } | undefined;

  /** @param runs the same entries, in runs that are sorted already, where there are such */
  constructor(
    kind: Kind,
    entries: ReadonlyMap<string, Entry>,
    origin: Origin = NOWHERE,
    runs: readonly Run[] = [[...entries.values()].sort(byName)],
  ) {
    this.kind = kind;
    this.origin = origin;
    this.#byName = entries;
    this.#entries = joinRuns(runs);
    this.routes = this.#entries.map(({ route }) => route);
  }

  /** The answer to a list request without a cursor, ready to be sent: `{"tools":[…]}`. */
  get result(): Uint8Array {
    return (this.#result ??= this.#write(0));
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
    const run = this.#entries.map((entry) => {
      const bytes = dress(entry);
      if (bytes === entry.bytes) return entry;
      isOther = true;
      return { route: entry.route, bytes };
    });
    if (!isOther) return this;
    const entries = new Map(run.map((entry) => [entry.route.name, entry]));
    return new Section(this.kind, entries, this.origin, [run]);
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
    return (
      own.length === others.length &&
      own.every((entry, i) => {
        const twin = others[i];
        // Those of servers that have not changed are the very same, and nobody has asked for their bytes.
        if (entry === twin) return true;
        return twin !== undefined && Buffer.compare(entry.bytes, twin.bytes) === 0;
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

/** One run of several. Servers with prefixes mostly have names that only need to be put one behind the other. */
function joinRuns(runs: readonly Run[]): Run {
  const [one, another] = runs;
  if (one !== undefined && another === undefined) return one;
  const all = runs
    .filter(({ length }) => length > 0)
    .sort(byFirst)
    .flat();
  const isSorted = all.every((entry, i) => {
    const before = all[i - 1];
    return before === undefined || before.route.name < entry.route.name;
  });
  return isSorted ? all : all.sort(byName);
}

function byFirst([a]: Run, [b]: Run): number {
  return a === undefined || b === undefined ? 0 : byName(a, b);
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
