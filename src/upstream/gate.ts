import type { Clock } from "../clock.ts";

/**
 * How long a start counts against the others, in ms. By then what makes starts dear has been done, or downloads; a server
 * that hangs must not keep the rest from starting.
 */
const SLOT_LIMIT = 10_000;

/** Lets so many servers start at a time, in the order in which they came; each goes on by itself once it is through. */
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

  /** Waits for a turn. @returns what gives it back, which also happens by itself. @throws the signal's reason */
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

  /** Whoever is admitted is counted by `#admit`, so that nobody slips in between. */
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
