import type { Buffer } from "node:buffer";
import type { HubError } from "../../base/errors.ts";
import type { TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import type { ResponseHead } from "../http-client/response-parser.ts";
import { isEventStream } from "./errors.ts";
import { EventParser, type EventParserEvents } from "./event-parser.ts";
import type { HttpRequester, HttpRequest, RequestEvents } from "./request.ts";

/**
 * Policy for the end of an event stream's connection:
 * - `endWithConnection`: the stream ends, too (HTTP+SSE).
 * - `resumeUntilAnswered`: a GET with the id of the last event continues the stream (Streamable HTTP, resumability).
 *   The stream begins as the response to a POST: the `Post` passes the body of that response to the stream.
 * - `reconnectForever`: the stream is requested again, unless the server will certainly refuse it (Streamable HTTP,
 *   listening for messages from the server).
 */
type EventStreamPolicy = "endWithConnection" | "resumeUntilAnswered" | "reconnectForever";

export type EventStreamEnd =
  /** The connection was closed. `cause`: the error of the POST, if the stream was the response to one. */
  | { readonly kind: "dropped"; readonly cause: HubError | undefined }
  /**
   * The server has rejected the GET request or answered with another media type. `wasOpened`: whether the server had
   * accepted an earlier GET.
   */
  | { readonly kind: "refused"; readonly status: number; readonly wasOpened: boolean }
  | { readonly kind: "failed"; readonly cause: HubError };

interface EventStreamOptions extends EventParserEvents {
  readonly policy: EventStreamPolicy;
  headerLines(): string;
  /** Called when the stream has ended and is not requested again, but not after `close`. */
  ended(end: EventStreamEnd): void;
}

/**
 * Limits of `resumeUntilAnswered`. `attempts`: maximum number of GET requests in a row without an event. `firstDelay`
 * and `maxDelay`: the first and the longest delay before a GET, in ms, if the server has sent no `retry`.
 */
const RESUME_LIMITS = { attempts: 5, firstDelay: 500, maxDelay: 10_000 };

/**
 * Limits of `reconnectForever`, in ms. The delay before a GET doubles each time, from `first` to `max`; if the server
 * has sent `retry`, the delay doubles from `min`, but is at least `retry`. After the stream was open for `stableAfter`,
 * the delay starts over.
 */
const RECONNECT_DELAY = { min: 20, first: 250, max: 30_000, stableAfter: 10_000 };

/**
 * A stream of server-sent events that may continue over several GET requests. It may begin as the response to a POST.
 */
export class EventStream implements RequestEvents {
  readonly #requester: HttpRequester;
  readonly #options: EventStreamOptions;
  #state: "requested" | "open" | "waiting" | "closed" = "open";
  #parser: EventParser;
  /** The GET request; undefined while the stream is the response to a POST. */
  #request: HttpRequest | undefined;
  #lastId: string | undefined;
  #isAnswered = false;
  /** Number of GET requests in a row that have brought no event. */
  #attempts = 0;
  /** The last reconnection time that the server has sent, in ms. */
  #retry: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When the last connection was opened, in ms of `performance.now()`. */
  #openedAt: number | undefined;

  constructor(requester: HttpRequester, options: EventStreamOptions) {
    this.#requester = requester;
    this.#options = options;
    this.#parser = this.#makeParser();
    if (options.policy !== "resumeUntilAnswered") this.#send();
  }

  get isOpen(): boolean {
    return this.#state === "open";
  }

  /** Tells the stream that the awaited response has arrived, so that the stream is not resumed. */
  answered(): void {
    this.#isAnswered = true;
  }

  close(): void {
    this.#state = "closed";
    clearTimeout(this.#timer);
    this.#request?.cancel();
  }

  head(head: ResponseHead): void {
    if (head.status === 200 && isEventStream(head)) {
      this.#state = "open";
      this.#openedAt = performance.now();
      return;
    }
    this.#request?.cancel();
    const wasOpened = this.#openedAt !== undefined;
    this.#onEnd({ kind: "refused", status: head.status, wasOpened });
  }

  body(bytes: Buffer): void {
    if (this.#state === "open") this.#parser.push(bytes);
  }

  end(): void {
    this.#onEnd({ kind: "dropped", cause: undefined });
  }

  fail(cause: HubError): void {
    if (this.#state !== "open") this.#onEnd({ kind: "failed", cause });
    else this.#onEnd({ kind: "dropped", cause: this.#request === undefined ? cause : undefined });
  }

  #send(): void {
    this.#state = "requested";
    this.#parser = this.#makeParser();
    const idLine = this.#lastId === undefined ? "" : `Last-Event-ID: ${this.#lastId}\r\n`;
    const headerLines = `Accept: text/event-stream\r\n${this.#options.headerLines()}${idLine}`;
    this.#request = this.#requester.send({ method: "GET", headerLines, body: undefined }, this);
  }

  #makeParser(): EventParser {
    const parser = new EventParser(this.#requester.target.maxMessage, {
      event: (type, data) => {
        this.#attempts = 0;
        if (this.#state !== "closed") this.#options.event(type, data);
      },
      oversized: (truncated: TruncatedMessage) => this.#options.oversized(truncated),
    });
    parser.lastId = this.#lastId;
    return parser;
  }

  #onEnd(end: EventStreamEnd): void {
    if (this.#state === "closed") return;
    this.#lastId = this.#parser.lastId ?? this.#lastId;
    const delay = this.#delayAfter(end);
    if (delay === undefined) {
      this.#state = "closed";
      this.#options.ended(end);
      return;
    }
    this.#state = "waiting";
    this.#attempts++;
    this.#timer = setTimeout(() => this.#send(), delay);
  }

  /** Returns the delay before the next request, in ms; undefined if the stream is not requested again. */
  #delayAfter(end: EventStreamEnd): number | undefined {
    switch (this.#options.policy) {
      case "endWithConnection":
        return undefined;
      case "resumeUntilAnswered":
        return end.kind === "dropped" ? this.#resumeDelay() : undefined;
      case "reconnectForever":
        return this.#reconnectDelay(end);
    }
  }

  /** Returns the delay in ms; undefined if the stream cannot be resumed, for example without an event id. */
  #resumeDelay(): number | undefined {
    this.#retry = this.#parser.retry ?? this.#retry;
    if (this.#lastId === undefined || this.#isAnswered) return undefined;
    if (this.#attempts >= RESUME_LIMITS.attempts) return undefined;
    const { firstDelay, maxDelay } = RESUME_LIMITS;
    return this.#retry ?? Math.min(firstDelay * 2 ** this.#attempts, maxDelay);
  }

  #reconnectDelay(end: EventStreamEnd): number | undefined {
    const { min, first, max, stableAfter } = RECONNECT_DELAY;
    if (end.kind === "dropped" && performance.now() - (this.#openedAt ?? 0) >= stableAfter)
      this.#attempts = 0;
    const delay = Math.min(first * 2 ** this.#attempts, max);
    switch (end.kind) {
      case "dropped": {
        const { retry } = this.#parser;
        return retry === undefined
          ? delay
          : Math.max(retry, Math.min(min * 2 ** this.#attempts, max));
      }
      case "refused":
        return isTemporary(end.status) ? delay : undefined;
      case "failed":
        if (end.cause.step === "dial") return undefined;
        // The server may accept the request after a login, so the request is repeated, but with the longest delay.
        if (end.cause.code === "unauthorized") return max;
        return end.cause.properties.retryable ? delay : undefined;
    }
  }
}

/**
 * Whether a rejection is temporary. 409: the server allows one such stream, and may not have noticed yet that the
 * previous one is closed.
 */
function isTemporary(status: number): boolean {
  return status === 409 || status === 429 || status >= 500;
}
