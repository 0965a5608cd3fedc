import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import { joinPieces, type Piece, sizeOf, toBytes } from "../../base/bytes.ts";

/** State of the body after a chunk. `beyond`: the body is complete, and unexpected bytes follow it. */
type Progress = "more" | "end" | "beyond" | "malformed";

/** Decodes the body of a response from the bytes of its connection. */
export interface BodyDecoder {
  /** Decodes the next chunk and passes the body bytes in it to `take`. */
  push(chunk: Buffer, take: (bytes: Buffer) => void): Progress;
  /** The body ends when the connection closes. */
  readonly isOpen?: true;
}

/** Chooses how the body is delimited (RFC 9112, 6.3). `none`: there is no body. */
export function bodyDecoderOf(
  { status, fields }: ResponseHead,
  method: string,
): BodyDecoder | "none" | "malformed" {
  if (method === "HEAD" || status === 204 || status === 304) return "none";
  const coding = fields.get("transfer-encoding");
  if (coding !== undefined) {
    return coding.toLowerCase() === "chunked" ? new ChunkedBody(false) : "malformed";
  }
  const length = fields.get("content-length");
  if (length === undefined) return OPEN_BODY;
  const [first = "", ...others] = length.split(/\s*,\s*/);
  if (!/^\d{1,15}$/.test(first) || others.some((other) => other !== first)) return "malformed";
  return Number(first) === 0 ? "none" : new SizedBody(Number(first));
}

const OPEN_BODY: BodyDecoder = {
  isOpen: true,
  push(chunk, take) {
    take(chunk);
    return "more";
  },
};

/**
 * A decoder of the chunked transfer coding (RFC 9112, 7.1).
 * @param isStrict whether lines must end with CRLF and contain no bare CR or NUL. Requests are read strictly, because
 * lenient parsing allows request smuggling; responses leniently.
 */
export function chunkedDecoder({ isStrict }: { readonly isStrict: boolean }): BodyDecoder {
  return new ChunkedBody(isStrict);
}

class SizedBody implements BodyDecoder {
  #left: number;

  constructor(size: number) {
    this.#left = size;
  }

