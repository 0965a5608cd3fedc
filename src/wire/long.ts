import { Buffer } from "node:buffer";
import { bufferOf, type Slice, sliceOf } from "../bytes.ts";
import type { Response } from "./jsonrpc.ts";
import { hidesMessage, readSpliceable } from "./shapes.ts";

/** From this size on a line that came in several chunks is not joined before it is known that it has to be, in bytes. */
export const LONG = 128 * 1024;
/** So much of either end tells the shape. */
const EDGE = 4096;
/** Longer than all that is searched for, so that nothing can hide where two chunks meet. */
const SEAM = 16;

/** A part of a long line, as it came. */
export interface Part {
  readonly bytes: Buffer;
  /** It was searched as it came in, and hides nothing: see `isClear`. */
  readonly isClear: boolean;
  /** Nobody else looks at its memory: who writes it may free that then. */
  readonly isOwn: boolean;
}

export function memoriesOf(parts: readonly Part[]): Buffer[] {
  return parts.map(({ bytes }) => bytes);
}

/**
 * The fast path for long responses: what `readSpliceable` does, on the parts as they came. Joining them would
 * cost more than all else that happens to a result of a megabyte. The parts are those of a line: no LF is in them.
 * @returns undefined if the line is none of the two shapes, or has to be looked at whole.
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

/** The runs of the parts that make up the bytes from `start` to `end` of the line. */
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

/** Whether a chunk of a long line hides nothing that would make it another message than it seems; of the first one, from where the edge ends. */
export function isClear(chunk: Buffer, isFirst: boolean): boolean {
  return !hidesMessage(isFirst ? chunk.subarray(EDGE - SEAM) : chunk);
}

/** @param isKnown the chunks that hide nothing */
function hides(slices: readonly Slice[], isKnown: ReadonlySet<Uint8Array>): boolean {
  let before: Buffer = Buffer.alloc(0);
  for (const slice of slices) {
    const bytes = bufferOf(slice);
    if (!isKnown.has(slice.of) && hidesMessage(bytes)) return true;
    const seam = Buffer.concat([before, bytes.subarray(0, SEAM)]);
    if (hidesMessage(seam)) return true;
    // Of a chunk shorter than a seam, what came before it still matters.
    before = bytes.length < SEAM ? seam.subarray(-SEAM) : bytes.subarray(-SEAM);
  }
  return false;
}
