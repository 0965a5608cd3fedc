import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { joinPieces, type Piece, pieceSize, toBytes } from "../../base/bytes.ts";
import { enterStage } from "../../base/fault-injection.ts";
import { PeerReader, type ReadShare } from "../../base/peer-reader.ts";
import {
  type BodyDecoder,
  bodyDecoderOf,
  parseResponseHead,
  type ResponseHead,
} from "./response-parser.ts";

/** Receives the response to a request. `end` or `fail` is called last, once; nothing is called after cancellation. */
export interface ResponseReceiver {
  sent?(): void;
  head(head: ResponseHead): void;
  /** Receives a part of the body. The receiver owns the bytes: see `ByteSlice`. */
  body(bytes: Buffer): void;
  end(): void;
  /**
   * Called if the request failed before its response was complete.
   * @param isUndelivered whether no byte of the request was sent
   */
  fail(error: Error, isUndelivered: boolean): void;
  /**
   * Called instead of `end` and `fail` if the receiver, or what reads the response for it, has thrown. The connection is
   * closed already. Must not throw.
   */
  broken(error: unknown): void;
}

export interface OutgoingRequest {
  readonly method: string;
  /** Request line and headers, with the empty line after them. */
  readonly head: string;
  readonly body: readonly Piece[];
  readonly receiver: ResponseReceiver;
}

export interface HttpConnectionEvents {
  /** The connection can take another request. */
  available(connection: HttpConnection): void;
  /** The connection is closed; called once. */
  closed(connection: HttpConnection): void;
}

/** Maximum size, in bytes, of a request that is written at once. Larger requests are written in several parts. */
const SINGLE_WRITE_LIMIT = 64 * 1024;

/** One HTTP/1.1 connection to a server. Sends one request at a time, without pipelining. */
export class HttpConnection {
  readonly #socket: Socket;
  readonly #events: HttpConnectionEvents;
  readonly #reader: PeerReader;
  #request: OutgoingRequest | undefined;
  /** The received bytes of a response head that is not complete yet. */
  #headStart: Buffer | undefined;
  #head: ResponseHead | undefined;
  /**
   * The last response head, parsed, and its bytes. A server often sends the same head again, and comparing bytes is
   * cheaper than parsing.
   */
  #lastHead: { readonly bytes: Buffer; readonly head: ResponseHead } | undefined;
  #body: BodyDecoder | undefined;
  #isGone = false;
  /** Whether a part of the request still waits in the socket's buffer. */
  #isWritePending = false;
  #isPaused = false;
  /** The idle timeout that the server has sent in `Keep-Alive`, in ms. */
  keepAliveTimeout: number | undefined;
  /** When the connection became idle, in ms of `performance.now()`. */
  idleSince = 0;

