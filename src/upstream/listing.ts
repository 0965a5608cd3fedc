import { formatDuration } from "../base/format.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import {
  type CacheHints,
  EMPTY_LISTING,
  KIND_NOUNS,
  KINDS,
  type Kind,
  NO_CACHING,
  sameListings,
  type ServerListing,
} from "../catalog/listing.ts";
import { EraMemory, type PartialListing, readListMetadata } from "./connect.ts";
import type { SavedListing } from "./saved-listings.ts";
import type { Session } from "./session.ts";

/**
 * The pause after a listing, in ms. It doubles each time, from `min` up to `max.changed` if the list had changed, else
 * up to `max.same`. Without a pause, a server that announces a change at each listing would be listed all the time, and
 * clients would be told of each change. After a list that had changed, the pauses begin with `min` again only if no
 * change is announced for `quiet` ms after a pause.
 */
const RELIST_DELAY = { min: 100, max: { changed: 60_000, same: 30_000 }, quiet: 10_000 };

export interface CoalescedRefreshOptions {
  readonly clock: Clock;
  ready(): Promise<void>;
  /** Lists the server. @returns whether the list changed; "again" if the listing failed because reading was paused */
  list(): Promise<"changed" | "same" | "again">;
}

/**
 * Lists a server again after the server announces a change. All announcements during a listing lead to one more
 * listing.
 */
export class CoalescedRefresh {
  readonly #options: CoalescedRefreshOptions;
  #isRequested = false;
  #isRunning = false;
  #isEnded = false;
  /** The last pause, in ms, and the time of the clock until which it is not forgotten. */
  #delay = 0;
  #delayKeptUntil = 0;
  /**
   * The promises that the end of the next listing resolves. All calls of `request` during a listing share one promise,
   * so that endless announcements of changes fill no memory. Only a listing that must be repeated adds promises.
   */
  #next: readonly PromiseWithResolvers<void>[] = [];
  /** Ends the current pause; does nothing if there is none. */
  #endPause: () => void = () => {};
  #pausedAt = 0;

  constructor(options: CoalescedRefreshOptions) {
    this.#options = options;
  }

