import type { Clock } from "../clock.ts";

/** After so many failures in a row something is broken: it is left alone for a while. */
export const MOST_FAILURES = 5;
/** How long that is, in ms; after that one more failure breaks it again. */
export const REST = 30_000;

/** Counts failures in a row. */
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

  /** @returns whether this has just broken it. */
  fail(): boolean {
    if (++this.#failures < MOST_FAILURES) return false;
    this.#restsUntil = this.#clock.now() + REST;
    return this.#failures === MOST_FAILURES;
  }
}
