import { type Clock, systemClock } from "../clock.ts";

/** Something that must end by a time, in ms of the clock; the time may be moved back while it waits. */
export interface Timed {
  deadline: number;
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
  readonly #waiting = new Set<Timed>();
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
    let earliest = Infinity;
    for (const { deadline } of this.#waiting) earliest = Math.min(earliest, deadline);
    this.#arm(Math.max(earliest, this.now() + BREATH));
  }

  add(timed: Timed): void {
    this.#waiting.add(timed);
    this.#arm(timed.deadline);
  }

  /** The timer stays: clearing it for every call that ends would be a timer per call again. */
  remove(timed: Timed): void {
    this.#waiting.delete(timed);
  }

  /** Nothing expires any more. */
  end(): void {
    this.#waiting.clear();
    this.#disarm();
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
    let earliest = Infinity;
    for (const timed of this.#waiting) {
      if (timed.deadline > now) {
        earliest = Math.min(earliest, timed.deadline);
      } else {
        this.#waiting.delete(timed);
        timed.expire();
      }
    }
    this.#arm(earliest);
  };
}
