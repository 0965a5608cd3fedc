import { Buffer } from "node:buffer";
import { isClear, LONG } from "./long.ts";
import { ChunkSight, CR, LF } from "./sight.ts";

/** What a splitter finds. Slices share the memory of the chunks that were pushed. */
export interface LineSink {
  /**
   * A line without its end; never empty, and without the byte order mark that may begin a stream.
   */
  line(bytes: Buffer): void;
  /** Instead of `line`, for a line that came in one chunk: where it stands in that. */
  part?(chunk: Buffer, start: number, end: number, sight: ChunkSight): void;
  /**
   * Instead of `line`, for a line of several chunks and of at least `LONG` bytes: as it came, not joined.
   * @param isClear for each chunk whether it was searched as it came in and hides nothing, see `isClear` of long.ts
   */
  long?(chunks: readonly Buffer[], size: number, isClear: readonly boolean[]): void;
  /** A line longer than the limit was dropped: its first and last bytes, up to 4 KiB each, and its size in bytes. */
  oversized(head: Buffer, tail: Buffer, size: number): void;
}

/** How much of a dropped message is kept of either end, in bytes. */
export const EDGE = 4096;
/** A piece of a line that is as long as this is likely to be of a long one, in bytes. */
const SOON = 16 * 1024;

/**
 * Cuts a stream of chunks into lines. A line inside one chunk is not copied; one that spans chunks is
 * joined once, when its end has come; one over the limit is counted and forgotten as it comes in.
 */
export class Splitter {
  readonly #limit: number;
  readonly #sink: LineSink;
  #pending: Buffer[] = [];
  /** Of those that are pending. */
  #clear: boolean[] = [];
  #size = 0;
  /** Set while an oversized line is being dropped. */
  #dropped: { head: Buffer; tail: Buffer } | undefined;
  #first = true;

  /** @param limit the longest line that is kept, in bytes. */
  constructor(limit: number, sink: LineSink) {
    this.#limit = limit;
    this.#sink = sink;
  }

  /** The chunk belongs to the splitter from now on. */
  push(chunk: Buffer): void {
    const sight = new ChunkSight(chunk);
    const size = chunk.length;
    let from = 0;
    // Most chunks end with a line: behind that there is nothing to search for.
    for (let at = chunk.indexOf(LF); at >= 0; at = from < size ? chunk.indexOf(LF, from) : -1) {
      if (this.#size > 0 || this.#first || this.#dropped !== undefined || at - from > this.#limit) {
        if (at > from) this.#add(chunk.subarray(from, at));
        this.#finish();
      } else {
        const end = chunk[at - 1] === CR ? at - 1 : at;
        if (end > from) {
          if (this.#sink.part === undefined) this.#sink.line(chunk.subarray(from, end));
          else this.#sink.part(chunk, from, end, sight);
        }
      }
      from = at + 1;
    }
    if (from < size) this.#add(from === 0 ? chunk : chunk.subarray(from));
  }

  /** The stream has ended: gives out a last line without a line end. */
  end(): void {
    this.#finish();
  }

  #add(piece: Buffer): void {
    this.#size += piece.length;
    if (this.#dropped !== undefined) {
      this.#dropped.tail = lastBytes(this.#dropped.tail, piece);
      return;
    }
    // While the peer makes the next one: when the line is whole, somebody waits for it.
    this.#clear.push(piece.length >= SOON && isClear(piece, this.#pending.length === 0));
    this.#pending.push(piece);
    if (this.#size > this.#limit) {
      const start = Buffer.concat(this.#pending, Math.min(this.#size, EDGE));
      this.#dropped = { head: start, tail: this.#pending.reduce(lastBytes, Buffer.alloc(0)) };
      this.#pending = [];
      this.#clear = [];
    }
  }

  #finish(): void {
    const pending = this.#pending;
    const dropped = this.#dropped;
    const clear = this.#clear;
    const size = this.#size;
    this.#size = 0;
    if (dropped !== undefined) {
      this.#dropped = undefined;
      this.#sink.oversized(dropped.head, dropped.tail, size);
      return;
    }
    if (size === 0) return;
    this.#pending = [];
    this.#clear = [];
    if (size >= LONG && pending.length > 1 && this.#sink.long !== undefined && !this.#first) {
      const [chunks, length] = withoutCr(pending, size);
      this.#sink.long(chunks, length, clear);
      return;
    }
    const only = pending.length === 1 ? pending[0] : undefined;
    const line = this.#trim(only ?? Buffer.concat(pending, size));
    if (line.length > 0) this.#sink.line(line);
  }

  #trim(line: Buffer): Buffer {
    const start = this.#first && line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf ? 3 : 0;
    this.#first = false;
    const end = line[line.length - 1] === CR ? line.length - 1 : line.length;
    return start === 0 && end === line.length ? line : line.subarray(start, end);
  }
}

function withoutCr(chunks: Buffer[], size: number): [Buffer[], number] {
  const last = chunks.at(-1);
  if (last === undefined || last[last.length - 1] !== CR) return [chunks, size];
  const rest = last.length === 1 ? [] : [last.subarray(0, -1)];
  return [[...chunks.slice(0, -1), ...rest], size - 1];
}

/** The last bytes of two pieces that follow each other, copied so that a dropped line's memory can go. */
export function lastBytes(before: Buffer, piece: Buffer): Buffer {
  if (piece.length >= EDGE) return Buffer.from(piece.subarray(piece.length - EDGE));
  const joined = Buffer.concat([before, piece]);
  return joined.length > EDGE ? joined.subarray(joined.length - EDGE) : joined;
}
