import type { Buffer } from "node:buffer";
import type { HubError } from "../../base/errors.ts";
import { EventParser, type EventParserEvents } from "./event-parser.ts";
import { EventStreamRequest, type EventStreamEnd } from "./event-stream.ts";
import type { HttpRequester } from "./request.ts";

/** Who reads a thread. */
export interface ResponseStreamSink extends EventParserEvents {
  /** The headers of a request that goes on with it. */
  fields(): string;
  /** Whether nothing is waited for any more. */
  isDone(): boolean;
  /** It has ended, and cannot be gone on with. */
  lost(cause: HubError): void;
  unreachable(cause: HubError): void;
}

/** How often a stream is asked for again that brings nothing new, and after how long, in ms, where the server does not say. */
const RESUME = { times: 5, first: 500, longest: 10_000 };

/** The events that come of one request: on its own stream, and on those that go on with it after that was dropped. */
export class ResumedResponseStream {
  readonly #passage: HttpRequester;
  readonly #sink: ResponseStreamSink;
  readonly #events: EventParser;
  #feed: EventStreamRequest | undefined;
  #retry: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #resumed = 0;

  constructor(passage: HttpRequester, sink: ResponseStreamSink) {
    this.#passage = passage;
    this.#sink = sink;
    this.#events = new EventParser(passage.target.maxMessage, sink);
  }

  push(bytes: Buffer): void {
    this.#events.push(bytes);
  }

  /** A stream of it has ended. Without an id there is nothing to go on from. */
  dropped(cause?: HubError): void {
    const lastId = this.#feed?.lastId ?? this.#events.lastId;
    if (lastId === undefined || this.#resumed >= RESUME.times || this.#sink.isDone()) {
      const text = "it ended its stream without an answer.";
      this.#sink.lost(cause ?? this.#passage.error("answerLost", text));
      return;
    }
    this.#retry ??= this.#events.retry;
    const wait = this.#retry ?? Math.min(RESUME.first * 2 ** this.#resumed, RESUME.longest);
    this.#resumed++;
    this.#timer = setTimeout(() => this.#resume(lastId), wait);
  }

  drop(): void {
    clearTimeout(this.#timer);
    this.#feed?.drop();
  }

  #resume(lastId: string): void {
    const sink = this.#sink;
    this.#feed = new EventStreamRequest(this.#passage, sink.fields(), lastId, {
      event: (type, data) => {
        this.#resumed = 0;
        sink.event(type, data);
      },
      oversized: (excess) => sink.oversized(excess),
      ended: (end) => this.#feedEnded(end),
    });
  }

  #feedEnded(end: EventStreamEnd): void {
    const passage = this.#passage;
    switch (end.kind) {
      case "dropped":
        this.#retry = end.retry ?? this.#retry;
        this.dropped();
        return;
      case "refused": {
        const text = `its stream was lost, and it does not go on with it (HTTP ${end.status}).`;
        this.#sink.lost(passage.error("answerLost", text));
        return;
      }
      case "failed":
        this.#sink.lost(passage.error("answerLost", `its stream was lost: ${end.cause.message}`));
        if (end.cause.step === "dial") this.#sink.unreachable(end.cause);
    }
  }
}
