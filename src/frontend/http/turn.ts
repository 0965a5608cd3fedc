import { setImmediate } from "node:timers";

/**
 * Turns of the event loop. What came in on many connections in one of them goes on together, so that what of it is for one
 * server goes out in one write.
 */
export class Turn {
  #end: Promise<void> | undefined;

  /** Settles when all has come in that comes in this turn: for whoever waits, in the order in which they came. */
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
