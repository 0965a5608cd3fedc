import { Buffer } from "node:buffer";
import {
  type BodyDecoder,
  chunkedDecoder,
} from "../../../transport/http-client/response-parser.ts";
import type { BodyError, HttpRequestHead, RequestHeaders } from "./messages.ts";

/** A parsed request head, with the framing of the body that follows. */
export interface ParsedRequestHead extends HttpRequestHead {
  /** Length of the body in bytes; "chunked" for the chunked transfer coding. */
  readonly body: number | "chunked";
  /** The client waits for `100 Continue` before it sends the body. */
  readonly expectsContinue: boolean;
  /** Whether another request may follow on the connection (a persistent connection). */
  readonly isPersistent: boolean;
  /** Whether the client understands the chunked transfer coding (HTTP/1.1). */
  readonly acceptsChunked: boolean;
}

/** The status with which a request head is rejected. */
export interface HeadError {
  readonly status: 400 | 417 | 431 | 501 | 505;
}

/** Longest head, in bytes. */
export const MAX_REQUEST_HEAD = 16 * 1024;

const HEAD_END = "\r\n\r\n";
const LINE_END = "\r\n";
/** Also matches the absolute form (`GET http://…`), which servers have to accept (RFC 9112, 3.2.2). */
const REQUEST_LINE =
  /^([!#$%&'*+.^_`|~\w-]{1,32}) (?:[Hh][Tt]{2}[Pp]:\/\/([^/?#\s]+))?(\/[\x21-\x7e]*) HTTP\/1\.([01])$/;
const OTHER_VERSION = / HTTP\/(?:0|[2-9])[.\d]*$/;
/** No space before the colon, no folded lines, no control characters (RFC 9112, 5). */
// oxlint-disable-next-line no-control-regex
const HEADER_LINE = /^([!#$%&'*+.^_`|~\w-]+):[ \t]?([^\x00-\x08\x0a-\x1f\x7f]*)$/;
/** A host name or address with an optional port; no user, path or list (RFC 9112, 3.2). */
const HOST_PATTERN = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/i;
const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;

/**
 * Parses a request head from the first bytes of a request. Strict: a head that another parser might frame differently
 * is rejected, as a proxy in front may have passed it (request smuggling, RFC 9112, 11.2).
 * @returns the head and the offset of the bytes after it; undefined if it is incomplete
 */
export function parseRequestHead(
  bytes: Buffer,
): { readonly head: ParsedRequestHead; readonly end: number } | HeadError | undefined {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd < 0 ? bytes.length > MAX_REQUEST_HEAD : headEnd > MAX_REQUEST_HEAD)
    return { status: 431 };
  if (headEnd < 0) return mayBeRequest(bytes) ? undefined : { status: 400 };
  const [first = "", ...lines] = bytes.toString("latin1", 0, headEnd).split(LINE_END);
  const [, method = "", authority, target = "", minor] = REQUEST_LINE.exec(first) ?? [];
  if (minor === undefined) return { status: OTHER_VERSION.test(first) ? 505 : 400 };
  const headers = new HeaderMap();
  for (const line of lines) {
    const [, name, value] = HEADER_LINE.exec(line) ?? [];
    if (name === undefined || value === undefined) return { status: 400 };
    if (!headers.add(name.toLowerCase(), trim(value))) return { status: 400 };
  }
  const isHttp11 = minor === "1";
  if (isHttp11 && headers.get("host") === null) return { status: 400 };
  if (authority !== undefined) headers.replace("host", authority);
  if (!HOST_PATTERN.test(headers.get("host") ?? "")) return { status: 400 };
  const body = bodyFramingOf(headers, isHttp11);
  if (typeof body === "object") return body;
  const expected = headers.get("expect");
  if (expected !== null && expected.toLowerCase() !== "100-continue") return { status: 417 };
  const head: ParsedRequestHead = {
    method,
    target,
    headers,
    body,
    expectsContinue: isHttp11 && expected !== null,
    isPersistent: isHttp11 && !/\bclose\b/i.test(headers.get("connection") ?? ""),
    acceptsChunked: isHttp11,
  };
  return { head, end: headEnd + HEAD_END.length };
}

/** Removes blanks at both ends; matching them in HEADER_LINE would take quadratic time. */
function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text.charCodeAt(start))) start++;
  while (start < end && isBlank(text.charCodeAt(end - 1))) end--;
  return end - start === text.length ? text : text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}

