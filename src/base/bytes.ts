import { Buffer } from "node:buffer";
import process from "node:process";
import { sha256OnBun } from "./runtime.ts";

// `ignoreBOM: true` keeps a byte order mark: inside a JSON string it is part of the text.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const encoder = new TextEncoder();

/**
 * The folder base/ is used by all other folders and imports from none of them. It contains the code for bytes, JSON,
 * time, errors, events and the differences between the runtimes. Main types: `ByteRange`, `ByteSlice` and `Piece`,
 * below. Read next: `json.ts` (the scanner), `errors.ts` (`HubError`).
 *
 * A byte range, `[start, end)`.
 */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** The text of a byte range; malformed UTF-8 becomes U+FFFD. */
export function textOf(bytes: Uint8Array, start = 0, end = bytes.length): string {
  return bytes instanceof Buffer
    ? bytes.toString("utf8", start, end)
    : decoder.decode(bytes.subarray(start, end));
}

/** Maximum length of a cached text, in bytes. `TEXT_CACHE_SIZE`: the number of slots in the cache, a power of two. */
const MAX_CACHED_TEXT = 64;
const TEXT_CACHE_SIZE = 1024;
/** A text in the cache. */
interface CachedText {
  readonly bytes: Uint8Array;
  readonly text: string;
  readonly hasBackslash: boolean;
}

const textCache: (CachedText | undefined)[] = [];
textCache.length = TEXT_CACHE_SIZE;

/**
 * Like `textOf`, but caches short texts that recur, such as keys. A look-up takes a tenth of the time of decoding.
 * @returns undefined if the text is too long
 */
export function cachedText(bytes: Uint8Array, start: number, end: number): CachedText | undefined {
  const length = end - start;
  if (length > MAX_CACHED_TEXT) return undefined;
  let hash = length;
  for (let i = start; i < end; i++) hash = (Math.imul(hash, 31) + (bytes[i] as number)) | 0;
  const slot = (hash ^ (hash >>> 10)) & (TEXT_CACHE_SIZE - 1);
  const cached = textCache[slot];
  if (cached?.bytes.length === length && startsWithAt(bytes, start, cached.bytes)) return cached;
  // A property key is an interned string: comparing it with a literal compares two addresses, not the characters.
  const text = Object.keys({ [textOf(bytes, start, end)]: 0 })[0] as string;
  const hasBackslash = text.includes("\\");
  return (textCache[slot] = {
    bytes: Uint8Array.from(bytes.subarray(start, end)),
    text,
    hasBackslash,
  });
}

/** The text of a byte range, from the cache if it is short: see `cachedText`. */
export function cachedTextOf(bytes: Uint8Array, start: number, end: number): string {
  return cachedText(bytes, start, end)?.text ?? textOf(bytes, start, end);
}

/** Whether `pattern` is in `bytes` at index `at`. */
export function startsWithAt(bytes: Uint8Array, at: number, pattern: Uint8Array): boolean {
  for (let i = 0; i < pattern.length; i++) if (bytes[at + i] !== pattern[i]) return false;
  return true;
}

/**
 * A range of a typed array; much cheaper to create than a subarray.
 *
 * Rules for the memory of all bytes that are read or written:
 * - The sender of a piece neither changes the piece nor reuses its memory.
 * - A chunk that was read belongs to its receiver: the source neither reads nor changes it again, nor reuses its
 *   memory. Messages and slices share the memory of their chunk: no code changes them, and any code may keep them.
 * - Memory is detached (freed early) only through slices with `isDetachable`. Only `LineReader` makes such slices, from
 *   chunks that own their memory (`ownsMemory`) and hold parts of one long line. Such a slice is written at most once,
 *   and not read afterwards: code that keeps the bytes longer copies them, and code that writes them several times uses
 *   `asShared`.
 * - Only `WriteBuffer` reuses memory: the slab into which it copies small pieces.
 * - Memory is detached or reused only after the write is complete, and only if the output has `retainsNoMemory`.
 */
export interface ByteSlice extends ByteRange {
  readonly bytes: Uint8Array;
  /** The memory may be detached after the write. */
  readonly isDetachable?: true | undefined;
}

