import type { Buffer } from "node:buffer";
import { type Piece, pieceSize, textOf } from "../../base/bytes.ts";
import { quotePeer } from "../../base/quote.ts";
import type { HubError } from "../../base/errors.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { settlesWithin } from "../../base/clock.ts";
import { type EncodedMessage, piecesOfMessage } from "../../jsonrpc/message.ts";
import {
  NO_OP_SENT_REQUEST,
  type NegotiatedProtocol,
  type SendOptions,
  type SentRequest,
} from "../transport.ts";
import type { HttpTransport, HttpVariant } from "./transport.ts";
import type { HttpRequester, RequestEvents } from "./request.ts";
import { errorOfResponse, EXCERPT_LIMIT } from "./errors.ts";
import { EventStream, type EventStreamEnd } from "./event-stream.ts";
import { CONTENT_HEADERS } from "./headers.ts";
import { BoundedBuffer, isTruncated } from "../../jsonrpc/bounded-buffer.ts";
import type { ResponseHead } from "../http-client/response-parser.ts";
import { requestTargetOf, type RequestTarget } from "../http-client/pool.ts";
import { CLOSE_TIMEOUT, MessageOrder } from "./message-order.ts";

/** Maximum length of the URL in the `endpoint` event, in bytes. */
const MAX_ENDPOINT_LENGTH = 4096;

/**
 * The HTTP+SSE transport of 2024-11-05. The server sends all its messages on one GET stream, whose end closes the
 * transport.
 */
export class LegacySse implements HttpVariant {
  readonly hasStreams = false;
  readonly #transport: HttpTransport;
  readonly #requester: HttpRequester;
  readonly #order = new MessageOrder<LegacyPost>((post) => this.#start(post));
  /** The messages that are not completely written yet. */
  readonly #posts = new Set<LegacyPost>();
  #stream: EventStream | undefined;
  #endpoint: RequestTarget | undefined;
  readonly #endpointKnown = Promise.withResolvers<void>();
  #versionLine = "";
  #state: "new" | "open" | "closing" | "over" = "new";

  constructor(transport: HttpTransport) {
    this.#transport = transport;
    this.#requester = transport.requester;
  }

