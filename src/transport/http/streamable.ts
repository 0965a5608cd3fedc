import type { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { settlesWithin } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { IdTable } from "../../base/id-table.ts";
import { BoundedBuffer, isTruncated, type Truncated } from "../../jsonrpc/bounded-buffer.ts";
import { type EncodedMessage, errorCodeOf, type Message } from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import { EXCERPT_LIMIT } from "./errors.ts";
import { StandingStream } from "./event-stream.ts";
import { CONTENT_HEADERS, messageHeaders } from "./headers.ts";
import { MessageOrder } from "./message-order.ts";
import { type PostEvents, Post } from "./post.ts";
import type { HttpRequester } from "./request.ts";
import { CLOSE_TIMEOUT, type HttpVariantEvents, type HttpVariant } from "./variant.ts";

/** An id that the hub's own requests never have. */
const ID = 0;
const METHOD_NOT_FOUND = -32601;

/**
 * Asks the server with a ping whether it still knows the session. Some servers reject messages of an unknown session
 * with the same status as any bad request, or with a JSON-RPC error. Nothing else is wrong with a ping: a server that
 * knows the session answers it, or says that it does not know the method.
 */
export function isSessionKnown(passage: HttpRequester, fields: string): Promise<boolean> {
  const text = new BoundedBuffer(EXCERPT_LIMIT);
  const body = [utf8(`{"jsonrpc":"2.0","id":${ID},"method":"ping"}`)];
  return new Promise((resolve) => {
    let status = 0;
    passage.send(
      { method: "POST", fields, body },
      {
        head(head: ResponseHead) {
          ({ status } = head);
          if (status !== 400 && status !== 404) resolve(true);
        },
        body: (bytes: Buffer) => text.add(bytes),
        end() {
          const content = text.take();
          const frame = isTruncated(content) ? undefined : parseMessage(content);
          resolve(
            frame?.kind === "response" &&
              frame.id === ID &&
              (frame.outcome === "result" || errorCodeOf(frame) === METHOD_NOT_FOUND),
          );
        },
        fail: () => resolve(true),
      },
    );
  });
}

/** The first request to a server of the legacy era. */
const INITIALIZE = "initialize";
/** How many response streams may stay open after their response: some servers forget to end them. */
const LINGERING = 16;

/** The Streamable HTTP transport of both eras: each message is a POST of its own. */
export class StreamableHttp implements HttpVariant, PostEvents {
  readonly hasStreams = true;
  readonly passage: HttpRequester;
  readonly #events: HttpVariantEvents;
  readonly #tryOther: ((post: Post, otherwise: () => void) => void) | undefined;
  readonly #posts = new IdTable<Post>();
  readonly #unsent = new IdTable<Post>();
  readonly #lingering = new Set<Post>();
  readonly #sequence = new MessageOrder<Post>((post) => post.start());
  #spoken: NegotiatedProtocol | undefined;
  #session: string | undefined;
  /** Header lines for session id and protocol version. */
  #common = "";
  #tidings: StandingStream | undefined;
  #doubt: Promise<boolean> | undefined;
  #state: "open" | "closing" | "over" = "open";

  /** @param tryOther called if the server rejects `initialize` as one without Streamable HTTP does */
  constructor(
    passage: HttpRequester,
    events: HttpVariantEvents,
    tryOther?: (post: Post, otherwise: () => void) => void,
  ) {
    this.passage = passage;
    this.#events = events;
    this.#tryOther = tryOther;
  }

  get isMet(): boolean {
    return this.#spoken !== undefined;
  }

  send(message: EncodedMessage, info: SendOptions | undefined): SentRequest {
    const post = new Post(this, message, info);
    // The modern era has no notifications from client to server: a request is cancelled by closing its stream.
    const isSaid = info !== undefined || this.#spoken?.era !== "modern";
    if (!isSaid || this.#state !== "open") return post;
    post.place = this.#posts.add(post);
    this.#unsent.set(post.place, post);
    this.#events.loaded(post.size);
    this.#sequence.add(post, info === undefined);
    return post;
  }

  adopt(spoken: NegotiatedProtocol): void {
    this.#spoken = spoken;
    this.#describe();
  }

  async close(): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "closing";
    this.#tidings?.close();
    for (const post of this.#posts.values()) if (post.info !== undefined) post.finish();
    this.passage.resume();
    await settlesWithin(CLOSE_TIMEOUT, this.#sequence.drained());
    if (this.#session !== undefined) await settlesWithin(CLOSE_TIMEOUT, this.#leave());
    this.#end();
  }

  fieldsFor(info: SendOptions | undefined): string {
    if (info === undefined) return this.#common;
    if (this.#spoken?.era === "legacy" && info.headers === undefined) return this.#common;
    return `${this.#common}${messageHeaders(info, this.#spoken)}`;
  }

  frame(frame: Message, post: Post): void {
    if (post.isAnswered && !post.isOver) this.#linger(post);
    this.#events.frame(frame, post);
  }

  oversized(excess: Truncated): void {
    this.#events.oversized(excess);
  }

  log(text: string): void {
    this.#events.log(text);
  }

  sent(post: Post): void {
    if (this.#unsent.remove(post.place) !== undefined) this.#events.loaded(-post.size);
  }

  heard(post: Post, head: ResponseHead | undefined): void {
    const { info } = post;
    if (head !== undefined && head.status < 300) {
      if (info?.method === INITIALIZE) this.#enter(head.fields.get("mcp-session-id"));
      if (info !== undefined) this.#events.found("http");
      else this.#listen();
    }
    if (info !== undefined) return;
    this.#sequence.settle(post);
    if (head !== undefined) this.#linger(post);
  }

  turnedAway(post: Post, status: number, otherwise: () => void): boolean {
    if (status === 404 && this.#session !== undefined) {
      this.#forgotten(post);
      return true;
    }
    if (status === 400 && this.doubts(post, otherwise)) return true;
    const isGreeting = post.info?.method === INITIALIZE && !this.isMet;
    if (!isGreeting || this.#tryOther === undefined) return false;
    if (status !== 400 && status !== 404 && status !== 405) return false;
    this.#tryOther(post, otherwise);
    return true;
  }

  doubts(post: Post, otherwise: () => void): boolean {
    if (this.#session === undefined || !this.isMet) return false;
    void this.#isKnown().then((isKnown) => (isKnown ? otherwise() : this.#forgotten(post)));
    return true;
  }

  unreachable(cause: HubError): void {
    // A server that works on a request is not lost.
    for (const post of this.#posts.values()) if (post.isSent) return;
    if (this.#tidings?.isOpen === true) return;
    const text = `it cannot be reached any more: ${cause.message}`;
    this.#fail(this.passage.hasEntered ? this.passage.error("connectionLost", text) : cause);
  }

  over(post: Post): void {
    this.#posts.remove(post.place);
    this.#lingering.delete(post);
    this.sent(post);
    this.#sequence.settle(post);
  }

  /** Whether the server still knows the session; concurrent callers share one check. */
  #isKnown(): Promise<boolean> {
    this.#doubt ??= isSessionKnown(this.passage, `${CONTENT_HEADERS}${this.#common}`).finally(
      () => {
        this.#doubt = undefined;
      },
    );
    return this.#doubt;
  }

  #enter(id: string | undefined): void {
    this.#session = id !== undefined && /^[\x20-\x7e\x80-\xff]+$/.test(id) ? id : undefined;
    this.#describe();
  }

  #describe(): void {
    const session = this.#session === undefined ? "" : `Mcp-Session-Id: ${this.#session}\r\n`;
    const version = this.#spoken && `MCP-Protocol-Version: ${this.#spoken.version}\r\n`;
    this.#common = `${session}${version ?? ""}`;
  }

  /** Opens the standing GET stream: the server has received `notifications/initialized` and may send messages. */
  #listen(): void {
    if (this.#spoken?.era !== "legacy" || this.#state !== "open") return;
    this.#tidings ??= new StandingStream({
      passage: this.passage,
      fields: () => this.#common,
      frame: (frame) => this.#events.frame(frame),
      oversized: (excess) => this.#events.oversized(excess),
      forgotten: () => this.#forgotten(undefined),
      unreachable: (cause) => this.unreachable(cause),
    });
  }

  #linger(post: Post): void {
    this.#lingering.add(post);
    if (this.#lingering.size <= LINGERING) return;
    for (const oldest of this.#lingering) {
      oldest.finish();
      return;
    }
  }

  /** The server has lost the session, and with it all requests in progress. */
  #forgotten(refused: Post | undefined): void {
    if (this.#state !== "open") return;
    const { passage } = this;
    this.#session = undefined;
    // Owners that are told must not send on this transport.
    this.#state = "closing";
    const text = "it has forgotten the session";
    refused?.lose(passage.error("notDelivered", `${text}, and so has not taken this.`));
    for (const post of this.#posts.values()) {
      const code = post.isSent ? "answerLost" : "notDelivered";
      post.lose(passage.error(code, `${text} in which this was begun.`));
    }
    this.#end();
    this.#events.ended(passage.error("connectionLost", `${text}: another has to be begun.`));
  }

  /** Ends the session with a DELETE request, which servers need not support. */
  #leave(): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => resolve();
      const letter = { method: "DELETE", fields: this.#common, body: undefined } as const;
      this.passage.send(letter, { head: done, body() {}, end: done, fail: done });
    });
  }

  #fail(cause: HubError): void {
    if (this.#state !== "open") return;
    // Owners that are told must not send on this transport.
    this.#state = "closing";
    // Messages that waited for others were not sent. During negotiation the cause is reported as the transport's end.
    if (this.passage.hasEntered) {
      for (const post of this.#posts.values()) {
        const code = post.isSent ? "answerLost" : "notDelivered";
        post.lose(new HubError(code, cause.message, { server: cause.server, cause }));
      }
    }
    this.#end();
    this.#events.ended(cause);
  }

  #end(): void {
    this.#state = "over";
    this.#tidings?.close();
    for (const post of this.#posts.values()) post.finish();
    this.passage.close();
  }
}
