import { Buffer } from "node:buffer";
import { joinPieces, makeSlice, type Piece, pieceSize } from "../../base/bytes.ts";
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
import { BoundedBuffer, isTruncated, type TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import { ResumableResponseStream } from "./event-stream.ts";

/** Callbacks of a POST to its transport. */
export interface PostEvents {
  readonly requester: HttpRequester;
  /** Whether the protocol was negotiated: the server has answered as an MCP server before. */
  readonly isNegotiated: boolean;
  /** Header lines for a request; undefined: for a notification, or a GET that resumes a response stream. */
  headerLinesFor(options: SendOptions | undefined): string;
  message(message: Message, post: Post): void;
  oversized(truncated: TruncatedMessage): void;
  log(text: string): void;
  /** The whole request was written. */
  sent(post: Post): void;
  /** The head of the response has arrived; undefined: there will be no response. */
  responded(post: Post, head: ResponseHead | undefined): void;
  /**
   * Handles an HTTP error status. @returns whether the transport handles it; it may still call `fallback` to let the
   * post handle it
   */
  handlesHttpError(post: Post, status: number, fallback: () => void): boolean;
  /**
   * The server may have lost the session. @returns whether this is being checked; `fallback` is called if the session
   * is still known
   */
  checksSession(post: Post, fallback: () => void): boolean;
  /** The server could not be connected to. */
  unreachable(cause: HubError): void;
  ended(post: Post): void;
}

/**
 * The first request of the modern era to a server. If it fails in any way, the server does not support the modern era.
 */
const DISCOVER_METHOD = "server/discover";

/** One message sent by POST (Streamable HTTP), with its response or response stream. */
export class Post implements SentRequest, RequestEvents {
  readonly options: SendOptions | undefined;
  readonly pieces: readonly Piece[];
  /** Size of the message, in bytes. */
  readonly size: number;
  readonly #events: PostEvents;
  #request: HttpRequest | undefined;
  #head: ResponseHead | undefined;
  #stream: ResumableResponseStream | undefined;
  #content: BoundedBuffer | undefined;
  /** Key in the transport's table of posts; -1 until the post is in the table. */
  id = -1;
  #isAnswered = false;
  #isSent = false;
  #isEnded = false;

  constructor(events: PostEvents, message: EncodedMessage, options: SendOptions | undefined) {
    this.#events = events;
    this.pieces = piecesOfMessage(message);
    this.options = options;
    let size = 0;
    for (const piece of this.pieces) size += pieceSize(piece);
    this.size = size;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Whether the server may have received the whole message. */
  get isSent(): boolean {
    return this.#isSent;
  }

  start(): void {
    if (this.#isEnded) return;
    const headerLines = `${CONTENT_HEADERS}${this.#events.headerLinesFor(this.options)}`;
    const { requester } = this.#events;
    this.#request = requester.send({ method: "POST", headerLines, body: this.pieces }, this);
  }

  abandon(): void {
    if (!this.#isAnswered) this.finish();
  }

  /** Ends the POST without a response; the sender of the message is told if it still waits. */
  failWith(cause: HubError): void {
    if (this.#isEnded) return;
    this.finish();
    if (!this.#isAnswered) this.#reportFailure(cause);
  }

  sent(): void {
    this.#isSent = true;
    this.#events.sent(this);
  }

  head(head: ResponseHead): void {
    if (this.#isEnded) return;
    this.#head = head;
    const isOk = head.status >= 200 && head.status < 300;
    if (isOk) this.#events.requester.wasAccepted = true;
    this.#events.responded(this, head);
    const { maxMessage } = this.#events.requester.target;
    if (isOk && isEventStream(head)) {
      this.#stream = new ResumableResponseStream(this.#events.requester, {
        headerLines: () => this.#events.headerLinesFor(undefined),
        isAnswered: () => this.#isAnswered,
        event: (type, data) => this.#onEvent(type, data),
        oversized: (truncated) => this.#onOversized(truncated),
        failed: (cause) => this.failWith(cause),
        unreachable: (cause) => this.#events.unreachable(cause),
      });
    } else {
      this.#content = new BoundedBuffer(isJson(head) ? maxMessage : EXCERPT_LIMIT);
    }
  }

  body(bytes: Buffer): void {
    if (this.#isEnded) return;
    if (this.#stream === undefined) this.#content?.add(bytes);
    else this.#stream.push(bytes);
  }

  end(): void {
    if (this.#isEnded) return;
    if (this.#stream !== undefined) {
      this.#stream.streamEnded();
      return;
    }
    const content = withoutByteOrderMark(this.#content?.take() ?? Buffer.alloc(0));
    const head = this.#head;
    if (head === undefined) return;
    if (head.status >= 300) this.#onHttpError(head, content);
    else this.#onResponse(head, content);
  }

  fail(cause: HubError): void {
    if (this.#isEnded) return;
    this.#events.responded(this, undefined);
    if (cause.code === "unreachable" || cause.code === "tlsFailed") {
      const { requester } = this.#events;
      const reported = requester.wasAccepted
        ? requester.error("notDelivered", cause.message)
        : cause;
      this.failWith(reported);
      this.#events.unreachable(cause);
    } else if (this.#stream !== undefined) {
      this.#stream.streamEnded(cause);
    } else {
      this.failWith(cause);
    }
  }

  #onEvent(type: string, data: Buffer): void {
    if (type !== "message" || this.#isEnded) return;
    this.#emit(parseMessage(data));
  }

  #emit(message: Message): void {
    if (isResponse(message)) this.#isAnswered = true;
    this.#events.message(message, this);
  }

  #onOversized(truncated: TruncatedMessage): void {
    const parsed = parseTruncated(truncated.head, truncated.tail);
    if (parsed?.kind === "response") this.#isAnswered = true;
    this.#events.oversized(truncated);
  }

  /** A complete response that is not an event stream. */
  #onResponse(head: ResponseHead, content: Buffer | TruncatedMessage): void {
    const { requester } = this.#events;
    if (isTruncated(content)) {
      if (isJson(head)) this.#onOversized(content);
      this.failWith(
        requester.error(
          "messageTooLarge",
          `it answered with ${content.size} bytes, which is over the limit (maxMessage).`,
        ),
      );
      return;
    }
    if (isJson(head) && content.length > 0) {
      const message = parseMessage(content);
      if (message.kind !== "invalid") {
        this.#emit(message);
        if (this.#isAnswered) this.finish();
        else
          this.failWith(requester.error("answerLost", "it answered with something that is none."));
        return;
      }
    }
    if (this.options === undefined) {
      this.finish();
      return;
    }
    const isEmpty = content.length === 0;
    this.failWith(
      isEmpty
        ? requester.error(
            this.#events.isNegotiated ? "answerLost" : "serverRefused",
            `it answered HTTP ${head.status} with nothing.`,
          )
        : errorOfResponse(head, content, requester, this.#events.isNegotiated),
    );
  }

  /** A response with an HTTP error status. */
  #onHttpError(head: ResponseHead, content: Buffer | TruncatedMessage): void {
    const { requester, isNegotiated } = this.#events;
    const body = isTruncated(content) ? content.head : content;
    const response = isTruncated(content) ? undefined : this.#responseIn(content);
    const fallback = (): void => {
      if (response !== undefined && head.status < 500 && head.status !== 429)
        this.#emit(response.message);
      this.failWith(errorOfResponse(head, body, requester, isNegotiated));
    };
    if (response?.isOwn !== true) {
      if (!this.#events.handlesHttpError(this, head.status, fallback)) fallback();
      return;
    }
    const accept = (): void => {
      this.#emit(response.message);
      this.finish();
    };
    if (head.status !== 404 || !this.#events.checksSession(this, accept)) accept();
  }

  /**
   * The JSON-RPC response in the body. `isOwn`: it has the request's id. An error without id, from a server that could
   * not parse the request, gets the request's id, and `isOwn` is false.
   */
  #responseIn(content: Buffer): { readonly message: Message; readonly isOwn: boolean } | undefined {
    if (content.length === 0) return undefined;
    const message = parseMessage(content);
    const id = this.#requestId();
    if (id === undefined || message.kind !== "response") return undefined;
    if (message.id === id) return { message, isOwn: true };
    if (message.id !== undefined || message.outcome !== "error") return undefined;
    const { bytes, body } = message;
    const error = makeSlice(bytes, body.start, body.end);
    return {
      message: parseMessage(joinMessage(buildResponse(id, "error", error))),
      isOwn: false,
    };
  }

  #reportFailure(cause: HubError): void {
    const { options } = this;
    if (options === undefined) {
      this.#events.log(cause.message);
      return;
    }
    const id = this.#requestId();
    const isDiscovery =
      options.method === DISCOVER_METHOD && !this.#events.isNegotiated && cause.step === undefined;
    if (isDiscovery && id !== undefined && cause.code !== "unauthorized") {
      const error = { code: -32601, message: cause.message };
      this.#events.message(parseMessage(joinMessage(buildError(id, error))), this);
      return;
    }
    options.unanswered?.(cause);
  }

  /** The JSON-RPC id of the request. */
  #requestId(): number | undefined {
    const message = parseMessage(joinPieces(this.pieces));
    return message.kind === "request" && typeof message.id.key === "number"
      ? message.id.key
      : undefined;
  }

  /** Ends the POST without telling the sender. */
  finish(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#request?.cancel();
    this.#stream?.cancel();
    this.#events.ended(this);
  }
}

function isResponse(message: Message): boolean {
  return message.kind === "batch" ? message.items.some(isResponse) : message.kind === "response";
}

/** Removes a UTF-8 byte order mark: some servers send one, and JSON does not allow it. */
function withoutByteOrderMark(content: Buffer | TruncatedMessage): Buffer | TruncatedMessage {
  const startsLikeMark = !isTruncated(content) && content[0] === 0xef && content[1] === 0xbb;
  return startsLikeMark && content[2] === 0xbf ? content.subarray(3) : content;
}
