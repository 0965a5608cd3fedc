import type { CallCount } from "../manifest/call-limits.ts";

/** Rounding errors of sums of times, in ms. */
const TOLERANCE = 1e-6;

/**
 * A token bucket: it holds at most `burst` tokens and gets `count` new ones in each `per`, evenly. A call takes one.
 * Times are in ms of a monotonic clock.
 */
export class TokenBucket {
  readonly rate: CallCount;
  readonly burst: number;
  /** Time in which one token comes. */
  readonly #interval: number;
  /** Time in which all tokens but one come. */
  readonly #room: number;
  /** When the bucket is full, if no more tokens are taken. This is its whole state. */
  #fullAt = -Infinity;

  constructor(rate: CallCount, burst = rate.count) {
    this.rate = rate;
    this.burst = burst;
    this.#interval = rate.per / rate.count;
    this.#room = (burst - 1) * this.#interval;
  }

  /** The time until there is a token; 0: there is one. */
  wait(now: number): number {
    const wait = this.#fullAt - now - this.#room;
    return wait > TOLERANCE ? wait : 0;
  }

  /** Takes a token, which must be there. */
  take(now: number): void {
    this.#fullAt = (this.#fullAt > now ? this.#fullAt : now) + this.#interval;
  }

  /** Number of tokens that are there. */
  left(now: number): number {
    const missing = Math.max(0, this.#fullAt - now - TOLERANCE) / this.#interval;
    return Math.max(0, this.burst - Math.ceil(missing));
  }

  /** Fills the bucket. */
  reset(): void {
    this.#fullAt = -Infinity;
  }
}
