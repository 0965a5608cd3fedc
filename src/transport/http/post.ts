import { Buffer } from "node:buffer";
import { joinPieces, makeSlice, type Piece, sizeOf } from "../../base/bytes.ts";
import type { HubError } from "../../base/errors.ts";
import { parseMessage, parseTruncated } from "../../jsonrpc/parse.ts";
import {
  buildError,
  buildResponse,
  type EncodedMessage,
  joinMessage,
  type Message,
  piecesOfMessage,
} from "../../jsonrpc/message.ts";
import type { SendOptions, SentRequest } from "../transport.ts";
import type { HttpRequester, HttpRequest, RequestEvents } from "./request.ts";
import { errorOfResponse, EXCERPT_LIMIT, isEventStream, isJson } from "./errors.ts";
import { CONTENT_HEADERS } from "./headers.ts";
import { BoundedBuffer, isTruncated, type Truncated } from "../../jsonrpc/bounded-buffer.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import { ResumedResponseStream } from "./event-stream.ts";

/** Callbacks of a POST to its transport. */
export interface PostEvents {
  readonly passage: HttpRequester;
  /** Whether the protocol was negotiated: the server has answered as an MCP server before. */
  readonly isMet: boolean;
  /** Headers for a message; undefined: for a GET that resumes a response stream. */
  fieldsFor(info: SendOptions | undefined): string;
  frame(frame: Message, post: Post): void;
  oversized(excess: Truncated): void;
  log(text: string): void;
  /** The whole request was written. */
  sent(post: Post): void;
  /** The response has begun; undefined: there will be none. */
  heard(post: Post, head: ResponseHead | undefined): void;
  /** Handles an HTTP error status. @returns whether the transport takes over; else the post goes on with `otherwise` */
  turnedAway(post: Post, status: number, otherwise: () => void): boolean;
  /**
   * The server may have lost the session. @returns whether this is being checked; `otherwise` is called if it has not
   */
  doubts(post: Post, otherwise: () => void): boolean;
  /** The server could not be connected to. */
  unreachable(cause: HubError): void;
  over(post: Post): void;
}

/**
 * The first request to a server of the modern era. Any failure of it means that the server does not know the modern
 * era.
 */
const DISCOVER = "server/discover";

/** One message sent by POST (Streamable HTTP), with its response or response stream. */
export class Post implements SentRequest, RequestEvents {
  readonly info: SendOptions | undefined;
  readonly message: readonly Piece[];
  /** Size of the message, in bytes. */
  readonly size: number;
  readonly #owner: PostEvents;
  #delivery: HttpRequest | undefined;
  #head: ResponseHead | undefined;
  #thread: ResumedResponseStream | undefined;
  #text: BoundedBuffer | undefined;
  /** Id in the transport's table; -1 until the message is to be sent. */
  place = -1;
  #isAnswered = false;
  #isSent = false;
  #isOver = false;

