import { detectFormat } from "../manifest/syntax/parse.ts";
import {
  isPlaintextSecret,
  isSecretName,
  MASK,
  maskArgument,
} from "../manifest/plaintext-secrets.ts";
import { formatPath, type Problem } from "../manifest/problems.ts";
import { isMasked, mayShow } from "../manifest/shown-keys.ts";
import { escapeInvisible } from "../manifest/syntax/stray-character.ts";
import { placeOfLine } from "../manifest/syntax/toml-errors.ts";
import type { TerminalStyle } from "../terminal/terminal.ts";
import { sanitizeLine } from "../terminal/log.ts";

/** Maximum length of a line whose values may be shown, in UTF-16 units: each value is compared with all known keys. */
const MAX_LINE = 8 * 1024;

/** A piece of a line. Only pieces of the kind `value` may be masked. */
interface Token {
  readonly start: number;
  readonly text: string;
  readonly kind: "key" | "value" | "punctuation";
}

/**
 * Formats the source line of a problem, with a caret below the position; undefined if there is no such line, or it is
 * blank. Masks values that may be secret: those of `env`, `headers`, `oauth` and of a plugin's options, those that
 * look like a secret, those of unknown keys, and all values of a file that cannot be parsed.
 * @param source the text of the whole file
 */
export function formatCodeFrame(
  problem: Problem,
  source: string,
  { width, colors }: Pick<TerminalStyle, "width" | "colors">,
): string | undefined {
  const { position } = problem;
  const line = position && source.split(/\r?\n/)[position.line - 1];
  if (position === undefined || line === undefined || line.trim() === "") return undefined;
  const offset = position.column - 1;
  const { tokens, isShown } = readLine(line, problem, source);
  const { text, caret } = maskLine(tokens, offset, isShown);
  const gutter = ` ${position.line} | `;
  const blank = `${" ".repeat(gutter.length - 2)}| `;
  const window = cutAround(text, caret, width - gutter.length);
  return [
    colors.dim(gutter) + window.text,
    colors.dim(blank) + " ".repeat(window.caret) + colors.red("^"),
  ].join("\n");
}

interface Line {
  readonly tokens: readonly Token[];
  readonly isShown: (token: Token) => boolean;
}

/**
 * Splits the problem's line into tokens. If it is not certain where strings and comments begin in the line, there are
 * at most two tokens: the leading key, and the rest of the line, which is masked.
 */