/** Whether a head may begin like this. A client that speaks another protocol, such as TLS, is answered at once. */
function mayBeRequest(bytes: Buffer): boolean {
  const [first = CR] = bytes;
  const isText = first > SPACE && first < 0x7f;
  if (!isText && !(first === CR && bytes.length <= 1)) return false;
  const end = bytes.indexOf(LF);
  return end < 0 || bytes[end - 1] === CR;
}

/** The length of the body (RFC 9112, 6.3). Strict, because a proxy and this server must find the same length. */
function bodyFramingOf(
  headers: RequestHeaders,
  isHttp11: boolean,
): ParsedRequestHead["body"] | HeadError {
  const coding = headers.get("transfer-encoding");
  const length = headers.get("content-length");
  if (coding === null) {
    if (length === null) return 0;
    return /^\d{1,15}$/.test(length) ? Number(length) : { status: 400 };
  }
  if (length !== null || !isHttp11) return { status: 400 };
  return coding.toLowerCase() === "chunked" ? "chunked" : { status: 501 };
}

/** Headers that must not occur twice. */
const SINGLE_HEADERS: ReadonlySet<string> = new Set([
  "host",
  "content-length",
  "transfer-encoding",
]);

class HeaderMap implements RequestHeaders {
  readonly #values = new Map<string, string>();

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }

  [Symbol.iterator](): Iterator<[string, string]> {
    return this.#values[Symbol.iterator]();
  }

  /** @returns false if the header must not occur twice */
  add(name: string, value: string): boolean {
    const before = this.#values.get(name);
    this.#values.set(name, before === undefined ? value : `${before}, ${value}`);
    return before === undefined || !SINGLE_HEADERS.has(name);
  }

  replace(name: string, value: string): void {
    this.#values.set(name, value);
  }
}

const EMPTY: Buffer = Buffer.alloc(0);
/**
 * A body must end, or grow by `MIN_PROGRESS` bytes, within this many checks. A body that makes progress may take long.
 */
const MAX_CHECKS = 12;
const MIN_PROGRESS = 1024 * 1024;
/**
 * Pieces are joined when there are this many: each piece costs memory besides its bytes, and a client may send
 * millions.
 */
const MAX_PIECES = 1024;

/** Limits the memory that all bodies being received take together; `size` is in bytes. */
export class BodyQuota {
  #available: number;

  constructor(size: number) {
    this.#available = size;
  }

  /** Takes `size` bytes from the quota. @returns false if less is left; then nothing is taken */
  reserve(size: number): boolean {
    if (size > this.#available) return false;
    this.#available -= size;
    return true;
  }

  release(size: number): void {
    this.#available += size;
  }
}

/** A request's body while it is received: its bytes are buffered until it is read, and discarded once it has failed. */
export class RequestBody {
  readonly #quota: BodyQuota;
  readonly #decoder: BodyDecoder | undefined;
  /** How many bytes have yet to be received; Infinity for a chunked body. */
  #remaining: number;
  #pieces: Buffer[] = [];
  /** The pieces since the last join. */
  #recent: Buffer[] = [];
  #size = 0;
  /** How many bytes were taken from the quota. */
  #reserved = 0;
  #limit = Infinity;
  #checks = 0;
  /** Size of the body when the current `MAX_CHECKS` checks began, in bytes. */
  #sizeBefore = 0;
  #outcome: "whole" | BodyError | undefined;
  #resolve: ((body: Buffer | BodyError) => void) | undefined;
  /** Whether the body has ended at a known offset, at which the next request begins. */
  isEndCertain = false;

