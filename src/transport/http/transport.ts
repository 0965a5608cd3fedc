import { HubError, describeFault } from "../../base/errors.ts";
import type { EncodedMessage, Message } from "../../jsonrpc/message.ts";
import {
  NO_OP_SENT_REQUEST,
  type NegotiatedProtocol,
  type SendOptions,
  type SentRequest,
  type ServerTransport,
  type TransportEvents,
} from "../transport.ts";
import { WRITE_LIMITS } from "../../jsonrpc/pipe.ts";
import { repairUtf8 } from "../../jsonrpc/utf8.ts";
import type { TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import { HttpRequester } from "./request.ts";
import type { HttpErrorResponse, Post } from "./post.ts";
import { LegacySse, type LegacyPost } from "./sse.ts";
import { StreamableHttp } from "./streamable.ts";
import type { HttpTarget, HttpTransportKind } from "./target.ts";

/** One of the two HTTP transports of MCP: Streamable HTTP or HTTP+SSE. */
export interface HttpVariant {
  /** Whether each request has a response stream of its own. */
  readonly hasStreams: boolean;
  readonly sessionId?: string | undefined;
  send(message: EncodedMessage, options: SendOptions | undefined): SentRequest;
  adopt(protocol: NegotiatedProtocol): void;
  /** Closes the variant within a bounded time; waiting notifications are sent first. */
  close(): Promise<void>;
}

/** An `initialize` that the server has rejected over Streamable HTTP. */
interface RejectedInitialize {
  readonly variant: StreamableHttp;
  readonly post: Post;
  readonly error: HttpErrorResponse;
}

/**
 * The folder transport/http has the client side of MCP over HTTP. Main types: `HttpTransport`, below; `HttpVariant`
 * with its implementations `StreamableHttp` and `LegacySse`; `HttpRequester` (`request.ts`), which sends single
 * requests with credentials, redirects and retries. Start here, then read `streamable.ts` and `post.ts`.
 *
 * A transport to a server over Streamable HTTP or HTTP+SSE (2024-11-05). Its `HttpVariant` sends and receives the
 * messages. If the manifest does not name the transport, the server's response to the first message decides which
 * variant is used.
 */
export class HttpTransport implements ServerTransport {
  readonly kind = "http";
  readonly requester: HttpRequester;
  readonly #target: HttpTarget;
  #variant: HttpVariant;
  /**
   * The variant to try if the server rejects the current one. While HTTP+SSE is tried, the value is a
   * `RejectedInitialize`: if the server rejects HTTP+SSE, too, `initialize` fails with the error of Streamable HTTP.
   */
  #alternative: "none" | HttpTransportKind | RejectedInitialize = "none";
  #events: TransportEvents | undefined;
  #state: "new" | "open" | "closing" | "closed" = "new";
  #closing: Promise<void> | undefined;
  #queued = 0;
  #isFull = false;

  constructor(target: HttpTarget) {
    this.#target = target;
    this.requester = new HttpRequester(
      target,
      (challenge) => {
        if (this.#state === "open") this.#events?.challenged?.(challenge);
      },
      (error) => this.#fail(error),
    );
    const isAuto = target.transport === "auto";
    const kind = isAuto ? target.knownTransport.kind : target.transport;
    this.#variant = kind === "sse" ? new LegacySse(this) : new StreamableHttp(this);
    // The remembered variant may be out of date: if the server rejects it, the other variant is tried.
    if (isAuto) this.#alternative = kind === "sse" ? "http" : "sse";
  }

  get hasStreams(): true | undefined {
    return this.#variant.hasStreams ? true : undefined;
  }

  get sessionId(): string | undefined {
    return this.#variant.sessionId;
  }

  get queued(): number {
    return this.#queued;
  }

  open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#state !== "new") {
      return Promise.reject(new HubError("cancelled", "The connection was not opened."));
    }
    this.#events = events;
    this.#state = "open";
    return Promise.resolve();
  }

  send(message: EncodedMessage, options?: SendOptions): SentRequest {
    return this.#state === "open" ? this.#variant.send(message, options) : NO_OP_SENT_REQUEST;
  }

  adopt(protocol: NegotiatedProtocol): void {
    this.#variant.adopt(protocol);
  }

  redact(text: string): string {
    return this.requester.redactor.apply(text);
  }

  pause(): void {
    this.requester.pause();
  }

  resume(): void {
    this.requester.resume();
  }

  processStats(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  message(message: Message, sentRequest?: SentRequest): void {
    if (this.#state !== "open") return;
    const repaired = repairUtf8(message, () =>
      this.#events?.malformedOutput?.({ kind: "invalidText" }),
    );
    this.#events?.message(repaired, sentRequest);
  }

  oversized({ head, tail, size }: TruncatedMessage): void {
    if (this.#state === "open") this.#events?.oversized(head, tail, size);
  }

  log(text: string): void {
    if (this.#state === "open") this.#events?.log("warn", "stdout", text);
  }

  /**
   * Called when `delta` bytes were queued. If `delta` is negative, that many bytes were accepted by the server or
   * discarded.
   */
  queuedChanged(delta: number): void {
    this.#queued += delta;
    const isFull = this.#queued > (this.#isFull ? WRITE_LIMITS.low : WRITE_LIMITS.high);
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    if (this.#state === "open") this.#events?.pressure(isFull);
  }

  /**
   * Remembers that the server uses this kind of transport. Called when the server has answered as that kind requires.
   */
  kindDetected(kind: HttpTransportKind): void {
    const { transport, knownTransport } = this.#target;
    if (transport === "auto" && knownTransport.kind !== kind) knownTransport.remember(kind);
  }

  /** Closes the transport, because its variant has failed. */
  ended(cause: HubError): void {
    if (this.#state !== "open") return;
    this.#state = "closed";
    this.#events?.closed(cause);
  }

  /** Ends the connection after an exception in the handling of what the server sent. */
  #fail(error: unknown): void {
    if (this.#state !== "open") return;
    this.#state = "closed";
    const fault = this.redact(describeFault(error));
    this.#events?.log("error", "hub", `A message of the server could not be handled: ${fault}`);
    const text = "it sent a message that toolmux could not handle.";
    this.requester.close();
    this.#events?.closed(this.requester.error("connectionLost", text));
    void this.#variant.close();
  }

  /**
   * Tries HTTP+SSE after the server has rejected `initialize` over Streamable HTTP (Streamable HTTP, backwards
   * compatibility).
   * @returns whether HTTP+SSE is tried
   */
  tryLegacySse(variant: StreamableHttp, post: Post, error: HttpErrorResponse): boolean {
    if (this.#alternative !== "sse") return false;
    this.#alternative = { variant, post, error };
    this.#variant = new LegacySse(this);
    this.#variant.send(post.pieces, post.options);
    return true;
  }

  /**
   * Returns to Streamable HTTP after the server has rejected HTTP+SSE.
   * @returns whether Streamable HTTP handles the unsent messages
   */
  takeFromLegacySse(unsent: readonly LegacyPost[]): boolean {
    const alternative = this.#alternative;
    if (typeof alternative === "object") {
      this.#variant = alternative.variant;
      this.#alternative = "sse";
      alternative.post.endWithHttpError(alternative.error);
      return true;
    }
    if (alternative !== "http") return false;
    this.#alternative = "none";
    this.#variant = new StreamableHttp(this);
    for (const { pieces, options } of unsent) this.#variant.send(pieces, options);
    return true;
  }

  async #close(): Promise<void> {
    const wasOpen = this.#state === "open";
    if (this.#state !== "closed") this.#state = "closing";
    await this.#variant.close();
    this.#state = "closed";
    if (wasOpen) this.#events?.closed(new HubError("connectionLost", "The connection was closed."));
  }
}
