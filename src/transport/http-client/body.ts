import type { Buffer } from "node:buffer";
import type { ResponseHead } from "./head.ts";

/** What has come of a body: `beyond` is all of it, with something behind it that nobody asked for; `malformed` is none. */
type Progress = "more" | "end" | "beyond" | "malformed";

/** Takes an answer's body out of the bytes of a connection. */
export interface BodyDecoder {
  /** Hands on what of the body is in the chunk. */
  push(chunk: Buffer, take: (bytes: Buffer) => void): Progress;
  /** Whether it ends with the connection. */
  readonly isOpen?: true;
}

/** How the body of the answer with that head is told from what follows it (RFC 9112, 6.3). */
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
 * A body in chunks, each behind its size.
 * @param isStrict whether lines end with both CR and LF alone, as they have to: servers are forgiven what might hide another
 * request if a client did it
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
/** What some take for the end of a line. */
// oxlint-disable-next-line no-control-regex
const ENDS_ELSEWHERE = /[\x00\r]/;
/** The longest line that is none of the body, and all that may follow it, in bytes. */
const LONGEST = { line: 4096, trailers: 16 * 1024 };

/** The body in chunks, each behind its size (RFC 9112, 7.1). */
class ChunkedBody implements BodyDecoder {
  readonly #isStrict: boolean;
  #at: "size" | "data" | "break" | "trailer" = "size";
  #left = 0;
  /** A line that has not ended yet. */
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