/**
 * A part of the data to write: a typed array or a slice of one, which nobody changes afterwards; an ASCII string; or a
 * non-negative integer, which is written as decimal digits.
 */
export type Piece = Uint8Array | ByteSlice | string | number;

/** Whether the memory may be detached once the piece is written: see `ByteSlice`. */
export function isDetachable(piece: Piece): piece is ByteSlice {
  return typeof piece === "object" && "isDetachable" in piece;
}

export function makeDetachableSlice(bytes: Uint8Array, start: number, end: number): ByteSlice {
  return { bytes, start, end, isDetachable: true };
}

/** The same piece, but without `isDetachable`: its memory is not detached after the write. */
export function asShared(piece: Piece): Piece {
  return isDetachable(piece) ? makeSlice(piece.bytes, piece.start, piece.end) : piece;
}

/** Frees the whole ArrayBuffer that contains `bytes` immediately, instead of at the next garbage collection. */
export function detachMemory(bytes: Uint8Array): void {
  (bytes.buffer as ArrayBuffer).transfer(0);
}

/**
 * Minimum size, in bytes, of a chunk whose memory is detached. Smaller chunks may share their ArrayBuffer with other
 * chunks, and are copied into the write buffer anyway.
 */
const MIN_OWNED = 16 * 1024;

/** Whether the chunk covers its whole ArrayBuffer, so that nothing else shares its memory. */
export function ownsMemory(chunk: Buffer): boolean {
  return chunk.length >= MIN_OWNED && chunk.length === chunk.buffer.byteLength;
}

/** The parts of a chunk before and after the byte at `at`. The shorter part is copied, so each has its own memory. */
export function splitMemory(chunk: Buffer, at: number): [Buffer, Buffer] {
  const before = chunk.subarray(0, at);
  const after = chunk.subarray(at + 1);
  return before.length < after.length ? [copyOf(before), after] : [before, copyOf(after)];
}

function copyOf(bytes: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}

export interface Edit extends ByteRange {
  readonly replacement: Piece;
}

export function makeSlice(bytes: Uint8Array, start: number, end: number): ByteSlice {
  return { bytes, start, end };
}

/** A Buffer that shares the memory of a slice. */
export function bufferOf({ bytes, start, end }: ByteSlice): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start);
}

/** Up to this size of a range in bytes, a loop over it takes less time than creating a Buffer for a native search. */
const SHORT_RANGE = 256;

/** The index of the first occurrence of `pattern` within the range; -1 if there is none. */
export function indexWithin(
  bytes: Uint8Array,
  pattern: Uint8Array,
  start: number,
  end: number,
): number {
  if (end - start > SHORT_RANGE) {
    const at = bufferOf(makeSlice(bytes, start, end)).indexOf(pattern);
    return at === -1 ? -1 : start + at;
  }
  const first = pattern[0];
  for (let at = start; at <= end - pattern.length; at++)
    if (bytes[at] === first && startsWithAt(bytes, at, pattern)) return at;
  return -1;
}

/** A byte range whose memory is never detached, such as a message within the chunk that it arrived in. */
export interface ByteSpan extends ByteRange {
  readonly bytes: Uint8Array;
}

/**
 * A byte range with edits that are applied only when the bytes are written. This makes half as much garbage as a list
 * of the resulting pieces.
 */
export interface EditedBytes extends ByteSpan {
  /** The edits, sorted and not overlapping. */
  readonly edits: readonly Edit[];
}

/**
 * A byte range with edits applied, as pieces that share the original's memory. The edits may come in any order and must
 * not overlap.
 */
export function applyEdits(
  bytes: Uint8Array,
  edits: readonly Edit[],
  start = 0,
  end = bytes.length,
): Piece[] {
  return piecesOfEdited({ bytes, start, end, edits: sortEdits([...edits]) });
}

export function piecesOfEdited({ bytes, start, end, edits }: EditedBytes): Piece[] {
  const pieces: Piece[] = [];
  let from = start;
  for (const edit of edits) {
    if (edit.start > from) pieces.push(makeSlice(bytes, from, edit.start));
    pieces.push(edit.replacement);
    from = edit.end;
  }
  if (from < end) pieces.push(makeSlice(bytes, from, end));
  return pieces;
}

