import type { Buffer } from "node:buffer";
import { type Piece, pieceSize, textOf } from "../../base/bytes.ts";
import type { HubError } from "../../base/errors.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { settlesWithin } from "../../base/clock.ts";
import { type EncodedMessage, piecesOfMessage } from "../../jsonrpc/message.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import { NO_OP_SENT_REQUEST } from "../memory.ts";
import { CLOSE_TIMEOUT, type HttpVariantEvents, type HttpVariant } from "./variant.ts";
import type { HttpRequester, HttpRequest, RequestEvents } from "./request.ts";
import { errorOfResponse, EXCERPT_LIMIT } from "./errors.ts";
import { type EventStreamEnd, EventStreamRequest } from "./event-stream.ts";
import { CONTENT_HEADERS } from "./headers.ts";
import { BoundedBuffer, isTruncated } from "../../jsonrpc/bounded-buffer.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import { requestTargetOf, type RequestTarget } from "../http-client/pool.ts";
import { MessageOrder } from "./message-order.ts";

/** A message to be sent. */
export interface QueuedMessage {
  readonly pieces: readonly Piece[];
  readonly options: SendOptions | undefined;
}

interface PendingPost extends QueuedMessage {
  readonly size: number;
  request: HttpRequest | undefined;
}

/** Maximum length of the endpoint's URL, in bytes. */
const MAX_ENDPOINT_LENGTH = 4096;

/**
 * The HTTP+SSE transport of 2024-11-05: all messages of the server come on one GET stream. When it ends, the transport
 * ends.
 */
export class LegacySse implements HttpVariant {
  readonly hasStreams = false;
  readonly #requester: HttpRequester;
  readonly #events: HttpVariantEvents;
  readonly #onRejected: (cause: HubError, held: readonly QueuedMessage[]) => boolean;
  readonly #order = new MessageOrder<PendingPost>((post) => this.#start(post));
  readonly #posts = new Set<PendingPost>();
  #stream: EventStreamRequest | undefined;
  #endpoint: RequestTarget | undefined;
  #resolveEndpoint: () => void = () => {};
  #versionLine = "";
  #state: "new" | "open" | "closing" | "over" = "new";

  /**
   * @param onRejected called with the unsent messages if the server has no such stream. @returns whether it sends them
   * itself
   */
  constructor(
    requester: HttpRequester,
    events: HttpVariantEvents,
    onRejected: (cause: HubError, queued: readonly QueuedMessage[]) => boolean,
  ) {
    this.#requester = requester;
    this.#events = events;
    this.#onRejected = onRejected;
  }

  send(message: EncodedMessage, options: SendOptions | undefined): SentRequest {
    const pieces = piecesOfMessage(message);
    let size = 0;
    for (const piece of pieces) size += pieceSize(piece);
    const post: PendingPost = { pieces, options, size, request: undefined };
    this.#posts.add(post);
    this.#events.queuedChanged(size);
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
    if (this.#endpoint !== undefined) this.#stream?.cancel();
    this.#requester.resume();
    await settlesWithin(CLOSE_TIMEOUT, this.#drained());
    this.#end();
  }

  /** Resolves when all notifications are sent. */
  async #drained(): Promise<void> {
    if (this.#posts.size > 0 && this.#endpoint === undefined) {
      await new Promise<void>((resolve) => (this.#resolveEndpoint = resolve));
    }
    await this.#order.drained();
  }

  #open(): void {
    this.#state = "open";
    this.#stream = new EventStreamRequest(this.#requester, "", undefined, {
      event: (type, data) => this.#onEvent(type, data),
      oversized: (excess) => this.#events.oversized(excess),
      ended: (end) => this.#onStreamEnd(end),
    });
  }

  #onEvent(type: string, data: Buffer): void {
    if (type === "message") this.#events.message(parseMessage(data));
    else if (type === "endpoint" && this.#endpoint === undefined) this.#onEndpoint(data);
  }

