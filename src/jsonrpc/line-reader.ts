import { Buffer } from "node:buffer";
import { memoriesOf, isClear, LONG, type Part } from "./long.ts";
import { ChunkSight, CR, LF } from "./sight.ts";
import { Utf8Check } from "./utf8.ts";

/** What a `LineReader` reports. The buffers share the memory of the pushed chunks. */
export interface LineSink {
  /** A line without its end; never empty, and without a byte order mark at the start of the stream. */
  line(bytes: Buffer): void;
  /** Called instead of `line` for a line inside one chunk, with its range in the chunk. */
  part?(chunk: Buffer, start: number, end: number, sight: ChunkSight): void;
  /**
   * Called instead of `line` for a line of several chunks and at least `LONG_LINE` bytes, whose chunks are not joined.
   * @param isValidUtf8 whether the line is valid UTF-8
   */
  long?(parts: readonly Part[], size: number, isText: boolean): void;
  /** A line over the limit was dropped: its first and last bytes (up to 4 KiB each) and its size in bytes. */
  oversized(head: Buffer, tail: Buffer, size: number): void;
}

/** How much of either end of a dropped message is kept, in bytes. */
export const EDGE = 4096;
/** A piece of this size probably belongs to a long line, in bytes. */
const SOON = 16 * 1024;

/**
 * Splits a stream of chunks into lines. A line inside one chunk is not copied; a line that spans chunks is joined once,
 * at its end; a line over the limit is counted and discarded as it arrives.
 */
export class Splitter {
  readonly #limit: number;
  readonly #sink: LineSink;
  #pending: Part[] = [];
  #size = 0;
  /** Checks the current line, once it is probably a long one. */
  #check: Utf8Check | undefined;
  /** Set while an oversized line is being dropped. */
  #dropped: { head: Buffer; tail: Buffer } | undefined;
  #first = true;

  /** @param limit the longest line that is kept, in bytes */
  constructor(limit: number, sink: LineSink) {
    this.#limit = limit;
    this.#sink = sink;
  }

  /** Takes ownership of the chunk. */
  push(chunk: Buffer): void {
    const sight = new ChunkSight(chunk);
    const size = chunk.length;
    let from = 0;
    let at = chunk.indexOf(LF);
    if (at >= 0 && this.#size + at >= LONG && this.#endLong(chunk, at)) return;
    // Most chunks end with a line end; then there is nothing left to search.
    for (; at >= 0; at = from < size ? chunk.indexOf(LF, from) : -1) {
      if (this.#size > 0 || this.#first || this.#dropped !== undefined || at - from > this.#limit) {
        if (at > from) this.#add(chunk.subarray(from, at), false);
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
    if (from === 0) this.#add(chunk, isWhole(chunk));
    else if (from < size) this.#add(chunk.subarray(from), false);
  }

  /**
   * Ends a long line in a chunk that has no other line end, so that nobody else reads the chunk's memory.
   * @returns false if the chunk has more line ends, or shares its memory
   */
  #endLong(chunk: Buffer, at: number): boolean {
    if (!isWhole(chunk) || chunk.includes(LF, at + 1)) return false;
    const [end, rest] = partAt(chunk, at);
    if (end.length > 0) this.#add(end, true);
    this.#finish();
    if (rest.length > 0) this.#add(rest, true);
    return true;
  }

  /** The stream has ended: reports a last line without a line end. */
  end(): void {
    this.#finish();
  }

  #add(piece: Buffer, isOwn: boolean): void {
    this.#size += piece.length;
    if (this.#dropped !== undefined) {
      this.#dropped.tail = lastBytes(this.#dropped.tail, piece);
      return;
    }
    // Done now, while the peer is producing the next piece, rather than at the end of the line, when the receiver
    // waits.
    const isKnown = piece.length >= SOON && isClear(piece, this.#pending.length === 0);
    this.#pending.push({ bytes: piece, isClear: isKnown, isOwn });
    if (this.#sink.long !== undefined && this.#size >= SOON) this.#checkText(piece);
    if (this.#size > this.#limit) {
      const pieces = memoriesOf(this.#pending);
      const start = Buffer.concat(pieces, Math.min(this.#size, EDGE));
      this.#dropped = { head: start, tail: pieces.reduce(lastBytes, Buffer.alloc(0)) };
      this.#pending = [];
    }
  }

  #checkText(piece: Buffer): void {
    if (this.#check === undefined) {
      this.#check = new Utf8Check();
      for (const { bytes } of this.#pending) this.#check.push(bytes);
    } else {
      this.#check.push(piece);
    }
  }

  #finish(): void {
    const pending = this.#pending;
    const dropped = this.#dropped;
    const size = this.#size;
    const check = this.#check;
    this.#size = 0;
    this.#check = undefined;
    if (dropped !== undefined) {
      this.#dropped = undefined;
      this.#sink.oversized(dropped.head, dropped.tail, size);
      return;
    }
    if (size === 0) return;
    this.#pending = [];
    if (size >= LONG && pending.length > 1 && this.#sink.long !== undefined && !this.#first) {
      const [parts, length] = withoutCr(pending, size);
      this.#sink.long(parts, length, check?.isValid !== false);
      return;
    }
    const only = pending.length === 1 ? pending[0]?.bytes : undefined;
    const line = this.#trim(only ?? Buffer.concat(memoriesOf(pending), size));
    if (line.length > 0) this.#sink.line(line);
  }

  #trim(line: Buffer): Buffer {
    const start = this.#first && line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf ? 3 : 0;
    this.#first = false;
    const end = line[line.length - 1] === CR ? line.length - 1 : line.length;
    return start === 0 && end === line.length ? line : line.subarray(start, end);
  }
}

function withoutCr(parts: readonly Part[], size: number): [readonly Part[], number] {
  const last = parts.at(-1);
  if (last === undefined || last.bytes[last.bytes.length - 1] !== CR) return [parts, size];
  const bytes = last.bytes.subarray(0, -1);
  const rest = bytes.length === 0 ? [] : [{ ...last, bytes }];
  return [[...parts.slice(0, -1), ...rest], size - 1];
}

/** Whether the chunk covers its whole ArrayBuffer. Only checked for big chunks; small ones may share memory. */
function isWhole(chunk: Buffer): boolean {
  return chunk.length >= SOON && chunk.length === chunk.buffer.byteLength;
}

/** The parts of a chunk before and behind a line end, each with its own memory: the shorter one is copied. */
function partAt(chunk: Buffer, at: number): [Buffer, Buffer] {
  const end = chunk.subarray(0, at);
  const rest = chunk.subarray(at + 1);
  return end.length < rest.length ? [copyOf(end), rest] : [end, copyOf(rest)];
}

function copyOf(bytes: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}

/**
 * The last `TRUNCATED_EDGE` bytes of two consecutive pieces, copied so that the memory of a dropped line can be freed.
 */
export function lastBytes(before: Buffer, piece: Buffer): Buffer {
  if (piece.length >= EDGE) return Buffer.from(piece.subarray(piece.length - EDGE));
  const joined = Buffer.concat([before, piece]);
  return joined.length > EDGE ? joined.subarray(joined.length - EDGE) : joined;
}
