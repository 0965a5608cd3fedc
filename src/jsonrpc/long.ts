import { Buffer } from "node:buffer";
import { bufferOf, type Slice, sliceOf } from "../base/bytes.ts";
import type { Response } from "./message.ts";
import { hidesMessage, readSpliceable } from "./shapes.ts";

/** Lines of several chunks and at least this size are not joined unless they have to be, in bytes. */
export const LONG = 128 * 1024;
/** How much of either end is read to recognize the shape, in bytes. */
const EDGE = 4096;
/** Longer than every search pattern, so that none is missed where two chunks meet, in bytes. */
const SEAM = 16;

/** A chunk of a long line. */
export interface Part {
  readonly bytes: Buffer;
  /** It was searched on arrival and hides no second message: see `isPlainChunk`. */
  readonly isClear: boolean;
  /** Nobody else reads its memory: the writer may detach it after the write. */
  readonly isOwn: boolean;
}

export function memoriesOf(parts: readonly Part[]): Buffer[] {
  return parts.map(({ bytes }) => bytes);
}

/**
 * The fast path for long responses: what `parseSpliceableResponse` does, on chunks that are not joined. Joining would
 * cost more than all other work on a result of 1 MB. The parts contain no LF.
 * @returns undefined if the line has neither shape, or has to be scanned as a whole
 */
export function readLong(parts: readonly Part[], size: number): Response | undefined {
  const ends = [...cut(parts, 0, EDGE), ...cut(parts, size - EDGE, size)];
  const edges = readSpliceable(Buffer.concat(ends.map(bufferOf)), 0, 2 * EDGE);
  if (edges === undefined || edges.shape.at === "scanned") return undefined;
  const isKnown = new Set(memoriesOf(parts.filter((part) => part.isClear)));
  if (hides(cut(parts, EDGE - SEAM, size - EDGE + SEAM), isKnown)) return undefined;
  const { id, outcome, shape } = edges;
  const body = { start: edges.body.start, end: edges.body.end + size - 2 * EDGE };
  let joined: Buffer | undefined;
  return {
    kind: "response",
    get bytes() {
      return (joined ??= Buffer.concat(memoriesOf(parts), size));
    },
    start: 0,
    end: size,
    id,
    outcome,
    body,
    shape: { at: shape.at, chunks: (start, end) => cut(parts, start, end) },
  };
}

/** The slices of the parts that make up the range `[start, end)` of the line. */
function cut(parts: readonly Part[], start: number, end: number): Slice[] {
  const slices: Slice[] = [];
  let at = 0;
  for (const { bytes, isOwn } of parts) {
    const from = Math.max(start - at, 0);
    const to = Math.min(end - at, bytes.length);
    if (from < to) {
      const slice = sliceOf(bytes, from, to);
      slices.push(isOwn ? { ...slice, isGiven: true } : slice);
    }
    at += bytes.length;
  }
  return slices;
}

/**
 * Whether a chunk of a long line contains nothing that could make other parsers read a different message. The first
 * chunk is searched from the end of its scanned edge.
 */
export function isClear(chunk: Buffer, isFirst: boolean): boolean {
  return !hidesMessage(isFirst ? chunk.subarray(EDGE - SEAM) : chunk);
}

/** @param plainChunks chunks that were already found to be plain */
function hides(slices: readonly Slice[], isKnown: ReadonlySet<Uint8Array>): boolean {
  let before: Buffer = Buffer.alloc(0);
  for (const slice of slices) {
    const bytes = bufferOf(slice);
    if (!isKnown.has(slice.of) && hidesMessage(bytes)) return true;
    const seam = Buffer.concat([before, bytes.subarray(0, SEAM)]);
    if (hidesMessage(seam)) return true;
    // If a chunk is shorter than the overlap, the bytes before it still matter.
    before = bytes.length < SEAM ? seam.subarray(-SEAM) : bytes.subarray(-SEAM);
  }
  return false;
}
