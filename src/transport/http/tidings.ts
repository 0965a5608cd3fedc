import type { HubError } from "../../base/errors.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import type { Message } from "../../jsonrpc/message.ts";
import { EventStreamRequest, type EventStreamEnd } from "./event-stream.ts";
import type { Truncated } from "../../jsonrpc/bounded-buffer.ts";
import type { HttpRequester } from "./request.ts";

/** What is made of what a server says unasked. */
export interface StandingStreamEvents {
  readonly passage: HttpRequester;
  /** The headers of the request for it. */
  fields(): string;
  frame(frame: Message): void;
  oversized(excess: Truncated): void;
  /** The server does not know the session. */
  forgotten(): void;
  unreachable(cause: HubError): void;
}

/** Before it is asked for again, in ms: at first, at most, and after how long what happened before does not count. */
const PAUSE = { least: 20, first: 250, longest: 30_000, stable: 10_000 };

/** What a server of the legacy era says unasked: the stream of a GET, asked for again whenever it ends. */
export class StandingStream {
  readonly #owner: StandingStreamEvents;
  #feed: EventStreamRequest | undefined;
  #lastId: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #openedAt = 0;
  isOpen = false;
  #isOver = false;

  constructor(owner: StandingStreamEvents) {
    this.#owner = owner;
    this.#ask();
  }

  close(): void {
    this.#isOver = true;
    this.isOpen = false;
    clearTimeout(this.#timer);
    this.#feed?.drop();
  }

  #ask(): void {
    const owner = this.#owner;
    this.#feed = new EventStreamRequest(owner.passage, owner.fields(), this.#lastId, {
      opened: () => {
        this.isOpen = true;
        this.#openedAt = performance.now();
      },
      event: (type, data) => {
        this.#failures = 0;
        if (type === "message" && !this.#isOver) owner.frame(parseMessage(data));
      },
      oversized: (excess) => owner.oversized(excess),
      ended: (end) => this.#ended(end),
    });
  }

  #ended(end: EventStreamEnd): void {
    if (this.#isOver) return;
    const wasOpen = this.isOpen;
    this.isOpen = false;
    this.#lastId = this.#feed?.lastId ?? this.#lastId;
    if (end.kind === "dropped") {
      if (wasOpen && performance.now() - this.#openedAt >= PAUSE.stable) this.#failures = 0;
      const least = Math.min(PAUSE.least * 2 ** this.#failures, PAUSE.longest);
      this.#again(end.retry === undefined ? this.#pause() : Math.max(end.retry, least));
    } else if (end.kind === "refused") {
      // A server that has no such stream need not know the word for that.
      if (end.status === 404 && this.#openedAt > 0) this.#owner.forgotten();
      else if (isPassing(end.status)) this.#again(this.#pause());
    } else if (end.cause.step === "dial") {
      this.#owner.unreachable(end.cause);
    } else if (end.cause.code === "unauthorized") {
      // Somebody may see to that meanwhile.
      this.#again(PAUSE.longest);
    } else if (end.cause.properties.retryable) {
      this.#again(this.#pause());
    }
  }

  #pause(): number {
    return Math.min(PAUSE.first * 2 ** this.#failures, PAUSE.longest);
  }

  #again(wait: number): void {
    this.#failures++;
    this.#timer = setTimeout(() => this.#ask(), wait);
  }
}

/** Whether a refusal may be another thing soon. There is one such stream: a server may not know yet that the last one is lost (409). */
function isPassing(status: number): boolean {
  return status === 409 || status === 429 || status >= 500;
}
