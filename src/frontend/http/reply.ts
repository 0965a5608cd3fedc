import type { Clock } from "../../clock.ts";
import type { Message } from "../../wire/jsonrpc.ts";
import type { Inbound } from "../../wire/link.ts";
import { accepted, answer, refuse, streamed } from "./refusal.ts";
import type { EventStream } from "./stream.ts";

/** What a client takes for an answer. */
export type Wants = "json" | "events" | "either";

/** An answer that has not come after this many ms comes as an event: a connection that is silent for long is lost. */
export const PATIENCE = 1000;

export interface ReplyParts {
  readonly wants: Wants;
  readonly clock: Clock;
  /** A stream for what there is to say. */
  open(): EventStream;
  /** Sends what belongs to the request, but cannot be sent with its answer. */
  aside(message: Message): void;
}

/** The answer to one POST: JSON if that is all there is to send, and comes soon; else a stream of events. */
export class Reply implements Inbound {
  readonly response: Promise<Response>;
  readonly #parts: ReplyParts;
  #stream: EventStream | undefined;
  #settle: (response: Response) => void = () => {};
  readonly #disarm: () => void = () => {};
  #isOver = false;

  constructor(parts: ReplyParts) {
    this.#parts = parts;
    this.response = new Promise((resolve) => (this.#settle = resolve));
    if (parts.wants === "events") this.#open();
    else if (parts.wants === "either") {
      this.#disarm = parts.clock.after(PATIENCE, () => void this.#open());
    }
  }

  /** What it was sent on, if that was more than one answer. */
  get stream(): EventStream | undefined {
    return this.#stream;
  }

  notify(message: Message): void {
    if (this.#isOver) return;
    if (this.#parts.wants === "json") this.#parts.aside(message);
    else this.#open().push(message);
  }

  respond(message: Message | undefined): void {
    if (this.#isOver) return;
    this.#end();
    if (this.#stream !== undefined) {
      if (message !== undefined) this.#stream.push(message);
      this.#stream.finish();
    } else {
      this.#settle(message === undefined ? accepted() : answer(message));
    }
  }

  /** The session has ended, and its streams with it: there will be no answer. */
  abandon(): void {
    if (this.#isOver) return;
    this.#end();
    this.#settle(refuse(404, "The session has ended."));
  }

  #open(): EventStream {
    if (this.#stream === undefined) {
      this.#disarm();
      this.#stream = this.#parts.open();
      this.#settle(streamed(this.#stream.attach()));
    }
    return this.#stream;
  }

  #end(): void {
    this.#isOver = true;
    this.#disarm();
  }
}
