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
import { keyOf as definitionKeyOf } from "../pins/definitions.ts";
import type { PinRefusal } from "../pins/level.ts";
import type { Review } from "../pins/pins.ts";
import type { PinLevel } from "../manifest/manifest.ts";
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
  /** Called when `isReviewing` may have changed. */
  settled(): void;
  /** What happens when the server lists something else than what was accepted. */
  pin(): PinLevel;
  /**
   * Compares a listing with what was accepted. Never rejects.
   * @param isOver whether nobody needs the result any more
   */
  review(listing: ServerListing, isOver: () => boolean): Promise<Review>;
  /**
   * Looks for suspicious text in what was listed, if clients must not see it before. Never rejects.
   * @param isOver whether nobody needs the result any more
   * @returns undefined if clients may see it at once
   */
  examine(listed: PartialListing, isOver: () => boolean): Promise<unknown> | undefined;
  /** Called when a review is in use. */
  reviewed(review: Review): void;
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

/** A listing, and its comparison with what was accepted, if that was made. */
export interface KnownListing {
  readonly listing: ServerListing;
  readonly review: Review | undefined;
}

/**
 * Keeps the last known listing of one server up to date. The listing outlives sessions, and its saved copy outlives the
 * hub. If only accepted definitions are shown (`pin` is `block`), a listing is reviewed before it is adopted.
 */
export class ListingSync {
  readonly eraMemory = new EraMemory();
  readonly #options: ListingSyncOptions;
  #listing: ServerListing | undefined;
  /** The last review, of `#listing` or of an earlier listing. */
  #review: Review | undefined;
  /** The end of the last review that was begun: reviews run one after the other. Never rejects. */
  #reviewed: Promise<unknown> = Promise.resolve();
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

  /** @param former the listing of the previous connection, if this connection replaces one */
  constructor(options: ListingSyncOptions, former: KnownListing | undefined) {
    this.#options = options;
    this.#listing = former?.listing;
    this.#review = former?.review;
    if (former !== undefined) this.#source = "snapshot";
  }

  /** The listing that clients see: under `block`, what of it is accepted. */
  get listing(): ServerListing | undefined {
    if (this.#options.pin() !== "block") return this.#listing;
    return this.#isReviewed ? this.#review?.accepted : undefined;
  }

  /** All that the server lists, accepted or not; undefined if that is not known. */
  get known(): KnownListing | undefined {
    return this.#listing && { listing: this.#listing, review: this.review };
  }

  /** The comparison of the present listing with what was accepted; undefined if there is none. */
  get review(): Review | undefined {
    return this.#isReviewed && this.#options.pin() !== "off" ? this.#review : undefined;
  }

  /** What the review leaves out of the present listing; undefined if nothing. */
  get withheld(): ServerListing | undefined {
    return this.#isReviewed ? this.#review?.withheld : undefined;
  }

  get #isReviewed(): boolean {
    return this.#listing !== undefined && this.#review?.listing === this.#listing;
  }

  /** Whether a listing is known, but not shown before it is reviewed. */
  get isReviewing(): boolean {
    return this.#options.pin() === "block" && this.#listing !== undefined && !this.#isReviewed;
  }

  /**
   * Why a tool or prompt must not be used, if only accepted ones may be: `fault` is a sentence, if nothing of the server
   * may be used. Undefined: it may be used.
   * @param name the server's own name
   */
  refusalOf(kind: Kind, name: string): PinRefusal | undefined {
    if (this.#options.pin() !== "block") return undefined;
    if (kind !== "tools" && kind !== "prompts") return undefined;
    if (this.#listing === undefined) return undefined;
    if (!this.#isReviewed) return { reason: "unknown" };
    const fault = this.#review?.fault;
    if (fault !== undefined) return { reason: "unknown", fault };
    const key = definitionKeyOf({ kind: kind === "tools" ? "tool" : "prompt", name });
    const pending = this.#review?.pending.get(key);
    return pending;
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
    this.eraMemory.loadSaved(saved?.detectedEra);
    if (saved === undefined || this.#options.pin() !== "block") {
      const examined = saved && this.#options.examine(saved.listing, () => this.#isOwn);
      if (examined !== undefined) {
        this.#savedLoaded.resolve();
        await examined;
      }
      this.#endLoading();
      if (saved !== undefined) this.#adoptSaved(saved, withoutCachingHints(saved.listing));
      return;
    }
    this.#savedLoaded.resolve();
    await this.#reviewNext({
      listing: () => withoutCachingHints(saved.listing),
      isOver: () => this.#isOwn,
      adopt: (listing) => {
        this.#endLoading();
        this.#adoptSaved(saved, listing);
      },
    });
    this.#endLoading();
  }

  #endLoading(): void {
    this.#isLoadingSaved = false;
    this.#savedLoaded.resolve();
  }

  #adoptSaved({ savedAt }: SavedListing, listing: ServerListing): void {
    // If the server was listed in the meantime, the saved listing is out of date.
    if (this.#isOwn) return;
    this.#listing = listing;
    this.#source = "snapshot";
    this.#savedAt = savedAt;
    this.#isOwn = true;
    this.#options.changed();
  }

