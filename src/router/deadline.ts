import { type Clock, systemClock } from "../clock.ts";

/** Something that must end by a time, in ms of the clock; the time may be moved back while it waits. */
export interface Timed {
  deadline: number;
  /** Where it stands among those that wait, if it does: a matter of `Deadlines` alone. */
  slot?: number | undefined;
  expire(): void;
}

/** The longest delay that a timer takes. */
const MAX_DELAY = 2 ** 31 - 1;
/** After a hold, what has piled up in the pipes is read before anything expires, in ms. */
const BREATH = 100;

/**
 * Deadlines of many calls with one timer: it is set for the earliest one that was ever added, and looks at
 * all when it fires. A call that ends in time, or whose deadline moves back, costs no timer at all.
 *
 * Their time stands still while it is held, so that a call whose answer cannot be read or passed on is not late.
 */
export class Deadlines {
  readonly #clock: Clock;
  /** In no order. Each knows its slot: a Set would make a hundred bytes of garbage for every call. */
  readonly #waiting: Timed[] = [];
  #armed: { at: number; cancel: () => void } | undefined;
  /** How long time stood still in all, up to the present hold, in ms. */
  #lost = 0;
  /** When the present hold began, by the clock. */
  #heldSince: number | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** ms, monotonic; apart from holds it goes as the clock does. */
  now(): number {
    return (this.#heldSince ?? this.#clock.now()) - this.#lost;
  }

  /** Calls back after that many ms of the clock, holds or not. @returns the undo */
  after(ms: number, callback: () => void): () => void {
    return this.#clock.after(ms, callback);
  }

  /** Lets time stand still, or go on. */
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

  /** The timer stays: clearing it for every call that ends would be a timer per call again. */
  remove(timed: Timed): void {
    const { slot } = timed;
    if (slot === undefined) return;
    timed.slot = undefined;
    const last = this.#waiting.pop();
    if (last === undefined || last === timed) return;
    this.#waiting[slot] = last;
    last.slot = slot;
  }

  /** Nothing expires any more. */
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
      // The end of one may have been that of another, or have given it more time.
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
