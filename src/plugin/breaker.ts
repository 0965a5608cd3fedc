import type { Clock } from "../base/clock.ts";

/** Number of consecutive failures that opens the circuit. */
export const MAX_FAILURES = 5;
/** How long the circuit stays open, in ms; after that, one more failure opens it again. */
export const OPEN_TIME = 30_000;

/** A circuit breaker that counts consecutive failures. */
export class CircuitBreaker {
  readonly #clock: Clock;
  #failures = 0;
  /** In ms of the clock. */
  #openUntil = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isOpen(): boolean {
    return this.#failures >= MAX_FAILURES && this.#clock.now() < this.#openUntil;
  }

  recordSuccess(): void {
    this.#failures = 0;
  }

  /** @returns whether this failure was the one that opened the circuit */
  recordFailure(): boolean {
    if (++this.#failures < MAX_FAILURES) return false;
    this.#openUntil = this.#clock.now() + OPEN_TIME;
    return this.#failures === MAX_FAILURES;
  }
}
