import { Buffer } from "node:buffer";

/** Replaces secrets in a text by a mask; returns a text without secrets unchanged. */
export type RedactFunction = (text: string) => string;

/** The mask in recordings. */
export const MASK = "[redacted]";

/** Maximum number of escape levels that are decoded to find secrets: JSON may be nested in JSON strings. */
const MAX_ESCAPE_LEVELS = 3;
const NUMBER = /-?\d[\d.eE+-]*/g;
const BACKSLASH = 0x5c;
const U = 0x75;
/** Escapes other than `\u`: code of the escape letter → code of the character. */
const ESCAPE_CODES: ReadonlyMap<number, number> = new Map(
  ["b\b", "f\f", "n\n", "r\r", "t\t"].map((it) => [it.charCodeAt(0), it.charCodeAt(1)]),
);

/**
 * Masks the secrets in a JSON text, however they are escaped. The result is JSON; text without secrets is
 * unchanged.
 * @returns undefined if a secret spans more than one value, so that it cannot be masked within JSON
 */
export function maskJson(json: string, redact: RedactFunction): string | undefined {
  // The whole text is checked first: masking value by value is a hundred times slower, and most messages contain no
  // secret.
  if (redact(json) === json && !hasEscapedSecret(json, MAX_ESCAPE_LEVELS + 1, redact)) return json;
  const parts: string[] = [];
  // A regular expression for strings would overflow the stack on strings of megabytes.
  for (let at = 0; at < json.length;) {
    const quote = json.indexOf('"', at);
    const start = quote < 0 ? json.length : quote;
    const end = quote < 0 ? json.length : stringEnd(json, start);
    parts.push(json.slice(at, start).replace(NUMBER, (number) => maskNumber(number, redact)));
    if (end > start) parts.push(maskString(json.slice(start, end), redact));
    at = end;
  }
  const shown = parts.join("");
  return redact(shown) === shown ? shown : undefined;
}

/** The index after the string that starts at `start`. */
function stringEnd(json: string, start: number): number {
  for (let quote = json.indexOf('"', start + 1); quote >= 0; quote = json.indexOf('"', quote + 1)) {
    let first = quote;
    while (json[first - 1] === "\\") first--;
    if ((quote - first) % 2 === 0) return quote + 1;
  }
  return json.length;
}

function maskNumber(number: string, redact: RedactFunction): string {
  return redact(number) === number ? number : `"${MASK}"`;
}

function maskString(string: string, redact: RedactFunction): string {
  const inner = string.slice(1, -1);
  // The mask contains no character that must be escaped.
  if (!inner.includes("\\")) return `"${redact(inner)}"`;
  const text = JSON.parse(string) as string;
  const masked = redact(text);
  if (hasEscapedSecret(masked, MAX_ESCAPE_LEVELS, redact)) return `"${MASK}"`;
  return masked === text && redact(inner) === inner ? string : JSON.stringify(masked);
}

/** Whether a secret appears after up to `levels` levels of escapes are decoded. */
function hasEscapedSecret(text: string, levels: number, redact: RedactFunction): boolean {
  let plain = text;
  for (let level = 0; level < levels && plain.includes("\\"); level++) {
    plain = decodeEscapes(plain);
    if (redact(plain) !== plain) return true;
  }
  return false;
}

/** Decodes one level of escapes, by code unit: a regular expression takes seconds for millions of escapes. */
function decodeEscapes(text: string): string {
  const units = new Uint16Array(text.length);
  let end = 0;
  for (let at = 0; at < text.length; at++) {
    let unit = text.charCodeAt(at);
    if (unit === BACKSLASH && at + 1 < text.length) {
      unit = text.charCodeAt(++at);
      const digits = unit === U ? text.slice(at + 1, at + 5) : "";
      if (/^[0-9a-f]{4}$/i.test(digits)) {
        unit = Number.parseInt(digits, 16);
        at += 4;
      } else {
        unit = ESCAPE_CODES.get(unit) ?? unit;
      }
    }
    units[end++] = unit;
  }
  return Buffer.from(units.buffer, 0, 2 * end).toString("utf16le");
}
