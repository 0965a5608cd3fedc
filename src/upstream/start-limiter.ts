import type { Clock } from "../base/clock.ts";

/**
 * Time after which a start releases its slot even if it goes on, in ms. By then, most of the CPU load of a start is
 * over, and a server that hangs or downloads files must not delay the starts of other servers.
 */
const SLOT_LIMIT = 10_000;

/** Limits how many servers start at the same time. Slots are given in the order of the requests. */
export class StartLimiter {
  readonly #clock: Clock;
  #limit: number;
  #starting = 0;
  readonly #queue = new Set<() => void>();

  constructor(limit: number, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Maximum number of concurrent starts. When it is raised, waiting starts get the new slots at once. */
  set limit(limit: number) {
    this.#limit = limit;
    this.#startQueued();
  }

  /**
   * Waits for a slot. The slot is released after `SLOT_LIMIT`, or earlier by the returned function.
   * @throws the signal's reason
   */
  async acquire(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#starting >= this.#limit) await this.#waitForSlot(signal);
    else this.#starting++;
    let isReleased = false;
    const release = (): void => {
      if (isReleased) return;
      isReleased = true;
      cancelTimer();
      this.#starting--;
      this.#startQueued();
    };
    const cancelTimer = this.#clock.after(SLOT_LIMIT, release);
    return release;
  }

  /**
   * Resolves when `#startQueued` gives this caller a slot. `#startQueued` counts the slot as taken at once, so that no
   * other caller gets it before this caller runs.
   */
  #waitForSlot(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const start = (): void => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      };
      const onAbort = (): void => {
        this.#queue.delete(start);
        reject(signal.reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#queue.add(start);
    });
  }

  #startQueued(): void {
    for (const start of this.#queue) {
      if (this.#starting >= this.#limit) return;
      this.#queue.delete(start);
      this.#starting++;
      start();
    }
  }
}
