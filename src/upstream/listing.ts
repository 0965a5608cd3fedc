import { type Kind, KINDS } from "../catalog/listing.ts";
import {
  type CacheHints,
  NO_CACHING,
  EMPTY_LISTING,
  KIND_NOUNS,
  type ServerListing,
  sameListings,
} from "../catalog/offer.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { Dialects } from "./dialects-part.ts";
import { type Harvest, readNotes } from "./harvest.ts";
import type { Recalled } from "./parts.ts";
import { Refresh } from "./refresh.ts";
import type { Session } from "./session.ts";

export interface ListingParts {
  readonly clock: Clock;
  /** Loads the listing that an earlier run has saved. Never rejects. */
  recall(): Promise<Recalled | undefined>;
  keep(recalled: Recalled): void;
  /** The listing has changed. */
  changed(): void;
  warn(text: string): void;
  /** How long listing one kind again may take, in ms. */
  limit(): number;
}

/**
 * How long the load of the saved listing may delay the server's start, in ms. It comes first because starting processes
 * would slow it down, and list requests wait for it.
 */
const RECALL_LIMIT = 50;

/** The bounds for a server's `ttlMs`, in ms. */
const TTL = { shortest: 1000, longest: 24 * 60 * 60_000 };

/** The last known listing of one server, kept up to date; it outlives sessions, and in its saved form the hub. */
export class Listing {
  readonly dialects = new Dialects();
  readonly #parts: ListingParts;
  #offer: ServerListing | undefined;
  #from: "snapshot" | "server" | undefined;
  /** The listing is one of this very server, now or saved, and not of the connection before this one. */
  #isOwn = false;
  #recalling = false;
  #session: Session | undefined;
  readonly #refreshes = new Map<Kind, Refresh>();
  /** Cancels the timers that list again the kinds whose changes the server does not announce. */
  readonly #aging = new Map<Kind, () => void>();
  #held = false;
  /** Resolvers of those who wait until reading is resumed. */
  readonly #releasing: (() => void)[] = [];
  #tellRecalled = (): void => {};
  /** Settles when the saved listing has been loaded, or after `LOAD_SAVED_LIMIT` ms. */
  readonly recalled = new Promise<void>((resolve) => (this.#tellRecalled = resolve));

  /** @param listing that of the connection before this one */
  constructor(parts: ListingParts, offer: ServerListing | undefined) {
    this.#parts = parts;
    this.#offer = offer;
    if (offer !== undefined) this.#from = "snapshot";
  }

  get offer(): ServerListing | undefined {
    return this.#offer;
  }

  /** Where the listing comes from: the server, over this connection, or a saved one. */
  get from(): "snapshot" | "server" | undefined {
    return this.#from;
  }

  get isOwn(): boolean {
    return this.#isOwn;
  }

  get isRecalling(): boolean {
    return this.#recalling;
  }

  has(kind: Kind, key: string): boolean {
    return this.#offer?.[kind].some((item) => item.key === key) === true;
  }

  /** Loads the saved listing. */
  async recall(): Promise<void> {
    this.#recalling = true;
    const undo = this.#parts.clock.after(RECALL_LIMIT, this.#tellRecalled);
    const recalled = await this.#parts.recall();
    undo();
    this.#recalling = false;
    this.#tellRecalled();
    this.dialects.recall(recalled?.verdict);
    // The server may have been listed in the meantime.
    if (recalled === undefined || this.#isOwn) return;
    this.#offer = { ...recalled.offer, hints: outdate(recalled.offer.hints) };
    this.#from = "snapshot";
    this.#isOwn = true;
    this.#parts.changed();
  }

  /** Takes what the server has listed; missing kinds stay as they were. @returns whether anything has changed */
  adopt(found: Harvest): boolean {
    const offer: ServerListing = { ...EMPTY_LISTING, ...this.#offer, ...found };
    const isSame = this.#offer !== undefined && sameListings(this.#offer, offer);
    this.#from = "server";
    this.#isOwn = true;
    if (!isSame) this.#offer = offer;
    this.#parts.keep({ offer, verdict: this.dialects.verdict });
    if (!isSame) this.#parts.changed();
    return !isSame;
  }

  /** Lists again over this session whenever a change is announced. */
  follow(session: Session): void {
    this.#session = session;
    void session.greeting?.late?.then((isModern) => {
      if (!isModern || this.#session !== session || this.#offer === undefined) return;
      this.dialects.learn();
      this.#parts.keep({ offer: this.#offer, verdict: this.dialects.verdict });
    });
    for (const kind of KINDS) {
      const refresh = new Refresh({
        clock: this.#parts.clock,
        ready: () => this.#released(),
        list: () => this.#list(session, kind),
      });
      if (session.offers(kind)) this.#refreshes.set(kind, refresh);
      this.#age(session, kind);
    }
  }

  unfollow(): void {
    this.#session = undefined;
    for (const refresh of this.#refreshes.values()) refresh.end();
    this.#refreshes.clear();
    for (const undo of this.#aging.values()) undo();
    this.#aging.clear();
  }

  /** Lists these kinds again. */
  announce(kinds: readonly Kind[]): void {
    for (const kind of kinds) void this.#refreshes.get(kind)?.announce();
  }

  /** Lists all kinds again. @returns a promise that settles when that is done; at once without a session */
  async refresh(): Promise<void> {
    await Promise.all([...this.#refreshes.values()].map((refresh) => refresh.announce()));
  }

  /** While reading is paused, answers to list requests are not read. */
  hold(held: boolean): void {
    this.#held = held;
    if (!held) for (const resolve of this.#releasing.splice(0)) resolve();
  }

  async #list(session: Session, kind: Kind): Promise<"changed" | "same" | "again"> {
    const abort = new AbortController();
    const ms = this.#parts.limit();
    const text = `Server "${session.server}" did not list its ${KIND_NOUNS[kind]}s within ${ms} ms (connectTimeout).`;
    const late = new HubError("connectTimeout", text, { server: session.server });
    const undo = this.#parts.clock.after(ms, () => abort.abort(late));
    try {
      const items = await session.list(kind, abort.signal);
      const isOther =
        this.#session === session && this.adopt({ [kind]: items, ...readNotes(session) });
      return isOther ? "changed" : "same";
    } catch (error) {
      if (this.#session !== session) return "same";
      if (this.#held) return "again";
      this.#parts.warn(`Listing again failed: ${toHubError(error).message}`);
      return "same";
    } finally {
      undo();
      this.#age(session, kind);
    }
  }

  /** Lists a kind again when its `ttlMs` is over, unless the server announces changes. */
  #age(session: Session, kind: Kind): void {
    const ttl = session.hints.get(kind)?.ttlMs ?? 0;
    if (this.#session !== session || ttl === 0 || session.met?.announces.has(kind) === true) return;
    this.#aging.get(kind)?.();
    const delay = Math.min(Math.max(ttl, TTL.shortest), TTL.longest);
    this.#aging.set(
      kind,
      this.#parts.clock.after(delay, () => this.announce([kind])),
    );
  }

  #released(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#held) this.#releasing.push(resolve);
      else resolve();
    });
  }
}

/** A saved listing may be out of date: clients must not cache it. */
function outdate(hints: CacheHints | undefined): CacheHints | undefined {
  const kinds = hints && KINDS.filter((kind) => hints[kind] !== undefined);
  return kinds && Object.fromEntries(kinds.map((kind) => [kind, NO_CACHING]));
}
