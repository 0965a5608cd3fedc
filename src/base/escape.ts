/* Texts of others as a person is shown them: what cannot be seen, or is taken for something else, stands as its code. */

/** Escapes control characters, line breaks, and invisible or unassigned characters. */
export function escapeInvisible(text: string): string {
  return text.replace(/[\p{C}\p{DI}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\n" ? "\\n" : escapeCharacter(character),
  );
}

/** Letters of other scripts that look like Latin ones, and forms of Latin letters and digits. */
const LOOKALIKES =
  /[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}\p{Script=Coptic}\p{Script=Lisu}\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\u2100-\u214f\u{1d400}-\u{1d7ff}]/gu;
const WORD = /[\p{L}\p{M}\p{N}_\u2100-\u214f]+/gu;

/**
 * Escapes also what a reader takes for something else: spaces other than the usual one, and letters of other scripts in
 * words with Latin letters.
 */
export function escapeDeceptive(text: string): string {
  // oxlint-disable-next-line no-control-regex
  if (!/[^\u0000-\u007f]/.test(text)) return escapeInvisible(text);
  const plain = text.replace(WORD, (word) =>
    /[A-Za-z]/.test(word) ? word.replace(LOOKALIKES, escapeCharacter) : word,
  );
  return escapeInvisible(plain.replace(/(?! )\p{Zs}/gu, escapeCharacter));
}

/** Escapes all characters that are not of ASCII, too. */
export function escapeNonAscii(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[^\u0000-\u007f]/gu, escapeCharacter);
}

function escapeCharacter(character: string): string {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`;
}
