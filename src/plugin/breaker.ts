import type { Clock } from "../base/clock.ts";

/** Number of consecutive failures that opens the circuit. */
export const MOST_FAILURES = 5;
/** How long the circuit stays open, in ms; after that, one more failure opens it again. */
export const REST = 30_000;

/** A circuit breaker that counts consecutive failures. */
export class Breaker {
  readonly #clock: Clock;
  #failures = 0;
  /** In ms of the clock. */
  #restsUntil = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isBroken(): boolean {
    return this.#failures >= MOST_FAILURES && this.#clock.now() < this.#restsUntil;
  }

  succeed(): void {
    this.#failures = 0;
  }

  /** @returns whether this failure was the one that opened the circuit */
  fail(): boolean {
    if (++this.#failures < MOST_FAILURES) return false;
    this.#restsUntil = this.#clock.now() + REST;
    return this.#failures === MOST_FAILURES;
  }
}
