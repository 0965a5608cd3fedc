import type { HubError } from "../base/errors.ts";
import { ownConsole } from "./console.ts";

import { type LogRecord, recordsOfError, SERVER_CATEGORY } from "./log.ts";

/** What a line on stderr can look like. */
export const LOG_FORMATS = ["text", "json"] as const;

export type LogFormat = (typeof LOG_FORMATS)[number];

/*
 * All that is told on stderr goes through `warn`: console.error is red on some runtimes' terminals.
 */

/** What a line of a log holds of one text, in characters, and of one list. */
const MAX_TEXT = 8000;
const MAX_ITEMS = 100;

/** Tells one line on stderr. */
export function printLine(text: string): void {
  ownConsole.warn(formatLine(text));
}

/** A line as it stands on stderr, without its end. */
export function formatLine(text: string): string {
  return `toolmux: ${sanitizeLine(text)}`;
}

/** Tells a record on stderr. */
export function printLogRecord(record: LogRecord, format: LogFormat): void {
  ownConsole.warn(formatLogRecord(record, format));
}

/** A record as it stands on stderr, without the last line end: as JSON one line; as text, a manifest's problems follow. */
export function formatLogRecord(record: LogRecord, format: LogFormat): string {
  return format === "json" ? formatJson(record) : formatText(record);
}

function formatText({ level, category, message, properties }: LogRecord): string {
  const [, part, server] = category;
  const about = part === SERVER_CATEGORY && server !== undefined ? `${server}: ` : "";
  const { error, problems = [] } = properties;
  const whole = `${level} ${about}${message}${describeLastWords(error?.stderr)}`;
  return [formatLine(cut(whole)), ...cutList(problems).map((line) => sanitizeLine(cut(line)))].join(
    "\n",
  );
}

/** `{"time":"ISO","level","category":[…],"message", …properties}`; an error in it is `{code, message, step?, stderr?}`. */
function formatJson({ time, level, category, message, properties }: LogRecord): string {
  const { error, ...rest } = properties;
  const whole = {
    time: new Date(time).toISOString(),
    level,
    category,
    message,
    ...rest,
    ...(error !== undefined && { error: errorToJson(error) }),
  };
  const text = JSON.stringify(whole, (_key, value: unknown) => {
    if (typeof value === "string") return cut(value);
    return Array.isArray(value) ? cutList(value) : value;
  });
  return escapeJson(text);
}

/** Only what is meant to be shown: a cause may be anything, with a command's arguments in it. */
function errorToJson({ code, message, step, stderr }: HubError): object {
  const words = stderr.length > 0 ? { stderr } : {};
  return { code, message, ...(step !== undefined && { step }), ...words };
}

function cut(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`;
}

/** The beginning of a list, and how much more there is. */
function cutList<T>(items: readonly T[]): readonly (T | string)[] {
  const rest = items.length - MAX_ITEMS;
  return rest <= 0 ? items : [...items.slice(0, MAX_ITEMS), `… and ${rest} more`];
}

/** Tells an error that ends a command on stderr. `topic`: the command whose help may help. */
export function printError(error: HubError, topic?: string, format: LogFormat = "text"): void {
  if (format === "text") ownConsole.warn(describeError(error, topic));
  else for (const record of recordsOfError(error)) printLogRecord(record, format);
}

/** An error and the last words of its server. Problems of a manifest stand alone on their lines, as editors read them. */
export function describeError({ code, message, stderr }: HubError, topic = ""): string {
  if (code === "manifestInvalid") return sanitizeLines(message);
  const more = stderr.map((line) => `  ${sanitizeLine(line)}`);
  if (code === "usage") more.push(`Try: toolmux help ${topic}`.trimEnd());
  return [`toolmux: ${sanitizeLine(message)}`, ...more].join("\n");
}

/** Why a server is not there, in one line, with its last words. */
export function describeFailure({ message, stderr }: HubError): string {
  return `${message}${describeLastWords(stderr)}`;
}

function describeLastWords(stderr: readonly string[] = []): string {
  return stderr.length === 0 ? "" : ` Its last words: ${stderr.join(" | ")}`;
}

/**
 * Characters that nobody sees and that change how the text around them reads: directional controls, zero-width characters, the
 * byte order mark and tags (Unicode Technical Report 36, section 3). Joiners within emoji are among them.
 */
const HIDDEN = /[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** The text with each hidden character as an escape that can be seen, such as `\u{202e}`. */
function showHidden(text: string): string {
  return text.replace(HIDDEN, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Text of others over several lines, without what would move a terminal's cursor, change its colours, or stay hidden. */
export function sanitizeLines(text: string): string {
  // oxlint-disable-next-line no-control-regex
  const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
  return showHidden(text.replaceAll("\r\n", "\n").replace(controls, "\ufffd"));
}

/** Text of others in one line, without what would move a terminal's cursor, change its colours, or stay hidden. */
export function sanitizeLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return showHidden(text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " "));
}

/**
 * JSON text of the same value, with JSON escapes in the place of what a terminal obeys, what stays hidden there, and what some
 * readers take for the end of a line.
 */
export function escapeJson(json: string): string {
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
