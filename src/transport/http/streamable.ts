import type { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { settlesWithin } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { IdMap } from "../../base/in-flight-map.ts";
import { BoundedBuffer, isTruncated } from "../../jsonrpc/bounded-buffer.ts";
import { type EncodedMessage, errorCodeOf, type Message } from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import type { ResponseHead } from "../http-client/response-parser.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import { EXCERPT_LIMIT } from "./errors.ts";
import { EventStream, type EventStreamEnd } from "./event-stream.ts";
import { CONTENT_HEADERS, messageHeaders } from "./headers.ts";
import { CLOSE_TIMEOUT, MessageOrder } from "./message-order.ts";
import { type HttpErrorResponse, Post } from "./post.ts";
import type { HttpRequester } from "./request.ts";
import type { HttpTransport, HttpVariant } from "./transport.ts";

/** The id of the request of `pingSession`. No other request of the hub has this id. */
const PING_ID = 0;
const METHOD_NOT_FOUND = -32601;

/**
 * Sends a ping to learn whether the server still knows the session. An error response to another message does not tell
 * whether it does, because some servers answer an unknown session like an invalid request. A ping is always valid: a
 * server that knows the session answers it, at least with "method not found".
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

const INITIALIZE_METHOD = "initialize";
/** Number of answers in a row that tell that the session is unknown, after which it is replaced. */
const MAX_REFUSALS = 2;
/** Time that open POSTs have to finish before a lost session is replaced, in ms. */
const REPLACE_TIMEOUT = 5000;
/** Maximum number of streams that stay open after their response. Above it, the oldest is closed. */
const MAX_LINGERING_STREAMS = 16;

/**
 * The Streamable HTTP transport, for the older protocol versions (legacy) and for protocol 2026-07-28 (modern). Each
 * message is a POST of its own.
 */
export class StreamableHttp implements HttpVariant {
  readonly hasStreams = true;
  readonly transport: HttpTransport;
  readonly requester: HttpRequester;
  readonly #posts = new IdMap<Post>();
  readonly #unsent = new IdMap<Post>();
  readonly #lingering = new Set<Post>();
  readonly #order = new MessageOrder<Post>((post) => post.start());
  #protocol: NegotiatedProtocol | undefined;
  #sessionId: string | undefined;
  /** Header lines for session id and protocol version. */
  #commonLines = "";
  #standaloneStream: EventStream | undefined;
  #cancelReplacement: () => void = () => {};
  #sessionCheck: Promise<boolean> | undefined;
  /**
   * `replacing`: the session is lost, and a new one is needed. Open POSTs may finish, new messages are not sent.
   */
  #state: "open" | "replacing" | "closing" | "over" = "open";
  /** Number of answers in a row by which the server told, in HTTP 200 or by 410, that it does not know the session. */
  refusals = 0;

  constructor(transport: HttpTransport) {
    this.transport = transport;
    this.requester = transport.requester;
  }

  /** Whether the server has answered as an MCP server. */
  get isNegotiated(): boolean {
    return this.#protocol !== undefined;
  }

  send(message: EncodedMessage, options: SendOptions | undefined): SentRequest {
    const post = new Post(this, message, options);
    // Protocol 2026-07-28 (modern) has no notifications from clients, so none are sent. A request is cancelled by
    // closing its stream.
    const isSendable = options !== undefined || this.#protocol?.era !== "modern";
    if (!isSendable || (this.#state !== "open" && this.#state !== "replacing")) return post;
    post.id = this.#posts.add(post);
    this.#unsent.set(post.id, post);
    this.transport.queuedChanged(post.size);
    if (this.#state === "open") this.#order.add(post, options === undefined);
    return post;
  }

  adopt(protocol: NegotiatedProtocol): void {
    this.#protocol = protocol;
    this.#updateCommonLines();
  }

  async close(): Promise<void> {
    if (this.#state !== "open" && this.#state !== "replacing") return;
    this.#state = "closing";
    this.#cancelReplacement();
    this.#standaloneStream?.close();
    for (const post of this.#posts.values()) if (post.options !== undefined) post.finish();
    this.requester.resume();
    await settlesWithin(CLOSE_TIMEOUT, this.#order.drained());
    if (this.#sessionId !== undefined) await settlesWithin(CLOSE_TIMEOUT, this.#deleteSession());
    this.#end();
  }

  /**
   * Returns the header lines of a request. `options` is undefined for a notification, and for a GET that resumes a
   * response stream.
   */
  headerLinesFor(options: SendOptions | undefined): string {
    if (options === undefined) return this.#commonLines;
    if (this.#protocol?.era === "legacy" && options.headers === undefined) return this.#commonLines;
    return `${this.#commonLines}${messageHeaders(options, this.#protocol)}`;
  }

  message(message: Message, post: Post): void {
    if (post.isAnswered && !post.isEnded) this.#keepLingering(post);
    this.transport.message(message, post);
  }

  sent(post: Post): void {
    if (this.#unsent.remove(post.id) !== undefined) this.transport.queuedChanged(-post.size);
  }

  /** Called with the head of a POST's response, or with undefined if there will be no response. */
  responded(post: Post, head: ResponseHead | undefined): void {
    const { options } = post;
    if (head !== undefined && head.status < 300) {
      if (options?.method === INITIALIZE_METHOD)
        this.#setSession(head.headers.get("mcp-session-id"));
      if (options !== undefined) this.transport.kindDetected("http");
      else this.#openStandaloneStream();
    }
    if (options !== undefined) return;
    this.#order.settle(post);
    if (head !== undefined) this.#keepLingering(post);
  }

  /**
   * Finds out what an HTTP error means: the server has lost the session, the server may support HTTP+SSE only, or only
   * this POST has failed. If the session is unknown, some servers answer with 400, or with 404 and a JSON-RPC error:
   * after such a response, a ping finds out whether the session is lost.
   */
  httpError(post: Post, error: HttpErrorResponse): void {
    const { status, response } = error;
    const isOwn = response?.isOwn === true;
    const hasSession = this.#sessionId !== undefined;
    if (hasSession && status === 404 && !isOwn) {
      this.#sessionLost(post);
    } else if (hasSession && this.isNegotiated && status === 410) {
      const isLost = this.sessionRefused();
      post.endWithHttpError(isLost ? { ...error, cause: this.#lossOf(error.cause) } : error);
      if (isLost) this.replaceSession();
    } else if (hasSession && this.isNegotiated && status === (isOwn ? 404 : 400)) {
      void this.#isKnown().then((isKnown) =>
        isKnown ? post.endWithHttpError(error) : this.#sessionLost(post),
      );
    } else {
      const triesLegacySse =
        !isOwn &&
        this.#mayKnowOnlyLegacySse(post, status) &&
        this.transport.tryLegacySse(this, post, error);
      if (!triesLegacySse) post.endWithHttpError(error);
    }
  }

  /**
   * Counts an answer by which the server tells that it does not know the session, in HTTP 200 or by 410.
   * @returns whether it is the second in a row, so that the session is lost. The first may be a mistake: the same words
   * may be about something else
   */
  sessionRefused(): boolean {
    if (this.#sessionId === undefined || !this.isNegotiated) return false;
    return ++this.refusals >= MAX_REFUSALS && this.#state === "open";
  }

  /**
   * Ends the transport so that a new session is begun, as soon as the open POSTs have finished, and at the latest after
   * `REPLACE_TIMEOUT`: another instance of the server may still know the session. Messages that are sent meanwhile wait,
   * and end with `notDelivered`.
   */
  replaceSession(): void {
    if (this.#state !== "open") return;
    this.#state = "replacing";
    const timer = setTimeout(() => this.#endReplaced(), REPLACE_TIMEOUT);
    this.#cancelReplacement = () => clearTimeout(timer);
    this.#endIfReplaceable();
  }

  #endIfReplaceable(): void {
    if (this.#state !== "replacing") return;
    for (const post of this.#posts.values()) {
      const isOpen = post.options !== undefined && post.isSent && !post.isAnswered;
      if (isOpen) return;
    }
    this.#endReplaced();
  }

  #endReplaced(): void {
    this.#cancelReplacement();
    this.#state = "open";
    this.#sessionLost(undefined);
  }

  #lossOf({ code, message, server }: HubError): HubError {
    // A server that answers 410 has not processed the request, but only `router/retry.ts` decides whether it is repeated.
    return new HubError(code === "serverRefused" ? "answerLost" : code, message, { server });
  }

  /** Handles a failure to connect to the server. */
  unreachable(cause: HubError): void {
    // The session still works if the server is processing another request or keeps the standalone stream open.
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
    this.#endIfReplaceable();
  }

  /** Whether the POST was `initialize`, and the status is one that a server without Streamable HTTP may send. */
  #mayKnowOnlyLegacySse(post: Post, status: number): boolean {
    const isInitialize = post.options?.method === INITIALIZE_METHOD && !this.isNegotiated;
    return isInitialize && (status === 400 || status === 404 || status === 405);
  }

  /** Pings the server to learn whether it still knows the session; concurrent callers share one ping. */
  #isKnown(): Promise<boolean> {
    this.#sessionCheck ??= pingSession(
      this.requester,
      `${CONTENT_HEADERS}${this.#commonLines}`,
    ).finally(() => {
      this.#sessionCheck = undefined;
    });
    return this.#sessionCheck;
  }

  get sessionId(): string | undefined {
    return this.#sessionId;
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

  /**
   * Opens the standalone GET stream, on which a server of the older protocol versions (legacy) sends messages after it
   * has received `notifications/initialized`.
   */
  #openStandaloneStream(): void {
    if (this.#protocol?.era !== "legacy" || this.#state !== "open") return;
    this.#standaloneStream ??= new EventStream(this.requester, {
      policy: "reconnectForever",
      headerLines: () => this.#commonLines,
      event: (type, data) => {
        if (type === "message") this.transport.message(parseMessage(data));
      },
      oversized: (truncated) => this.transport.oversized(truncated),
      ended: (end) => this.#onStandaloneStreamEnd(end),
    });
  }

  #onStandaloneStreamEnd(end: EventStreamEnd): void {
    // A 404 to the first GET may only mean that the server has no such stream. A 404 after the stream was open means
    // that the session is lost.
    if (end.kind === "refused" && end.status === 404 && end.wasOpened) this.#sessionLost(undefined);
    else if (end.kind === "refused" && end.status === 410 && end.wasOpened) {
      if (this.sessionRefused()) this.replaceSession();
    } else if (end.kind === "failed" && end.cause.step === "dial") this.unreachable(end.cause);
  }

  #keepLingering(post: Post): void {
    this.#lingering.add(post);
    if (this.#lingering.size <= MAX_LINGERING_STREAMS) return;
    for (const oldest of this.#lingering) {
      oldest.finish();
      return;
    }
  }

  /** Ends the transport, because the server has lost the session and with it all requests in progress. */
  #sessionLost(rejected: Post | undefined): void {
    if (this.#state !== "open") return;
    const { requester } = this;
    this.#sessionId = undefined;
    // The state is set before any callback is called, so that no callback can send on this transport.
    this.#state = "closing";
    const text = "it has forgotten the session";
    rejected?.failWith(
      requester.error("notDelivered", `${text} and did not process this request.`),
    );
    for (const post of this.#posts.values()) {
      const code = post.isSent ? "answerLost" : "notDelivered";
      post.failWith(requester.error(code, `${text} in which this request began.`));
    }
    this.#end();
    this.transport.ended(requester.error("connectionLost", `${text}: a new session is needed.`));
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
    if (this.#state !== "open" && this.#state !== "replacing") return;
    this.#cancelReplacement();
    // The state is set before any callback is called, so that no callback can send on this transport.
    this.#state = "closing";
    // Unsent messages fail with `notDelivered`, all others with `answerLost`. If the server has never accepted a
    // request, the messages do not fail: the error is only reported as the end of the transport.
    if (this.requester.wasAccepted) {
      for (const post of this.#posts.values()) {
        const code = post.isSent ? "answerLost" : "notDelivered";
        post.failWith(new HubError(code, cause.message, { server: cause.server, cause }));
      }
    }
    this.#end();
    this.transport.ended(cause);
  }

  #end(): void {
    this.#cancelReplacement();
    this.#state = "over";
    this.#standaloneStream?.close();
    for (const post of this.#posts.values()) post.finish();
    this.requester.close();
  }
}
