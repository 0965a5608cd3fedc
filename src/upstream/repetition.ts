import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";

/** How often something is asked again whose answer was lost, and how long it waits before that, ever longer, in ms. */
const TIMES = 3;
const PAUSE = 100;

/** Asks again, over a link that may lose single requests, what does no harm if it is asked twice. */
export class OwnRequestRetry {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @throws what the last try throws, or the signal's reason */
  async of<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (let count = 0; ; count++) {
      try {
        return await ask();
      } catch (error) {
        if (count === TIMES || signal.aborted || !isLost(error)) throw error;
      }
      await this.#pause(PAUSE * 2 ** count, signal);
    }
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        undo();
        reject(signal.reason);
      };
      const undo = this.#clock.after(ms, () => {
        signal.removeEventListener("abort", abort);
        resolve();
      });
      signal.addEventListener("abort", abort, { once: true });
    });
  }
}

/** Whether a request was not answered although the link lives. */
function isLost(error: unknown): boolean {
  return (
    error instanceof HubError && (error.code === "notDelivered" || error.code === "answerLost")
  );
}
