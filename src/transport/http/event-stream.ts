import type { Buffer } from "node:buffer";
import type { HubError } from "../../base/errors.ts";
import type { TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import type { Message } from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import { isEventStream } from "./errors.ts";
import { type EventParserEvents, EventParser } from "./event-parser.ts";
import type { HttpRequester, HttpRequest, RequestEvents } from "./request.ts";

/** How a GET request for an event stream has ended. */
export type EventStreamEnd =
  /** The stream was open, and its connection was closed. */
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
  readonly #events: EventStreamSink;
  readonly #request: HttpRequest;
  readonly #parser: EventParser;
  #state: "requested" | "open" | "closed" = "requested";

  /** @param lastId sent as `Last-Event-ID`: the id of the last received event */
  constructor(
    requester: HttpRequester,
    headerLines: string,
    lastId: string | undefined,
    events: EventStreamSink,
  ) {
    this.#events = events;
    this.#parser = new EventParser(requester.target.maxMessage, events);
    this.#parser.lastId = lastId;
    const lastEventIdLine = lastId === undefined ? "" : `Last-Event-ID: ${lastId}\r\n`;
    const template = {
      method: "GET",
      headerLines: `Accept: text/event-stream\r\n${headerLines}${lastEventIdLine}`,
      body: undefined,
    } as const;
    this.#request = requester.send(template, this);
  }

  /** The last received event id. */
  get lastId(): string | undefined {
    return this.#parser.lastId;
  }

  cancel(): void {
    this.#state = "closed";
    this.#request.cancel();
  }

  head(head: ResponseHead): void {
    if (head.status === 200 && isEventStream(head)) {
      this.#state = "open";
      this.#events.opened?.();
      return;
    }
    this.#request.cancel();
    this.#end({ kind: "refused", status: head.status });
  }

  body(bytes: Buffer): void {
    if (this.#state === "open") this.#parser.push(bytes);
  }

  end(): void {
    this.#end({ kind: "dropped", retry: this.#parser.retry });
  }

  fail(cause: HubError): void {
    if (this.#state === "open") this.end();
    else this.#end({ kind: "failed", cause });
  }

  #end(end: EventStreamEnd): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#events.ended(end);
  }
}

/** Receives the events of a response stream. */
export interface ResponseStreamSink extends EventParserEvents {
  /** Header lines for the GET request that resumes the stream. */
  headerLines(): string;
  /** Whether the JSON-RPC response to the request has arrived. */
  isAnswered(): boolean;
  /** The stream has ended and cannot be resumed. */
  failed(cause: HubError): void;
  unreachable(cause: HubError): void;
}

/**
 * Maximum number of resumptions in a row without a new event, and the delay before one if the server has sent no
 * `retry`, in ms: first and maximum.
 */
const RESUME_LIMITS = { attempts: 5, firstDelay: 500, maxDelay: 10_000 };

/**
 * The response stream of one request. After a disconnect it is resumed with `Last-Event-ID` (Streamable HTTP,
 * resumability).
 */
export class ResumableResponseStream {
  readonly #requester: HttpRequester;
  readonly #events: ResponseStreamSink;
  readonly #parser: EventParser;
  #stream: EventStreamRequest | undefined;
  #retry: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #attempts = 0;

  constructor(requester: HttpRequester, events: ResponseStreamSink) {
    this.#requester = requester;
    this.#events = events;
    this.#parser = new EventParser(requester.target.maxMessage, events);
  }

  push(bytes: Buffer): void {
    this.#parser.push(bytes);
  }

  /** A stream has ended. Without an event id it cannot be resumed. */
  streamEnded(cause?: HubError): void {
    const lastId = this.#stream?.lastId ?? this.#parser.lastId;
    if (
      lastId === undefined ||
      this.#attempts >= RESUME_LIMITS.attempts ||
      this.#events.isAnswered()
    ) {
      const text = "it ended its stream without an answer.";
      this.#events.failed(cause ?? this.#requester.error("answerLost", text));
      return;
    }
    this.#retry ??= this.#parser.retry;
    const delay =
      this.#retry ??
      Math.min(RESUME_LIMITS.firstDelay * 2 ** this.#attempts, RESUME_LIMITS.maxDelay);
    this.#attempts++;
    this.#timer = setTimeout(() => this.#resume(lastId), delay);
  }

  cancel(): void {
    clearTimeout(this.#timer);
    this.#stream?.cancel();
  }

  #resume(lastId: string): void {
    const events = this.#events;
    this.#stream = new EventStreamRequest(this.#requester, events.headerLines(), lastId, {
      event: (type, data) => {
        this.#attempts = 0;
        events.event(type, data);
      },
      oversized: (excess) => events.oversized(excess),
      ended: (end) => this.#onStreamEnd(end),
    });
  }

  #onStreamEnd(end: EventStreamEnd): void {
    const requester = this.#requester;
    switch (end.kind) {
      case "dropped":
        this.#retry = end.retry ?? this.#retry;
        this.streamEnded();
        return;
      case "refused": {
        const text = `its stream was lost, and it does not go on with it (HTTP ${end.status}).`;
        this.#events.failed(requester.error("answerLost", text));
        return;
      }
      case "failed":
        this.#events.failed(
          requester.error("answerLost", `its stream was lost: ${end.cause.message}`),
        );
        if (end.cause.step === "dial") this.#events.unreachable(end.cause);
    }
  }
}

