/* Explains why a text is not valid TOML, from the place where the parser stopped. No message shows a value that may be
 * a secret. */

import { suggestArgs } from "./command-line.ts";
import { isPlaintextSecret } from "../plaintext-secrets.ts";
import { makePositionIndex, type Position } from "../problems.ts";
import { mayShow } from "../shown-keys.ts";
import { findStrayCharacter } from "./stray-character.ts";

/** A syntax error: a message about its cause, and its position. */
export interface SyntaxFault {
  readonly message: string;
  readonly position: Position;
}

/**
 * Finds the cause of a syntax error.
 * @param at the position where the parser stopped: the text before it is well-formed
 * @returns undefined if the cause is not one of the usual mistakes
 */
export function explainSyntaxError(text: string, at: Position): SyntaxFault | undefined {
  const offset = offsetOf(text, at);
  const scan = scanUntil(text, offset);
  const found =
    findStrayCharacter(text, offset, "toml") ??
    explainHeader(text, scan) ??
    explainPair(text, offset, scan);
  return found && { message: found.message, position: positionOf(text, found.offset) };
}

/**
 * Says what the beginning of a line is part of: a string or an array that begins on an earlier line, or else a
 * statement of its own. The text before the line must be well-formed.
 */
export function placeOfLine(text: string, line: number): "statement" | "array" | "string" {
  const { string, brackets } = scanUntil(text, offsetOf(text, { line, column: 1 }));
  if (string !== undefined) return "string";
  return brackets.length > 0 ? "array" : "statement";
}

interface Fault {
  readonly message: string;
  readonly offset: number;
}

/** An open string or bracket; `offset`: the offset where it begins. */
interface Opening {
  readonly sign: string;
  readonly offset: number;
}

/** The state of the text at an offset. */
interface Scan {
  /** Offsets at which statements (table names and key-value pairs) begin; the last statement contains the offset. */
  readonly statements: readonly number[];
  /** The string that contains the offset. */
  readonly string: Opening | undefined;
  /** The brackets of values that are open at the offset. */
  readonly brackets: readonly Opening[];
}

const CLOSING: Readonly<Record<string, string>> = { "[": "]", "{": "}" };

function scanUntil(text: string, end: number): Scan {
  const statements: number[] = [];
  const brackets: Opening[] = [];
  let isStart = true;
  let isHeader = false;
  for (let at = 0; at < text.length && (at < end || isStart);) {
    const char = text.charAt(at);
    if (isStart && !/\s|#/.test(char)) {
      statements.push(at);
      isStart = false;
      isHeader = char === "[";
      continue;
    }
    const sign = signAt(text, at);
    if (sign === "#") {
      const lineEnd = text.indexOf("\n", at);
      at = lineEnd < 0 ? text.length : lineEnd;
    } else if (sign !== undefined) {
      const close = endOfString(text, at, sign);
      if (close === undefined || close > end) {
        return { statements, string: { sign, offset: at }, brackets };
      }
      at = close;
    } else {
      if (char === "\n" && brackets.length === 0) isStart = true;
      if (!isHeader && CLOSING[char] !== undefined) brackets.push({ sign: char, offset: at });
      if (brackets.length > 0 && char === CLOSING[brackets.at(-1)?.sign ?? ""]) brackets.pop();
      at++;
    }
  }
  return { statements, string: undefined, brackets };
}

/** The sign at an offset that begins a string or a comment. */
function signAt(text: string, at: number): string | undefined {
  const char = text.charAt(at);
  if (char === "#") return char;
  if (char !== '"' && char !== "'") return undefined;
  const triple = char.repeat(3);
  return text.startsWith(triple, at) ? triple : char;
}

/** The offset after a string that begins at `start`; undefined if it is not closed. */
function endOfString(text: string, start: number, sign: string): number | undefined {
  for (let at = start + sign.length; at < text.length; at++) {
    if (text.charAt(at) === "\\" && sign.startsWith('"')) at++;
    else if (text.charAt(at) === "\n" && sign.length === 1) return undefined;
    else if (text.startsWith(sign, at)) return at + sign.length;
  }
  return undefined;
}

