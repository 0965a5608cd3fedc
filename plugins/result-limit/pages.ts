import { Buffer } from "node:buffer";

/** Where a text may be cut, the best first: how much of a page may be given up for it, and what ends there. */
const PLACES: readonly { readonly share: number; readonly ends: readonly string[] }[] = [
  { share: 1 / 4, ends: ["\n\n", "\r\n\r\n"] },
  { share: 1 / 2, ends: ["\n"] },
  // An element of a JSON text that is all in one line.
  { share: 1 / 2, ends: ["},", "],"] },
  { share: 1 / 2, ends: [". ", "! ", "? ", "。", "！", "？"] },
  { share: 1 / 2, ends: [" ", "\t", ","] },
];

/** No page is smaller: any character has room, and so has what belongs to it as a rule. */
export const LEAST_PAGE = 256;

/** How far before a cut the characters are looked at that may belong together, in bytes. */
const LOOK_BACK = LEAST_PAGE / 2;

/**
 * Cuts a text in UTF-8 into pages of at most `limit` bytes (at least LEAST_PAGE), at the ends of paragraphs, lines,
 * sentences or words where there are any; a character is never cut. Pure.
 * @returns where each page ends; the last one ends with the text, and an empty text is one page
 */
export function paginate(text: Buffer, limit: number): readonly number[] {
  const ends: number[] = [];
  let start = 0;
  while (text.length - start > limit) {
    start = cut(text, start, limit);
    ends.push(start);
  }
  ends.push(text.length);
  return ends;
}

/** A page of a text, counted from 1; undefined if there is none of that number. */
export function pageOf(text: Buffer, ends: readonly number[], page: number): string | undefined {
  const end = ends[page - 1];
  return end === undefined ? undefined : text.toString("utf8", ends[page - 2] ?? 0, end);
}

/** Where the page ends that begins at `start`; there is more text than it holds. */
function cut(text: Buffer, start: number, limit: number): number {
  const end = start + limit;
  for (const { share, ends } of PLACES) {
    const from = end - Math.floor(limit * share);
    const window = text.subarray(from, end);
    const last = Math.max(
      ...ends.map((sequence) => {
        const at = window.lastIndexOf(sequence);
        return at < 0 ? -1 : at + Buffer.byteLength(sequence);
      }),
    );
    if (last > 0) return from + last;
  }
  return cutCharacters(text, end);
}

/** The last place at or before `end` that is between two characters, as people see them. */
function cutCharacters(text: Buffer, end: number): number {
  const at = floor(text, end);
  const before = text[at - 1] ?? 0;
  const after = text[at] ?? 0;
  if (before < 0x80 && after < 0x80 && before !== 0x0d) return at;
  const from = floor(text, at - LOOK_BACK);
  const left = text.toString("utf8", from, at);
  const around = left + text.toString("utf8", at, floor(text, at + LOOK_BACK));
  const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
  const index = segmenter.segment(around).containing(left.length)?.index ?? 0;
  // What is longer than that is no character that anybody can read.
  return index === 0 ? at : from + Buffer.byteLength(left.slice(0, index));
}

/** The same place, or the one before the code point that it is in. */
function floor(text: Buffer, at: number): number {
  let i = Math.min(at, text.length);
  while (((text[i] ?? 0) & 0xc0) === 0x80) i--;
  return i;
}
