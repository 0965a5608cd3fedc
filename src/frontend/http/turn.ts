import { setImmediate } from "node:timers";

/**
 * Groups requests by turns of the event loop: those that arrive on many connections in one turn continue together, so
 * that what they send to one server goes out in one write.
 */
export class TurnBatch {
  #end: Promise<void> | undefined;

  /** Settles at the end of the current turn; waiters continue in the order in which they came. */
  get end(): Promise<void> {
    this.#end ??= new Promise((resolve) =>
      setImmediate(() => {
        this.#end = undefined;
        resolve();
      }),
    );
    return this.#end;
  }
}
