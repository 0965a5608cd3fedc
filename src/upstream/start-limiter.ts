import type { Clock } from "../base/clock.ts";

/**
 * After this time, in ms, a start frees its slot even if it has not ended: its CPU load is over by then, and a server
 * that hangs or downloads must not hold up the others.
 */
const SLOT_LIMIT = 10_000;

/** Limits how many servers start at a time; a semaphore, first come, first served. */
export class Gate {
  readonly #clock: Clock;
  #limit: number;
  #busy = 0;
  readonly #waiting = new Set<() => void>();

  constructor(limit: number, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** How many may start at a time from now on. */
  set limit(limit: number) {
    this.#limit = limit;
    this.#admit();
  }

  /** Waits for a slot. @returns a function that releases it; `SLOT_LIMIT` does so, too @throws the signal's reason */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#busy >= this.#limit) await this.#wait(signal);
    else this.#busy++;
    let isOut = false;
    const leave = (): void => {
      if (isOut) return;
      isOut = true;
      undo();
      this.#busy--;
      this.#admit();
    };
    const undo = this.#clock.after(SLOT_LIMIT, leave);
    return leave;
  }

  /** A waiter's slot is counted by `#startQueued`, so that nothing can take it before the waiter runs. */
  #wait(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const enter = (): void => {
        signal.removeEventListener("abort", give);
        resolve();
      };
      const give = (): void => {
        this.#waiting.delete(enter);
        reject(signal.reason);
      };
      signal.addEventListener("abort", give, { once: true });
      this.#waiting.add(enter);
    });
  }

  #admit(): void {
    for (const enter of this.#waiting) {
      if (this.#busy >= this.#limit) return;
      this.#waiting.delete(enter);
      this.#busy++;
      enter();
    }
  }
}
