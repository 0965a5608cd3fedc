import type { CallCount } from "../manifest/call-limits.ts";

const THIRTY_DAYS = 30 * 86_400_000;

/** The calls in a window of time, as they are stored. `start`: of the window, in ms since the epoch; `per`: its length. */
export interface StoredQuota {
  readonly start: number;
  readonly per: number;
  readonly used: number;
}

/** The start of the window that begins now, or has begun: at the first of the hour or of the UTC day; of 30 days: now. */
function startOf(per: number, now: number): number {
  return per === THIRTY_DAYS ? now : Math.floor(now / per) * per;
}

/**
 * The start of a window as it counts now; undefined if the window is over. A clock that was set back neither gives calls
 * again nor refuses them for long: a window that lies ahead by at most its length goes on, and one that lies further ahead
 * is moved to now, with its calls.
 */
function presentStart(start: number, per: number, now: number): number | undefined {
  if (now >= start + per) return undefined;
  return start - now <= per ? start : startOf(per, now);
}

/** The share of a quota from which on people are told, in calls. */
const NEARLY = 0.8;

/** A window: its start and end, its calls that are stored, and those of this hub that are not. */
interface QuotaWindow {
  readonly start: number;
  readonly end: number;
  readonly stored: number;
  unsaved: number;
}

/**
 * The calls of one quota: those that are stored, by all hubs, and those of this hub that are not stored yet. Times are in
 * ms since the epoch.
 */
export class Quota {
  /** Equal for the same quota in all hubs. */
  readonly key: string;
  #limit: CallCount;
  #nearly = 0;
  /** Undefined before the first call. */
  #window: QuotaWindow | undefined;
  /** Whether what is stored does not count any more. */
  #isReset = false;

  constructor(key: string, limit: CallCount) {
    this.key = key;
    this.#limit = limit;
    this.limit = limit;
  }

  get limit(): CallCount {
    return this.#limit;
  }

  /** Another number keeps the calls; another length of the window does not. */
  set limit(limit: CallCount) {
    if (limit.per !== this.#limit.per) this.#window = undefined;
    this.#limit = limit;
    this.#nearly = Math.ceil(limit.count * NEARLY);
  }

  /** Whether there are calls that are not stored, or a reset. */
  get isUnsaved(): boolean {
    return this.#isReset || (this.#window?.unsaved ?? 0) > 0;
  }

  /** Number of calls in the present window. */
  used(now: number): number {
    const window = this.#present(now);
    return window === undefined ? 0 : window.stored + window.unsaved;
  }

  /** When the present window ends; undefined if there is none. */
  end(now: number): number | undefined {
    const window = this.#present(now);
    return window?.end;
  }

  /** The time until a call is allowed; 0: one is. */
  wait(now: number): number {
    const window = this.#present(now);
    if (window === undefined || window.stored + window.unsaved < this.#limit.count) return 0;
    return window.end - now;
  }

  /** Counts a call, which must be allowed. @returns whether its `level` has changed with it */
  take(now: number): boolean {
    const window = this.#present(now) ?? this.#begin(now);
    const used = window.stored + ++window.unsaved;
    return used === this.#nearly || used === this.#limit.count;
  }

  /** How much of it is used: `nearly` from 80 % on, `all` if nothing is left. */
  level(now: number): "some" | "nearly" | "all" {
    const used = this.used(now);
    return used >= this.#limit.count ? "all" : used >= this.#nearly ? "nearly" : "some";
  }

  reset(): void {
    this.#window = undefined;
    this.#isReset = true;
  }

  /** Number of calls of this hub that are not stored. */
  get unsaved(): number {
    return this.#window?.unsaved ?? 0;
  }

  /**
   * Adds the calls of this hub that are not stored to what is stored.
   * @param stored undefined: nothing
   * @returns what is to be stored; undefined: nothing. It counts for this hub once `adopt` is called with it
   */
  addTo(stored: StoredQuota | undefined, now: number): StoredQuota | undefined {
    const { per } = this.#limit;
    const own = this.#present(now);
    const counted = this.#isReset || stored?.per !== per ? undefined : stored;
    const start = counted && presentStart(counted.start, per, now);
    const known = counted && start !== undefined ? { ...counted, start } : undefined;
    // Other hubs must see that the calls were forgotten.
    if (own === undefined && this.#isReset) return { start: startOf(per, now), per, used: 0 };
    if (own === undefined) return known;
    const all = { start: own.start, per, used: own.stored + own.unsaved };
    if (known === undefined) return all;
    if (Math.abs(known.start - own.start) < per)
      return { ...known, used: known.used + own.unsaved };
    return known.start > own.start ? known : all;
  }

  /** Takes over what is stored. @param added number of the calls of this hub that it contains, of those not stored before */
  adopt(stored: StoredQuota | undefined, added: number): void {
    this.#isReset = false;
    if (stored === undefined) return;
    const { start, per, used } = stored;
    const own = this.#window;
    const isSame = own !== undefined && Math.abs(start - own.start) < per;
    const unsaved = isSame ? own.unsaved - added : 0;
    this.#window = { start, end: start + per, stored: used, unsaved };
  }

  #begin(now: number): QuotaWindow {
    const { per } = this.#limit;
    const start = startOf(per, now);
    this.#window = { start, end: start + per, stored: 0, unsaved: 0 };
    return this.#window;
  }

  /** The window as it counts now. */
  #present(now: number): QuotaWindow | undefined {
    const window = this.#window;
    // Most calls come in the window of the one before.
    if (window === undefined || (now >= window.start && now < window.end)) return window;
    const start = presentStart(window.start, this.#limit.per, now);
    if (start === undefined) return undefined;
    this.#window = { ...window, start, end: start + this.#limit.per };
    return this.#window;
  }
}
