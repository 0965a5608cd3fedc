import { Buffer } from "node:buffer";

// A byte order mark inside a string is part of it.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const encoder = new TextEncoder();

/** A byte range, `[start, end)`. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** A replacement of a byte range. */
export interface Edit extends Range {
  readonly bytes: Uint8Array;
}

/** The UTF-8 bytes of a text. */
export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** The text of a byte range; malformed UTF-8 becomes U+FFFD. */
export function textOf(bytes: Uint8Array, start = 0, end = bytes.length): string {
  return bytes instanceof Buffer
    ? bytes.toString("utf8", start, end)
    : decoder.decode(bytes.subarray(start, end));
}

/** Whether `pattern` stands at `at`. */
export function matches(bytes: Uint8Array, at: number, pattern: Uint8Array): boolean {
  for (let i = 0; i < pattern.length; i++) if (bytes[at + i] !== pattern[i]) return false;
  return true;
}

/** The bytes with every edit applied, as pieces that share the original's memory. Edits may come in any order and must not overlap. */
export function applyEdits(bytes: Uint8Array, edits: readonly Edit[]): Uint8Array[] {
  const sorted =
    edits.length > 1 ? [...edits].sort((a, b) => a.start - b.start || a.end - b.end) : edits;
  const pieces: Uint8Array[] = [];
  let from = 0;
  for (const edit of sorted) {
    if (edit.start > from) pieces.push(bytes.subarray(from, edit.start));
    if (edit.bytes.length > 0) pieces.push(edit.bytes);
    from = edit.end;
  }
  if (from < bytes.length) pieces.push(bytes.subarray(from));
  return pieces;
}
