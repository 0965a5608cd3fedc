import { formatPath, type Problem } from "../manifest/problems.ts";
import type { TerminalStyle } from "../terminal/terminal.ts";
import { sanitizeLine } from "../terminal/log.ts";

const MASK = "•••";

/** Paths of settings whose values are never secret; only these are shown. */
const NEVER_SECRET =
  /^(?:hub\.(?!httpToken$)|defaults\.)\w+$|^servers\.(?:[\w$-]+|"(?:\\.|[^"\\])*")\.(?:enabled|prefix|\w+Timeout|maxMessage|plugin|tools\..*)$|^plugins\[\d+\]\.(?:use|servers|tools)\b|^secrets\.(?:sources|commands)\b/;

/** A piece of a line: shown, or replaced by a mask. */
interface Token {
  readonly start: number;
  readonly text: string;
  readonly kind: "key" | "value" | "punctuation";
}

/**
 * The source line of a problem with a caret below the position; undefined if there is no such line, or it is blank.
 * Values in the line are masked, because they may be secret; only the value that the problem is about is shown, if its
 * setting is never secret.
 * @param source the text of the whole file
 */
export function formatCodeFrame(
  { position, path }: Problem,
  source: string,
  { width, colors }: Pick<TerminalStyle, "width" | "colors">,
): string | undefined {
  const line = position && source.split(/\r?\n/)[position.line - 1];
  if (position === undefined || line === undefined || line.trim() === "") return undefined;
  const offset = position.column - 1;
  const { text, caret } = maskLine(
    line,
    offset,
    path.length > 0,
    NEVER_SECRET.test(formatPath(path)),
  );
  const gutter = ` ${position.line} | `;
  const blank = `${" ".repeat(gutter.length - 2)}| `;
  const window = cutAround(text, caret, width - gutter.length);
  return [
    colors.dim(gutter) + window.text,
    colors.dim(blank) + " ".repeat(window.caret) + colors.red("^"),
  ].join("\n");
}

/**
 * Masks values in a line. A line that may start inside a multi-line string or comment is masked as a whole.
 * @param parsed whether the file is well-formed; otherwise only a key at the start of the line can be
 * recognized
 * @param showsValue whether the value at `at` may be shown
 */
function maskLine(
  line: string,
  at: number,
  parsed: boolean,
  showsValue: boolean,
): { text: string; caret: number } {
  const mayBeginInside = /"""|'''|\*\//.test(line);
  const isCertain = parsed && !mayBeginInside;
  const tokens = isCertain ? readTokens(line) : readLeadingKey(line, mayBeginInside);
  let text = "";
  let caret: number | undefined;
  for (const { start, text: piece, kind } of tokens) {
    const end = start + piece.length;
    const isHere = start <= at && at < end;
    const isShown = kind !== "value" || (isHere && isCertain && showsValue);
    if (isHere)
      caret = text.length + (isShown ? formatPiece(piece.slice(0, at - start)).length : 0);
    text += isShown ? formatPiece(piece) : maskValue(piece);
  }
  return { text: text.trimEnd(), caret: caret ?? text.length };
}

/** A piece as shown, with each tab as a space. */
function formatPiece(piece: string): string {
  return sanitizeLine(piece.replaceAll("\t", " "));
}

/** Quotes are kept, to show the value's type. */
function maskValue(text: string): string {
  const quote = /^["']/.exec(text)?.[0];
  return quote === undefined
    ? MASK
    : `${quote}${MASK}${text.length > 1 && text.endsWith(quote) ? quote : ""}`;
}

const STRING = /"(?:\\.|[^"\\])*"|'[^']*'/y;
const BARE_WORD = /[^\s"'=:,[\]{}#/]+/y;
const PUNCTUATION = /\s+|[=:,[\]{}/]/y;

/** The tokens of a whole TOML or JSON line. Comments are left out: they may contain values that were commented out. */
function readTokens(line: string): readonly Token[] {
  const tokens: Token[] = [];
  const isHeader = /^\s*\[/.test(line) && /^\s*\[{1,2}[^[\]{}=]*\]{1,2}\s*(?:#.*)?$/.test(line);
  for (let start = 0; start < line.length;) {
    if (/^(?:#|\/[/*])/.test(line.slice(start, start + 2))) break;
    const read = (pattern: RegExp): string | undefined => {
      pattern.lastIndex = start;
      return pattern.exec(line)?.[0];
    };
    const sign = read(PUNCTUATION);
    const text = sign ?? read(STRING) ?? read(BARE_WORD) ?? line.slice(start);
    const isKey = isHeader || /^\s*(?:[=:]|\.\s*["'\w])/.test(line.slice(start + text.length));
    tokens.push({
      start,
      text,
      kind: sign !== undefined ? "punctuation" : isKey ? "key" : "value",
    });
    start += text.length;
  }
  return tokens;
}

/** Recognizes only a key at the very start, `env.TOKEN =` or `"TOKEN":`; all that follows is one masked value. */
function readLeadingKey(line: string, mayBeginInside: boolean): readonly Token[] {
  const key = /^\s*(?:[\w-]{1,40}|"[\w -]{1,40}")(?:\s*\.\s*[\w-]{1,40})*\s*[=:]\s*(?=[^\s=])/.exec(
    line,
  );
  const space = /^\s*/.exec(line)?.[0] ?? "";
  const shown = mayBeginInside ? space : (key?.[0] ?? space);
  return [
    { start: 0, text: shown, kind: "punctuation" },
    { start: shown.length, text: line.slice(shown.length), kind: "value" },
  ];
}

/** The part of a line around the caret that fits into `width` characters. */
function cutAround(text: string, caret: number, width: number): { text: string; caret: number } {
  const minWidth = 20;
  const size = Math.max(width, minWidth);
  if (text.length <= size) return { text, caret };
  const start = Math.max(0, Math.min(caret - Math.floor(size / 2), text.length - size));
  const [before, behind] = [start > 0, start + size < text.length].map((isCut) =>
    isCut ? "…" : "",
  );
  const shown = text.slice(start + (before ? 1 : 0), start + size - (behind ? 1 : 0));
  return { text: `${before}${shown}${behind}`, caret: caret - start };
}
