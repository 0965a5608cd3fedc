import { joinPieces, utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import type { CancelledBy } from "../../base/events.ts";
import { lastMember, scanObject, parseRange } from "../../base/json.ts";
import { ModernError } from "../../protocol/modern.ts";
import type { Deadlines, DeadlineTarget } from "../../router/deadlines.ts";
import type { CancelReason } from "../../protocol/withdrawal.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { type EncodedMessage, joinMessage, piecesOfMessage } from "../../jsonrpc/message.ts";
import type { ModernResponder } from "../modern/wayback.ts";
import { acceptedAnswer, messageAnswer, type HttpAnswer, streamAnswer } from "./http1/answer.ts";
import type { HttpServerRequest } from "./http1/messages.ts";
import { JSON_WAIT, type AcceptedTypes } from "./post-response.ts";
import { EVENT_BUFFER_LIMITS, KEEP_ALIVE_INTERVAL, withoutLineEnds } from "./event-buffer.ts";

export interface ModernPostResponseOptions {
  readonly accepts: AcceptedTypes;
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  /** Called once, when it is answered or its client is gone. */
  onEnd(response: ModernPostResponse): void;
}

/**
 * The response to one POST without a session: JSON if the answer is the only message and comes within `JSON_WAIT`, else
 * an event stream, which cannot be resumed.
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
    // A client that accepts only JSON gets nothing but the answer.
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
    // The stream cannot be resumed, so a client that does not read is dropped instead of buffered for.
    if ((stream?.desiredSize ?? 0) < -EVENT_BUFFER_LIMITS.maxBehind) this.#drop();
  }

  /** Starts an event stream before there is a message: a server may send nothing for a long time. */
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
      // Unread bytes in the stream make a keep-alive needless.
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
const MODERN_ERROR_CODES: ReadonlySet<unknown> = new Set(Object.values(ModernError));

/** The HTTP status of an answer: 400 for errors of the modern era's own codes, else 200. */
function statusOf(message: EncodedMessage): number {
  const bytes = joinMessage(message);
  if (bytes.length > MAX_ERROR_LENGTH || !bytes.includes('"error"')) return 200;
  const parsed = parseMessage(bytes);
  if (parsed.kind !== "response" || parsed.outcome !== "error") return 200;
  const code = lastMember(scanObject(bytes, parsed.body.start)?.items ?? [], "code");
  return code !== undefined && MODERN_ERROR_CODES.has(parseRange(bytes, code)) ? 400 : 200;
}
