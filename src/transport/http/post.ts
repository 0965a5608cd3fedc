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
import type { HttpRequest, RequestEvents } from "./request.ts";
import { errorOfResponse, EXCERPT_LIMIT, isEventStream, isJson } from "./errors.ts";
import { CONTENT_HEADERS } from "./headers.ts";
import { BoundedBuffer, isTruncated, type TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import type { StreamableHttp } from "./streamable.ts";
import type { ResponseHead } from "../http-client/response-parser.ts";
import { EventStream, type EventStreamEnd } from "./event-stream.ts";

export interface HttpErrorResponse {
  readonly status: number;
  /** The error that the sender of the message gets. */
  readonly cause: HubError;
  /**
   * The JSON-RPC response in the body. `isOwn`: whether the server sent it with the request's id. A server that could
   * not read the request sends no id.
   */
  readonly response: { readonly message: Message; readonly isOwn: boolean } | undefined;
}

/**
 * The method of the first request to a server that may speak protocol 2026-07-28 (modern). If a server sends no proper
 * response to it, the sender gets the error "method not found" instead, as from a server of an older protocol version.
 */
const DISCOVER_METHOD = "server/discover";

/** One message sent by POST (Streamable HTTP), with its response or response stream. */
export class Post implements SentRequest, RequestEvents {
  readonly options: SendOptions | undefined;
  readonly pieces: readonly Piece[];
  /** Size of the message, in bytes. */
  readonly size: number;
  readonly #streamable: StreamableHttp;
  #request: HttpRequest | undefined;
  #head: ResponseHead | undefined;
  #stream: EventStream | undefined;
  #content: BoundedBuffer | undefined;
  /** The key of this POST in the transport's map of POSTs; -1 until it is set. */
  id = -1;
  #isAnswered = false;
  #isSent = false;
  #isEnded = false;

  constructor(
    streamable: StreamableHttp,
    message: EncodedMessage,
    options: SendOptions | undefined,
  ) {
    this.#streamable = streamable;
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
    const headerLines = `${CONTENT_HEADERS}${this.#streamable.headerLinesFor(this.options)}`;
    const { requester } = this.#streamable;
    this.#request = requester.send({ method: "POST", headerLines, body: this.pieces }, this);
  }

  abandon(): void {
    if (!this.#isAnswered) this.finish();
  }

  /** Ends the POST. If the sender has no response yet, it gets the error. */
  failWith(cause: HubError): void {
    if (this.#isEnded) return;
    this.finish();
    if (!this.#isAnswered) this.#reportFailure(cause);
  }

  sent(): void {
    this.#isSent = true;
    this.#streamable.sent(this);
  }

  head(head: ResponseHead): void {
    if (this.#isEnded) return;
    this.#head = head;
    const isOk = head.status >= 200 && head.status < 300;
    if (isOk) this.#streamable.requester.wasAccepted = true;
    this.#streamable.responded(this, head);
    const { maxMessage } = this.#streamable.requester.target;
    if (isOk && isEventStream(head)) {
      this.#stream = new EventStream(this.#streamable.requester, {
        policy: "resumeUntilAnswered",
        headerLines: () => this.#streamable.headerLinesFor(undefined),
        event: (type, data) => this.#onEvent(type, data),
        oversized: (truncated) => this.#onOversized(truncated),
        ended: (end) => this.#onStreamEnd(end),
      });
    } else {
      this.#content = new BoundedBuffer(isJson(head) ? maxMessage : EXCERPT_LIMIT);
    }
  }

  body(bytes: Buffer): void {
    if (this.#isEnded) return;
    if (this.#stream === undefined) this.#content?.add(bytes);
    else this.#stream.body(bytes);
  }

  end(): void {
    if (this.#isEnded) return;
    if (this.#stream !== undefined) {
      this.#stream.end();
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
    this.#streamable.responded(this, undefined);
    if (cause.code === "unreachable" || cause.code === "tlsFailed") {
      const { requester } = this.#streamable;
      const reported = requester.wasAccepted
        ? requester.error("notDelivered", cause.message)
        : cause;
      this.failWith(reported);
      this.#streamable.unreachable(cause);
    } else if (this.#stream !== undefined) {
      this.#stream.fail(cause);
    } else {
      this.failWith(cause);
    }
  }

  #onStreamEnd(end: EventStreamEnd): void {
    const { requester } = this.#streamable;
    switch (end.kind) {
      case "dropped": {
        const text = "it ended its stream without an answer.";
        this.failWith(end.cause ?? requester.error("answerLost", text));
        return;
      }
      case "refused": {
        const text = `its stream was lost and could not be resumed (HTTP ${end.status}).`;
        this.failWith(requester.error("answerLost", text));
        return;
      }
      case "failed":
        this.failWith(requester.error("answerLost", `its stream was lost: ${end.cause.message}`));
        if (end.cause.step === "dial") this.#streamable.unreachable(end.cause);
    }
  }

  #onEvent(type: string, data: Buffer): void {
    if (type !== "message" || this.#isEnded) return;
    this.#emit(parseMessage(data));
  }

  #emit(message: Message): void {
    if (isResponse(message)) this.#setAnswered();
    this.#streamable.message(message, this);
  }

  #setAnswered(): void {
    this.#isAnswered = true;
    this.#stream?.answered();
  }

  #onOversized(truncated: TruncatedMessage): void {
    const parsed = parseTruncated(truncated.head, truncated.tail);
    if (parsed?.kind === "response") this.#setAnswered();
    this.#streamable.transport.oversized(truncated);
  }

  /** Handles a complete response that is not an event stream. */
  #onResponse(head: ResponseHead, content: Buffer | TruncatedMessage): void {
    const { requester } = this.#streamable;
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
          this.failWith(
            requester.error("answerLost", "it answered with a message that is not a response."),
          );
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
            this.#streamable.isNegotiated ? "answerLost" : "serverRefused",
            `it answered HTTP ${head.status} with an empty body.`,
          )
        : errorOfResponse(head, content, requester, this.#streamable.isNegotiated),
    );
  }

  #onHttpError(head: ResponseHead, content: Buffer | TruncatedMessage): void {
    const { requester, isNegotiated } = this.#streamable;
    const body = isTruncated(content) ? content.head : content;
    const response = isTruncated(content) ? undefined : this.#responseIn(content);
    const cause = errorOfResponse(head, body, requester, isNegotiated);
    this.#streamable.httpError(this, { status: head.status, cause, response });
  }

  endWithHttpError({ status, cause, response }: HttpErrorResponse): void {
    if (response?.isOwn === true) {
      this.#emit(response.message);
      this.finish();
      return;
    }
    if (response !== undefined && status < 500 && status !== 429) this.#emit(response.message);
    this.failWith(cause);
  }

  /**
   * Reads the JSON-RPC response in the body. A server that could not parse the request sends an error without an id:
   * the request's id is added, and `isOwn` is false.
   */
  #responseIn(content: Buffer): HttpErrorResponse["response"] {
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
      this.#streamable.transport.log(cause.message);
      return;
    }
    const id = this.#requestId();
    const isDiscovery =
      options.method === DISCOVER_METHOD &&
      !this.#streamable.isNegotiated &&
      cause.step === undefined;
    if (isDiscovery && id !== undefined && cause.code !== "unauthorized") {
      const error = { code: -32601, message: cause.message };
      this.#streamable.message(parseMessage(joinMessage(buildError(id, error))), this);
      return;
    }
    options.unanswered?.(cause);
  }

  #requestId(): number | undefined {
    const message = parseMessage(joinPieces(this.pieces));
    return message.kind === "request" && typeof message.id.key === "number"
      ? message.id.key
      : undefined;
  }

  /** Ends the POST. The sender is not told. */
  finish(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#request?.cancel();
    this.#stream?.close();
    this.#streamable.ended(this);
  }
}

function isResponse(message: Message): boolean {
  return message.kind === "batch" ? message.items.some(isResponse) : message.kind === "response";
}

/** Removes a UTF-8 byte order mark, which some servers send although JSON does not allow it. */
function withoutByteOrderMark(content: Buffer | TruncatedMessage): Buffer | TruncatedMessage {
  const startsLikeMark = !isTruncated(content) && content[0] === 0xef && content[1] === 0xbb;
  return startsLikeMark && content[2] === 0xbf ? content.subarray(3) : content;
}