  /**
   * Adopts a new listing of the server, under `block` after its review or scan. Kinds that are missing in it stay as
   * they were.
   * @param isOver whether the listing is not needed any more
   * @returns whether anything has changed; a promise only under `block`
   */
  update(listed: PartialListing, isOver: () => boolean): boolean | Promise<boolean> {
    if (this.#options.pin() === "block") return this.#updateReviewed(listed, isOver);
    const examined = this.#options.examine(listed, isOver);
    return examined === undefined
      ? this.#updateUnreviewed(listed)
      : this.#updateExamined(examined, listed, isOver);
  }

  async #updateExamined(
    examined: Promise<unknown>,
    listed: PartialListing,
    isOver: () => boolean,
  ): Promise<boolean> {
    await examined;
    if (isOver()) return false;
    // The settings may have changed meanwhile.
    return this.#options.pin() === "block"
      ? this.#updateReviewed(listed, isOver)
      : this.#updateUnreviewed(listed);
  }

  #updateUnreviewed(listed: PartialListing): boolean {
    const saved = this.#source === "snapshot" ? this.#listing : undefined;
    const hasChanged = this.#adopt(this.#merge(listed));
    // What was listed in an earlier run was seen first, even if it was not compared then.
    if (hasChanged && saved !== undefined && this.#review === undefined)
      void this.#reviewNext({ listing: () => saved, isOver: () => this.#options.pin() === "off" });
    if (hasChanged || !this.#isReviewed) void this.#reviewPresent();
    return hasChanged;
  }

  async #updateReviewed(listed: PartialListing, isOver: () => boolean): Promise<boolean> {
    let hasChanged = false;
    await this.#reviewNext({
      listing: () => {
        const listing = this.#merge(listed);
        const isKnown = this.#isReviewed && this.#listing && sameListings(this.#listing, listing);
        return isKnown === true ? this.#listing : listing;
      },
      isOver,
      adopt: (listing) => {
        hasChanged = this.#adopt(listing);
      },
    });
    return hasChanged;
  }

  #merge(listed: PartialListing): ServerListing {
    return { ...EMPTY_LISTING, ...this.#listing, ...listed };
  }

  /**
   * Reviews the present listing, unless it changes meanwhile. The first listing is reviewed in any case: what is listed
   * first is the baseline.
   */
  #reviewPresent(isForced = false): Promise<void> {
    const listing = this.#listing;
    return this.#reviewNext({
      listing: () => listing,
      isOver: () => {
        const isReplaced = listing !== this.#listing && this.#review !== undefined;
        return isReplaced || this.#options.pin() === "off";
      },
      isForced,
    });
  }

  /** Settles when the reviews that have begun are made. Never rejects. */
  get reviewed(): Promise<unknown> {
    return this.#reviewed;
  }

  /** Reviews the present listing again, because what is accepted, or what happens otherwise, has changed. */
  async reviewAgain(): Promise<void> {
    await this.#reviewPresent(true);
    this.#options.changed();
    this.#options.settled();
  }

  /** Reviews a listing after all earlier reviews. Never rejects. */
  #reviewNext({ listing: toReview, isOver, adopt, isForced = false }: ReviewTask): Promise<void> {
    const reviewed = this.#reviewed.then(async () => {
      const listing = isOver() ? undefined : toReview();
      if (listing === undefined) return;
      const isKnown = !isForced && this.#review?.listing === listing;
      const review = isKnown ? this.#review : await this.#options.review(listing, isOver);
      if (isOver()) return;
      this.#review = review;
      adopt?.(listing);
      if (review !== undefined && !isKnown) this.#options.reviewed(review);
    });
    this.#reviewed = reviewed;
    return reviewed;
  }

  /** @returns whether anything has changed */
  #adopt(listing: ServerListing): boolean {
    const before = this.#listing;
    const isSame = before !== undefined && sameListings(before, listing);
    const isReviewed = this.#review?.listing === listing && listing !== before;
    this.#source = "server";
    this.#savedAt = undefined;
    this.#isOwn = true;
    if (!isSame || isReviewed) this.#listing = listing;
    this.#options.save({ listing, detectedEra: this.eraMemory.detectedEra });
    if (!isSame || isReviewed) this.#options.changed();
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
      const isOver = (): boolean => this.#session !== session;
      const hasChanged =
        !isOver() && (await this.update({ [kind]: items, ...readListMetadata(session) }, isOver));
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

/** A review that is to be made. */
interface ReviewTask {
  /** Returns the listing to review, when the earlier reviews have ended. */
  readonly listing: () => ServerListing | undefined;
  /** Whether nobody needs the review any more. */
  readonly isOver: () => boolean;
  /** Is called with the listing in the turn in which its review is stored. */
  readonly adopt?: (listing: ServerListing) => void;
  /** Whether a listing that was reviewed is reviewed again. */
  readonly isForced?: boolean;
}

function withoutCachingHints(listing: ServerListing): ServerListing {
  return { ...listing, hints: withoutCaching(listing.hints) };
}

/** Cache hints that forbid caching: clients must not cache a saved listing, because it may be out of date. */
function withoutCaching(hints: CacheHints | undefined): CacheHints | undefined {
  const kinds = hints && KINDS.filter((kind) => hints[kind] !== undefined);
  return kinds && Object.fromEntries(kinds.map((kind) => [kind, NO_CACHING]));
}
