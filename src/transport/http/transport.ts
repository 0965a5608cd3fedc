import { HubError } from "../../base/errors.ts";
import type { EncodedMessage, Message } from "../../jsonrpc/message.ts";
import type {
  NegotiatedProtocol,
  SendOptions,
  SentRequest,
  ServerTransport,
  TransportEvents,
  Transport,
} from "../transport.ts";
import { NO_OP_SENT_REQUEST } from "../memory.ts";
import { WRITE_LIMITS } from "../../jsonrpc/pipe.ts";
import { repairUtf8 } from "../../jsonrpc/utf8.ts";
import type { HttpVariantEvents, HttpVariant } from "./variant.ts";
import type { TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import { HttpRequester } from "./request.ts";
import type { Post } from "./post.ts";
import { LegacySse } from "./sse.ts";
import { StreamableHttp } from "./streamable.ts";
import type { HttpTarget, HttpTransportKind } from "./target.ts";

/**
 * The transport/http folder: MCP over HTTP, client side. Main types: `HttpTransport`, below; `HttpVariant` with its
 * implementations `StreamableHttp` and `LegacySse`; `HttpRequester` (`request.ts`), which sends single requests with
 * credentials, redirects and retries. Start here, then read `streamable.ts` and `post.ts`.
 *
 * Opens a transport to a server over Streamable HTTP (both eras) or HTTP+SSE (2024-11-05). Unless the manifest names
 * the transport, the server's response to the first message decides.
 */
export function openHttpTransport(target: HttpTarget): ServerTransport {
  return new HttpTransport(target);
}

class HttpTransport implements Transport, HttpVariantEvents {
  readonly #target: HttpTarget;
  readonly #requester: HttpRequester;
  #variant: HttpVariant;
  #events: TransportEvents | undefined;
  #state: "new" | "open" | "closing" | "closed" = "new";
  #closing: Promise<void> | undefined;
  #queued = 0;
  #isFull = false;

  constructor(target: HttpTarget) {
    this.#target = target;
    this.#requester = new HttpRequester(target, (challenge) => {
      if (this.#state === "open") this.#events?.challenged?.(challenge);
    });
    this.#variant = this.#chooseVariant();
  }

  get hasStreams(): true | undefined {
    return this.#variant.hasStreams ? true : undefined;
  }

  get queued(): number {
    return this.#queued;
  }

  open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#state !== "new") {
      return Promise.reject(new HubError("cancelled", "The link was not opened."));
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
    return this.#requester.redactor.apply(text);
  }

  pause(): void {
    this.#requester.pause();
  }

  resume(): void {
    this.#requester.resume();
  }

  vitals(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  message(message: Message, sentRequest?: SentRequest): void {
    if (this.#state !== "open") return;
    const repaired = repairUtf8(message, () => this.#events?.flaw?.({ kind: "invalidText" }));
    this.#events?.frame(repaired, sentRequest);
  }

  oversized({ head, tail, size }: TruncatedMessage): void {
    if (this.#state === "open") this.#events?.oversized(head, tail, size);
  }

  log(text: string): void {
    if (this.#state === "open") this.#events?.log("warn", "stdout", text);
  }

  queuedChanged(delta: number): void {
    this.#queued += delta;
    const isFull = this.#queued > (this.#isFull ? WRITE_LIMITS.low : WRITE_LIMITS.high);
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    if (this.#state === "open") this.#events?.pressure(isFull);
  }

  kindDetected(kind: HttpTransportKind): void {
    const { transport, knownTransport } = this.#target;
    if (transport === "auto" && knownTransport.kind !== kind) knownTransport.remember(kind);
  }

  ended(cause: HubError): void {
    if (this.#state !== "open") return;
    this.#state = "closed";
    this.#events?.closed(cause);
  }

  async #close(): Promise<void> {
    const wasOpen = this.#state === "open";
    if (this.#state !== "closed") this.#state = "closing";
    await this.#variant.close();
    this.#state = "closed";
    if (wasOpen) this.#events?.closed(new HubError("connectionLost", "The link was closed."));
  }

  #chooseVariant(): HttpVariant {
    const { transport, knownTransport } = this.#target;
    const kind = transport === "auto" ? knownTransport.kind : transport;
    if (kind === "sse") return this.#makeLegacySse(transport === "auto");
    return transport === "auto"
      ? new StreamableHttp(this.#requester, this, (post, fallback) =>
          this.#tryLegacySse(post, fallback),
        )
      : new StreamableHttp(this.#requester, this);
  }

  /**
   * Makes the HTTP+SSE variant. `mayFallBack`: Streamable HTTP is used if the server rejects HTTP+SSE, since a server
   * that was known to use HTTP+SSE may have changed.
   */
  #makeLegacySse(mayFallBack: boolean): LegacySse {
    return new LegacySse(this.#requester, this, (_, queued) => {
      if (!mayFallBack) return false;
      const streamable = new StreamableHttp(this.#requester, this);
      this.#variant = streamable;
      for (const { pieces, options } of queued) streamable.send(pieces, options);
      return true;
    });
  }

  /**
   * Tries HTTP+SSE after the server has rejected `initialize` over Streamable HTTP (Streamable HTTP, backwards
   * compatibility); calls `fallback` if the server rejects that as well.
   */
  #tryLegacySse(post: Post, fallback: () => void): void {
    const previous = this.#variant;
    const sse = new LegacySse(this.#requester, this, () => {
      this.#variant = previous;
      fallback();
      return true;
    });
    this.#variant = sse;
    sse.send(post.pieces, post.options);
  }
}
