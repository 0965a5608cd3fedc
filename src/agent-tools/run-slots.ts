import { count } from "../base/format.ts";
import { abortable } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";

/** Maximum number of runs at work at a time, and of runs that wait for a slot. */
const LIMITS = { running: 16, waiting: 100 };

/** Limits how many runs of clients are at work at a time. Nested runs take no slot. */
export class RunSlots {
  #running = 0;
  readonly #queue: (() => void)[] = [];

  /**
   * Waits for a slot.
   * @param onWait called if the run has to wait
   * @returns a function that frees the slot
   * @throws {HubError} hubBusy if too many wait; the signal's reason
   */
  async take(signal: AbortSignal, onWait: () => void): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#running < LIMITS.running) {
      this.#running++;
      return this.#free;
    }
    if (this.#queue.length >= LIMITS.waiting) {
      const text = `${count(this.#running, "agent is", "agents are")} at work, and ${count(this.#queue.length, "run waits", "runs wait")} already. Try again later.`;
      throw new HubError("hubBusy", text);
    }
    const turn = Promise.withResolvers<void>();
    this.#queue.push(turn.resolve);
    onWait();
    try {
      await abortable(turn.promise, signal);
    } catch (error) {
      const at = this.#queue.indexOf(turn.resolve);
      if (at >= 0) this.#queue.splice(at, 1);
      // The slot was assigned before the signal was aborted, so it is freed.
      else this.#free();
      throw error;
    }
    return this.#free;
  }

  /** Frees a slot: the next waiting run gets it. */
  readonly #free = (): void => {
    const next = this.#queue.shift();
    if (next === undefined) this.#running--;
    else next();
  };
}
