import type { Buffer } from "node:buffer";

/** Status line and header fields of an HTTP/1.x response. */
export interface ResponseHead {
  readonly status: number;
  /**
   * The names are in lower case; the values of repeated fields are joined with commas. `Set-Cookie`, whose values cannot
   * be joined, is not among them.
   */
  readonly headers: ReadonlyMap<string, string>;
  /** The values of the `Set-Cookie` fields; undefined if there are none. */
  readonly cookies?: readonly string[] | undefined;
  readonly isReusable: boolean;
}

/** Maximum size of a response head that is not complete yet, in bytes. */
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
): { readonly head: ResponseHead; readonly bodyStart: number } | "malformed" | undefined {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd < 0) return mayBeIncomplete(bytes) ? undefined : "malformed";
  const text = bytes.toString("latin1", 0, headEnd);
  const [, minorVersion, status] = STATUS_LINE.exec(text) ?? [];
  if (status === undefined) return "malformed";
  const headers = new Map<string, string>();
  let cookies: string[] | undefined;
  let lineEnd = text.indexOf("\r\n");
  while (lineEnd >= 0) {
    const lineStart = lineEnd + 2;
    lineEnd = text.indexOf("\r\n", lineStart);
    const colon = text.indexOf(":", lineStart);
    const isField = colon > lineStart && (lineEnd < 0 || colon < lineEnd);
    const firstChar = text.charCodeAt(lineStart);
    // Line folding is obsolete (RFC 9112, 5.2) and is used in attacks, so it is rejected.
    if (!isField || firstChar === 0x20 || firstChar === 0x09) return "malformed";
    const name = text.slice(lineStart, colon).toLowerCase();
    const value = text.slice(colon + 1, lineEnd < 0 ? text.length : lineEnd).trim();
    if (name === "set-cookie") {
      (cookies ??= []).push(value);
      continue;
    }
    const previous = headers.get(name);
    headers.set(name, previous === undefined ? value : `${previous}, ${value}`);
  }
  const connection = headers.get("connection");
  // If both headers are present, an intermediary may find another end of the body (RFC 9112, 6.3), so the connection is
  // not reused.
  const isAmbiguous = headers.has("transfer-encoding") && headers.has("content-length");
  const isKeepAlive =
    minorVersion === "1"
      ? connection === undefined || !/\bclose\b/i.test(connection)
      : connection !== undefined && /\bkeep-alive\b/i.test(connection);
  const isReusable = isKeepAlive && !isAmbiguous;
  return {
    head: {
      status: Number(status),
      headers,
      isReusable,
      ...(cookies !== undefined && { cookies }),
    },
    bodyStart: headEnd + HEAD_END.length,
  };
}

const STATUS_LINE_START = "HTTP/1.";

/**
 * Whether the bytes may be the start of a head. A head that ends with LF LF is rejected at once: the parser would wait
 * for its CRLF CRLF without end.
 */
function mayBeIncomplete(bytes: Buffer): boolean {
  if (bytes.length > MAX_RESPONSE_HEAD || bytes.includes("\n\n")) return false;
  const start = bytes.toString("latin1", 0, Math.min(bytes.length, STATUS_LINE_START.length));
  return STATUS_LINE_START.startsWith(start);
}

/** The state of the body after a chunk. `endWithExtra`: the body is complete, but unexpected bytes follow. */
type BodyProgress = "more" | "end" | "endWithExtra" | "malformed";

export interface BodyDecoder {
  /** Decodes the next chunk and passes the body bytes in it to `onData`. */
  push(chunk: Buffer, onData: (bytes: Buffer) => void): BodyProgress;
  readonly endsWithConnection?: true;
}

/** Makes the decoder for a body, depending on how its end is marked (RFC 9112, 6.3). `none`: there is no body. */
export function bodyDecoderOf(
  { status, headers }: ResponseHead,
  method: string,
): BodyDecoder | "none" | "malformed" {
  if (method === "HEAD" || status === 204 || status === 304) return "none";
  const transferCoding = headers.get("transfer-encoding");
  if (transferCoding !== undefined) {
    return transferCoding.toLowerCase() === "chunked" ? new ChunkedDecoder() : "malformed";
  }
  const contentLength = headers.get("content-length");
  if (contentLength === undefined) return UNTIL_CLOSE;
  const [first = "", ...others] = contentLength.split(",").map((part) => part.trim());
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
/** Maximum length of a chunk-size or trailer line, and of all trailers, in bytes. */
const MAX_LENGTH = { line: 4096, trailers: 16 * 1024 };

/**
 * Decodes the chunked transfer coding (RFC 9112, 7.1). Accepts lines that end with LF alone, as some servers send them.
 */
class ChunkedDecoder implements BodyDecoder {
  #state: "size" | "data" | "chunkEnd" | "trailer" = "size";
  #remaining = 0;
  /** The beginning of a chunk-size or trailer line whose end was not received yet. */
  #line = "";
  #trailerLength = 0;

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
      const line = this.#line.replace(/\r$/, "");
      this.#line = "";
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