  /** The `endpoint` event: the URL for POSTs. */
  #onEndpoint(data: Buffer): void {
    const requester = this.#requester;
    const { url } = requester.currentTarget;
    const text = textOf(data.subarray(0, MAX_ENDPOINT_LENGTH));
    const endpoint = URL.canParse(text, url.href) ? new URL(text, url.href) : undefined;
    if (endpoint?.origin !== url.origin) {
      const safeText = requester.redactor.applyTruncated(text, 200);
      this.#fail(
        requester.error("serverRefused", `it wants messages sent to another server (${safeText}).`),
      );
      return;
    }
    requester.wasAccepted = true;
    this.#endpoint = requestTargetOf(endpoint);
    this.#events.kindDetected("sse");
    for (const post of this.#posts) this.#order.add(post, post.options === undefined);
    this.#resolveEndpoint();
  }

  #start(post: PendingPost): void {
    const events = new LegacyPost(this.#requester, {
      sent: () => this.#onSent(post),
      done: (cause) => this.#onDone(post, cause),
    });
    const { pieces: body } = post;
    const headerLines = `${CONTENT_HEADERS}${this.#versionLine}`;
    post.request = this.#requester.send(
      { method: "POST", headerLines, body, target: this.#endpoint },
      events,
    );
  }

  #onSent(post: PendingPost): void {
    if (this.#posts.delete(post)) this.#events.queuedChanged(-post.size);
  }

  #onDone(post: PendingPost, cause: HubError | undefined): void {
    this.#onSent(post);
    this.#order.settle(post);
    if (cause === undefined || this.#state !== "open") return;
    if (post.options === undefined) this.#events.log(cause.message);
    else post.options.unanswered?.(cause);
  }

  #onStreamEnd(end: EventStreamEnd): void {
    if (this.#state !== "open") return;
    const requester = this.#requester;
    if (this.#endpoint !== undefined) {
      this.#fail(requester.error("connectionLost", "it has ended its stream of events."));
      return;
    }
    const cause =
      end.kind === "failed"
        ? end.cause
        : requester.error(
            "serverRefused",
            end.kind === "dropped"
              ? "it ended its stream of events before it said where messages go."
              : `it has no stream of events at ${requester.currentTarget.url.href} (HTTP ${end.status}).`,
          );
    const queued = [...this.#posts];
    if (end.kind !== "failed" && this.#onRejected(cause, queued)) {
      this.#state = "over";
      for (const post of queued) this.#onSent(post);
      return;
    }
    for (const { options } of queued) options?.unanswered?.(cause);
    this.#fail(cause);
  }

  #fail(cause: HubError): void {
    this.#end();
    this.#events.ended(cause);
  }

  #end(): void {
    this.#state = "over";
    this.#stream?.cancel();
    for (const post of this.#posts) this.#onSent(post);
    this.#requester.close();
  }
}

/** One POST over HTTP+SSE. Its response says only whether the message was accepted. */
class LegacyPost implements RequestEvents {
  readonly #requester: HttpRequester;
  readonly #events: { sent(): void; done(cause: HubError | undefined): void };
  readonly #content = new BoundedBuffer(EXCERPT_LIMIT);
  #head: ResponseHead | undefined;

  constructor(
    requester: HttpRequester,
    events: { sent(): void; done(cause: HubError | undefined): void },
  ) {
    this.#requester = requester;
    this.#events = events;
  }

  sent(): void {
    this.#events.sent();
  }

  head(head: ResponseHead): void {
    this.#head = head;
    if (head.status < 300) this.#events.done(undefined);
  }

  body(bytes: Buffer): void {
    this.#content.add(bytes);
  }

  end(): void {
    if (this.#head === undefined || this.#head.status < 300) return;
    const content = this.#content.take();
    this.#events.done(
      errorOfResponse(
        this.#head,
        isTruncated(content) ? content.head : content,
        this.#requester,
        true,
      ),
    );
  }

  fail(cause: HubError): void {
    if (this.#head === undefined || this.#head.status >= 300) this.#events.done(cause);
  }
}