  /** @param share what may be handled of the server in one turn, on all its connections */
  constructor(socket: Socket, events: HttpConnectionEvents, share: ReadShare) {
    this.#socket = socket;
    this.#events = events;
    this.#reader = new PeerReader(share, {
      receive: (bytes) => this.#onData(bytes),
      failed: (error) => this.#fail(error),
      setReading: (isReading) => void (isReading ? socket.resume() : socket.pause()),
    });
    socket.on("data", (chunk: Buffer) => this.#reader.push(chunk));
    socket.on("drain", () => this.#guard(() => this.#onDrain()));
    // What was received before the end is handled first.
    socket.on("end", () => this.#reader.end(() => this.#guard(() => this.#onEnd())));
    const close = (error: Error): void =>
      this.#reader.end(() => this.#guard(() => this.#close(error)));
    socket.on("error", close);
    socket.on("close", () => close(new Error("the connection was closed")));
  }

  send(request: OutgoingRequest): void {
    this.#request = request;
    const { head, body, receiver } = request;
    let size = head.length;
    for (const piece of body) size += pieceSize(piece);
    let isFlushed = true;
    if (size <= SINGLE_WRITE_LIMIT) {
      isFlushed = this.#socket.write(joinPieces([head, ...body]));
    } else {
      this.#socket.cork();
      this.#socket.write(head, "latin1");
      for (const piece of body) isFlushed = this.#socket.write(toBytes(piece));
      this.#socket.uncork();
    }
    if (isFlushed) receiver.sent?.();
    else this.#isWritePending = true;
  }

  isSending(request: OutgoingRequest): boolean {
    return this.#request === request;
  }

  /** Closes the connection. The receiver of a current request is not called. */
  destroy(): void {
    this.#request = undefined;
    this.#close(new Error("the connection was given up"));
  }

  pause(): void {
    this.#isPaused = true;
    this.#reader.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#reader.resume();
  }

  #guard(handle: () => void): void {
    try {
      handle();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Ends the connection after an exception in the handling of what the server sent. */
  #fail(error: unknown): void {
    const { receiver } = this.#request ?? {};
    this.destroy();
    receiver?.broken(error);
  }

  #onDrain(): void {
    if (!this.#isWritePending) return;
    this.#isWritePending = false;
    this.#request?.receiver.sent?.();
  }

  #onData(chunk: Buffer): void {
    if (this.#isGone) return;
    enterStage("httpResponse");
    if (this.#body !== undefined) {
      this.#readBody(this.#body, chunk);
      return;
    }
    if (this.#request === undefined) {
      this.destroy();
      return;
    }
    const bytes = this.#headStart === undefined ? chunk : Buffer.concat([this.#headStart, chunk]);
    const parsed = this.#parseHead(bytes);
    if (parsed === "malformed") this.#close(new Error(describeNonHttp(bytes)));
    else if (parsed === undefined) this.#headStart = bytes;
    else this.#startResponse(parsed.head, bytes.subarray(parsed.bodyStart));
  }

  #parseHead(bytes: Buffer): ReturnType<typeof parseResponseHead> {
    const lastHead = this.#lastHead;
    const end = lastHead?.bytes.length ?? Infinity;
    if (lastHead !== undefined && end <= bytes.length) {
      if (lastHead.bytes.compare(bytes, 0, end) === 0)
        return { head: lastHead.head, bodyStart: end };
    }
    const parsed = parseResponseHead(bytes);
    if (parsed !== undefined && parsed !== "malformed") {
      // Copied, because `bytes` would keep the whole chunk, with the body, in memory.
      this.#lastHead = {
        bytes: Buffer.from(bytes.subarray(0, parsed.bodyStart)),
        head: parsed.head,
      };
    }
    return parsed;
  }

  #startResponse(head: ResponseHead, rest: Buffer): void {
    this.#headStart = undefined;
    const request = this.#request;
    if (request === undefined) return;
    if (head.status < 200) {
      if (head.status === 101) this.#close(new Error("it switches to another protocol (HTTP 101)"));
      else if (rest.length > 0) this.#onData(rest);
      return;
    }
    const body = bodyDecoderOf(head, request.method);
    if (body === "malformed") {
      this.#close(new Error("its answer has no valid length"));
      return;
    }
    const contentCoding = head.headers.get("content-encoding") ?? "identity";
    if (contentCoding.toLowerCase() !== "identity") {
      this.#close(
        new Error(
          `its answer is compressed (${contentCoding.slice(0, 50)}), although the request did not allow that`,
        ),
      );
      return;
    }
    this.#head = head;
    request.receiver.head(head);
    if (this.#isGone) return;
    if (body === "none") {
      this.#endResponse(rest.length === 0);
      return;
    }
    this.#body = body;
    if (rest.length > 0) this.#readBody(body, rest);
  }

  #readBody(body: BodyDecoder, chunk: Buffer): void {
    const progress = body.push(chunk, this.#onBody);
    if (this.#isGone) return;
    if (progress === "end" || progress === "endWithExtra") this.#endResponse(progress === "end");
    else if (progress === "malformed") this.#close(new Error("its chunked encoding is malformed"));
  }

  readonly #onBody = (bytes: Buffer): void => this.#request?.receiver.body(bytes);

  /** @param isClean whether no bytes follow the response: only then can the connection be reused */
  #endResponse(isClean: boolean): void {
    const { receiver } = this.#request ?? {};
    // A server that responds before it has read the whole request may never read the rest: such a connection is not
    // reused.
    const isReusable =
      this.#head?.isReusable === true && isClean && !this.#isWritePending && !this.#reader.hasMore;
    this.keepAliveTimeout = keepAliveTimeoutOf(this.#head?.headers.get("keep-alive"));
    this.#request = undefined;
    this.#head = undefined;
    this.#body = undefined;
    if (this.#isPaused) this.resume();
    if (isReusable) this.#events.available(this);
    else this.destroy();
    receiver?.end();
  }

  #onEnd(): void {
    if (this.#body?.endsWithConnection === true) this.#endResponse(true);
    else this.#close(new Error("the connection was closed"));
  }

  #close(error: Error): void {
    if (this.#isGone) return;
    this.#isGone = true;
    const { receiver } = this.#request ?? {};
    this.#request = undefined;
    this.#headStart = undefined;
    this.#body = undefined;
    this.#reader.close();
    this.#socket.destroy();
    this.#events.closed(this);
    receiver?.fail(error, false);
  }
}

/** Reads the `timeout` parameter of a `Keep-Alive` header. @returns ms */
function keepAliveTimeoutOf(header: string | undefined): number | undefined {
  const [, seconds] = /\btimeout=(\d{1,6})\b/i.exec(header ?? "") ?? [];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}

/** The reason why the bytes are not an HTTP response, as a clause. */
function describeNonHttp(bytes: Buffer): string {
  // These bytes begin a TLS alert record: the server expects TLS.
  if (bytes[0] === 0x15 && bytes[1] === 0x03) return "it uses TLS: the URL must begin with https";
  return "its answer is not HTTP";
}
