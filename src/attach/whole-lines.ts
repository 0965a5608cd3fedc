import type { Buffer } from "node:buffer";
import { LF } from "../jsonrpc/parse.ts";

/** The parts of one line, without its end. */
export interface LineParts {
  readonly parts: readonly Buffer[];
  readonly size: number;
}

/** What a chunk has completed. */
export interface CompletedLines {
  /** The buffers to write: whole lines with their ends. */
  readonly buffers: readonly Buffer[];
  /** The line that began in an earlier chunk; undefined if there is none. */
  readonly first: LineParts | undefined;
  /** The range of the chunk with the further lines. */
  readonly start: number;
  readonly end: number;
}

/** Holds back the last line of a stream until its end has arrived, so that a line is passed on whole or not at all. */
export class WholeLines {
  readonly #limit: number;
  #parts: Buffer[] = [];
  #size = 0;

  /** @param limit maximum number of bytes that are held */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Whether more is held than is allowed. */
  get isTooLong(): boolean {
    return this.#size > this.#limit;
  }

  /** @returns undefined if no line ends in the chunk */
  push(chunk: Buffer): CompletedLines | undefined {
    const last = chunk.lastIndexOf(LF);
    if (last < 0) {
      this.#hold(chunk);
      return undefined;
    }
    const end = last + 1;
    const done = end === chunk.length ? chunk : chunk.subarray(0, end);
    const held = this.#parts;
    const heldSize = this.#size;
    this.drop();
    if (end < chunk.length) this.#hold(chunk.subarray(end));
    if (heldSize === 0) return { buffers: [done], first: undefined, start: 0, end };
    const firstEnd = chunk.indexOf(LF);
    const first = { parts: [...held, chunk.subarray(0, firstEnd)], size: heldSize + firstEnd };
    return { buffers: [...held, done], first, start: firstEnd + 1, end };
  }

  /** Forgets what is held. */
  drop(): void {
    this.#parts = [];
    this.#size = 0;
  }

  #hold(bytes: Buffer): void {
    this.#parts.push(bytes);
    this.#size += bytes.length;
  }
}