  push(chunk: Buffer, take: (bytes: Buffer) => void): Progress {
    if (chunk.length > this.#left) {
      take(chunk.subarray(0, this.#left));
      return "beyond";
    }
    this.#left -= chunk.length;
    take(chunk);
    return this.#left === 0 ? "end" : "more";
  }
}

const LF = 0x0a;
const SIZE = /^([0-9a-f]{1,12})[ \t]*(?:;|$)/i;
/** Bytes that some parsers take for the end of a line. */
// oxlint-disable-next-line no-control-regex
const ENDS_ELSEWHERE = /[\x00\r]/;
/** Maximum length of a chunk-size or trailer line, and of all trailers, in bytes. */
const LONGEST = { line: 4096, trailers: 16 * 1024 };

/** The chunked transfer coding (RFC 9112, 7.1). */
class ChunkedBody implements BodyDecoder {
  readonly #isStrict: boolean;
  #at: "size" | "data" | "break" | "trailer" = "size";
  #left = 0;
  /** The current chunk-size or trailer line, as far as it was received. */
  #line = "";
  #trailers = 0;

  constructor(isStrict: boolean) {
    this.#isStrict = isStrict;
  }

  push(chunk: Buffer, take: (bytes: Buffer) => void): Progress {
    let from = 0;
    while (from < chunk.length) {
      if (this.#at === "data") {
        const end = Math.min(chunk.length, from + this.#left);
        this.#left -= end - from;
        if (this.#left === 0) this.#at = "break";
        take(from === 0 && end === chunk.length ? chunk : chunk.subarray(from, end));
        from = end;
        continue;
      }
      const end = chunk.indexOf(LF, from);
      this.#line += chunk.toString("latin1", from, end < 0 ? chunk.length : end);
      if (this.#line.length > LONGEST.line) return "malformed";
      if (end < 0) return "more";
      from = end + 1;
      const isWhole = this.#line.endsWith("\r");
      const line = isWhole ? this.#line.slice(0, -1) : this.#line;
      this.#line = "";
      if (this.#isStrict && (!isWhole || ENDS_ELSEWHERE.test(line))) return "malformed";
      const found = this.#read(line);
      if (found === "end") return from === chunk.length ? "end" : "beyond";
      if (found === "malformed") return found;
    }
    return "more";
  }

  #read(line: string): "more" | "end" | "malformed" {
    switch (this.#at) {
      case "size": {
        const [, size] = SIZE.exec(line) ?? [];
        if (size === undefined) return "malformed";
        this.#left = Number.parseInt(size, 16);
        this.#at = this.#left === 0 ? "trailer" : "data";
        return "more";
      }
      case "trailer":
        this.#trailers += line.length;
        if (line === "") return "end";
        return this.#trailers > LONGEST.trailers ? "malformed" : "more";
      default:
        this.#at = "size";
        return line === "" ? "more" : "malformed";
    }
  }
}

/** Status line and header fields of an HTTP/1.x response. */
export interface ResponseHead {
  readonly status: number;
  /** By names in lower case; repeated fields are joined with commas. */
  readonly fields: ReadonlyMap<string, string>;
  /** Whether the connection may be reused afterwards. */
  readonly isLasting: boolean;
}

/** Maximum size of a response head, in bytes. */
export const MAX_RESPONSE_HEAD = 64 * 1024;

const END = "\r\n\r\n";
const STATUS = /^HTTP\/1\.([01]) (\d{3})(?=[ \r]|$)/;

/**
 * Parses the head of a response.
 * @returns the head and the offset of the body; undefined if bytes are missing; `malformed` if it is not an HTTP/1.x
 * head
 */
export function parseResponseHead(
  bytes: Buffer,
): { readonly head: ResponseHead; readonly end: number } | "malformed" | undefined {
  const at = bytes.indexOf(END);
  if (at < 0) return mayGoOn(bytes) ? undefined : "malformed";
  const text = bytes.toString("latin1", 0, at);
  const [, minor, status] = STATUS.exec(text) ?? [];
  if (status === undefined) return "malformed";
  const fields = new Map<string, string>();
  let end = text.indexOf("\r\n");
  while (end >= 0) {
    const start = end + 2;
    end = text.indexOf("\r\n", start);
    const colon = text.indexOf(":", start);
    const isField = colon > start && (end < 0 || colon < end);
    const first = text.charCodeAt(start);
    // Line folding is obsolete (RFC 9112, 5.2) and is used in attacks.
    if (!isField || first === 0x20 || first === 0x09) return "malformed";
    const name = text.slice(start, colon).toLowerCase();
    const value = text.slice(colon + 1, end < 0 ? text.length : end).trim();
    const before = fields.get(name);
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const connection = fields.get("connection");
  // With both headers an intermediary may delimit the body differently (RFC 9112, 6.3).
  const isDoubtful = fields.has("transfer-encoding") && fields.has("content-length");
  const isKept =
    minor === "1"
      ? connection === undefined || !/\bclose\b/i.test(connection)
      : connection !== undefined && /\bkeep-alive\b/i.test(connection);
  const isLasting = isKept && !isDoubtful;
  return { head: { status: Number(status), fields, isLasting }, end: at + END.length };
}

const BEGINNING = "HTTP/1.";

/**
 * Whether the bytes may be the start of a head. Bare LF line ends are rejected: such a head would never be complete.
 */
function mayGoOn(bytes: Buffer): boolean {
  if (bytes.length > MAX_RESPONSE_HEAD || bytes.includes("\n\n")) return false;
  const first = bytes.toString("latin1", 0, Math.min(bytes.length, BEGINNING.length));
  return BEGINNING.startsWith(first);
}

/** Receives the response to a request. `end` or `fail` is called last, once; nothing is called after cancellation. */
export interface ResponseReceiver {
  /** The whole request was written. */
  sent?(): void;
  head(head: ResponseHead): void;
  /** A part of the body; the receiver owns the memory. */
  body(bytes: Buffer): void;
  end(): void;
  /** There is no complete response. `undelivered`: no byte of the request has left this process. */
  fail(error: Error, undelivered: boolean): void;
}

/** A serialized request. */
export interface HttpRequestBytes {
  readonly method: string;
  /** Request line and headers, with the empty line after them. */
  readonly head: string;
  readonly body: readonly Piece[];
  readonly receiver: ResponseReceiver;
}

/** Callbacks of a connection to its pool. */
export interface HttpConnectionEvents {
  /** The connection can take another request. */
  freed(lane: HttpConnection): void;
  /** The connection is closed; called once. */
  gone(lane: HttpConnection): void;
}

/** Requests up to this size are sent in one write, in bytes. */
const SMALL = 64 * 1024;

/** One HTTP/1.1 connection to a server. Sends one request at a time, without pipelining. */
export class HttpConnection {
  readonly #socket: Socket;
  readonly #owner: HttpConnectionEvents;
  #parcel: HttpRequestBytes | undefined;
  /** The first bytes of an incomplete head. */
  #start: Buffer | undefined;
  #head: ResponseHead | undefined;
  /**
   * The last head with its bytes. The responses of a server often have the same head, and comparing is cheaper than
   * parsing.
   */
  #known: { readonly bytes: Buffer; readonly head: ResponseHead } | undefined;
  #body: BodyDecoder | undefined;
  #isGone = false;
  /** Whether a part of the request still waits in the socket's buffer. */
  #isFull = false;
  #isPaused = false;
  /** The idle timeout that the server has sent in `Keep-Alive`, in ms. */
  patience: number | undefined;
  /** Since when the connection is idle, in ms of `performance.now()`. */
  restsSince = 0;

  constructor(socket: Socket, owner: HttpConnectionEvents) {
    this.#socket = socket;
    this.#owner = owner;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("drain", () => this.#drained());
    socket.on("end", () => this.#ended());
    socket.on("error", (error) => this.#lose(error));
    socket.on("close", () => this.#lose(new Error("the connection was closed")));
  }

  send(parcel: HttpRequestBytes): void {
    this.#parcel = parcel;
    const { head, body, receiver } = parcel;
    let size = head.length;
    for (const piece of body) size += sizeOf(piece);
    let isTaken = true;
    if (size <= SMALL) {
      isTaken = this.#socket.write(joinPieces([head, ...body]));
    } else {
      this.#socket.cork();
      this.#socket.write(head, "latin1");
      for (const piece of body) isTaken = this.#socket.write(toBytes(piece));
      this.#socket.uncork();
    }
    if (isTaken) receiver.sent?.();
    else this.#isFull = true;
  }

  carries(parcel: HttpRequestBytes): boolean {
    return this.#parcel === parcel;
  }

  /** Closes the connection; the receiver of a current request is not called. */
  drop(): void {
    this.#parcel = undefined;
    this.#lose(new Error("the connection was given up"));
  }

  pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#socket.resume();
  }

  #drained(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    this.#parcel?.receiver.sent?.();
  }

  #read(chunk: Buffer): void {
    if (this.#isGone) return;
    if (this.#body !== undefined) {
      this.#readBody(this.#body, chunk);
      return;
    }
    if (this.#parcel === undefined) {
      this.drop();
      return;
    }
    const bytes = this.#start === undefined ? chunk : Buffer.concat([this.#start, chunk]);
    const found = this.#readHead(bytes);
    if (found === "malformed") this.#lose(new Error(describe(bytes)));
    else if (found === undefined) this.#start = bytes;
    else this.#begin(found.head, bytes.subarray(found.end));
  }

  #readHead(bytes: Buffer): ReturnType<typeof parseResponseHead> {
    const known = this.#known;
    const end = known?.bytes.length ?? Infinity;
    if (known !== undefined && end <= bytes.length) {
      if (known.bytes.compare(bytes, 0, end) === 0) return { head: known.head, end };
    }
    const found = parseResponseHead(bytes);
    if (found !== undefined && found !== "malformed") {
      // A copy, so that the chunk with the body is not retained.
      this.#known = { bytes: Buffer.from(bytes.subarray(0, found.end)), head: found.head };
    }
    return found;
  }

  #begin(head: ResponseHead, rest: Buffer): void {
    this.#start = undefined;
    const parcel = this.#parcel;
    if (parcel === undefined) return;
    if (head.status < 200) {
      if (head.status === 101) this.#lose(new Error("it wants to speak another protocol (101)"));
      else if (rest.length > 0) this.#read(rest);
      return;
    }
    const body = bodyDecoderOf(head, parcel.method);
    if (body === "malformed") {
      this.#lose(new Error("its answer does not say how long it is"));
      return;
    }
    const coding = head.fields.get("content-encoding") ?? "identity";
    if (coding.toLowerCase() !== "identity") {
      this.#lose(
        new Error(`it answers compressed (${coding.slice(0, 50)}), which it was asked not to do`),
      );
      return;
    }
    this.#head = head;
    parcel.receiver.head(head);
    if (this.#isGone) return;
    if (body === "none") {
      this.#finish(rest.length === 0);
      return;
    }
    this.#body = body;
    if (rest.length > 0) this.#readBody(body, rest);
  }

  #readBody(body: BodyDecoder, chunk: Buffer): void {
    const found = body.push(chunk, this.#take);
    if (this.#isGone) return;
    if (found === "end" || found === "beyond") this.#finish(found === "end");
    else if (found === "malformed") this.#lose(new Error("its answer is cut up wrongly"));
  }

  readonly #take = (bytes: Buffer): void => this.#parcel?.receiver.body(bytes);

  /** The response is complete. `isClean`: no bytes follow it, so the connection can be reused. */
  #finish(isClean: boolean): void {
    const { receiver } = this.#parcel ?? {};
    // A server that responds before it has read the whole request may never read the rest.
    const isLasting = this.#head?.isLasting === true && isClean && !this.#isFull;
    this.patience = restOf(this.#head?.fields.get("keep-alive"));
    this.#parcel = undefined;
    this.#head = undefined;
    this.#body = undefined;
    if (this.#isPaused) this.resume();
    if (isLasting) this.#owner.freed(this);
    else this.drop();
    receiver?.end();
  }

  #ended(): void {
    if (this.#body?.isOpen === true) this.#finish(true);
    else this.#lose(new Error("the connection was closed"));
  }

  #lose(error: Error): void {
    if (this.#isGone) return;
    this.#isGone = true;
    const { receiver } = this.#parcel ?? {};
    this.#parcel = undefined;
    this.#start = undefined;
    this.#body = undefined;
    this.#socket.destroy();
    this.#owner.gone(this);
    receiver?.fail(error, false);
  }
}

/** The `timeout` parameter of a `Keep-Alive` header, in ms. */
function restOf(field: string | undefined): number | undefined {
  const [, seconds] = /\btimeout=(\d{1,6})\b/i.exec(field ?? "") ?? [];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}

/** Why the bytes are not an HTTP response. */
function describe(bytes: Buffer): string {
  // A TLS alert record.
  if (bytes[0] === 0x15 && bytes[1] === 0x03)
    return "it speaks TLS: the URL has to begin with https";
  return "what it answers is not HTTP";
}
