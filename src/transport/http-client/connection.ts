import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { joinPieces, type Piece, pieceSize, toBytes } from "../../base/bytes.ts";

/** State of the body after a chunk. `endWithExtra`: the body is complete, and unexpected bytes follow it. */
type BodyProgress = "more" | "end" | "endWithExtra" | "malformed";

/** Decodes the body of a response from the bytes of its connection. */
export interface BodyDecoder {
  /** Decodes the next chunk and passes the body bytes in it to `onData`. */
  push(chunk: Buffer, onData: (bytes: Buffer) => void): BodyProgress;
  /** Whether the body ends when the connection closes. */
  readonly endsWithConnection?: true;
}

/** Chooses how the body is delimited (RFC 9112, 6.3). `none`: there is no body. */
export function bodyDecoderOf(
  { status, headers }: ResponseHead,
  method: string,
): BodyDecoder | "none" | "malformed" {
  if (method === "HEAD" || status === 204 || status === 304) return "none";
  const transferCoding = headers.get("transfer-encoding");
  if (transferCoding !== undefined) {
    return transferCoding.toLowerCase() === "chunked" ? new ChunkedDecoder(false) : "malformed";
  }
  const contentLength = headers.get("content-length");
  if (contentLength === undefined) return UNTIL_CLOSE;
  const [first = "", ...others] = contentLength.split(/\s*,\s*/);
  if (!/^\d{1,15}$/.test(first) || others.some((other) => other !== first)) return "malformed";
  return Number(first) === 0 ? "none" : new LengthDecoder(Number(first));
}

const UNTIL_CLOSE: BodyDecoder = {
  endsWithConnection: true,
  push(chunk, onData) {
    onData(chunk);
    return "more";
  },
};

/**
 * A decoder of the chunked transfer coding (RFC 9112, 7.1).
 * @param isStrict whether lines must end with CRLF and contain no bare CR or NUL. Requests are read strictly, because
 * lenient parsing allows request smuggling; responses leniently.
 */
export function chunkedDecoder({ isStrict }: { readonly isStrict: boolean }): BodyDecoder {
  return new ChunkedDecoder(isStrict);
}

class LengthDecoder implements BodyDecoder {
  #remaining: number;

  constructor(size: number) {
    this.#remaining = size;
  }

