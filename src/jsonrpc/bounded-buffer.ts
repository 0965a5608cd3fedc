import { Buffer } from "node:buffer";
import { lastBytes, TRUNCATED_EDGE } from "./line-reader.ts";

/**
 * The parts that are kept of a message over the size limit: its first and last bytes, up to 4 KiB each, and its size in
 * bytes.
 */
export interface TruncatedMessage {
  readonly head: Buffer;
  readonly tail: Buffer;
  readonly size: number;
}

export function isTruncated(content: Buffer | TruncatedMessage): content is TruncatedMessage {
  return "head" in content;
}

/** Collects chunks up to a size limit, and joins them once, in `take`. Above the limit, it keeps only head and tail. */
export class BoundedBuffer {
  readonly #limit: number;
  #chunks: Buffer[] = [];
  #truncated: { readonly head: Buffer; tail: Buffer } | undefined;
  size = 0;

  /** @param limit maximum size, in bytes */
  constructor(limit: number) {
    this.#limit = limit;
  }

  add(chunk: Buffer): void {
    this.size += chunk.length;
    if (this.#truncated !== undefined) {
      this.#truncated.tail = lastBytes(this.#truncated.tail, chunk);
      return;
    }
    this.#chunks.push(chunk);
    if (this.size <= this.#limit) return;
    const head = Buffer.concat(this.#chunks, Math.min(this.size, TRUNCATED_EDGE));
    this.#truncated = { head, tail: this.#chunks.reduce(lastBytes, Buffer.alloc(0)) };
    this.#chunks = [];
  }

  /** Returns the content and empties the buffer. */
  take(): Buffer | TruncatedMessage {
    const { size } = this;
    const truncated = this.#truncated;
    const chunks = this.#chunks;
    this.size = 0;
    this.#truncated = undefined;
    this.#chunks = [];
    if (truncated !== undefined) return { ...truncated, size };
    return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks, size);
  }
}