/** Callbacks of the standalone stream. */
export interface StandaloneStreamEvents {
  readonly requester: HttpRequester;
  /** Header lines for the GET request. */
  headerLines(): string;
  message(message: Message): void;
  oversized(truncated: TruncatedMessage): void;
  /** The server does not know the session (404). */
  sessionLost(): void;
  unreachable(cause: HubError): void;
}

/**
 * Delay before the stream is opened again, in ms: `min`, `first` and `max`. `stableAfter`: how long the stream has to
 * stay open, in ms, for the failure count to be reset.
 */
const REOPEN_DELAY = { min: 20, first: 250, max: 30_000, stableAfter: 10_000 };

/**
 * The standalone GET stream of a legacy session (Streamable HTTP, listening for messages from the server): it carries
 * messages that belong to no request. Opened again whenever it ends.
 */
export class StandaloneStream {
  readonly #events: StandaloneStreamEvents;
  #stream: EventStreamRequest | undefined;
  #lastId: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #openedAt = 0;
  isOpen = false;
  #isClosed = false;

  constructor(events: StandaloneStreamEvents) {
    this.#events = events;
    this.#open();
  }

  close(): void {
    this.#isClosed = true;
    this.isOpen = false;
    clearTimeout(this.#timer);
    this.#stream?.cancel();
  }

  #open(): void {
    const events = this.#events;
    this.#stream = new EventStreamRequest(events.requester, events.headerLines(), this.#lastId, {
      opened: () => {
        this.isOpen = true;
        this.#openedAt = performance.now();
      },
      event: (type, data) => {
        this.#failures = 0;
        if (type === "message" && !this.#isClosed) events.message(parseMessage(data));
      },
      oversized: (excess) => events.oversized(excess),
      ended: (end) => this.#onStreamEnd(end),
    });
  }

  #onStreamEnd(end: EventStreamEnd): void {
    if (this.#isClosed) return;
    const wasOpen = this.isOpen;
    this.isOpen = false;
    this.#lastId = this.#stream?.lastId ?? this.#lastId;
    if (end.kind === "dropped") {
      if (wasOpen && performance.now() - this.#openedAt >= REOPEN_DELAY.stableAfter)
        this.#failures = 0;
      const minDelay = Math.min(REOPEN_DELAY.min * 2 ** this.#failures, REOPEN_DELAY.max);
      this.#reopenAfter(
        end.retry === undefined ? this.#nextDelay() : Math.max(end.retry, minDelay),
      );
    } else if (end.kind === "refused") {
      // On the first attempt a 404 may also mean that the server has no such stream.
      if (end.status === 404 && this.#openedAt > 0) this.#events.sessionLost();
      else if (isTemporary(end.status)) this.#reopenAfter(this.#nextDelay());
    } else if (end.cause.step === "dial") {
      this.#events.unreachable(end.cause);
    } else if (end.cause.code === "unauthorized") {
      // After a login the server may accept the request.
      this.#reopenAfter(REOPEN_DELAY.max);
    } else if (end.cause.properties.retryable) {
      this.#reopenAfter(this.#nextDelay());
    }
  }

  #nextDelay(): number {
    return Math.min(REOPEN_DELAY.first * 2 ** this.#failures, REOPEN_DELAY.max);
  }

  #reopenAfter(delay: number): void {
    this.#failures++;
    this.#timer = setTimeout(() => this.#open(), delay);
  }
}

/**
 * Whether a rejection is temporary. 409: only one such stream is allowed, and the server may not have noticed yet that
 * the last one is closed.
 */
function isTemporary(status: number): boolean {
  return status === 409 || status === 429 || status >= 500;
}
