import type { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { settlesWithin } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { IdMap } from "../../base/id-map.ts";
import { BoundedBuffer, isTruncated, type TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import { type EncodedMessage, errorCodeOf, type Message } from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import { EXCERPT_LIMIT } from "./errors.ts";
import { StandaloneStream } from "./event-stream.ts";
import { CONTENT_HEADERS, messageHeaders } from "./headers.ts";
import { MessageOrder } from "./message-order.ts";
import { type PostEvents, Post } from "./post.ts";
import type { HttpRequester } from "./request.ts";
import { CLOSE_TIMEOUT, type HttpVariantEvents, type HttpVariant } from "./variant.ts";

/** An id that the hub's own requests never use. */
const PING_ID = 0;
const METHOD_NOT_FOUND = -32601;

/**
 * Sends a ping to learn whether the server still knows the session. Some servers reject messages of an unknown session
 * with the same status as any invalid request, or with a JSON-RPC error. A ping is always valid: a server that knows
 * the session answers it, or says that it does not know the method.
 */
export function pingSession(requester: HttpRequester, headerLines: string): Promise<boolean> {
  const buffer = new BoundedBuffer(EXCERPT_LIMIT);
  const body = [utf8(`{"jsonrpc":"2.0","id":${PING_ID},"method":"ping"}`)];
  return new Promise((resolve) => {
    let status = 0;
    requester.send(
      { method: "POST", headerLines, body },
      {
        head(head: ResponseHead) {
          ({ status } = head);
          if (status !== 400 && status !== 404) resolve(true);
        },
        body: (bytes: Buffer) => buffer.add(bytes),
        end() {
          const content = buffer.take();
          const response = isTruncated(content) ? undefined : parseMessage(content);
          resolve(
            response?.kind === "response" &&
              response.id === PING_ID &&
              (response.outcome === "result" || errorCodeOf(response) === METHOD_NOT_FOUND),
          );
        },
        fail: () => resolve(true),
      },
    );
  });
}

/** The first request to a server of the legacy era. */
const INITIALIZE_METHOD = "initialize";
/** Maximum number of response streams that stay open after their response: some servers do not close them. */
const MAX_LINGERING_STREAMS = 16;

/** The Streamable HTTP transport of both eras: each message is a POST of its own. */
export class StreamableHttp implements HttpVariant, PostEvents {
  readonly hasStreams = true;
  readonly requester: HttpRequester;
  readonly #events: HttpVariantEvents;
  readonly #tryLegacySse: ((post: Post, otherwise: () => void) => void) | undefined;
  readonly #posts = new IdMap<Post>();
  readonly #unsent = new IdMap<Post>();
  readonly #lingering = new Set<Post>();
  readonly #order = new MessageOrder<Post>((post) => post.start());
  #protocol: NegotiatedProtocol | undefined;
  #sessionId: string | undefined;
  /** Header lines for session id and protocol version. */
  #commonLines = "";
  #standaloneStream: StandaloneStream | undefined;
  #sessionCheck: Promise<boolean> | undefined;
  #state: "open" | "closing" | "over" = "open";

  /** @param tryLegacySse called if the server rejects `initialize` as a server without Streamable HTTP does */
  constructor(
    requester: HttpRequester,
    events: HttpVariantEvents,
    tryLegacySse?: (post: Post, fallback: () => void) => void,
  ) {
    this.requester = requester;
    this.#events = events;
    this.#tryLegacySse = tryLegacySse;
  }

  get isNegotiated(): boolean {
    return this.#protocol !== undefined;
  }

  send(message: EncodedMessage, options: SendOptions | undefined): SentRequest {
    const post = new Post(this, message, options);
    // The modern era has no notifications from client to server: a request is cancelled by closing its stream.
    const isSendable = options !== undefined || this.#protocol?.era !== "modern";
    if (!isSendable || this.#state !== "open") return post;
    post.id = this.#posts.add(post);
    this.#unsent.set(post.id, post);
    this.#events.queuedChanged(post.size);
    this.#order.add(post, options === undefined);
    return post;
  }

  adopt(protocol: NegotiatedProtocol): void {
    this.#protocol = protocol;
    this.#updateCommonLines();
  }

  async close(): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "closing";
    this.#standaloneStream?.close();
    for (const post of this.#posts.values()) if (post.options !== undefined) post.finish();
    this.requester.resume();
    await settlesWithin(CLOSE_TIMEOUT, this.#order.drained());
    if (this.#sessionId !== undefined) await settlesWithin(CLOSE_TIMEOUT, this.#deleteSession());
    this.#end();
  }

  headerLinesFor(options: SendOptions | undefined): string {
    if (options === undefined) return this.#commonLines;
    if (this.#protocol?.era === "legacy" && options.headers === undefined) return this.#commonLines;
    return `${this.#commonLines}${messageHeaders(options, this.#protocol)}`;
  }

  message(message: Message, post: Post): void {
    if (post.isAnswered && !post.isEnded) this.#keepLingering(post);
    this.#events.message(message, post);
  }

  oversized(truncated: TruncatedMessage): void {
    this.#events.oversized(truncated);
  }

  log(text: string): void {
    this.#events.log(text);
  }

  sent(post: Post): void {
    if (this.#unsent.remove(post.id) !== undefined) this.#events.queuedChanged(-post.size);
  }

  responded(post: Post, head: ResponseHead | undefined): void {
    const { options } = post;
    if (head !== undefined && head.status < 300) {
      if (options?.method === INITIALIZE_METHOD)
        this.#setSession(head.headers.get("mcp-session-id"));
      if (options !== undefined) this.#events.kindDetected("http");
      else this.#openStandaloneStream();
    }
    if (options !== undefined) return;
    this.#order.settle(post);
    if (head !== undefined) this.#keepLingering(post);
  }

  handlesHttpError(post: Post, status: number, fallback: () => void): boolean {
    if (status === 404 && this.#sessionId !== undefined) {
      this.#sessionLost(post);
      return true;
    }
    if (status === 400 && this.checksSession(post, fallback)) return true;
    const isInitialize = post.options?.method === INITIALIZE_METHOD && !this.isNegotiated;
    if (!isInitialize || this.#tryLegacySse === undefined) return false;
    if (status !== 400 && status !== 404 && status !== 405) return false;
    this.#tryLegacySse(post, fallback);
    return true;
  }

  checksSession(post: Post, fallback: () => void): boolean {
    if (this.#sessionId === undefined || !this.isNegotiated) return false;
    void this.#isKnown().then((isKnown) => (isKnown ? fallback() : this.#sessionLost(post)));
    return true;
  }

  unreachable(cause: HubError): void {
    // A server that is working on a request has not lost the session.
    for (const post of this.#posts.values()) if (post.isSent) return;
    if (this.#standaloneStream?.isOpen === true) return;
    const text = `it cannot be reached any more: ${cause.message}`;
    this.#fail(this.requester.wasAccepted ? this.requester.error("connectionLost", text) : cause);
  }

  ended(post: Post): void {
    this.#posts.remove(post.id);
    this.#lingering.delete(post);
    this.sent(post);
    this.#order.settle(post);
  }

  /** Whether the server still knows the session; concurrent callers share one check. */
  #isKnown(): Promise<boolean> {
    this.#sessionCheck ??= pingSession(
      this.requester,
      `${CONTENT_HEADERS}${this.#commonLines}`,
    ).finally(() => {
      this.#sessionCheck = undefined;
    });
    return this.#sessionCheck;
  }

  #setSession(id: string | undefined): void {
    this.#sessionId = id !== undefined && /^[\x20-\x7e\x80-\xff]+$/.test(id) ? id : undefined;
    this.#updateCommonLines();
  }

  #updateCommonLines(): void {
    const sessionLine =
      this.#sessionId === undefined ? "" : `Mcp-Session-Id: ${this.#sessionId}\r\n`;
    const versionLine = this.#protocol && `MCP-Protocol-Version: ${this.#protocol.version}\r\n`;
    this.#commonLines = `${sessionLine}${versionLine ?? ""}`;
  }

  /** Opens the standalone GET stream: the server has received `notifications/initialized` and may send messages. */
  #openStandaloneStream(): void {
    if (this.#protocol?.era !== "legacy" || this.#state !== "open") return;
    this.#standaloneStream ??= new StandaloneStream({
      requester: this.requester,
      headerLines: () => this.#commonLines,
      message: (frame) => this.#events.message(frame),
      oversized: (excess) => this.#events.oversized(excess),
      sessionLost: () => this.#sessionLost(undefined),
      unreachable: (cause) => this.unreachable(cause),
    });
  }

  #keepLingering(post: Post): void {
    this.#lingering.add(post);
    if (this.#lingering.size <= MAX_LINGERING_STREAMS) return;
    for (const oldest of this.#lingering) {
      oldest.finish();
      return;
    }
  }

  /** The server has lost the session, and with it all requests in progress. */
  #sessionLost(rejected: Post | undefined): void {
    if (this.#state !== "open") return;
    const { requester } = this;
    this.#sessionId = undefined;
    // The state is set first: callbacks must not send on this transport.
    this.#state = "closing";
    const text = "it has forgotten the session";
    rejected?.failWith(requester.error("notDelivered", `${text}, and so has not taken this.`));
    for (const post of this.#posts.values()) {
      const code = post.isSent ? "answerLost" : "notDelivered";
      post.failWith(requester.error(code, `${text} in which this was begun.`));
    }
    this.#end();
    this.#events.ended(requester.error("connectionLost", `${text}: another has to be begun.`));
  }

  /** Ends the session with a DELETE request, which servers need not support. */
  #deleteSession(): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => resolve();
      const template = {
        method: "DELETE",
        headerLines: this.#commonLines,
        body: undefined,
      } as const;
      this.requester.send(template, { head: done, body() {}, end: done, fail: done });
    });
  }

  #fail(cause: HubError): void {
    if (this.#state !== "open") return;
    // The state is set first: callbacks must not send on this transport.
    this.#state = "closing";
    // Messages that were still queued were not sent. During negotiation the cause is reported as the transport's end.
    if (this.requester.wasAccepted) {
      for (const post of this.#posts.values()) {
        const code = post.isSent ? "answerLost" : "notDelivered";
        post.failWith(new HubError(code, cause.message, { server: cause.server, cause }));
      }
    }
    this.#end();
    this.#events.ended(cause);
  }

  #end(): void {
    this.#state = "over";
    this.#standaloneStream?.close();
    for (const post of this.#posts.values()) post.finish();
    this.requester.close();
  }
}
