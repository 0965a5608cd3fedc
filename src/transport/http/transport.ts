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
import { NO_HANDLE } from "../memory.ts";
import { WRITE_LIMITS } from "../../jsonrpc/pipe.ts";
import { repairUtf8 } from "../../jsonrpc/utf8.ts";
import type { HttpVariantEvents, HttpVariant } from "./variant.ts";
import type { Truncated } from "../../jsonrpc/bounded-buffer.ts";
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
 * Opens a transport to a server over Streamable HTTP (both eras) or HTTP+SSE (2024-11-05). Unless the manifest says
 * which, the response to the first message decides.
 */
export function openHttpTransport(target: HttpTarget): ServerTransport {
  return new HttpLink(target);
}

class HttpLink implements Transport, HttpVariantEvents {
  readonly #target: HttpTarget;
  readonly #passage: HttpRequester;
  #course: HttpVariant;
  #events: TransportEvents | undefined;
  #state: "new" | "open" | "closing" | "closed" = "new";
  #closing: Promise<void> | undefined;
  #queued = 0;
  #isFull = false;

  constructor(target: HttpTarget) {
    this.#target = target;
    this.#passage = new HttpRequester(target, (challenge) => {
      if (this.#state === "open") this.#events?.challenged?.(challenge);
    });
    this.#course = this.#choose();
  }

  get hasStreams(): true | undefined {
    return this.#course.hasStreams ? true : undefined;
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

  send(message: EncodedMessage, info?: SendOptions): SentRequest {
    return this.#state === "open" ? this.#course.send(message, info) : NO_HANDLE;
  }

  adopt(spoken: NegotiatedProtocol): void {
    this.#course.adopt(spoken);
  }

  redact(text: string): string {
    return this.#passage.redactor.apply(text);
  }

  pause(): void {
    this.#passage.pause();
  }

  resume(): void {
    this.#passage.resume();
  }

  vitals(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  frame(frame: Message, exchange?: SentRequest): void {
    if (this.#state !== "open") return;
    const repaired = repairUtf8(frame, () => this.#events?.flaw?.({ kind: "invalidText" }));
    this.#events?.frame(repaired, exchange);
  }

  oversized({ head, tail, size }: Truncated): void {
    if (this.#state === "open") this.#events?.oversized(head, tail, size);
  }

  log(text: string): void {
    if (this.#state === "open") this.#events?.log("warn", "stdout", text);
  }

  loaded(size: number): void {
    this.#queued += size;
    const isFull = this.#queued > (this.#isFull ? WRITE_LIMITS.low : WRITE_LIMITS.high);
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    if (this.#state === "open") this.#events?.pressure(isFull);
  }

  found(way: HttpTransportKind): void {
    const { transport, knownTransport: wayfinder } = this.#target;
    if (transport === "auto" && wayfinder.known !== way) wayfinder.found(way);
  }

  ended(cause: HubError): void {
    if (this.#state !== "open") return;
    this.#state = "closed";
    this.#events?.closed(cause);
  }

  async #close(): Promise<void> {
    const wasOpen = this.#state === "open";
    if (this.#state !== "closed") this.#state = "closing";
    await this.#course.close();
    this.#state = "closed";
    if (wasOpen) this.#events?.closed(new HubError("connectionLost", "The link was closed."));
  }

  #choose(): HttpVariant {
    const { transport, knownTransport: wayfinder } = this.#target;
    const way = transport === "auto" ? wayfinder.known : transport;
    if (way === "sse") return this.#sse(transport === "auto");
    return transport === "auto"
      ? new StreamableHttp(this.#passage, this, (post, otherwise) =>
          this.#tryOther(post, otherwise),
        )
      : new StreamableHttp(this.#passage, this);
  }

  /** A server that was known to use HTTP+SSE may have changed to Streamable HTTP. */
  #sse(mayTurn: boolean): LegacySse {
    return new LegacySse(this.#passage, this, (_, held) => {
      if (!mayTurn) return false;
      const course = new StreamableHttp(this.#passage, this);
      this.#course = course;
      for (const { message, info } of held) course.send(message, info);
      return true;
    });
  }

  /** A server that rejects `initialize` may use HTTP+SSE (Streamable HTTP, backwards compatibility). */
  #tryOther(post: Post, otherwise: () => void): void {
    const before = this.#course;
    const sse = new LegacySse(this.#passage, this, () => {
      this.#course = before;
      otherwise();
      return true;
    });
    this.#course = sse;
    sse.send(post.message, post.info);
  }
}
