import type { Clock } from "../base/clock.ts";

/** Changes that come within this many ms of each other are announced once. */
const PAUSE = 50;

/** Announces that the catalog is another, until it is told to end. */
export class ChangeDebounce {
  readonly #clock: Clock;
  readonly #announce: () => void;
  /** There is something to announce: the undo of the wait for more. */
  #waiting: (() => void) | undefined;
  #isOver = false;

  constructor(clock: Clock, announce: () => void) {
    this.#clock = clock;
    this.#announce = announce;
  }

  changed(): void {
    if (this.#isOver || this.#waiting !== undefined) return;
    this.#waiting = this.#clock.after(PAUSE, () => {
      this.#waiting = undefined;
      this.#announce();
    });
  }

  end(): void {
    this.#isOver = true;
    this.#waiting?.();
  }
}