  send(message: EncodedMessage, options: SendOptions | undefined): SentRequest {
    const post = new LegacyPost(this, this.#requester, piecesOfMessage(message), options);
    this.#posts.add(post);
    this.#transport.queuedChanged(post.size);
    if (this.#state === "new") this.#open();
    if (this.#endpoint !== undefined) this.#order.add(post, options === undefined);
    return NO_OP_SENT_REQUEST;
  }

  adopt({ version }: NegotiatedProtocol): void {
    this.#versionLine = `MCP-Protocol-Version: ${version}\r\n`;
  }

  async close(): Promise<void> {
    if (this.#state === "over") return;
    this.#state = "closing";
    if (this.#endpoint !== undefined) this.#stream?.close();
    this.#requester.resume();
    await settlesWithin(CLOSE_TIMEOUT, this.#drained());
    this.#end();
  }

  async #drained(): Promise<void> {
    if (this.#posts.size > 0 && this.#endpoint === undefined) await this.#endpointKnown.promise;
    await this.#order.drained();
  }

  #open(): void {
    this.#state = "open";
    this.#stream = new EventStream(this.#requester, {
      policy: "endWithConnection",
      headerLines: () => "",
      event: (type, data) => this.#onEvent(type, data),
      oversized: (truncated) => this.#transport.oversized(truncated),
      ended: (end) => this.#onStreamEnd(end),
    });
  }

  #onEvent(type: string, data: Buffer): void {
    if (type === "message") this.#transport.message(parseMessage(data));
    else if (type === "endpoint" && this.#endpoint === undefined) this.#onEndpoint(data);
  }

  /** Handles the `endpoint` event, which contains the URL for POSTs. */
  #onEndpoint(data: Buffer): void {
    const requester = this.#requester;
    const { url } = requester.currentTarget;
    const text = textOf(data.subarray(0, MAX_ENDPOINT_LENGTH));
    const endpoint = URL.canParse(text, url.href) ? new URL(text, url.href) : undefined;
    if (endpoint?.origin !== url.origin) {
      const quoted = quotePeer(text, requester.redactor);
      this.#fail(
        requester.error("serverRefused", `it names an endpoint on another server (${quoted}).`),
      );
      return;
    }
    requester.wasAccepted = true;
    this.#endpoint = requestTargetOf(endpoint);
    this.#transport.kindDetected("sse");
    for (const post of this.#posts) this.#order.add(post, post.options === undefined);
    this.#endpointKnown.resolve();
  }

  #start(post: LegacyPost): void {
    const headerLines = `${CONTENT_HEADERS}${this.#versionLine}`;
    const { pieces: body } = post;
    const template = { method: "POST", headerLines, body, target: this.#endpoint } as const;
    this.#requester.send(template, post);
  }

  /** Called when the whole message was written, or when it is discarded. */
  sent(post: LegacyPost): void {
    if (this.#posts.delete(post)) this.#transport.queuedChanged(-post.size);
  }

  /** Handles the end of a POST. @param cause the error, if the server has not accepted the message */
  ended(post: LegacyPost, cause: HubError | undefined): void {
    this.sent(post);
    this.#order.settle(post);
    if (cause === undefined || this.#state !== "open") return;
    if (post.options === undefined) this.#transport.log(cause.message);
    else post.options.unanswered?.(cause);
  }

  #onStreamEnd(end: EventStreamEnd): void {
    if (this.#state !== "open") return;
    const requester = this.#requester;
    if (this.#endpoint !== undefined) {
      this.#fail(requester.error("connectionLost", "it has ended its event stream."));
      return;
    }
    const cause =
      end.kind === "failed"
        ? end.cause
        : requester.error(
            "serverRefused",
            end.kind === "dropped"
              ? "it ended its event stream before it sent the URL for messages."
              : `it has no event stream at ${requester.currentTarget.url.href} (HTTP ${end.status}).`,
          );
    const queued = [...this.#posts];
    if (end.kind !== "failed" && this.#transport.takeFromLegacySse(queued)) {
      this.#state = "over";
      for (const post of queued) this.sent(post);
      return;
    }
    for (const { options } of queued) options?.unanswered?.(cause);
    this.#fail(cause);
  }

  #fail(cause: HubError): void {
    this.#end();
    this.#transport.ended(cause);
  }

  #end(): void {
    this.#state = "over";
    this.#stream?.close();
    for (const post of this.#posts) this.sent(post);
    this.#requester.close();
  }
}

/** One POST over HTTP+SSE. Its HTTP response only shows whether the server has accepted the message. */
export class LegacyPost implements RequestEvents {
  readonly pieces: readonly Piece[];
  readonly options: SendOptions | undefined;
  /** Size of the message, in bytes. */
  readonly size: number;
  readonly #sse: LegacySse;
  readonly #requester: HttpRequester;
  readonly #content = new BoundedBuffer(EXCERPT_LIMIT);
  #head: ResponseHead | undefined;

  constructor(
    sse: LegacySse,
    requester: HttpRequester,
    pieces: readonly Piece[],
    options: SendOptions | undefined,
  ) {
    this.#sse = sse;
    this.#requester = requester;
    this.pieces = pieces;
    this.options = options;
    let size = 0;
    for (const piece of pieces) size += pieceSize(piece);
    this.size = size;
  }

  sent(): void {
    this.#sse.sent(this);
  }

  head(head: ResponseHead): void {
    this.#head = head;
    if (head.status < 300) this.#sse.ended(this, undefined);
  }

  body(bytes: Buffer): void {
    this.#content.add(bytes);
  }

  end(): void {
    if (this.#head === undefined || this.#head.status < 300) return;
    const content = this.#content.take();
    const body = isTruncated(content) ? content.head : content;
    this.#sse.ended(this, errorOfResponse(this.#head, body, this.#requester, true));
  }

  fail(cause: HubError): void {
    if (this.#head === undefined || this.#head.status >= 300) this.#sse.ended(this, cause);
  }
}
