import type { Buffer } from "node:buffer";
import type { HubError } from "../../base/errors.ts";
import type { Truncated } from "../../jsonrpc/bounded-buffer.ts";
import type { Message } from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import { isEventStream } from "./errors.ts";
import { type EventParserEvents, EventParser } from "./event-parser.ts";
import type { HttpRequester, HttpRequest, RequestEvents } from "./request.ts";

/** How a GET event stream has ended. */
export type EventStreamEnd =
  /** It was open, and the connection was closed. */
  | { readonly kind: "dropped"; readonly retry: number | undefined }
  /** The server has rejected the request or answered with another media type. */
  | { readonly kind: "refused"; readonly status: number }
  | { readonly kind: "failed"; readonly cause: HubError };

/** Receives the events of a GET stream. */
export interface EventStreamSink extends EventParserEvents {
  opened?(): void;
  ended(end: EventStreamEnd): void;
}

/** One GET request whose response is an event stream. */
export class EventStreamRequest implements RequestEvents {
  readonly #sink: EventStreamSink;
  readonly #delivery: HttpRequest;
  readonly #reader: EventParser;
  #at: "asking" | "open" | "over" = "asking";

  /** @param lastId sent as `Last-Event-ID`: the id of the last received event */
  constructor(
    passage: HttpRequester,
    fields: string,
    lastId: string | undefined,
    sink: EventStreamSink,
  ) {
    this.#sink = sink;
    this.#reader = new EventParser(passage.target.maxMessage, sink);
    this.#reader.lastId = lastId;
    const last = lastId === undefined ? "" : `Last-Event-ID: ${lastId}\r\n`;
    const letter = {
      method: "GET",
      fields: `Accept: text/event-stream\r\n${fields}${last}`,
      body: undefined,
    } as const;
    this.#delivery = passage.send(letter, this);
  }

  /** The last received event id. */
  get lastId(): string | undefined {
    return this.#reader.lastId;
  }

  drop(): void {
    this.#at = "over";
    this.#delivery.drop();
  }

  head(head: ResponseHead): void {
    if (head.status === 200 && isEventStream(head)) {
      this.#at = "open";
      this.#sink.opened?.();
      return;
    }
    this.#delivery.drop();
    this.#end({ kind: "refused", status: head.status });
  }

  body(bytes: Buffer): void {
    if (this.#at === "open") this.#reader.push(bytes);
  }

  end(): void {
    this.#end({ kind: "dropped", retry: this.#reader.retry });
  }

  fail(cause: HubError): void {
    if (this.#at === "open") this.end();
    else this.#end({ kind: "failed", cause });
  }

  #end(end: EventStreamEnd): void {
    if (this.#at === "over") return;
    this.#at = "over";
    this.#sink.ended(end);
  }
}

/** Receives the events of a response stream. */
export interface ResponseStreamSink extends EventParserEvents {
  /** Header lines for the GET request that resumes the stream. */
  fields(): string;
  /** Whether the response has arrived. */
  isDone(): boolean;
  /** The stream has ended and cannot be resumed. */
  lost(cause: HubError): void;
  unreachable(cause: HubError): void;
}

/**
 * Resumptions without a new event until the stream is given up, and the delay before one where the server sends no
 * `retry`, in ms: first and maximum.
 */
const RESUME = { times: 5, first: 500, longest: 10_000 };

/**
 * The response stream of one request. After a disconnect it is resumed with `Last-Event-ID` (Streamable HTTP,
 * resumability).
 */
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

  /** A stream has ended. Without an event id it cannot be resumed. */
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

/** Callbacks of the standing stream. */
export interface StandingStreamEvents {
  readonly passage: HttpRequester;
  /** Header lines for the GET request. */
  fields(): string;
  frame(frame: Message): void;
  oversized(excess: Truncated): void;
  /** The server does not know the session (404). */
  forgotten(): void;
  unreachable(cause: HubError): void;
}

/**
 * Delay before the stream is opened again, in ms: minimum, first and maximum; and how long it has to stay open to reset
 * the failure count.
 */
const PAUSE = { least: 20, first: 250, longest: 30_000, stable: 10_000 };

/**
 * The standing GET stream of a legacy session (Streamable HTTP, listening for messages from the server): messages that
 * belong to no request. Opened again whenever it ends.
 */
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
      // On the first attempt 404 may also mean that the server has no such stream.
      if (end.status === 404 && this.#openedAt > 0) this.#owner.forgotten();
      else if (isPassing(end.status)) this.#again(this.#pause());
    } else if (end.cause.step === "dial") {
      this.#owner.unreachable(end.cause);
    } else if (end.cause.code === "unauthorized") {
      // A login may make it possible.
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

/**
 * Whether a rejection is temporary. 409: there may be one such stream, and the server may not know yet that the last
 * one is lost.
 */
function isPassing(status: number): boolean {
  return status === 409 || status === 429 || status >= 500;
}
