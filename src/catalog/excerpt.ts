/** So much of what two texts have in common is shown on either side of where they differ, in UTF-16 units. */
const NEAR = 24;

/**
 * A text for people, in one line of at most `width` UTF-16 units, 40 at least: of a longer one its two ends, as what
 * is to be hidden tends to stand at the end. Nothing in it is invisible.
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

/** Two texts where they differ, each as an excerpt of at most `width`. Nothing but what they have in common is left out without a word. */
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

/** Where the word begins that `at` is in; not far back, as a word can have any length. */
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

/** The first `length` units, or one less where a character would be cut into halves. */
function firstOf(text: string, length: number): string {
  return text.slice(0, isLow(text, length) ? length - 1 : length);
}

function lastOf(text: string, length: number): string {
  const start = Math.max(0, text.length - length);
  return text.slice(isLow(text, start) ? start + 1 : start);
}

/** Whether the second half of a character stands there. */
function isLow(text: string, at: number): boolean {
  return /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(Math.max(0, at - 1), at + 1));
}

/** Spells out what does not show: controls, line breaks, and invisible or unassigned characters. */
function reveal(text: string): string {
  return text.replace(/[\p{C}\p{DI}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\n" ? "\\n" : `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
