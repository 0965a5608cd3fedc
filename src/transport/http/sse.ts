import type { Buffer } from "node:buffer";
import { type Piece, sizeOf, textOf } from "../../base/bytes.ts";
import type { HubError } from "../../base/errors.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { settlesWithin } from "../../base/clock.ts";
import { type EncodedMessage, piecesOfMessage } from "../../jsonrpc/message.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import { NO_HANDLE } from "../memory.ts";
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
  readonly message: readonly Piece[];
  readonly info: SendOptions | undefined;
}

interface Sending extends QueuedMessage {
  readonly size: number;
  delivery: HttpRequest | undefined;
}

/** Maximum length of the endpoint's URL, in bytes. */
const LONGEST_ENDPOINT = 4096;

/**
 * The HTTP+SSE transport of 2024-11-05: all messages of the server come on one GET stream; when it ends, so does the
 * transport.
 */
export class LegacySse implements HttpVariant {
  readonly hasStreams = false;
  readonly #passage: HttpRequester;
  readonly #events: HttpVariantEvents;
  readonly #refused: (cause: HubError, held: readonly QueuedMessage[]) => boolean;
  readonly #sequence = new MessageOrder<Sending>((sending) => this.#start(sending));
  readonly #sendings = new Set<Sending>();
  #feed: EventStreamRequest | undefined;
  #endpoint: RequestTarget | undefined;
  #met: () => void = () => {};
  #version = "";
  #state: "new" | "open" | "closing" | "over" = "new";

  /**
   * @param refused called with the unsent messages if the server has no such stream. @returns whether they are taken
   * over
   */
  constructor(
    passage: HttpRequester,
    events: HttpVariantEvents,
    refused: (cause: HubError, held: readonly QueuedMessage[]) => boolean,
  ) {
    this.#passage = passage;
    this.#events = events;
    this.#refused = refused;
  }

  send(message: EncodedMessage, info: SendOptions | undefined): SentRequest {
    const pieces = piecesOfMessage(message);
    let size = 0;
    for (const piece of pieces) size += sizeOf(piece);
    const sending: Sending = { message: pieces, info, size, delivery: undefined };
    this.#sendings.add(sending);
    this.#events.loaded(size);
    if (this.#state === "new") this.#open();
    if (this.#endpoint !== undefined) this.#sequence.add(sending, info === undefined);
    return NO_HANDLE;
  }

  adopt({ version }: NegotiatedProtocol): void {
    this.#version = `MCP-Protocol-Version: ${version}\r\n`;
  }

  async close(): Promise<void> {
    if (this.#state === "over") return;
    this.#state = "closing";
    if (this.#endpoint !== undefined) this.#feed?.drop();
    this.#passage.resume();
    await settlesWithin(CLOSE_TIMEOUT, this.#said());
    this.#end();
  }

  /** Resolves when all notifications are sent. */
  async #said(): Promise<void> {
    if (this.#sendings.size > 0 && this.#endpoint === undefined) {
      await new Promise<void>((resolve) => (this.#met = resolve));
    }
    await this.#sequence.drained();
  }

  #open(): void {
    this.#state = "open";
    this.#feed = new EventStreamRequest(this.#passage, "", undefined, {
      event: (type, data) => this.#event(type, data),
      oversized: (excess) => this.#events.oversized(excess),
      ended: (end) => this.#ended(end),
    });
  }

  #event(type: string, data: Buffer): void {
    if (type === "message") this.#events.frame(parseMessage(data));
    else if (type === "endpoint" && this.#endpoint === undefined) this.#meet(data);
  }

  /** The `endpoint` event: the URL for POSTs. */
  #meet(data: Buffer): void {
    const passage = this.#passage;
    const { url } = passage.place;
    const text = textOf(data.subarray(0, LONGEST_ENDPOINT));
    const endpoint = URL.canParse(text, url.href) ? new URL(text, url.href) : undefined;
    if (endpoint?.origin !== url.origin) {
      const named = passage.redactor.applyTruncated(text, 200);
      this.#fail(
        passage.error("serverRefused", `it wants messages sent to another server (${named}).`),
      );
      return;
    }
    passage.hasEntered = true;
    this.#endpoint = requestTargetOf(endpoint);
    this.#events.found("sse");
    for (const sending of this.#sendings) this.#sequence.add(sending, sending.info === undefined);
    this.#met();
  }

  #start(sending: Sending): void {
    const customer = new Drop(this.#passage, {
      sent: () => this.#taken(sending),
      done: (cause) => this.#done(sending, cause),
    });
    const { message: body } = sending;
    const fields = `${CONTENT_HEADERS}${this.#version}`;
    sending.delivery = this.#passage.send(
      { method: "POST", fields, body, place: this.#endpoint },
      customer,
    );
  }

  #taken(sending: Sending): void {
    if (this.#sendings.delete(sending)) this.#events.loaded(-sending.size);
  }

  #done(sending: Sending, cause: HubError | undefined): void {
    this.#taken(sending);
    this.#sequence.settle(sending);
    if (cause === undefined || this.#state !== "open") return;
    if (sending.info === undefined) this.#events.log(cause.message);
    else sending.info.unanswered?.(cause);
  }

  #ended(end: EventStreamEnd): void {
    if (this.#state !== "open") return;
    const passage = this.#passage;
    if (this.#endpoint !== undefined) {
      this.#fail(passage.error("connectionLost", "it has ended its stream of events."));
      return;
    }
    const cause =
      end.kind === "failed"
        ? end.cause
        : passage.error(
            "serverRefused",
            end.kind === "dropped"
              ? "it ended its stream of events before it said where messages go."
              : `it has no stream of events at ${passage.place.url.href} (HTTP ${end.status}).`,
          );
    const held = [...this.#sendings];
    if (end.kind !== "failed" && this.#refused(cause, held)) {
      this.#state = "over";
      for (const sending of held) this.#taken(sending);
      return;
    }
    for (const { info } of held) info?.unanswered?.(cause);
    this.#fail(cause);
  }

  #fail(cause: HubError): void {
    this.#end();
    this.#events.ended(cause);
  }

  #end(): void {
    this.#state = "over";
    this.#feed?.drop();
    for (const sending of this.#sendings) this.#taken(sending);
    this.#passage.close();
  }
}

/** One POST over HTTP+SSE. Its response says only whether the message was accepted. */
class Drop implements RequestEvents {
  readonly #passage: HttpRequester;
  readonly #events: { sent(): void; done(cause: HubError | undefined): void };
  readonly #text = new BoundedBuffer(EXCERPT_LIMIT);
  #head: ResponseHead | undefined;

  constructor(
    passage: HttpRequester,
    events: { sent(): void; done(cause: HubError | undefined): void },
  ) {
    this.#passage = passage;
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
    this.#text.add(bytes);
  }

  end(): void {
    if (this.#head === undefined || this.#head.status < 300) return;
    const text = this.#text.take();
    this.#events.done(
      errorOfResponse(this.#head, isTruncated(text) ? text.head : text, this.#passage, true),
    );
  }

  fail(cause: HubError): void {
    if (this.#head === undefined || this.#head.status >= 300) this.#events.done(cause);
  }
}
