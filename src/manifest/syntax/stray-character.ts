/* Names characters that people do not see, or take for others, and that make a file wrong: a no-break space, a
 * typographic quote, a lone carriage return. */

/** The fault of a stray character: what it is and what to write, and its offset in UTF-16 code units. */
export interface StrayCharacter {
  readonly message: string;
  readonly offset: number;
}

/** Characters that look like a space or like nothing. */
const INVISIBLE =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u00a0\u00ad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u2066-\u2069\u3000\ufeff\u{e0000}-\u{e007f}]/u;

const NAMES: ReadonlyMap<number, string> = new Map([
  [0xa0, "a no-break space"],
  [0xad, "a soft hyphen"],
  [0x200b, "a zero-width space"],
  [0x200c, "a zero-width non-joiner"],
  [0x200d, "a zero-width joiner"],
  [0x2028, "a line separator"],
  [0x2029, "a paragraph separator"],
  [0x202f, "a narrow no-break space"],
  [0x2060, "a word joiner"],
  [0x3000, "an ideographic space"],
  [0xfeff, "a byte order mark"],
]);

const CLOSING_QUOTE = /[“”„‟«»‹›‘’‚‛′″＂＇｀´](?=[ \t]*(?:[:=,}\]]|$))/u;
const QUOTE = /[“”„‟«»‹›‘’‚‛′″＂＇｀´]/u;

/** Characters that look like signs of the syntax, with these signs. */
const LOOKALIKES: ReadonlyMap<string, string> = new Map([
  ["：", ":"],
  ["，", ","],
  ["、", ","],
  ["＝", "="],
  ["［", "["],
  ["］", "]"],
  ["｛", "{"],
  ["｝", "}"],
  ["＃", "#"],
  ["．", "."],
  ["‐", "-"],
  ["‑", "-"],
  ["–", "-"],
  ["—", "-"],
  ["−", "-"],
]);

/**
 * Finds the stray character that made a file wrong: the first one outside of texts and comments, up to the end of the
 * line where the parser stopped, or one in the text around that place.
 * @param fault the offset where the parser stopped
 */
export function findStrayCharacter(
  text: string,
  fault: number,
  format: "json" | "toml",
): StrayCharacter | undefined {
  const isToml = format === "toml";
  const lineEnd = text.indexOf("\n", fault);
  const end = lineEnd < 0 ? text.length : lineEnd;
  for (let at = 0; at < end;) {
    const string = readString(text, at, isToml);
    if (string !== undefined) {
      const isAtFault = at <= fault && isBlank(text, string.end, fault);
      const found = strayInText(text, at, string, isAtFault, isToml);
      if (found !== undefined) return found;
      at = string.end;
      continue;
    }
    const comment = endOfComment(text, at, isToml);
    if (comment !== undefined) {
      const stray = isToml ? findLoneReturn(text, at, comment) : undefined;
      if (stray !== undefined) return loneReturn(stray);
      at = comment;
      continue;
    }
    const char = String.fromCodePoint(text.codePointAt(at) ?? 0);
    const message = isToml && isLoneReturn(text, at) ? LONE_RETURN : strayMessage(char);
    if (message !== undefined) return { message, offset: at };
    at += char.length;
  }
  return undefined;
}

/** The name of the first invisible character in a text, such as "a zero-width space (U+200B)"; undefined if there is none. */
export function nameInvisible(text: string): string | undefined {
  const [char] = INVISIBLE.exec(text) ?? [];
  return char === undefined ? undefined : nameOf(char);
}