  constructor(owner: PostEvents, message: EncodedMessage, info: SendOptions | undefined) {
    this.#owner = owner;
    this.message = piecesOfMessage(message);
    this.info = info;
    let size = 0;
    for (const piece of this.message) size += sizeOf(piece);
    this.size = size;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Whether the server may have received the whole message. */
  get isSent(): boolean {
    return this.#isSent;
  }

  start(): void {
    if (this.#isOver) return;
    const fields = `${CONTENT_HEADERS}${this.#owner.fieldsFor(this.info)}`;
    const { passage } = this.#owner;
    this.#delivery = passage.send({ method: "POST", fields, body: this.message }, this);
  }

  abandon(): void {
    if (!this.#isAnswered) this.finish();
  }

  /** Ends it without a response; the sender of the message is told if it still waits. */
  lose(cause: HubError): void {
    if (this.#isOver) return;
    this.finish();
    if (!this.#isAnswered) this.#refuse(cause);
  }

  sent(): void {
    this.#isSent = true;
    this.#owner.sent(this);
  }

  head(head: ResponseHead): void {
    if (this.#isOver) return;
    this.#head = head;
    const isGood = head.status >= 200 && head.status < 300;
    if (isGood) this.#owner.passage.hasEntered = true;
    this.#owner.heard(this, head);
    const { maxMessage } = this.#owner.passage.target;
    if (isGood && isEventStream(head)) {
      this.#thread = new ResumedResponseStream(this.#owner.passage, {
        fields: () => this.#owner.fieldsFor(undefined),
        isDone: () => this.#isAnswered,
        event: (type, data) => this.#event(type, data),
        oversized: (excess) => this.#exceeded(excess),
        lost: (cause) => this.lose(cause),
        unreachable: (cause) => this.#owner.unreachable(cause),
      });
    } else {
      this.#text = new BoundedBuffer(isJson(head) ? maxMessage : EXCERPT_LIMIT);
    }
  }

  body(bytes: Buffer): void {
    if (this.#isOver) return;
    if (this.#thread === undefined) this.#text?.add(bytes);
    else this.#thread.push(bytes);
  }

  end(): void {
    if (this.#isOver) return;
    if (this.#thread !== undefined) {
      this.#thread.dropped();
      return;
    }
    const content = withoutMark(this.#text?.take() ?? Buffer.alloc(0));
    const head = this.#head;
    if (head === undefined) return;
    if (head.status >= 300) this.#judge(head, content);
    else this.#read(head, content);
  }

  fail(cause: HubError): void {
    if (this.#isOver) return;
    this.#owner.heard(this, undefined);
    if (cause.code === "unreachable" || cause.code === "tlsFailed") {
      const { passage } = this.#owner;
      const told = passage.hasEntered ? passage.error("notDelivered", cause.message) : cause;
      this.lose(told);
      this.#owner.unreachable(cause);
    } else if (this.#thread !== undefined) {
      this.#thread.dropped(cause);
    } else {
      this.lose(cause);
    }
  }

  #event(type: string, data: Buffer): void {
    if (type !== "message" || this.#isOver) return;
    this.#deliver(parseMessage(data));
  }

  #deliver(frame: Message): void {
    if (isAnswer(frame)) this.#isAnswered = true;
    this.#owner.frame(frame, this);
  }

  #exceeded(excess: Truncated): void {
    const edges = parseTruncated(excess.head, excess.tail);
    if (edges?.kind === "response") this.#isAnswered = true;
    this.#owner.oversized(excess);
  }

  /** A complete response that is not an event stream. */
  #read(head: ResponseHead, content: Buffer | Truncated): void {
    const { passage } = this.#owner;
    if (isTruncated(content)) {
      if (isJson(head)) this.#exceeded(content);
      this.lose(
        passage.error(
          "messageTooLarge",
          `it answered with ${content.size} bytes, which is over the limit (maxMessage).`,
        ),
      );
      return;
    }
    if (isJson(head) && content.length > 0) {
      const frame = parseMessage(content);
      if (frame.kind !== "invalid") {
        this.#deliver(frame);
        if (this.#isAnswered) this.finish();
        else this.lose(passage.error("answerLost", "it answered with something that is none."));
        return;
      }
    }
    if (this.info === undefined) {
      this.finish();
      return;
    }
    const isNothing = content.length === 0;
    this.lose(
      isNothing
        ? passage.error(
            this.#owner.isMet ? "answerLost" : "serverRefused",
            `it answered HTTP ${head.status} with nothing.`,
          )
        : errorOfResponse(head, content, passage, this.#owner.isMet),
    );
  }

  /** A response with an HTTP error status. */
  #judge(head: ResponseHead, content: Buffer | Truncated): void {
    const { passage, isMet } = this.#owner;
    const body = isTruncated(content) ? content.head : content;
    const answer = isTruncated(content) ? undefined : this.#answerIn(content);
    const otherwise = (): void => {
      if (answer !== undefined && head.status < 500 && head.status !== 429)
        this.#deliver(answer.frame);
      this.lose(errorOfResponse(head, body, passage, isMet));
    };
    if (answer?.isOwn !== true) {
      if (!this.#owner.turnedAway(this, head.status, otherwise)) otherwise();
      return;
    }
    const settle = (): void => {
      this.#deliver(answer.frame);
      this.finish();
    };
    if (head.status !== 404 || !this.#owner.doubts(this, settle)) settle();
  }

  /**
   * A JSON-RPC response in the body. An error without id, from a server that could not parse the request, gets the
   * request's id (`isOwn` is false then).
   */
  #answerIn(content: Buffer): { readonly frame: Message; readonly isOwn: boolean } | undefined {
    if (content.length === 0) return undefined;
    const frame = parseMessage(content);
    const id = this.#id();
    if (id === undefined || frame.kind !== "response") return undefined;
    if (frame.id === id) return { frame, isOwn: true };
    if (frame.id !== undefined || frame.outcome !== "error") return undefined;
    const { bytes, body } = frame;
    const error = makeSlice(bytes, body.start, body.end);
    return {
      frame: parseMessage(joinMessage(buildResponse(id, "error", error))),
      isOwn: false,
    };
  }

  #refuse(cause: HubError): void {
    const { info } = this;
    if (info === undefined) {
      this.#owner.log(cause.message);
      return;
    }
    const id = this.#id();
    const isMeeting = info.method === DISCOVER && !this.#owner.isMet && cause.step === undefined;
    if (isMeeting && id !== undefined && cause.code !== "unauthorized") {
      const error = { code: -32601, message: cause.message };
      this.#owner.frame(parseMessage(joinMessage(buildError(id, error))), this);
      return;
    }
    info.unanswered?.(cause);
  }

  /** The JSON-RPC id of the request. */
  #id(): number | undefined {
    const frame = parseMessage(joinPieces(this.message));
    return frame.kind === "request" && typeof frame.id.key === "number" ? frame.id.key : undefined;
  }

  /** Ends it without telling the sender. */
  finish(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#delivery?.drop();
    this.#thread?.drop();
    this.#owner.over(this);
  }
}

function isAnswer(frame: Message): boolean {
  return frame.kind === "batch" ? frame.items.some(isAnswer) : frame.kind === "response";
}

/** Removes a UTF-8 byte order mark: some servers send one, and JSON does not allow it. */
function withoutMark(content: Buffer | Truncated): Buffer | Truncated {
  const isMarked = !isTruncated(content) && content[0] === 0xef && content[1] === 0xbb;
  return isMarked && content[2] === 0xbf ? content.subarray(3) : content;
}
