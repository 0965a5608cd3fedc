import { type Clock, systemClock } from "../base/clock.ts";

/** Something with a deadline, in ms of the clock; the deadline may be postponed while it is scheduled. */
export interface Timed {
  deadline: number;
  /** Index in the list of scheduled targets; written by `Deadlines` only. */
  slot?: number | undefined;
  expire(): void;
}

/** The longest delay that a timer accepts, in ms. */
const MAX_DELAY = 2 ** 31 - 1;
/** Delay before anything expires after a pause, in ms: the pipes' backlog is read first. */
const BREATH = 100;

/**
 * The deadlines of many calls on one timer: it is set for the earliest deadline and checks all when it fires. A call
 * that ends in time, or whose deadline is postponed, sets no timer.
 *
 * Time stands still while paused, so that a call does not expire because its response cannot be read or written.
 */
export class Deadlines {
  readonly #clock: Clock;
  /** Unordered. Each target knows its index: a Set would allocate about 100 bytes per call. */
  readonly #waiting: Timed[] = [];
  #armed: { at: number; cancel: () => void } | undefined;
  /** Total length of all past pauses, in ms. */
  #lost = 0;
  /** Start of the current pause, in ms of the clock. */
  #heldSince: number | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** The clock's time in ms, monotonic, less all pauses. */
  now(): number {
    return (this.#heldSince ?? this.#clock.now()) - this.#lost;
  }

  /**
   * Calls back after `ms` of the clock, regardless of pauses.
   * @returns cancels it
   */
  after(ms: number, callback: () => void): () => void {
    return this.#clock.after(ms, callback);
  }

  /** Pauses time, or resumes it. */
  hold(held: boolean): void {
    if (held === (this.#heldSince !== undefined)) return;
    const now = this.#clock.now();
    if (this.#heldSince === undefined) {
      this.#heldSince = now;
      this.#disarm();
      return;
    }
    this.#lost += now - this.#heldSince;
    this.#heldSince = undefined;
    this.#arm(Math.max(this.#earliest, this.now() + BREATH));
  }

  add(timed: Timed): void {
    timed.slot ??= this.#waiting.push(timed) - 1;
    this.#arm(timed.deadline);
  }

  /** The timer stays set: clearing it for each call that ends would cost a timer operation per call. */
  remove(timed: Timed): void {
    const { slot } = timed;
    if (slot === undefined) return;
    timed.slot = undefined;
    const last = this.#waiting.pop();
    if (last === undefined || last === timed) return;
    this.#waiting[slot] = last;
    last.slot = slot;
  }

  /** Cancels all deadlines. */
  end(): void {
    for (const timed of this.#waiting.splice(0)) timed.slot = undefined;
    this.#disarm();
  }

  get #earliest(): number {
    return this.#waiting.reduce((earliest, { deadline }) => Math.min(earliest, deadline), Infinity);
  }

  #arm(at: number): void {
    if (at === Infinity || this.#heldSince !== undefined) return;
    if (this.#armed !== undefined && this.#armed.at <= at) return;
    this.#disarm();
    const delay = Math.min(Math.max(at - this.now(), 0), MAX_DELAY);
    this.#armed = { at, cancel: this.#clock.after(delay, this.#fire) };
  }

  #disarm(): void {
    this.#armed?.cancel();
    this.#armed = undefined;
  }

  readonly #fire = (): void => {
    this.#armed = undefined;
    const now = this.now();
    const isDue = ({ deadline }: Timed): boolean => deadline <= now;
    for (const timed of this.#waiting.filter(isDue).sort(byDeadline)) {
      // An earlier `expire` may have removed this target or postponed its deadline.
      if (timed.slot === undefined || !isDue(timed)) continue;
      this.remove(timed);
      timed.expire();
    }
    this.#arm(this.#earliest);
  };
}

function byDeadline(a: Timed, b: Timed): number {
  return a.deadline - b.deadline;
}
