/** The length of common text shown on either side of a difference, in UTF-16 units. */
const CONTEXT_LENGTH = 24;

/**
 * Shortens a text to one line of at most `width` (at least 40) UTF-16 units, with invisible characters escaped. A
 * longer text keeps both ends, because text meant to be overlooked tends to stand at the end.
 */
export function excerpt(text: string, width: number): string {
  const compact = text.replace(/\s{4,}/g, (whitespace) => ` (${whitespace.length} blanks) `);
  if (compact.length <= width) {
    const shown = escapeInvisible(compact);
    if (shown.length <= width) return shown;
  }
  const omission = ` … (${text.length} characters) … `;
  const tail = Math.floor((width - omission.length) / 3);
  const head = width - omission.length - tail;
  const left = headOf(escapeInvisible(headOf(compact, head)), head);
  const right = tailOf(escapeInvisible(tailOf(compact, tail)), tail);
  return left + omission + right;
}

/**
 * Excerpts of two texts around their difference, each at most `width` long. Only common text is cut without a length
 * mark.
 */
export function excerptPair(before: string, after: string, width: number): [string, string] {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < shorter - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const start = startOfWord(after, head - CONTEXT_LENGTH);
  const rest = tail - CONTEXT_LENGTH;
  const excerptOf = (text: string): string => {
    const end = endOfWord(text, text.length - rest);
    const part = text.slice(start, end);
    const [left, right] = [start > 0 ? "… " : "", end < text.length ? " …" : ""];
    return left + excerpt(part, width - left.length - right.length) + right;
  };
  return [excerptOf(before), excerptOf(after)];
}

/** The start of the word at `at`, at most CONTEXT_LENGTH units back, because a word can have any length. */
function startOfWord(text: string, at: number): number {
  if (at <= 0) return 0;
  const space = text.slice(Math.max(0, at - CONTEXT_LENGTH), at).search(/\s\S*$/);
  if (space !== -1) return Math.max(0, at - CONTEXT_LENGTH) + space + 1;
  return isInsidePair(text, at) ? at - 1 : at;
}

function endOfWord(text: string, at: number): number {
  if (at >= text.length) return text.length;
  const space = text.slice(at, at + CONTEXT_LENGTH).search(/\s/);
  if (space !== -1) return at + space;
  return isInsidePair(text, at) ? at + 1 : at;
}

/** The first `length` units, or one less where a surrogate pair would be cut. */
function headOf(text: string, length: number): string {
  return text.slice(0, isInsidePair(text, length) ? length - 1 : length);
}

function tailOf(text: string, length: number): string {
  const start = Math.max(0, text.length - length);
  return text.slice(isInsidePair(text, start) ? start + 1 : start);
}

/** Whether position `at` is inside a surrogate pair. */
function isInsidePair(text: string, at: number): boolean {
  return /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(Math.max(0, at - 1), at + 1));
}

/** Escapes control characters, line breaks, and invisible or unassigned characters. */
function escapeInvisible(text: string): string {
  return text.replace(/[\p{C}\p{DI}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\n" ? "\\n" : `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
