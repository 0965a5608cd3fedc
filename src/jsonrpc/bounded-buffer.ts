import { Buffer } from "node:buffer";
import { lastBytes, TRUNCATED_EDGE } from "./line-reader.ts";

/** What is kept of a message over the limit: its first and last bytes, up to 4 KiB each, and its size in bytes. */
export interface Truncated {
  readonly head: Buffer;
  readonly tail: Buffer;
  readonly size: number;
}

export function isTruncated(gathered: Buffer | Truncated): gathered is Truncated {
  return "head" in gathered;
}

/** A buffer of chunks with a size limit, joined once at the end. Over the limit it keeps only head and tail. */
export class BoundedBuffer {
  readonly #limit: number;
  #pieces: Buffer[] = [];
  #excess: { readonly head: Buffer; tail: Buffer } | undefined;
  size = 0;

  /** @param limit maximum size, in bytes */
  constructor(limit: number) {
    this.#limit = limit;
  }

  add(piece: Buffer): void {
    this.size += piece.length;
    if (this.#excess !== undefined) {
      this.#excess.tail = lastBytes(this.#excess.tail, piece);
      return;
    }
    this.#pieces.push(piece);
    if (this.size <= this.#limit) return;
    const head = Buffer.concat(this.#pieces, Math.min(this.size, TRUNCATED_EDGE));
    this.#excess = { head, tail: this.#pieces.reduce(lastBytes, Buffer.alloc(0)) };
    this.#pieces = [];
  }

  /** Returns the content and empties the buffer. */
  take(): Buffer | Truncated {
    const { size } = this;
    const excess = this.#excess;
    const pieces = this.#pieces;
    this.size = 0;
    this.#excess = undefined;
    this.#pieces = [];
    if (excess !== undefined) return { ...excess, size };
    return pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces, size);
  }
}
