import type { Buffer } from "node:buffer";
import type { RequestHeaders, HttpRequestHead } from "./messages.ts";

/** A parsed request head, with the framing of the body that follows. */
export interface ParsedRequestHead extends HttpRequestHead {
  /** Length of the body in bytes, or that it is chunked. */
  readonly body: number | "chunked";
  /** The client waits for `100 Continue` before it sends the body. */
  readonly expectsContinue: boolean;
  /** Persistent connection: another request may follow. */
  readonly isPersistent: boolean;
  /** The client understands chunked transfer coding (HTTP/1.1). */
  readonly acceptsChunked: boolean;
}

/** The status for a head that cannot be served. */
export interface HeadError {
  readonly status: 400 | 417 | 431 | 501 | 505;
}

/** Longest head, in bytes. */
export const MAX_REQUEST_HEAD = 16 * 1024;

const HEAD_END = "\r\n\r\n";
const LINE_END = "\r\n";
/** The absolute form is meant for proxies, but a server has to accept it (RFC 9112, 3.2.2). */
const REQUEST_LINE =
  /^([!#$%&'*+.^_`|~\w-]{1,32}) (?:[Hh][Tt]{2}[Pp]:\/\/([^/?#\s]+))?(\/[\x21-\x7e]*) HTTP\/1\.([01])$/;
const OTHER_VERSION = / HTTP\/(?:0|[2-9])[.\d]*$/;
/** No space before the colon, no folded lines, no control characters (RFC 9112, 5). */
// oxlint-disable-next-line no-control-regex
const HEADER_LINE = /^([!#$%&'*+.^_`|~\w-]+):[ \t]?([^\x00-\x08\x0a-\x1f\x7f]*)$/;
/** A name or an address, and a port: no user, no path, no list (RFC 9112, 3.2). */
const HOST_PATTERN = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/i;
const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;

/**
 * Parses a request head from the first bytes of a request. Strict: what another parser might frame differently is
 * refused, as a proxy in front may have passed it (request smuggling, RFC 9112, 11.2).
 * @returns the head and the offset of what follows it; undefined if it is incomplete
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

/** Removes blanks at both ends; in the pattern of a line they would cost quadratic time. */
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

/** Whether a head may begin like this. A client that speaks another protocol, such as TLS, gets its answer at once. */
function mayBeRequest(bytes: Buffer): boolean {
  const [first = CR] = bytes;
  const isText = first > SPACE && first < 0x7f;
  if (!isText && !(first === CR && bytes.length <= 1)) return false;
  const end = bytes.indexOf(LF);
  return end < 0 || bytes[end - 1] === CR;
}

/** The length of the body (RFC 9112, 6.3). Proxy and server must never differ in it. */
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

/** Headers that may occur once. */
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