  push(chunk: Buffer, onData: (bytes: Buffer) => void): BodyProgress {
    if (chunk.length > this.#remaining) {
      onData(chunk.subarray(0, this.#remaining));
      return "endWithExtra";
    }
    this.#remaining -= chunk.length;
    onData(chunk);
    return this.#remaining === 0 ? "end" : "more";
  }
}

const LF = 0x0a;
const CHUNK_SIZE = /^([0-9a-f]{1,12})[ \t]*(?:;|$)/i;
/** Bytes that some parsers take for the end of a line. */
// oxlint-disable-next-line no-control-regex
const BARE_LINE_END = /[\x00\r]/;
/** Maximum length of a chunk-size or trailer line, and of all trailers, in bytes. */
const MAX_LENGTH = { line: 4096, trailers: 16 * 1024 };

/** Decodes the chunked transfer coding (RFC 9112, 7.1). */
class ChunkedDecoder implements BodyDecoder {
  readonly #isStrict: boolean;
  #state: "size" | "data" | "chunkEnd" | "trailer" = "size";
  #remaining = 0;
  /** The part of the current chunk-size or trailer line that was received. */
  #line = "";
  #trailerLength = 0;

  constructor(isStrict: boolean) {
    this.#isStrict = isStrict;
  }

  push(chunk: Buffer, onData: (bytes: Buffer) => void): BodyProgress {
    let start = 0;
    while (start < chunk.length) {
      if (this.#state === "data") {
        const end = Math.min(chunk.length, start + this.#remaining);
        this.#remaining -= end - start;
        if (this.#remaining === 0) this.#state = "chunkEnd";
        onData(start === 0 && end === chunk.length ? chunk : chunk.subarray(start, end));
        start = end;
        continue;
      }
      const end = chunk.indexOf(LF, start);
      this.#line += chunk.toString("latin1", start, end < 0 ? chunk.length : end);
      if (this.#line.length > MAX_LENGTH.line) return "malformed";
      if (end < 0) return "more";
      start = end + 1;
      const endsWithCr = this.#line.endsWith("\r");
      const line = endsWithCr ? this.#line.slice(0, -1) : this.#line;
      this.#line = "";
      if (this.#isStrict && (!endsWithCr || BARE_LINE_END.test(line))) return "malformed";
      const progress = this.#readLine(line);
      if (progress === "end") return start === chunk.length ? "end" : "endWithExtra";
      if (progress === "malformed") return progress;
    }
    return "more";
  }

  #readLine(line: string): "more" | "end" | "malformed" {
    switch (this.#state) {
      case "size": {
        const [, size] = CHUNK_SIZE.exec(line) ?? [];
        if (size === undefined) return "malformed";
        this.#remaining = Number.parseInt(size, 16);
        this.#state = this.#remaining === 0 ? "trailer" : "data";
        return "more";
      }
      case "trailer":
        this.#trailerLength += line.length;
        if (line === "") return "end";
        return this.#trailerLength > MAX_LENGTH.trailers ? "malformed" : "more";
      default:
        this.#state = "size";
        return line === "" ? "more" : "malformed";
    }
  }
}

/** Status line and header fields of an HTTP/1.x response. */
export interface ResponseHead {
  readonly status: number;
  /** By name in lower case; repeated fields are joined with commas. */
  readonly headers: ReadonlyMap<string, string>;
  /** Whether the connection may be reused after the response. */
  readonly isReusable: boolean;
}

/** Maximum size of a response head, in bytes. */
export const MAX_RESPONSE_HEAD = 64 * 1024;

const HEAD_END = "\r\n\r\n";
const STATUS_LINE = /^HTTP\/1\.([01]) (\d{3})(?=[ \r]|$)/;

/**
 * Parses the head of a response.
 * @returns the head and the offset of the body; undefined if the head is incomplete; `malformed` if it is not an
 * HTTP/1.x head
 */
export function parseResponseHead(
  bytes: Buffer,
): { readonly head: ResponseHead; readonly lineEnd: number } | "malformed" | undefined {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd < 0) return mayBeIncomplete(bytes) ? undefined : "malformed";
  const text = bytes.toString("latin1", 0, headEnd);
  const [, minorVersion, status] = STATUS_LINE.exec(text) ?? [];
  if (status === undefined) return "malformed";
  const headers = new Map<string, string>();
  let lineEnd = text.indexOf("\r\n");
  while (lineEnd >= 0) {
    const lineStart = lineEnd + 2;
    lineEnd = text.indexOf("\r\n", lineStart);
    const colon = text.indexOf(":", lineStart);
    const isField = colon > lineStart && (lineEnd < 0 || colon < lineEnd);
    const firstChar = text.charCodeAt(lineStart);
    // Line folding is obsolete (RFC 9112, 5.2) and is used in attacks.
    if (!isField || firstChar === 0x20 || firstChar === 0x09) return "malformed";
    const name = text.slice(lineStart, colon).toLowerCase();
    const value = text.slice(colon + 1, lineEnd < 0 ? text.length : lineEnd).trim();
    const previous = headers.get(name);
    headers.set(name, previous === undefined ? value : `${previous}, ${value}`);
  }
  const connection = headers.get("connection");
  // With both headers an intermediary may delimit the body differently (RFC 9112, 6.3).
  const isAmbiguous = headers.has("transfer-encoding") && headers.has("content-length");
  const isKeepAlive =
    minorVersion === "1"
      ? connection === undefined || !/\bclose\b/i.test(connection)
      : connection !== undefined && /\bkeep-alive\b/i.test(connection);
  const isReusable = isKeepAlive && !isAmbiguous;
  return {
    head: { status: Number(status), headers, isReusable },
    lineEnd: headEnd + HEAD_END.length,
  };
}

const STATUS_LINE_START = "HTTP/1.";

/**
 * Whether the bytes may be the start of a head. Bare LF line ends are rejected: such a head would never be complete.
 */
function mayBeIncomplete(bytes: Buffer): boolean {
  if (bytes.length > MAX_RESPONSE_HEAD || bytes.includes("\n\n")) return false;
  const start = bytes.toString("latin1", 0, Math.min(bytes.length, STATUS_LINE_START.length));
  return STATUS_LINE_START.startsWith(start);
}

/** Receives the response to a request. `end` or `fail` is called last, once; nothing is called after cancellation. */
export interface ResponseReceiver {
  /** The whole request was written. */
  sent?(): void;
  head(head: ResponseHead): void;
  /** A part of the body; it belongs to the receiver: see `ByteSlice`. */
  body(bytes: Buffer): void;
  end(): void;
  /**
   * The request failed before its response was complete. @param isUndelivered no byte of the request has left this
   * process
   */
  fail(error: Error, isUndelivered: boolean): void;
}

/** A serialized request. */
export interface OutgoingRequest {
  readonly method: string;
  /** Request line and headers, with the empty line after them. */
  readonly head: string;
  readonly body: readonly Piece[];
  readonly receiver: ResponseReceiver;
}

/** Callbacks of a connection to its pool. */
export interface HttpConnectionEvents {
  /** The connection can take another request. */
  available(connection: HttpConnection): void;
  /** The connection is closed; called once. */
  closed(connection: HttpConnection): void;
}

/** Requests up to this size are sent in one write, in bytes. */
const SINGLE_WRITE_LIMIT = 64 * 1024;

/** One HTTP/1.1 connection to a server. Sends one request at a time, without pipelining. */
export class HttpConnection {
  readonly #socket: Socket;
  readonly #events: HttpConnectionEvents;
  #request: OutgoingRequest | undefined;
  /** The first bytes of an incomplete head. */
  #headStart: Buffer | undefined;
  #head: ResponseHead | undefined;
  /**
   * The last head with its bytes. The responses of a server often have the same head, and comparing is cheaper than
   * parsing.
   */
  #lastHead: { readonly bytes: Buffer; readonly head: ResponseHead } | undefined;
  #body: BodyDecoder | undefined;
  #isGone = false;
  /** Whether a part of the request still waits in the socket's buffer. */
  #isWritePending = false;
  #isPaused = false;
  /** The idle timeout that the server has sent in `Keep-Alive`, in ms. */
  keepAliveTimeout: number | undefined;
  /** Since when the connection is idle, in ms of `performance.now()`. */
  idleSince = 0;

  constructor(socket: Socket, events: HttpConnectionEvents) {
    this.#socket = socket;
    this.#events = events;
    socket.on("data", (chunk: Buffer) => this.#onData(chunk));
    socket.on("drain", () => this.#onDrain());
    socket.on("end", () => this.#onEnd());
    socket.on("error", (error) => this.#close(error));
    socket.on("close", () => this.#close(new Error("the connection was closed")));
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

  /** Closes the connection; the receiver of a current request is not called. */
  destroy(): void {
    this.#request = undefined;
    this.#close(new Error("the connection was given up"));
  }

  pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#socket.resume();
  }

  #onDrain(): void {
    if (!this.#isWritePending) return;
    this.#isWritePending = false;
    this.#request?.receiver.sent?.();
  }

  #onData(chunk: Buffer): void {
    if (this.#isGone) return;
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
    else this.#startResponse(parsed.head, bytes.subarray(parsed.lineEnd));
  }

  #parseHead(bytes: Buffer): ReturnType<typeof parseResponseHead> {
    const lastHead = this.#lastHead;
    const end = lastHead?.bytes.length ?? Infinity;
    if (lastHead !== undefined && end <= bytes.length) {
      if (lastHead.bytes.compare(bytes, 0, end) === 0) return { head: lastHead.head, lineEnd: end };
    }
    const parsed = parseResponseHead(bytes);
    if (parsed !== undefined && parsed !== "malformed") {
      // The head is copied, so that the chunk, which also holds the body, can be freed.
      this.#lastHead = { bytes: Buffer.from(bytes.subarray(0, parsed.lineEnd)), head: parsed.head };
    }
    return parsed;
  }

  #startResponse(head: ResponseHead, rest: Buffer): void {
    this.#headStart = undefined;
    const request = this.#request;
    if (request === undefined) return;
    if (head.status < 200) {
      if (head.status === 101) this.#close(new Error("it wants to speak another protocol (101)"));
      else if (rest.length > 0) this.#onData(rest);
      return;
    }
    const body = bodyDecoderOf(head, request.method);
    if (body === "malformed") {
      this.#close(new Error("its answer does not say how long it is"));
      return;
    }
    const contentCoding = head.headers.get("content-encoding") ?? "identity";
    if (contentCoding.toLowerCase() !== "identity") {
      this.#close(
        new Error(
          `it answers compressed (${contentCoding.slice(0, 50)}), which it was asked not to do`,
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
    else if (progress === "malformed") this.#close(new Error("its answer is cut up wrongly"));
  }

  readonly #onBody = (bytes: Buffer): void => this.#request?.receiver.body(bytes);

  /** The response is complete. `isClean`: no bytes follow it, so the connection can be reused. */
  #endResponse(isClean: boolean): void {
    const { receiver } = this.#request ?? {};
    // A server that responds before it has read the whole request may never read the rest.
    const isReusable = this.#head?.isReusable === true && isClean && !this.#isWritePending;
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
    this.#socket.destroy();
    this.#events.closed(this);
    receiver?.fail(error, false);
  }
}

/** The `timeout` parameter of a `Keep-Alive` header, in ms. */
function keepAliveTimeoutOf(header: string | undefined): number | undefined {
  const [, seconds] = /\btimeout=(\d{1,6})\b/i.exec(header ?? "") ?? [];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}

/** Why the bytes are not an HTTP response. */
function describeNonHttp(bytes: Buffer): string {
  // A TLS alert record.
  if (bytes[0] === 0x15 && bytes[1] === 0x03)
    return "it speaks TLS: the URL has to begin with https";
  return "what it answers is not HTTP";
}