function readLine(line: string, { file, path, position }: Problem, source: string): Line {
  const nothing = (): boolean => false;
  const isParsed = path.length > 0;
  if (line.length > MAX_LINE) return { tokens: readLeadingKey(line, true), isShown: nothing };
  const mayBeginInside = /"""|'''|\*\//.test(line);
  if (isParsed && !mayBeginInside) {
    const tokens = readTokens(line, false);
    const shown = findShownValues(tokens, path);
    return { tokens, isShown: (token) => shown.has(token) };
  }
  if (!isParsed && position !== undefined && detectFormat(file, source) === "json") {
    // In JSON, only a block comment can span lines. So a line without `*/` does not begin inside a string, and a
    // comment does not end in it: it can be split into tokens.
    if (!mayBeginInside) return { tokens: readTokens(line, true), isShown: nothing };
  } else if (!isParsed && position !== undefined) {
    const place = placeOfLine(source, position.line);
    if (place === "statement" && /^\s*\[/.test(line)) {
      const [name = ""] = /^\s*\[{1,2}(?:[^\]#=]*\]{1,2}|[\w.-]*)/.exec(line) ?? [];
      const [rest = ""] = /^[^#]*/.exec(line.slice(name.length)) ?? [];
      const header = { start: 0, text: name, kind: "punctuation" } as const;
      const isEmpty = rest.trim() === "";
      const value = { start: name.length, text: rest, kind: "value" } as const;
      return { tokens: isEmpty ? [header] : [header, value], isShown: nothing };
    }
    if (place !== "string") return { tokens: readTokens(line, true), isShown: nothing };
  }
  return { tokens: readLeadingKey(line, mayBeginInside), isShown: nothing };
}

function maskLine(
  tokens: readonly Token[],
  at: number,
  isShown: (token: Token) => boolean,
): { text: string; caret: number } {
  let text = "";
  let caret: number | undefined;
  for (const token of tokens) {
    const { start, text: piece, kind } = token;
    const isVisible = kind !== "value" || isShown(token);
    if (start <= at && at < start + piece.length) {
      caret = text.length + (isVisible ? formatPiece(piece.slice(0, at - start)).length : 0);
    }
    text += isVisible ? formatPiece(piece) : maskValue(piece);
  }
  return { text: text.trimEnd(), caret: caret ?? text.trimEnd().length };
}

function formatPiece(piece: string): string {
  return escapeInvisible(sanitizeLine(piece.replaceAll("\t", " ")));
}

/** Masks a value. Its quotes are kept, to show the value's type. */
function maskValue(text: string): string {
  const quote = /^["']/.exec(text)?.[0];
  return quote === undefined
    ? MASK
    : `${quote}${MASK}${text.length > 1 && text.endsWith(quote) ? quote : ""}`;
}

/** An array or table that begins in the line, or the table that contains the whole line. */
interface Level {
  /** The keys that lead from the outermost table in the line to the current value. */
  readonly keys: readonly string[];
  readonly isArray: boolean;
  /**
   * In an array, the value before the current one, which may be an option such as `--token`; undefined if it may stand
   * in an earlier line.
   */
  previous: string | undefined;
}

/** Finds the values of a line that cannot be secret. @param path the keys that lead to the problem's place */
function findShownValues(tokens: readonly Token[], path: Problem["path"]): ReadonlySet<Token> {
  const shown = new Set<Token>();
  const names = path.filter((key) => typeof key === "string");
  // If the path names a server or a whole table, the line has a text where a table is expected. That text may be a
  // secret.
  const isTableExpected =
    /^(?:servers(?:\.|$)|hub$|defaults$)/.test(formatPath(path)) && path.length < 3;
  if (isTableExpected || isMasked(names)) return shown;
  const outer = names.slice(0, -1);
  const levels: Level[] = [{ keys: [], isArray: false, previous: undefined }];
  let keys: string[] = [];
  for (const token of tokens) {
    const level = levels.at(-1);
    if (level === undefined) break;
    const { kind, text } = token;
    if (kind === "key") keys.push(unquote(text));
    else if (kind === "value") {
      const around = [...level.keys, ...keys];
      const own = around.length > 0 ? [...outer, ...around] : names;
      const value = unquote(text);
      const isInArray = level.isArray || around.length === 0;
      const isKnown = !isInArray || level.previous !== undefined || value.startsWith("-");
      if (isKnown && isSafe(own, value, isInArray ? (level.previous ?? "") : "")) shown.add(token);
      level.previous = value;
    } else if (text === "[" || text === "{") {
      levels.push({ keys: [...level.keys, ...keys], isArray: text === "[", previous: "" });
      keys = [];
    } else if (text === "]" || text === "}") {
      if (levels.length > 1) levels.pop();
      // The table began in an earlier line, so the keys of the values before this bracket are unknown.
      else shown.clear();
      keys = [];
    } else if (text === ",") keys = [];
  }
  return shown;
}

function isSafe(keys: readonly string[], value: string, previous: string): boolean {
  const key = keys.at(-1) ?? "";
  return (
    mayShow(keys) &&
    !isSecretName(key) &&
    !isPlaintextSecret(key, value) &&
    maskArgument(value, previous) === value
  );
}

function unquote(text: string): string {
  return /^["']/.test(text) ? text.slice(1, -1) : text;
}

const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*'/y;
const BARE_WORD = /[^\s"'=:,[\]{}#/]+/y;
const PUNCTUATION = /\s+|[=:,[\]{}/.]/y;

/**
 * The tokens of a TOML or JSON line. Comments are left out, because they may contain secrets that were commented out.
 * @param isBroken whether the file cannot be parsed; if so, a value without quotes extends to the next `,`, `]`, `}` or
 * `#`
 */
function readTokens(line: string, isBroken: boolean): readonly Token[] {
  const tokens: Token[] = [];
  const isHeader = /^\s*\[{1,2}[^[\]{}=]*\]{1,2}\s*(?:#.*)?$/.test(line);
  // Whether a key may come next: at the start of a line or table, and after a comma.
  let mayBeKey = true;
  for (let start = 0; start < line.length;) {
    if (/^(?:#|\/[/*])/.test(line.slice(start, start + 2))) break;
    const read = (pattern: RegExp): string | undefined => {
      pattern.lastIndex = start;
      return pattern.exec(line)?.[0];
    };
    const sign = read(PUNCTUATION);
    let text = sign ?? read(STRING) ?? read(BARE_WORD) ?? line.slice(start);
    const rest = line.slice(start + text.length);
    const isKey: boolean = isHeader || (mayBeKey && /^\s*(?:[=:]|\.\s*["'\w])/.test(rest));
    if (sign === undefined && !isKey && isBroken && !/^["']/.test(text)) {
      text = /^[^,\]}#]*/.exec(line.slice(start))?.[0].trimEnd() || text;
    }
    if (sign === undefined || /[=:]/.test(text)) mayBeKey = isKey;
    if (/[{,]/.test(text) && sign !== undefined) mayBeKey = true;
    const kind = sign !== undefined ? "punctuation" : isKey ? "key" : "value";
    tokens.push({ start, text, kind });
    start += text.length;
  }
  return tokens;
}

/**
 * Splits a line into its leading key, such as `env.TOKEN =` or `"TOKEN":`, and all text after it, as one masked value.
 * @param mayBeginInside whether the line may begin inside a string or comment; if so, no leading key is read
 */
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
