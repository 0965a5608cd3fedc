import { Buffer } from "node:buffer";
import { buffersOf, isPlainChunk, LONG_LINE, type LinePart } from "./long.ts";
import { ChunkScan, CR, LF } from "./sight.ts";
import { Utf8Validator } from "./utf8.ts";

/** What a `LineReader` reports. The buffers share the memory of the pushed chunks. */
export interface LineReaderEvents {
  /** A line without its end; never empty, and without a byte order mark at the start of the stream. */
  line(bytes: Buffer): void;
  /** Called instead of `line` for a line inside one chunk, with its range in the chunk. */
  lineInChunk?(chunk: Buffer, start: number, end: number, scan: ChunkScan): void;
  /**
   * Called instead of `line` for a line of several chunks and at least `LONG_LINE` bytes, whose chunks are not joined.
   * @param isValidUtf8 whether the line is valid UTF-8
   */
  longLine?(parts: readonly LinePart[], size: number, isValidUtf8: boolean): void;
  /** A line over the limit was dropped: its first and last bytes (up to 4 KiB each) and its size in bytes. */
  oversized(head: Buffer, tail: Buffer, size: number): void;
}

/** How much of either end of a dropped message is kept, in bytes. */
export const TRUNCATED_EDGE = 4096;
/** A piece of this size probably belongs to a long line, in bytes. */
const LONG_LINE_PIECE = 16 * 1024;

/**
 * Splits a stream of chunks into lines. A line inside one chunk is not copied; a line that spans chunks is joined once,
 * at its end; a line over the limit is counted and discarded as it arrives.
 */
export class LineReader {
  readonly #limit: number;
  readonly #events: LineReaderEvents;
  #parts: LinePart[] = [];
  #size = 0;
  /** Checks the current line, once it is probably a long one. */
  #utf8Validator: Utf8Validator | undefined;
  /** Set while an oversized line is being dropped. */
  #dropped: { head: Buffer; tail: Buffer } | undefined;
  #isFirstLine = true;

  /** @param limit the longest line that is kept, in bytes */
  constructor(limit: number, events: LineReaderEvents) {
    this.#limit = limit;
    this.#events = events;
  }

