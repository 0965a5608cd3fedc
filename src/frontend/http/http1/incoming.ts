import type { Buffer } from "node:buffer";
import type { RequestHead } from "./request-parser.ts";
import { type BodyQuota, Inlet } from "./inlet.ts";
import type { Query, Trouble } from "./messages.ts";

/** One request on a connection, until it is answered. */
export class Incoming implements Query {
  readonly head: RequestHead;
  /** The request's body. */
  readonly inlet: Inlet;
  readonly #invite: () => void;
  #gone: (() => void) | undefined;
  #isLost = false;

  /** @param sendContinue writes `100 Continue` */
  constructor(head: RequestHead, quota: BodyQuota, invite: () => void) {
    this.head = head;
    this.inlet = new Inlet(head.body, quota);
    this.#invite = invite;
  }

  read(limit: number): Buffer | Trouble | Promise<Buffer | Trouble> {
    return this.inlet.read(limit, () => {
      if (this.head.isWaiting) this.#invite();
    });
  }

  whenGone(callback: () => void): () => void {
    if (this.#isLost) queueMicrotask(callback);
    else this.#gone = callback;
    return () => (this.#gone = undefined);
  }

  /** The client has disconnected. */
  lose(): void {
    this.#isLost = true;
    this.inlet.fail("broken");
    this.#gone?.();
  }
}
