import { joinPieces, utf8 } from "../../base/bytes.ts";
import type { Clock } from "../../base/clock.ts";
import type { CancelledBy } from "../../base/events.ts";
import { lastMember, scanObject, parseRange } from "../../base/json.ts";
import { ModernError } from "../../protocol/modern.ts";
import type { Deadlines, DeadlineTarget } from "../../router/deadlines.ts";
import type { CancelReason } from "../../protocol/withdrawal.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { type EncodedMessage, joinMessage, piecesOfMessage } from "../../jsonrpc/message.ts";
import type { WayBack } from "../modern/wayback.ts";
import { accepted, answer, type Answer, streamed } from "./http1/answer.ts";
import type { Query } from "./http1/messages.ts";
import { PATIENCE, type Wants } from "./post-response.ts";
import { BOUNDS, KEEP_ALIVE, onOneLine } from "./event-buffer.ts";

export interface CounterParts {
  readonly wants: Wants;
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  /** Called once, when it is answered or its client is gone. */
  over(counter: Counter): void;
}

/**
 * The response to one POST without a session: JSON if the answer is the only message and comes within `JSON_WAIT`, else
 * an event stream, which cannot be resumed.
 */
export class Counter implements WayBack, DeadlineTarget {
  readonly isPipe = false;
  readonly answer: Promise<Answer>;
  /** When it becomes an event stream. */
  readonly deadline: number;
  slot: number | undefined;
  readonly #parts: CounterParts;
  /** Unsubscribes from the client's disconnect. */
  readonly #stay: () => void;
  #settle: (answer: Answer) => void = () => {};
  #stream: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Cancels the timer of the next keep-alive comment. */
  #disarm: () => void = () => {};
  #gone: (why: CancelReason, by: CancelledBy) => void = () => {};
  #isOver = false;

  constructor(query: Query, parts: CounterParts) {
    this.#parts = parts;
    this.deadline = parts.deadlines.now() + PATIENCE;
    this.answer = new Promise((resolve) => (this.#settle = resolve));
    this.#stay = query.whenGone(this.#leave);
    if (parts.wants === "events") this.#begin();
    else if (parts.wants === "either") parts.deadlines.add(this);
  }

  expire(): void {
    this.#begin();
  }

  notify(message: EncodedMessage): void {
    // A client that accepts only JSON gets nothing but the answer.
    if (this.#isOver || this.#parts.wants === "json") return;
    this.#push(message);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#isOver) return;
    if (this.#stream === undefined) {
      this.#end();
      this.#settle(message === undefined ? accepted() : answer(message, statusOf(message)));
      return;
    }
    if (message !== undefined) this.#push(message);
    this.#end();
    this.#stream.close();
  }

  whenGone(callback: (why: CancelReason, by: CancelledBy) => void): void {
    this.#gone = callback;
  }

  #push(message: EncodedMessage): void {
    const stream = this.#open();
    const pieces = piecesOfMessage(message);
    stream?.enqueue(onOneLine(joinPieces([EVENT, ...pieces, EVENT_END]), EVENT.length));
    // The stream cannot be resumed, so a client that does not read is dropped instead of buffered for.
    if ((stream?.desiredSize ?? 0) < -BOUNDS.behind) this.#drop();
  }

  /** Starts an event stream before there is a message: a server may send nothing for a long time. */
  #begin(): void {
    this.#open()?.enqueue(COMMENT);
  }

  #open(): ReadableStreamDefaultController<Uint8Array> | undefined {
    if (this.#stream === undefined) {
      this.#parts.deadlines.remove(this);
      const body = new ReadableStream<Uint8Array>(
        { start: (controller) => void (this.#stream = controller), cancel: this.#leave },
        { highWaterMark: 0, size: (chunk) => chunk?.byteLength ?? 0 },
      );
      this.#keepAlive();
      this.#settle(streamed(body));
    }
    return this.#stream;
  }

  #keepAlive(): void {
    this.#disarm = this.#parts.clock.after(KEEP_ALIVE, () => {
      // Unread bytes in the stream make a keep-alive needless.
      if ((this.#stream?.desiredSize ?? 0) >= 0) this.#stream?.enqueue(COMMENT);
      this.#keepAlive();
    });
  }

  /** Drops a client that does not read. */
  #drop(): void {
    const stream = this.#stream;
    this.#leave();
    stream?.error(new Error("The client does not read."));
  }

  /** The client has disconnected: in the modern era that cancels the request. */
  readonly #leave = (): void => {
    if (this.#isOver) return;
    this.#end();
    this.#settle(accepted());
    this.#gone("The client has left.", "disconnect");
  };

  #end(): void {
    this.#isOver = true;
    this.#disarm();
    this.#parts.deadlines.remove(this);
    this.#stay();
    this.#parts.over(this);
  }
}

const EVENT = utf8("event: message\ndata: ");
const EVENT_END = utf8("\n\n");
const COMMENT = utf8(": keep-alive\n\n");

/** Longest message that is searched for an error code, in bytes. */
const LONGEST = 64 * 1024;
const BAD: ReadonlySet<unknown> = new Set(Object.values(ModernError));

/** The HTTP status of an answer: 400 for errors of the modern era's own codes, else 200. */
function statusOf(message: EncodedMessage): number {
  const bytes = joinMessage(message);
  if (bytes.length > LONGEST || !bytes.includes('"error"')) return 200;
  const frame = parseMessage(bytes);
  if (frame.kind !== "response" || frame.outcome !== "error") return 200;
  const code = lastMember(scanObject(bytes, frame.body.start)?.items ?? [], "code");
  return code !== undefined && BAD.has(parseRange(bytes, code)) ? 400 : 200;
}