/** Shows the invisible characters of a text as escapes: `\u{200b}`. */
export function escapeInvisible(text: string): string {
  return text.replaceAll(
    new RegExp(INVISIBLE, "gu"),
    (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`,
  );
}

const LONE_RETURN =
  "here is a carriage return (U+000D) without a line feed: end the line with a line feed, or write \\r in a text";

function loneReturn(offset: number): StrayCharacter {
  return { message: LONE_RETURN, offset };
}

interface QuotedText {
  /** The offset of its first character. */
  readonly start: number;
  /** The offset after its closing quote, or after its last character if it is not closed. */
  readonly end: number;
  readonly isClosed: boolean;
}

function readString(text: string, at: number, isToml: boolean): QuotedText | undefined {
  const [sign] = /^(?:"""|'''|"|')/.exec(text.slice(at, at + 3)) ?? [];
  const quote = isToml ? sign : sign?.startsWith('"') ? '"' : undefined;
  if (quote === undefined) return undefined;
  const start = at + quote.length;
  for (let end = start; end < text.length; end++) {
    const char = text.charAt(end);
    if (text.startsWith(quote, end)) return { start, end: end + quote.length, isClosed: true };
    const isLineEnd = char === "\n" || (char === "\r" && !isToml);
    if (isLineEnd && quote.length === 1) return { start, end, isClosed: false };
    if (char === "\\" && quote.startsWith('"')) end++;
  }
  return { start, end: text.length, isClosed: false };
}

/** A text is wrong if it has no end, or if it ends too late, which shows behind it. */
function strayInText(
  text: string,
  open: number,
  { start, end, isClosed }: QuotedText,
  isAtFault: boolean,
  isToml: boolean,
): StrayCharacter | undefined {
  const lone = findLoneReturn(text, start, Math.min(end + 1, text.length));
  if (lone !== undefined && (isToml || !isClosed)) return loneReturn(lone);
  if (isClosed && !isAtFault) return undefined;
  // A quote that is meant to close the text stands before a sign of the syntax, or at the end of the line.
  const found = CLOSING_QUOTE.exec(text.slice(start, end));
  if (found === null) return undefined;
  const straight = text.charAt(open);
  const message = `the text before this is not closed, because ${nameOf(found[0])} closes none: write ${straight}`;
  return { message, offset: start + found.index };
}

function isBlank(text: string, from: number, to: number): boolean {
  return from >= to || text.slice(from, to).trim() === "";
}

/** The offset after a comment that begins at an offset; undefined if none begins there. */
function endOfComment(text: string, at: number, isToml: boolean): number | undefined {
  const end = (sign: string, length: number): number => {
    const found = text.indexOf(sign, at + 2);
    return found < 0 ? text.length : found + length;
  };
  if (isToml) return text.charAt(at) === "#" ? end("\n", 0) : undefined;
  if (text.startsWith("/*", at)) return end("*/", 2);
  if (!text.startsWith("//", at)) return undefined;
  const length = text.slice(at).search(/[\r\n]/);
  return length < 0 ? text.length : at + length;
}

function isLoneReturn(text: string, at: number): boolean {
  return text.charAt(at) === "\r" && text.charAt(at + 1) !== "\n";
}

function findLoneReturn(text: string, from: number, to: number): number | undefined {
  for (let at = from; at < to; at++) if (isLoneReturn(text, at)) return at;
  return undefined;
}

function strayMessage(char: string): string | undefined {
  if (QUOTE.test(char)) return `here is ${nameOf(char)}: a text needs straight quotes`;
  const meant = LOOKALIKES.get(char);
  if (meant !== undefined)
    return `here is ${nameOf(char)}, which only looks like ${meant}: write ${meant}`;
  if (/\s/.test(char) && char !== "\ufeff" && INVISIBLE.test(char))
    return `here is ${nameOf(char)}: write an ordinary space, or a line feed`;
  return INVISIBLE.test(char)
    ? `here is ${nameOf(char)}, which is not visible: delete it`
    : undefined;
}

function nameOf(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  if (QUOTE.test(char)) return `a typographic quote (${hex})`;
  if (LOOKALIKES.has(char)) return `the character ${char} (${hex})`;
  const isControl = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const name = isControl ? "a control character" : "an invisible character";
  return `${NAMES.get(code) ?? name} (${hex})`;
}
