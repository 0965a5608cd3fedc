/* Makes visible what a text of others must not do to a terminal or to its reader. */

/**
 * Invisible characters that change how text reads: directional controls, zero-width characters, fillers, separators of
 * lines and paragraphs, byte order mark and tags (Unicode Technical Report 36, section 3). The joiners within emoji
 * match, too.
 */
const HIDDEN =
  /[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e007f}]/gu;

/** Replaces invisible characters by visible escapes such as `\u{202e}`. */
function showHidden(text: string): string {
  return text.replace(HIDDEN, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Untrusted multi-line text without terminal control characters; invisible characters are shown as escapes. */
export function sanitizeLines(text: string): string {
  // oxlint-disable-next-line no-control-regex
  const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
  return showHidden(text.replaceAll("\r\n", "\n").replace(controls, "\ufffd"));
}

/** Untrusted text as one line, without terminal control characters; invisible characters are shown as escapes. */
export function sanitizeLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return showHidden(text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " "));
}

/** Replaces terminal control characters, invisible characters and U+2028/U+2029 in JSON text with JSON escapes. */
export function escapeJsonForTerminal(json: string): string {
  return json
    .replace(/[\u007f-\u009f\u2028\u2029]/g, escapeUnits)
    .replace(HIDDEN, (char) => escapeUnits(char));
}

function escapeUnits(char: string): string {
  return char
    .split("")
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");
}

/**
 * A number that nobody knows beforehand. It is part of the codes of our own colors until they are printed, so that no
 * text of others can contain one.
 */
const MARK = String(crypto.getRandomValues(new Uint32Array(1))[0]);
const OWN_CODE = new RegExp(`\u001b\\[(\\d+);${MARK}m`, "g");

/** A code for a color or style (SGR in ECMA-48), which becomes valid when it is printed. */
export function markCode(code: number): string {
  return `\u001b[${code};${MARK}m`;
}

/** The text with the codes of our own colors; all else that is no plain text is made visible (`sanitizeLines`). */
export function sanitizeForTerminal(text: string): string {
  return text
    .split(OWN_CODE)
    .map((part, at) => (at % 2 === 0 ? sanitizeLines(part) : `\u001b[${part}m`))
    .join("");
}

/** The text without the codes of our own colors, for counting its columns. */
export function withoutMarks(text: string): string {
  return text.includes("\u001b") ? text.replace(OWN_CODE, "") : text;
}

/** The text as it is, with valid codes of our own colors. */
export function removeMarks(text: string): string {
  return text.replace(OWN_CODE, "\u001b[$1m");
}
