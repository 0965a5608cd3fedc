import { Buffer } from "node:buffer";
import { joinPieces, type Piece, pieceSize, textOf } from "../../base/bytes.ts";
import type { HubError } from "../../base/errors.ts";
import { MAX_QUOTE, reasonInBody, saidByPeer } from "../../base/quote.ts";
import { parseMessage, parseTruncated, withId, withWellFormedError } from "../../jsonrpc/parse.ts";
import {
  bodyOf,
  buildError,
  bytesOf,
  type EncodedMessage,
  errorCodeOf,
  hasNoId,
  joinMessage,
  type Message,
  piecesOfMessage,
  type Response,
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
  /** The id of the request, set by its sender. */
  request?: number;
  #isAnswered = false;
  #isSent = false;
  #isEnded = false;
  /** What the server sent instead of an answer; undefined if it said nothing. */
  #said: string | undefined;

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
        const said = this.#said;
        if (namesLostSession(said) && this.#streamable.sessionRefused()) {
          this.#endWithSession(said);
          return;
        }
        const text = `it ended its stream without an answer${saidByPeer(said, requester.redactor)}.`;
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
    const message = parseMessage(data);
    if (this.#answers(message)) {
      this.#emitAnswer(message);
      return;
    }
    // The stream may still bring the answer. If it ends without one, the error quotes what it brought instead.
    if (this.options !== undefined) this.#said = reasonOf(message) ?? this.#said;
    if (message.kind !== "response" || !hasNoId(message)) this.#streamable.message(message, this);
  }

  /** Whether the message is the response to this request, or a batch with it. */
  #answers(message: Message): boolean {
    if (message.kind === "response") {
      return message.id !== undefined && message.id === (this.request ?? this.#requestId());
    }
    return message.kind === "batch" && message.items.some((item) => this.#answers(item));
  }

  /** Passes the answer on, unless it tells that the session is lost for good. */
  #emitAnswer(message: Message): void {
    if (message.kind === "response" && message.outcome === "error") {
      const reason = lostSessionReasonOf(message);
      if (reason !== undefined && this.#streamable.sessionRefused()) {
        this.#endWithSession(reason);
        return;
      }
      if (reason === undefined) this.#streamable.refusals = 0;
    } else this.#streamable.refusals = 0;
    this.#setAnswered();
    this.#streamable.message(message, this);
  }

  /** Ends the POST, because the server no longer knows the session: it has said so twice in a row. */
  #endWithSession(reason: string): void {
    const { requester } = this.#streamable;
    const said = saidByPeer(reason, requester.redactor);
    this.failWith(requester.error("answerLost", `it has forgotten the session${said}.`));
    this.#streamable.replaceSession();
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
      if (this.#answers(message)) {
        this.#emitAnswer(message);
        this.finish();
        return;
      }
      if (message.kind !== "invalid") {
        this.#onOtherMessage(message);
        return;
      }
      const reason = reasonInBody(textOf(content.subarray(0, EXCERPT_LIMIT)));
      if (namesLostSession(reason) && this.#streamable.sessionRefused()) {
        this.#endWithSession(reason);
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

  /** Handles a complete JSON-RPC message that is not the response to this request. */
  #onOtherMessage(message: Message): void {
    const { requester } = this.#streamable;
    const id = this.request ?? this.#requestId();
    if (id !== undefined && message.kind === "response" && hasNoId(message)) {
      // The server could not read the request, so its error is the answer.
      if (message.outcome === "error") {
        this.#emitAnswer(withId(message, id));
        this.finish();
        return;
      }
    } else this.#streamable.message(message, this);
    const said = saidByPeer(reasonOf(message), requester.redactor);
    const text = `it answered with a message that is not the response to this request${said}.`;
    this.failWith(requester.error("answerLost", text));
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
      this.#emitAnswer(response.message);
      this.finish();
      return;
    }
    if (response !== undefined && status < 500 && status !== 429)
      this.#emitAnswer(response.message);
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
    return { message: withId(message, id), isOwn: false };
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

/** What a message says that is not the expected answer: the text of an error, or of JSON that is not JSON-RPC. */
function reasonOf(message: Message): string | undefined {
  if (message.kind === "batch") {
    for (const item of message.items) {
      const reason = reasonOf(item);
      if (reason !== undefined) return reason;
    }
    return undefined;
  }
  if (message.kind === "invalid")
    return reasonInBody(textOf(bytesOf(message).subarray(0, EXCERPT_LIMIT)));
  return message.kind === "response" && message.outcome === "error"
    ? errorTextOf(message)
    : undefined;
}

function errorTextOf(response: Response): string | undefined {
  return bodyOf(withWellFormedError(response)).string("message");
}

/** The code that servers use for an unknown session, and others for a timeout. */
const SESSION_ERROR_CODE = -32001;

/** The text of an error that tells that the session is lost; undefined for other errors. */
function lostSessionReasonOf(response: Response): string | undefined {
  if (errorCodeOf(response) !== SESSION_ERROR_CODE) return undefined;
  const reason = errorTextOf(response);
  return namesLostSession(reason) ? reason : undefined;
}

/** Whether a text says that a session is not found, unknown, expired or invalid. */
function namesLostSession(text: string | undefined): text is string {
  if (text === undefined) return false;
  // Some servers send the name of a code: SESSION_NOT_FOUND, SessionExpired.
  const words = text
    .slice(0, MAX_QUOTE)
    .replaceAll("_", " ")
    .replace(/([a-z])([A-Z])/g, "$1 $2");
  return LOST_SESSION.test(words);
}
const LOST_SESSION =
  /\bsession[\w-]*(?:\b[^.;,\n]{0,80}?)?\b(?:not (?:be )?found|not exist|unknown|expired|invalid|not valid)\b|\b(?:unknown|expired|invalid|no such|no valid)[ -](?:or \w+ )?(?:mcp[ -])?session|\bno (?:active |known |mcp )?session(?:[ -]ids?)? (?:found|with|for|matches)\b/i;

/** Removes a UTF-8 byte order mark, which some servers send although JSON does not allow it. */
function withoutByteOrderMark(content: Buffer | TruncatedMessage): Buffer | TruncatedMessage {
  const startsLikeMark = !isTruncated(content) && content[0] === 0xef && content[1] === 0xbb;
  return startsLikeMark && content[2] === 0xbf ? content.subarray(3) : content;
}
