import { Buffer } from "node:buffer";
import { bufferOf, type ByteSlice, makeSlice } from "../base/bytes.ts";
import type { Response } from "./message.ts";
import { mayHideMessage, parseSpliceableResponse } from "./shapes.ts";

/** Lines of several chunks and at least this size are not joined unless they have to be, in bytes. */
export const LONG_LINE = 128 * 1024;
/** How much of either end is read to recognize the shape, in bytes. */
const SCANNED_EDGE = 4096;
/** Longer than every search pattern, so that none is missed where two chunks meet, in bytes. */
const CHUNK_OVERLAP = 16;

/** A chunk of a long line. */
export interface LinePart {
  readonly bytes: Buffer;
  /** It was searched on arrival and hides no second message: see `isPlainChunk`. */
  readonly isPlain: boolean;
  /** Nobody else reads its memory: the writer may detach it after the write. */
  readonly isDetachable: boolean;
}

export function buffersOf(parts: readonly LinePart[]): Buffer[] {
  return parts.map(({ bytes }) => bytes);
}

/**
 * The fast path for long responses: what `parseSpliceableResponse` does, on chunks that are not joined. Joining would
 * cost more than all other work on a result of 1 MB. The parts contain no LF.
 * @returns undefined if the line has neither shape, or has to be scanned as a whole
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
      const slice = makeSlice(bytes, from, to);
      slices.push(isDetachable ? { ...slice, isDetachable: true } : slice);
    }
    at += bytes.length;
  }
  return slices;
}

/**
 * Whether a chunk of a long line contains nothing that could make other parsers read a different message. The first
 * chunk is searched from the end of its scanned edge.
 */
export function isPlainChunk(chunk: Buffer, isFirst: boolean): boolean {
  return !mayHideMessage(isFirst ? chunk.subarray(SCANNED_EDGE - CHUNK_OVERLAP) : chunk);
}

/** @param plainChunks chunks that were already found to be plain */
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
    // If a chunk is shorter than the overlap, the bytes before it still matter.
    before =
      bytes.length < CHUNK_OVERLAP
        ? overlap.subarray(-CHUNK_OVERLAP)
        : bytes.subarray(-CHUNK_OVERLAP);
  }
  return false;
}