  /**
   * Requests a listing.
   * @param isUrgent whether somebody waits for it, so that only the shortest pause since the last listing is kept
   * @returns a promise that resolves when a listing that began after this call has ended, or the connection has closed
   */
  request(isUrgent = false): Promise<void> {
    this.#isRequested = true;
    if (isUrgent) this.#shortenPause();
    const next = this.#next.at(-1) ?? Promise.withResolvers<void>();
    if (this.#next.length === 0) this.#next = [next];
    if (!this.#isRunning) void this.#run();
    return next.promise;
  }

  /** Stops listing, because the connection has closed. */
  end(): void {
    this.#isEnded = true;
    this.#endPause();
    for (const { resolve } of this.#next) resolve();
  }

  /** Lists the server while listings are requested. Never rejects, because `list` does not. */
  async #run(): Promise<void> {
    this.#isRunning = true;
    const { clock } = this.#options;
    if (clock.now() >= this.#delayKeptUntil) this.#delay = 0;
    while (this.#isRequested && !this.#isEnded) {
      await this.#options.ready();
      if (this.#isEnded) return;
      this.#isRequested = false;
      const current = this.#next;
      this.#next = [];
      const outcome = await this.#options.list();
      if (outcome === "again") {
        this.#isRequested = true;
        this.#next = [...current, ...this.#next];
        if (this.#isEnded) this.end();
        continue;
      }
      for (const { resolve } of current) resolve();
      if (this.#isEnded) return;
      const { min, max, quiet } = RELIST_DELAY;
      this.#delay = Math.min(Math.max(this.#delay * 2, min), max[outcome]);
      await this.#pause(this.#delay);
      this.#delayKeptUntil = outcome === "changed" ? clock.now() + quiet : 0;
    }
    this.#isRunning = false;
  }

  #shortenPause(): void {
    const { clock } = this.#options;
    const rest = this.#pausedAt + RELIST_DELAY.min - clock.now();
    if (rest <= 0) this.#endPause();
    else clock.after(rest, this.#endPause);
  }

  #pause(ms: number): Promise<void> {
    this.#pausedAt = this.#options.clock.now();
    return new Promise((resolve) => {
      const cancelTimer = this.#options.clock.after(ms, resolve);
      this.#endPause = () => {
        cancelTimer();
        resolve();
      };
    });
  }
}

export interface ListingSyncOptions {
  readonly clock: Clock;
  /** Loads the listing that an earlier run has saved. Never rejects. */
  loadSaved(): Promise<SavedListing | undefined>;
  save(saved: SavedListing): void;
  changed(): void;
  warn(text: string): void;
  /** Returns the time limit for listing one kind again, in ms. */
  timeout(): number;
}

/**
 * Maximum time, in ms, for which the start of the server waits until the saved listing is loaded. A start during the
 * loading would slow the loading down, and list requests wait for it.
 */
const LOAD_SAVED_LIMIT = 50;

/** Bounds for a server's `ttlMs`, in ms: a value outside of them is raised or lowered. */
const TTL_BOUNDS = { min: 1000, max: 24 * 60 * 60_000 };

/**
 * Keeps the last known listing of one server up to date. The listing outlives sessions, and its saved copy outlives the
 * hub.
 */
export class ListingSync {
  readonly eraMemory = new EraMemory();
  readonly #options: ListingSyncOptions;
  #listing: ServerListing | undefined;
  #source: "snapshot" | "server" | undefined;
  #savedAt: number | undefined;
  /**
   * Whether this connection has received or loaded the listing itself. If not, the listing is unknown or comes from the
   * connection that this one replaces.
   */
  #isOwn = false;
  #isLoadingSaved = false;
  #session: Session | undefined;
  readonly #refreshes = new Map<Kind, CoalescedRefresh>();
  /**
   * Functions that cancel the timers for listing a kind again; only for kinds whose changes the server does not
   * announce.
   */
  readonly #ttlTimers = new Map<Kind, () => void>();
  /** Settles when reading from the server is resumed; undefined while reading is not paused. */
  #resumed: PromiseWithResolvers<void> | undefined;
  readonly #savedLoaded = Promise.withResolvers<void>();

  /** @param listing the listing of the previous connection, if this connection replaces one */
  constructor(options: ListingSyncOptions, listing: ServerListing | undefined) {
    this.#options = options;
    this.#listing = listing;
    if (listing !== undefined) this.#source = "snapshot";
  }

  get listing(): ServerListing | undefined {
    return this.#listing;
  }

  /** Whether the listing was read from the server over this connection ("server"), or earlier ("snapshot"). */
  get source(): "snapshot" | "server" | undefined {
    return this.#source;
  }

  /** When the listing was saved, in ms since the epoch; undefined if it was not read from a snapshot. */
  get savedAt(): number | undefined {
    return this.#savedAt;
  }

  get isOwn(): boolean {
    return this.#isOwn;
  }

  get isLoadingSaved(): boolean {
    return this.#isLoadingSaved;
  }

  /** Settles when the saved listing has been loaded, or after `LOAD_SAVED_LIMIT` ms. */
  get savedLoaded(): Promise<void> {
    return this.#savedLoaded.promise;
  }

  has(kind: Kind, key: string): boolean {
    return this.#listing?.[kind].some((item) => item.key === key) === true;
  }

  async loadSaved(): Promise<void> {
    this.#isLoadingSaved = true;
    const cancelTimer = this.#options.clock.after(LOAD_SAVED_LIMIT, this.#savedLoaded.resolve);
    const saved = await this.#options.loadSaved();
    cancelTimer();
    this.#isLoadingSaved = false;
    this.#savedLoaded.resolve();
    this.eraMemory.loadSaved(saved?.detectedEra);
    // If the server was listed in the meantime, the saved listing is out of date.
    if (saved === undefined || this.#isOwn) return;
    this.#listing = { ...saved.listing, hints: withoutCaching(saved.listing.hints) };
    this.#source = "snapshot";
    this.#savedAt = saved.savedAt;
    this.#isOwn = true;
    this.#options.changed();
  }

  /**
   * Adopts a new listing of the server. Kinds that are missing in it stay as they were.
   * @returns whether anything has changed
   */
  update(listed: PartialListing): boolean {
    const listing: ServerListing = { ...EMPTY_LISTING, ...this.#listing, ...listed };
    const isSame = this.#listing !== undefined && sameListings(this.#listing, listing);
    this.#source = "server";
    this.#savedAt = undefined;
    this.#isOwn = true;
    if (!isSame) this.#listing = listing;
    this.#options.save({ listing, detectedEra: this.eraMemory.detectedEra });
    if (!isSame) this.#options.changed();
    return !isSame;
  }

  /** Uses a new session for the listing, and lists again whenever the server announces a change. */
  attach(session: Session): void {
    this.#session = session;
    for (const kind of KINDS) {
      const refresh = new CoalescedRefresh({
        clock: this.#options.clock,
        ready: async () => this.#resumed?.promise,
        list: () => this.#list(session, kind),
      });
      if (session.offers(kind)) this.#refreshes.set(kind, refresh);
      this.#scheduleRelist(session, kind);
    }
  }

  detach(): void {
    this.#session = undefined;
    for (const refresh of this.#refreshes.values()) refresh.end();
    this.#refreshes.clear();
    for (const cancelTimer of this.#ttlTimers.values()) cancelTimer();
    this.#ttlTimers.clear();
  }

  relist(kinds: readonly Kind[]): void {
    for (const kind of kinds) void this.#refreshes.get(kind)?.request();
  }

  /**
   * Lists all kinds again.
   * @returns a promise that settles when they are listed, or at once if there is no session
   */
  async refresh(): Promise<void> {
    await Promise.all([...this.#refreshes.values()].map((refresh) => refresh.request(true)));
  }

  /**
   * Called when reading from the server is paused or resumed. While it is paused, answers to list requests do not
   * arrive.
   */
  setPaused(isPaused: boolean): void {
    if (isPaused) {
      this.#resumed ??= Promise.withResolvers<void>();
      return;
    }
    this.#resumed?.resolve();
    this.#resumed = undefined;
  }

  async #list(session: Session, kind: Kind): Promise<"changed" | "same" | "again"> {
    const abort = new AbortController();
    const ms = this.#options.timeout();
    const text = `Server "${session.server}" did not list its ${KIND_NOUNS[kind]}s within ${formatDuration(ms)} (connectTimeout).`;
    const timeoutError = new HubError("connectTimeout", text, { server: session.server });
    const cancelTimer = this.#options.clock.after(ms, () => abort.abort(timeoutError));
    try {
      const items = await session.list(kind, abort.signal);
      const hasChanged =
        this.#session === session && this.update({ [kind]: items, ...readListMetadata(session) });
      return hasChanged ? "changed" : "same";
    } catch (error) {
      if (this.#session !== session) return "same";
      if (this.#resumed !== undefined) return "again";
      this.#options.warn(`Listing again failed: ${toHubError(error).message}`);
      return "same";
    } finally {
      cancelTimer();
      this.#scheduleRelist(session, kind);
    }
  }

  /** Lists a kind again after its `ttlMs`, unless the server announces changes of that kind. */
  #scheduleRelist(session: Session, kind: Kind): void {
    const ttl = session.cacheHints.get(kind)?.ttlMs ?? 0;
    if (
      this.#session !== session ||
      ttl === 0 ||
      session.handshake?.announcedKinds.has(kind) === true
    )
      return;
    this.#ttlTimers.get(kind)?.();
    const delay = Math.min(Math.max(ttl, TTL_BOUNDS.min), TTL_BOUNDS.max);
    this.#ttlTimers.set(
      kind,
      this.#options.clock.after(delay, () => this.relist([kind])),
    );
  }
}

/** Cache hints that forbid caching: clients must not cache a saved listing, because it may be out of date. */
function withoutCaching(hints: CacheHints | undefined): CacheHints | undefined {
  const kinds = hints && KINDS.filter((kind) => hints[kind] !== undefined);
  return kinds && Object.fromEntries(kinds.map((kind) => [kind, NO_CACHING]));
}