/** Matches a line with a table name, `[servers.a]` or `[[plugins]]`. */
const HEADER = /^(?<open>\[{1,2})(?<name>[^[\]#\n]*)(?<close>\]{0,2})(?<rest>[^\n]*)/;
const BARE_NAME = /^[\w-]{1,60}(?:\.[\w-]{1,60}){0,7}$/;
const PART_WITH_SPACES = /^[\w-]{1,60}(?: +[\w-]{1,60})+$/;

function explainHeader(text: string, { statements }: Scan): Fault | undefined {
  const start = statements.at(-1) ?? 0;
  const header = HEADER.exec(text.slice(start))?.groups;
  if (header === undefined) return undefined;
  const { open = "", name = "", close = "", rest = "" } = header;
  const bare = name.trim();
  const written = (inner: string): string => `${open}${inner}${"]".repeat(open.length)}`;
  const nameEnd = start + open.length + name.trimEnd().length;
  if (close.length < open.length) {
    const form = BARE_NAME.test(bare) ? `: write ${written(bare)}` : "";
    const sign = "]".repeat(open.length);
    return { message: `the table name has no closing ${sign}${form}`, offset: nameEnd };
  }
  const parts = bare.split(".").map((part) => part.trim());
  const spaced = parts.find((part) => PART_WITH_SPACES.test(part));
  if (spaced !== undefined) {
    const quoted = parts.map((part) => (part === spaced ? `"${part}"` : part)).join(".");
    const shown = parts.every((part) => part === spaced || BARE_NAME.test(part));
    const form = shown ? `: write ${written(quoted)}` : "";
    const message = `a table name with a space needs quotes${form}, or choose a name without a space`;
    return { message, offset: start + text.slice(start).indexOf(spaced) };
  }
  if (!/^\s*(?:#.*)?$/.test(rest)) {
    const message = "only a comment may follow a table name: write the key on the next line";
    return { message, offset: start + open.length + name.length + close.length };
  }
  const first = statements.findIndex((other) => {
    const groups = HEADER.exec(text.slice(other))?.groups;
    return groups?.["name"]?.trim() === bare && groups["open"] === open;
  });
  const earlier = statements[first];
  if (earlier === undefined || first === statements.length - 1 || open === "[[") return undefined;
  const shown = BARE_NAME.test(bare) ? written(bare) : "this table";
  const isServer = /^servers\.[^.]+$/.test(bare);
  const advice = isServer ? "give this server another name" : "merge the two tables";
  const { line } = positionOf(text, earlier);
  return { message: `${shown} is already in line ${line}: ${advice}`, offset: start + open.length };
}

const KEY =
  /^(?<key>(?:[\w-]+|"[^"\\\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[\w-]+|"[^"\\\n]*"|'[^'\n]*'))*)/;

/** Maximum length of a key that is explained, in UTF-16 units: messages quote it. */
const MAX_KEY = 500;
/** Maximum number of open brackets around a fault that is explained; if there are more, the fault is not explained. */
const MAX_DEPTH = 100;

function explainPair(text: string, offset: number, scan: Scan): Fault | undefined {
  const start = scan.statements.at(-1) ?? 0;
  const statement = text.slice(start);
  if (start === 0 && statement.startsWith("{")) {
    return { message: "this is JSON, not TOML: give the file the extension .json", offset };
  }
  const key = KEY.exec(statement)?.groups?.["key"];
  if (key === undefined || key.length > MAX_KEY) return undefined;
  const afterKey = statement.slice(key.length).trimStart();
  if (!afterKey.startsWith("=")) return explainKey(afterKey, start + key.length);
  const earlier = findSameKey(text, scan, key);
  if (offset < start + key.length) {
    if (earlier === undefined) return undefined;
    const { line } = positionOf(text, earlier);
    return { message: `${key} is already set in line ${line}: remove one of the two`, offset };
  }
  if (scan.string !== undefined) return explainString(text, offset, key, scan.string);
  const open = scan.brackets.at(-1);
  if (scan.brackets.length > MAX_DEPTH) return undefined;
  return open === undefined
    ? explainValue(text, offset, key, start)
    : explainInner(text, offset, open);
}

/** Explains a key that is not followed by `=`. */
function explainKey(afterKey: string, offset: number): Fault {
  if (afterKey.startsWith(":")) {
    return { message: 'TOML uses = after a key, not ":"', offset };
  }
  if (/^[\w-]+[ \t]*=/.test(afterKey)) {
    return { message: 'a key with a space needs quotes, such as "my key" = …', offset };
  }
  return { message: 'this is a key without a value: write KEY = "…"', offset };
}

/** The offset of the earlier statement in the same table that sets the same key. */
function findSameKey(text: string, { statements }: Scan, key: string): number | undefined {
  const header = statements.findLastIndex((at) => text.charAt(at) === "[");
  return statements
    .slice(header + 1, -1)
    .find((at) => KEY.exec(text.slice(at))?.groups?.["key"] === key);
}

function explainString(text: string, offset: number, key: string, opening: Opening): Fault {
  const { sign, offset: start } = opening;
  const end = endOfString(text, start, sign);
  const close = end ?? text.length;
  const escape = text.lastIndexOf("\\", offset);
  // For an invalid escape, the parser reports the position where the escape ends: at most 9 characters after the
  // backslash (`\U` and eight digits). An error within this distance of a backslash is taken for an invalid escape.
  const isEscape = sign.startsWith('"') && escape > start && offset - escape <= 9;
  if (isEscape && end !== undefined) {
    const value = text.slice(start + sign.length, close - sign.length);
    const name = text.slice(escape, escape + 2);
    const isPath = /^[A-Za-z]:\\[\w\\ .()-]*$/.test(value);
    const advice = isPath
      ? `write the path in single quotes: ${showsValue(key, value) ? `'${value}'` : "'C:\\…'"}`
      : "write \\\\ for a backslash, or put the text in single quotes";
    const shown = /\w$/.test(name) ? `"${name}"` : "the backslash";
    return {
      message: `${shown} is an escape sequence in double quotes: ${advice}`,
      offset: escape,
    };
  }
  if (end === undefined) {
    return { message: `the text has no closing ${sign}`, offset: start };
  }
  return { message: "the text contains a control character", offset };
}

/** Explains a fault in a value that is not inside an array or inline table. */
function explainValue(
  text: string,
  offset: number,
  key: string,
  statement: number,
): Fault | undefined {
  const valueStart = text.indexOf("=", statement + key.length) + 1;
  const written = text.slice(valueStart).split("\n", 1)[0] ?? "";
  const lead = written.length - written.trimStart().length;
  const start = valueStart + lead;
  const value = written.trim();
  const [quote] = /^(?:"""|'''|"|')/.exec(value) ?? [];
  if (quote !== undefined && offset === start) {
    return { message: `the text has no closing ${quote}`, offset };
  }
  if (/^(?:#|$)/.test(value)) return { message: `${key} has no value`, offset };
  if (/^["'[{]/.test(value)) {
    const message = `a second value follows: put several values in an array, such as ${key} = ["…", "…"]`;
    return offset > start ? { message, offset } : undefined;
  }
  return explainBareWord(value, start, key);
}

/** Explains a value without quotes. */
function explainBareWord(value: string, offset: number, key: string): Fault {
  if (/^(?:true|false|yes|no|on|off)\b/i.test(value)) {
    const word = /^(?:true|yes|on)\b/i.test(value) ? "true" : "false";
    return { message: `write ${key} = ${word}`, offset };
  }
  const settings = /(?:^|\.)command$/.test(key) ? suggestArgs(value.replace(/#.*/, "")) : undefined;
  if (settings !== undefined) return { message: `texts need quotes: ${settings}`, offset };
  const [word = ""] = /^[^\s#]+/.exec(value) ?? [];
  const isShown = word === value && /^[\w./~:-]{1,80}$/.test(word) && showsValue(key, word);
  return { message: `a text needs quotes: ${key} = "${isShown ? word : "…"}"`, offset };
}

/** Explains a fault inside an array or inline table. */
function explainInner(text: string, offset: number, open: Opening): Fault {
  const { line } = positionOf(text, open.offset);
  const noun = open.sign === "[" ? "array" : "table";
  const here = text.slice(open.offset + 1, offset).trimEnd();
  const next = text.slice(offset).trimStart();
  const isOtherLine = positionOf(text, offset).line > line;
  const isOutside =
    next === "" || (isOtherLine && /^(?:\[{1,2}[\w."']+\]|[\w."-]+\s*=)/.test(next));
  if (isOutside) {
    const message = `the ${noun} that begins in line ${line} has no closing ${CLOSING[open.sign]}`;
    return { message, offset: open.offset };
  }
  if (open.sign === "{" && next.startsWith(":")) {
    return { message: 'TOML uses = after a key, not ":"', offset };
  }
  const isFirst = here === "" || /[,=]$/.test(here);
  if (!isFirst) return { message: `a comma is missing in the ${noun}`, offset };
  return { message: `a text in the ${noun} needs quotes: "…"`, offset };
}

function showsValue(key: string, value: string): boolean {
  const keys = key.split(".").map((part) => part.replaceAll(/["'\s]/g, ""));
  return mayShow(keys) && !isPlaintextSecret(key, value);
}

function offsetOf(text: string, { line, column }: Position): number {
  const before = text.split("\n").slice(0, line - 1);
  return before.reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
}

function positionOf(text: string, offset: number): Position {
  return makePositionIndex(text)(offset);
}