  constructor(length: ParsedRequestHead["body"], quota: BodyQuota) {
    this.#quota = quota;
    this.#decoder = length === "chunked" ? chunkedDecoder({ isStrict: true }) : undefined;
    this.#remaining = length === "chunked" ? Infinity : length;
    if (length === 0) this.#complete(true);
  }

  /** Adds a received chunk. @returns the bytes that follow the body */
  push(chunk: Buffer): Buffer {
    if (this.isEndCertain || chunk.length === 0) return chunk;
    if (this.#decoder !== undefined) {
      this.#pushChunked(this.#decoder, chunk);
      return EMPTY;
    }
    const isAll = chunk.length <= this.#remaining;
    const piece = isAll ? chunk : chunk.subarray(0, this.#remaining);
    this.#remaining -= piece.length;
    this.#add(piece);
    if (this.#remaining === 0) this.#complete(true);
    return isAll ? EMPTY : chunk.subarray(piece.length);
  }

  /** See `HttpServerRequest.read`. @param onIncomplete called if the body is not complete yet */
  read(limit: number, onIncomplete: () => void): Buffer | BodyError | Promise<Buffer | BodyError> {
    this.#limit = limit;
    if (
      this.#size > limit ||
      (this.#remaining !== Infinity && this.#size + this.#remaining > limit)
    ) {
      this.fail("tooLarge");
    }
    if (this.#outcome !== undefined) return this.#resultOf(this.#outcome);
    onIncomplete();
    return new Promise((resolve) => (this.#resolve = resolve));
  }

  /** The body will not be complete, or is not needed. */
  fail(error: BodyError): void {
    if (this.#outcome === undefined) this.#finish(error);
    else this.#release();
  }

  check(): void {
    if (++this.#checks <= MAX_CHECKS) return;
    if (this.#size - this.#sizeBefore < MIN_PROGRESS) this.fail("tooSlow");
    this.#checks = 1;
    this.#sizeBefore = this.#size;
  }

  #pushChunked(decoder: BodyDecoder, chunk: Buffer): void {
    if (this.#outcome !== undefined) return;
    const state = decoder.push(chunk, (piece) => this.#add(piece));
    if (state === "malformed") this.fail("broken");
    // Bytes after the end in the same chunk are not searched for a request: the connection closes instead.
    else if (state !== "more") this.#complete(state === "end");
  }

  #add(piece: Buffer): void {
    if (this.#outcome !== undefined) return;
    this.#size += piece.length;
    if (this.#size > this.#limit) {
      this.fail("tooLarge");
      return;
    }
    if (!this.#quota.reserve(piece.length)) {
      this.fail("tooMany");
      return;
    }
    this.#reserved += piece.length;
    this.#recent.push(piece);
    if (this.#recent.length >= MAX_PIECES) this.#joinPieces();
  }

  #complete(isEndCertain: boolean): void {
    // The end of a discarded body is known, too, if its length is known.
    this.isEndCertain =
      isEndCertain && (this.#decoder === undefined || this.#outcome === undefined);
    if (this.#outcome === undefined) this.#finish("whole");
  }

  #joinPieces(): void {
    this.#pieces.push(Buffer.concat(this.#recent));
    this.#recent = [];
  }

  #finish(outcome: "whole" | BodyError): void {
    this.#outcome = outcome;
    if (outcome !== "whole") this.#release();
    this.#resolve?.(this.#resultOf(outcome));
  }

  /** Drops the buffered bytes and returns their quota. */
  #release(): void {
    if (this.#reserved === 0) return;
    this.#pieces = this.#recent = [];
    this.#quota.release(this.#reserved);
    this.#reserved = 0;
  }

  #resultOf(outcome: "whole" | BodyError): Buffer | BodyError {
    if (outcome !== "whole") return outcome;
    const pieces = [...this.#pieces, ...this.#recent];
    this.#release();
    const [first = EMPTY] = pieces;
    return pieces.length > 1 ? Buffer.concat(pieces, this.#size) : first;
  }
}
