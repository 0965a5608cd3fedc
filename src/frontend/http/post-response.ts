import { joinPieces, utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import type { CancelledBy } from "../../base/events.ts";
import {
  type EncodedMessage,
  errorCodeOf,
  joinMessage,
  piecesOfMessage,
} from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { ModernErrorCode } from "../../protocol/modern.ts";
import type { CancelReason } from "../../protocol/notifications.ts";
import type { Deadlines, DeadlineTarget } from "../../router/deadlines.ts";
import type { Responder } from "../../transport/transport.ts";
import type { ModernResponder } from "../modern/request.ts";
import { errorAnswer } from "./errors.ts";
import {
  EVENT_BUFFER_LIMITS,
  type EventBuffer,
  KEEP_ALIVE_INTERVAL,
  withoutLineEnds,
} from "./event-buffer.ts";
import {
  acceptedAnswer,
  type HttpAnswer,
  type HttpServerRequest,
  messageAnswer,
  streamAnswer,
} from "./http1/messages.ts";

/** The content types that a client accepts: JSON, `text/event-stream`, or either. */
export type AcceptedTypes = "json" | "events" | "either";

const JSON_TYPE = "application/json";
const EVENT_STREAM_TYPE = "text/event-stream";
/** The Accept header that clients must send (Streamable HTTP, sending messages), and that nearly all send. */
const USUAL_ACCEPT = "application/json, text/event-stream";

/** Parses the Accept header of a request. @returns undefined if neither JSON nor an event stream is accepted */
export function parseAccept(accept: string | null): AcceptedTypes | undefined {
  if (accept === null || accept === USUAL_ACCEPT) return "either";
  const types = accept.split(",").map((part) => part.split(";", 1)[0]?.trim().toLowerCase());
  const acceptsType = (type: string): boolean =>
    types.some((one) => one === type || one === "*/*" || one === type.replace(/\/.*/, "/*"));
  const named = types.filter((type) => type === JSON_TYPE || type === EVENT_STREAM_TYPE);
  // If a client names both, the first one is used.
  if (named[0] === EVENT_STREAM_TYPE && named.includes(JSON_TYPE)) return "events";
  const json = acceptsType(JSON_TYPE);
  const events = acceptsType(EVENT_STREAM_TYPE);
  if (json) return events ? "either" : "json";
  return events ? "events" : undefined;
}

/**
 * How long a response may take to be sent as JSON, in ms. After that an event stream begins, as gateways cut silent
 * connections.
 */
export const JSON_WAIT = 1000;

/** The session that a response belongs to. */
export interface PostResponseOwner {
  readonly deadlines: Deadlines;
  /** Opens an event stream for the response. */
  openStream(): EventBuffer;
  /**
   * Sends a message that belongs to a request on the session's standalone stream, because the response itself is JSON.
   */
  sendSeparately(message: EncodedMessage): void;
  /** Called once, when the answer is sent. */
  onAnswered(response: SessionPostResponse): void;
}

/**
 * The response to one POST of a session: JSON if the response is the only message and is ready within `JSON_WAIT`, else
 * an event stream that can be resumed.
 */
export class SessionPostResponse implements Responder, DeadlineTarget {
  readonly answer: Promise<HttpAnswer>;
  /** Its key in the session's table of responses. */
  tableKey = -1;
  /** When it becomes an event stream. */
  readonly deadline: number;
  slot: number | undefined;
  readonly #owner: PostResponseOwner;
  readonly #accepts: AcceptedTypes;
  #stream: EventBuffer | undefined;
  #resolve: (answer: HttpAnswer) => void = () => {};
  #isOver = false;

  constructor(owner: PostResponseOwner, accepts: AcceptedTypes) {
    this.#owner = owner;
    this.#accepts = accepts;
    this.deadline = owner.deadlines.now() + JSON_WAIT;
    this.answer = new Promise((resolve) => (this.#resolve = resolve));
    if (accepts === "events") this.#open();
    else if (accepts === "either") owner.deadlines.add(this);
  }

  /** Its event stream; undefined if the response is JSON, or that is not decided yet. */
  get stream(): EventBuffer | undefined {
    return this.#stream;
  }

  expire(): void {
    this.#open();
  }

  notify(message: EncodedMessage): void {
    if (this.#isOver) return;
    if (this.#accepts === "json") this.#owner.sendSeparately(message);
    else this.#open().push(message);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#end();
    if (this.#stream !== undefined) {
      if (message !== undefined) this.#stream.push(message);
      this.#stream.finish();
    } else {
      this.#resolve(message === undefined ? acceptedAnswer() : messageAnswer(message));
    }
    this.#owner.onAnswered(this);
  }

  /** The session has ended: there will be no answer. */
  cancel(): void {
    if (this.#isOver) return;
    this.#end();
    this.#resolve(errorAnswer(404, "The session has ended."));
  }

  #open(): EventBuffer {
    if (this.#stream === undefined) {
      this.#owner.deadlines.remove(this);
      this.#stream = this.#owner.openStream();
      this.#resolve(streamAnswer(this.#stream.attach()));
    }
    return this.#stream;
  }

  #end(): void {
    this.#isOver = true;
    this.#owner.deadlines.remove(this);
  }
}

export interface ModernPostResponseOptions {
  readonly accepts: AcceptedTypes;
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  /** Called once, when the request is answered or its client has disconnected. */
  onEnd(response: ModernPostResponse): void;
}

/**
 * The response to one POST without a session: JSON if the response is the only message and is ready within `JSON_WAIT`,
 * else an event stream, which cannot be resumed.
 */
export class ModernPostResponse implements ModernResponder, DeadlineTarget {
  readonly isPipe = false;
  readonly answer: Promise<HttpAnswer>;
  /** When it becomes an event stream. */
  readonly deadline: number;
  slot: number | undefined;
  readonly #options: ModernPostResponseOptions;
  /** Unsubscribes from the client's disconnect. */
  readonly #unsubscribe: () => void;
  #resolve: (answer: HttpAnswer) => void = () => {};
  #stream: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Cancels the timer of the next keep-alive comment. */
  #cancelKeepAlive: () => void = () => {};
  #onCancel: (reason: CancelReason, by: CancelledBy) => void = () => {};
  #isOver = false;

  constructor(request: HttpServerRequest, options: ModernPostResponseOptions) {
    this.#options = options;
    this.deadline = options.deadlines.now() + JSON_WAIT;
    this.answer = new Promise((resolve) => (this.#resolve = resolve));
    this.#unsubscribe = request.onDisconnect(this.#onDisconnect);
    if (options.accepts === "events") this.#startStream();
    else if (options.accepts === "either") options.deadlines.add(this);
  }

  expire(): void {
    this.#startStream();
  }

  notify(message: EncodedMessage): void {
    // A client that accepts only JSON gets only the response.
    if (this.#isOver || this.#options.accepts === "json") return;
    this.#push(message);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    if (this.#stream === undefined) {
      this.#end();
      this.#resolve(
        message === undefined ? acceptedAnswer() : messageAnswer(message, statusOf(message)),
      );
      return;
    }
    if (message !== undefined) this.#push(message);
    this.#end();
    this.#stream.close();
  }

  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void {
    this.#onCancel = callback;
  }

  #push(message: EncodedMessage): void {
    const stream = this.#open();
    const pieces = piecesOfMessage(message);
    stream?.enqueue(
      withoutLineEnds(joinPieces([EVENT_PREFIX, ...pieces, EVENT_END]), EVENT_PREFIX.length),
    );
    // The stream cannot be resumed, so a client that does not read is dropped, not buffered for.
    if ((stream?.desiredSize ?? 0) < -EVENT_BUFFER_LIMITS.maxBehind) this.#drop();
  }

  /** Starts an event stream with a keep-alive comment: the server may send nothing for a long time. */
  #startStream(): void {
    this.#open()?.enqueue(KEEP_ALIVE_COMMENT);
  }

  #open(): ReadableStreamDefaultController<Uint8Array> | undefined {
    if (this.#stream === undefined) {
      this.#options.deadlines.remove(this);
      const body = new ReadableStream<Uint8Array>(
        { start: (controller) => void (this.#stream = controller), cancel: this.#onDisconnect },
        { highWaterMark: 0, size: (chunk) => chunk?.byteLength ?? 0 },
      );
      this.#keepAlive();
      this.#resolve(streamAnswer(body));
    }
    return this.#stream;
  }

  #keepAlive(): void {
    this.#cancelKeepAlive = this.#options.clock.after(KEEP_ALIVE_INTERVAL, () => {
      // Unread bytes in the stream make a keep-alive comment unnecessary.
      if ((this.#stream?.desiredSize ?? 0) >= 0) this.#stream?.enqueue(KEEP_ALIVE_COMMENT);
      this.#keepAlive();
    });
  }

  /** Drops a client that does not read. */
  #drop(): void {
    const stream = this.#stream;
    this.#onDisconnect();
    stream?.error(new Error("The client does not read."));
  }

  /** The client has disconnected: in the modern era that cancels the request. */
  readonly #onDisconnect = (): void => {
    if (this.#isOver) return;
    this.#end();
    this.#resolve(acceptedAnswer());
    this.#onCancel("The client has left.", "disconnect");
  };

  #end(): void {
    this.#isOver = true;
    this.#cancelKeepAlive();
    this.#options.deadlines.remove(this);
    this.#unsubscribe();
    this.#options.onEnd(this);
  }
}

const EVENT_PREFIX = utf8("event: message\ndata: ");
const EVENT_END = utf8("\n\n");
const KEEP_ALIVE_COMMENT = utf8(": keep-alive\n\n");

/** Longest message that is searched for an error code, in bytes. */
const MAX_ERROR_LENGTH = 64 * 1024;
const MODERN_ERROR_CODES: ReadonlySet<unknown> = new Set(Object.values(ModernErrorCode));

/** The HTTP status of a response: 400 for the modern era's own error codes, else 200. */
function statusOf(message: EncodedMessage): number {
  const bytes = joinMessage(message);
  if (bytes.length > MAX_ERROR_LENGTH || !bytes.includes('"error"')) return 200;
  const parsed = parseMessage(bytes);
  if (parsed.kind !== "response" || parsed.outcome !== "error") return 200;
  return MODERN_ERROR_CODES.has(errorCodeOf(parsed)) ? 400 : 200;
}