  /** Takes ownership of the chunk. */
  push(chunk: Buffer): void {
    const scan = new ChunkScan(chunk);
    const size = chunk.length;
    let from = 0;
    let at = chunk.indexOf(LF);
    if (at >= 0 && this.#size + at >= LONG_LINE && this.#endLongLine(chunk, at)) return;
    // Most chunks end with a line end; then there is nothing left to search.
    for (; at >= 0; at = from < size ? chunk.indexOf(LF, from) : -1) {
      if (
        this.#size > 0 ||
        this.#isFirstLine ||
        this.#dropped !== undefined ||
        at - from > this.#limit
      ) {
        if (at > from) this.#addPiece(chunk.subarray(from, at), false);
        this.#endLine();
      } else {
        const end = chunk[at - 1] === CR ? at - 1 : at;
        if (end > from) {
          if (this.#events.lineInChunk === undefined) this.#events.line(chunk.subarray(from, end));
          else this.#events.lineInChunk(chunk, from, end, scan);
        }
      }
      from = at + 1;
    }
    if (from === 0) this.#addPiece(chunk, ownsArrayBuffer(chunk));
    else if (from < size) this.#addPiece(chunk.subarray(from), false);
  }

  /**
   * Ends a long line in a chunk that has no other line end, so that nobody else reads the chunk's memory.
   * @returns false if the chunk has more line ends, or shares its memory
   */
  #endLongLine(chunk: Buffer, at: number): boolean {
    if (!ownsArrayBuffer(chunk) || chunk.includes(LF, at + 1)) return false;
    const [end, rest] = splitAt(chunk, at);
    if (end.length > 0) this.#addPiece(end, true);
    this.#endLine();
    if (rest.length > 0) this.#addPiece(rest, true);
    return true;
  }

  /** The stream has ended: reports a last line without a line end. */
  end(): void {
    this.#endLine();
  }

  #addPiece(piece: Buffer, isDetachable: boolean): void {
    this.#size += piece.length;
    if (this.#dropped !== undefined) {
      this.#dropped.tail = lastBytes(this.#dropped.tail, piece);
      return;
    }
    // Done now, while the peer is producing the next piece, rather than at the end of the line, when the receiver
    // waits.
    const isPlainPiece =
      piece.length >= LONG_LINE_PIECE && isPlainChunk(piece, this.#parts.length === 0);
    this.#parts.push({ bytes: piece, isPlain: isPlainPiece, isDetachable });
    if (this.#events.longLine !== undefined && this.#size >= LONG_LINE_PIECE)
      this.#validateUtf8(piece);
    if (this.#size > this.#limit) {
      const pieces = buffersOf(this.#parts);
      const head = Buffer.concat(pieces, Math.min(this.#size, TRUNCATED_EDGE));
      this.#dropped = { head, tail: pieces.reduce(lastBytes, Buffer.alloc(0)) };
      this.#parts = [];
    }
  }

  #validateUtf8(piece: Buffer): void {
    if (this.#utf8Validator === undefined) {
      this.#utf8Validator = new Utf8Validator();
      for (const { bytes } of this.#parts) this.#utf8Validator.push(bytes);
    } else {
      this.#utf8Validator.push(piece);
    }
  }

  #endLine(): void {
    const lineParts = this.#parts;
    const dropped = this.#dropped;
    const size = this.#size;
    const validator = this.#utf8Validator;
    this.#size = 0;
    this.#utf8Validator = undefined;
    if (dropped !== undefined) {
      this.#dropped = undefined;
      this.#events.oversized(dropped.head, dropped.tail, size);
      return;
    }
    if (size === 0) return;
    this.#parts = [];
    if (
      size >= LONG_LINE &&
      lineParts.length > 1 &&
      this.#events.longLine !== undefined &&
      !this.#isFirstLine
    ) {
      const [parts, length] = withoutCr(lineParts, size);
      this.#events.longLine(parts, length, validator?.isValid !== false);
      return;
    }
    const single = lineParts.length === 1 ? lineParts[0]?.bytes : undefined;
    const line = this.#trim(single ?? Buffer.concat(buffersOf(lineParts), size));
    if (line.length > 0) this.#events.line(line);
  }

  #trim(line: Buffer): Buffer {
    const start =
      this.#isFirstLine && line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf ? 3 : 0;
    this.#isFirstLine = false;
    const end = line[line.length - 1] === CR ? line.length - 1 : line.length;
    return start === 0 && end === line.length ? line : line.subarray(start, end);
  }
}

function withoutCr(parts: readonly LinePart[], size: number): [readonly LinePart[], number] {
  const last = parts.at(-1);
  if (last === undefined || last.bytes[last.bytes.length - 1] !== CR) return [parts, size];
  const bytes = last.bytes.subarray(0, -1);
  const rest = bytes.length === 0 ? [] : [{ ...last, bytes }];
  return [[...parts.slice(0, -1), ...rest], size - 1];
}

/** Whether the chunk covers its whole ArrayBuffer. Only checked for big chunks; small ones may share memory. */
function ownsArrayBuffer(chunk: Buffer): boolean {
  return chunk.length >= LONG_LINE_PIECE && chunk.length === chunk.buffer.byteLength;
}

/** The parts of a chunk before and behind a line end, each with its own memory: the shorter one is copied. */
function splitAt(chunk: Buffer, at: number): [Buffer, Buffer] {
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
  if (piece.length >= TRUNCATED_EDGE)
    return Buffer.from(piece.subarray(piece.length - TRUNCATED_EDGE));
  const joined = Buffer.concat([before, piece]);
  return joined.length > TRUNCATED_EDGE ? joined.subarray(joined.length - TRUNCATED_EDGE) : joined;
}