/**
 * Sorts edits in place by insertion sort: usually there are two or three, often in order, and `sort` would cost more.
 */
export function sortEdits(edits: Edit[]): Edit[] {
  for (let i = 1; i < edits.length; i++) {
    const edit = edits[i] as Edit;
    let k = i - 1;
    for (; k >= 0 && isAfter(edits[k] as Edit, edit); k--) edits[k + 1] = edits[k] as Edit;
    edits[k + 1] = edit;
  }
  return edits;
}

/** Whether `a` is sorted after `b`. An insertion comes before a replacement that starts at the same index. */
function isAfter(a: Edit, b: Edit): boolean {
  return a.start > b.start || (a.start === b.start && a.end > b.end);
}

/** Copies all pieces into one Buffer. */
export function joinPieces(pieces: readonly Piece[]): Buffer {
  let size = 0;
  for (const piece of pieces) size += pieceSize(piece);
  const joined = Buffer.allocUnsafe(size);
  let at = 0;
  for (const piece of pieces) at = copyPiece(piece, joined, at);
  return joined;
}

export function pieceSize(piece: Piece): number {
  if (typeof piece === "number") return countDigits(piece);
  return typeof piece === "string" || piece instanceof Uint8Array
    ? piece.length
    : piece.end - piece.start;
}

function countDigits(integer: number): number {
  let count = 1;
  for (let limit = 10; integer >= limit; limit *= 10) count++;
  return count;
}

/** A piece as a typed array. Typed arrays and slices are not copied. */
export function toBytes(piece: Piece): Uint8Array {
  if (typeof piece === "string" || typeof piece === "number") return utf8(String(piece));
  return piece instanceof Uint8Array ? piece : piece.bytes.subarray(piece.start, piece.end);
}

/** Maximum size, in bytes, that is copied by a loop, which is faster than a native call for so few bytes. */
const LOOP_LIMIT = 24;

/** Copies a piece into a target that has room for it. @returns the index after the copy */
export function copyPiece(piece: Piece, target: Buffer, index: number): number {
  if (typeof piece === "number") return writeDigits(piece, target, index);
  if (typeof piece === "string") {
    if (piece.length > LOOP_LIMIT) return index + target.write(piece, index, "latin1");
    for (let i = 0; i < piece.length; i++) target[index + i] = piece.charCodeAt(i);
    return index + piece.length;
  }
  return piece instanceof Uint8Array
    ? copyByteRange(piece, 0, piece.length, target, index)
    : copyByteRange(piece.bytes, piece.start, piece.end, target, index);
}

/** Copies a byte range into a target that has room for it. @returns the index after the copy */
export function copyByteRange(
  bytes: Uint8Array,
  start: number,
  end: number,
  target: Buffer,
  index: number,
): number {
  if (end - start <= LOOP_LIMIT) {
    for (let i = start, k = index; i < end; i++, k++) target[k] = bytes[i] as number;
  } else if (bytes instanceof Buffer) {
    bytes.copy(target, index, start, end);
  } else {
    target.set(bytes.subarray(start, end), index);
  }
  return index + end - start;
}

const MAX_INT32 = 0x7fff_ffff;

function writeDigits(integer: number, target: Buffer, at: number): number {
  if (integer > MAX_INT32) return copyPiece(String(integer), target, at);
  const end = at + countDigits(integer);
  // `| 0` makes the runtimes divide integers, which takes a third of the time.
  for (let i = end - 1, rest = integer | 0; i >= at; i--) {
    const quotient = (rest / 10) | 0;
    target[i] = 0x30 + rest - quotient * 10;
    rest = quotient;
  }
  return end;
}

/**
 * The SHA-256 hash of bytes, or of a text in UTF-8. `node:crypto`, which takes 3 ms to load, is loaded only with the
 * first, and on Bun not at all.
 */
export function sha256(data: string | Uint8Array): Uint8Array {
  if (sha256OnBun !== undefined) return sha256OnBun(data);
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(data).digest();
}
