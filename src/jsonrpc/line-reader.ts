import { Buffer } from "node:buffer";
import {
  bufferOf,
  type ByteSlice,
  makeDetachableSlice,
  makeSlice,
  ownsMemory,
  splitMemory,
} from "../base/bytes.ts";
import type { Response } from "./message.ts";
import { ChunkScan, CR, LF, mayHideMessage, parseSpliceableResponse } from "./parse.ts";
import { Utf8Validator } from "./utf8.ts";

/**
 * Lines that span several chunks and have at least this size, in bytes, are passed on in parts, and joined only if
 * necessary.
 */
export const LONG_LINE = 128 * 1024;
/** Number of bytes at either end of a long line that are parsed to recognize the `shape` of the response in it. */
const SCANNED_EDGE = 4096;
/**
 * Number of bytes searched on either side of the border between two chunks: longer than every search pattern, so that
 * no match across the border is missed.
 */
const CHUNK_OVERLAP = 16;

/** A chunk of a long line. */
export interface LinePart {
  readonly bytes: Buffer;
  /** Whether the chunk was searched when it arrived and cannot hide a second message: see `isUnambiguousChunk`. */
  readonly isPlain: boolean;
  /** Whether slices of the part are detachable: see `ByteSlice`. */
  readonly isDetachable: boolean;
}

export function buffersOf(parts: readonly LinePart[]): Buffer[] {
  return parts.map(({ bytes }) => bytes);
}

/**
 * The fast path for long responses: does the same as `parseSpliceableResponse`, but on chunks that are not joined.
 * Joining would cost more than all other work on a result of 1 MB. The parts contain no LF.
 * @returns undefined if the response has neither the shape `head` nor `tail`, or has to be scanned as a whole
 */
export function parseLongResponse(parts: readonly LinePart[], size: number): Response | undefined {
  const edgeSlices = [
    ...slicesOf(parts, 0, SCANNED_EDGE),
    ...slicesOf(parts, size - SCANNED_EDGE, size),
  ];
  const edges = parseSpliceableResponse(
    Buffer.concat(edgeSlices.map(bufferOf)),
    0,
    2 * SCANNED_EDGE,
  );
  if (edges === undefined || edges.shape.kind === "scanned") return undefined;
  const plainChunks = new Set(buffersOf(parts.filter((part) => part.isPlain)));
  if (
    mayHideInChunks(
      slicesOf(parts, SCANNED_EDGE - CHUNK_OVERLAP, size - SCANNED_EDGE + CHUNK_OVERLAP),
      plainChunks,
    )
  )
    return undefined;
  const { id, outcome, shape } = edges;
  const body = { start: edges.body.start, end: edges.body.end + size - 2 * SCANNED_EDGE };
  let joined: Buffer | undefined;
  return {
    kind: "response",
    get bytes() {
      return (joined ??= Buffer.concat(buffersOf(parts), size));
    },
    start: 0,
    end: size,
    id,
    outcome,
    body,
    shape: { kind: shape.kind, slices: (start, end) => slicesOf(parts, start, end) },
  };
}

/** The slices of the parts that make up the range `[start, end)` of the line. */
function slicesOf(parts: readonly LinePart[], start: number, end: number): ByteSlice[] {
  const slices: ByteSlice[] = [];
  let at = 0;
  for (const { bytes, isDetachable } of parts) {
    const from = Math.max(start - at, 0);
    const to = Math.min(end - at, bytes.length);
    if (from < to) {
      slices.push((isDetachable ? makeDetachableSlice : makeSlice)(bytes, from, to));
    }
    at += bytes.length;
  }
  return slices;
}

/**
 * Whether a chunk of a long line contains nothing that could make other parsers read a different message. The first
 * `SCANNED_EDGE` bytes of the line are not searched here, because `parseLongResponse` reads them anyway.
 */
export function isUnambiguousChunk(chunk: Buffer, isFirst: boolean): boolean {
  return !mayHideMessage(isFirst ? chunk.subarray(SCANNED_EDGE - CHUNK_OVERLAP) : chunk);
}

/**
 * Whether the slices could make other parsers read a different message.
 * @param plainChunks chunks that were already searched: only their borders are searched again
 */
function mayHideInChunks(
  slices: readonly ByteSlice[],
  plainChunks: ReadonlySet<Uint8Array>,
): boolean {
  let before: Buffer = Buffer.alloc(0);
  for (const slice of slices) {
    const bytes = bufferOf(slice);
    if (!plainChunks.has(slice.bytes) && mayHideMessage(bytes)) return true;
    const overlap = Buffer.concat([before, bytes.subarray(0, CHUNK_OVERLAP)]);
    if (mayHideMessage(overlap)) return true;
    // If a slice is shorter than the overlap, bytes of earlier slices are also searched together with the next slice.
    before =
      bytes.length < CHUNK_OVERLAP
        ? overlap.subarray(-CHUNK_OVERLAP)
        : bytes.subarray(-CHUNK_OVERLAP);
  }
  return false;
}

/** The events of a `LineReader`. The buffers share the memory of the pushed chunks. */
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

/** Number of bytes that are kept at either end of a dropped message. */
export const TRUNCATED_EDGE = 4096;
/** A piece of at least this size, in bytes, probably belongs to a long line. */
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
  /** Validates the UTF-8 of the current line, once it is probably a long one. */
  #utf8Validator: Utf8Validator | undefined;
  /** Set while an oversized line is being dropped. */
  #dropped: { head: Buffer; tail: Buffer } | undefined;
  #isFirstLine = true;

  /** @param limit maximum length of a line, in bytes */
  constructor(limit: number, events: LineReaderEvents) {
    this.#limit = limit;
    this.#events = events;
  }

  /**
   * Reports the lines that end in the chunk. The rest of the chunk is kept without a copy, so the chunk must not change
   * afterwards: see `ByteSlice`.
   */
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
    if (from === 0) this.#addPiece(chunk, ownsMemory(chunk));
    else if (from < size) this.#addPiece(chunk.subarray(from), false);
  }

  /**
   * Ends a long line at the only line end of a chunk. Splits the chunk there into two parts that each own their memory,
   * so that both are detachable.
   * @returns false if the chunk has more line ends, or does not own its memory
   */
  #endLongLine(chunk: Buffer, at: number): boolean {
    if (!ownsMemory(chunk) || chunk.includes(LF, at + 1)) return false;
    const [end, rest] = splitMemory(chunk, at);
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
    // The piece is searched at once, while the peer produces the next one: at the end of the line, the receiver would
    // have to wait for the search.
    const isPlainPiece =
      piece.length >= LONG_LINE_PIECE && isUnambiguousChunk(piece, this.#parts.length === 0);
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

/**
 * The last `TRUNCATED_EDGE` bytes of `before` followed by `piece`. They are copied, so that the memory of a dropped
 * line can be freed.
 */
export function lastBytes(before: Buffer, piece: Buffer): Buffer {
  if (piece.length >= TRUNCATED_EDGE)
    return Buffer.from(piece.subarray(piece.length - TRUNCATED_EDGE));
  const joined = Buffer.concat([before, piece]);
  return joined.length > TRUNCATED_EDGE ? joined.subarray(joined.length - TRUNCATED_EDGE) : joined;
}
