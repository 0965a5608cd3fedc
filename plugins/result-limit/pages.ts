import { Buffer } from "node:buffer";

/**
 * The places where a text may be cut, in order of preference: after one of `ends`, if at most the fraction `share` of
 * the page stays empty.
 */
const BREAK_POINTS: readonly { readonly share: number; readonly ends: readonly string[] }[] = [
  { share: 1 / 4, ends: ["\n\n", "\r\n\r\n"] },
  { share: 1 / 2, ends: ["\n"] },
  // The ends of elements in a JSON text without line breaks.
  { share: 1 / 2, ends: ["},", "],"] },
  { share: 1 / 2, ends: [". ", "! ", "? ", "。", "！", "？"] },
  { share: 1 / 2, ends: [" ", "\t", ","] },
];

/** Minimum page size in bytes: any character fits, usually with all its combining marks. */
export const MIN_PAGE_SIZE = 256;

/** How far around a cut a grapheme boundary is searched, in bytes. */
const GRAPHEME_WINDOW = MIN_PAGE_SIZE / 2;

/**
 * Splits UTF-8 text into pages of at most `limit` bytes (at least MIN_PAGE_SIZE), at the ends of paragraphs, lines,
 * sentences or words where possible; a character is never split. Pure.
 * @returns the end of each page; the last one is the end of the text, and an empty text is one page
 */
export function paginate(text: Buffer, limit: number): readonly number[] {
  const ends: number[] = [];
  let start = 0;
  while (text.length - start > limit) {
    start = findPageEnd(text, start, limit);
    ends.push(start);
  }
  ends.push(text.length);
  return ends;
}

/** A page of a text, counted from 1; undefined if there is no such page. */
export function pageOf(text: Buffer, ends: readonly number[], page: number): string | undefined {
  const end = ends[page - 1];
  return end === undefined ? undefined : text.toString("utf8", ends[page - 2] ?? 0, end);
}

/** The end of the page that begins at `start`. The text from `start` on must be longer than a page. */
function findPageEnd(text: Buffer, start: number, limit: number): number {
  const end = start + limit;
  for (const { share, ends } of BREAK_POINTS) {
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
  return graphemeBoundary(text, end);
}

function graphemeBoundary(text: Buffer, end: number): number {
  const at = codePointStart(text, end);
  const before = text[at - 1] ?? 0;
  const after = text[at] ?? 0;
  if (before < 0x80 && after < 0x80 && before !== 0x0d) return at;
  const from = codePointStart(text, at - GRAPHEME_WINDOW);
  const left = text.toString("utf8", from, at);
  const around = left + text.toString("utf8", at, codePointStart(text, at + GRAPHEME_WINDOW));
  const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
  const index = segmenter.segment(around).containing(left.length)?.index ?? 0;
  // If no grapheme boundary is in the searched range, the grapheme is split: it is too long to be a readable character.
  return index === 0 ? at : from + Buffer.byteLength(left.slice(0, index));
}

/** The index itself, or the start of the code point that contains it. */
function codePointStart(text: Buffer, at: number): number {
  let i = Math.min(at, text.length);
  while (((text[i] ?? 0) & 0xc0) === 0x80) i--;
  return i;
}
