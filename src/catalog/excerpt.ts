/** The length of common text shown on either side of a difference, in UTF-16 units. */
const NEAR = 24;

/**
 * Shortens a text to one line of at most `width` (at least 40) UTF-16 units, with invisible characters escaped. A
 * longer text keeps both ends, because text meant to be overlooked tends to stand at the end.
 */
export function excerpt(text: string, width: number): string {
  const dense = text.replace(/\s{4,}/g, (blanks) => ` (${blanks.length} blanks) `);
  if (dense.length <= width) {
    const shown = reveal(dense);
    if (shown.length <= width) return shown;
  }
  const mark = ` … (${text.length} characters) … `;
  const tail = Math.floor((width - mark.length) / 3);
  const head = width - mark.length - tail;
  const left = firstOf(reveal(firstOf(dense, head)), head);
  const right = lastOf(reveal(lastOf(dense, tail)), tail);
  return left + mark + right;
}

/**
 * Excerpts of two texts around their difference, each at most `width` long. Only common text is cut without a length
 * mark.
 */
export function contrast(before: string, after: string, width: number): [string, string] {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < shorter - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const start = startOfWord(after, head - NEAR);
  const rest = tail - NEAR;
  const show = (text: string): string => {
    const end = endOfWord(text, text.length - rest);
    const part = text.slice(start, end);
    const [left, right] = [start > 0 ? "… " : "", end < text.length ? " …" : ""];
    return left + excerpt(part, width - left.length - right.length) + right;
  };
  return [show(before), show(after)];
}

/** The start of the word at `at`, at most CONTEXT_LENGTH units back, because a word can have any length. */
function startOfWord(text: string, at: number): number {
  if (at <= 0) return 0;
  const blank = text.slice(Math.max(0, at - NEAR), at).search(/\s\S*$/);
  if (blank !== -1) return Math.max(0, at - NEAR) + blank + 1;
  return isLow(text, at) ? at - 1 : at;
}

function endOfWord(text: string, at: number): number {
  if (at >= text.length) return text.length;
  const blank = text.slice(at, at + NEAR).search(/\s/);
  if (blank !== -1) return at + blank;
  return isLow(text, at) ? at + 1 : at;
}

/** The first `length` units, or one less where a surrogate pair would be cut. */
function firstOf(text: string, length: number): string {
  return text.slice(0, isLow(text, length) ? length - 1 : length);
}

function lastOf(text: string, length: number): string {
  const start = Math.max(0, text.length - length);
  return text.slice(isLow(text, start) ? start + 1 : start);
}

/** Whether position `at` is inside a surrogate pair. */
function isLow(text: string, at: number): boolean {
  return /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(Math.max(0, at - 1), at + 1));
}

/** Escapes control characters, line breaks, and invisible or unassigned characters. */
function reveal(text: string): string {
  return text.replace(/[\p{C}\p{DI}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\n" ? "\\n" : `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
