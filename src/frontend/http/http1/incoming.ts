import type { Buffer } from "node:buffer";
import type { ParsedRequestHead } from "./request-parser.ts";
import { type BodyQuota, RequestBody } from "./inlet.ts";
import type { HttpServerRequest, BodyError } from "./messages.ts";

/** One request on a connection, until it is answered. */
export class IncomingRequest implements HttpServerRequest {
  readonly head: ParsedRequestHead;
  /** The request's body. */
  readonly body: RequestBody;
  readonly #sendContinue: () => void;
  #onDisconnect: (() => void) | undefined;
  #isDisconnected = false;

  /** @param sendContinue writes `100 Continue` */
  constructor(head: ParsedRequestHead, quota: BodyQuota, sendContinue: () => void) {
    this.head = head;
    this.body = new RequestBody(head.body, quota);
    this.#sendContinue = sendContinue;
  }

  read(limit: number): Buffer | BodyError | Promise<Buffer | BodyError> {
    return this.body.read(limit, () => {
      if (this.head.expectsContinue) this.#sendContinue();
    });
  }

  onDisconnect(callback: () => void): () => void {
    if (this.#isDisconnected) queueMicrotask(callback);
    else this.#onDisconnect = callback;
    return () => (this.#onDisconnect = undefined);
  }

  /** The client has disconnected. */
  disconnect(): void {
    this.#isDisconnected = true;
    this.body.fail("broken");
    this.#onDisconnect?.();
  }
}
