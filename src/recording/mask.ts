import { Buffer } from "node:buffer";

/** Takes what must not be shown out of a text; what it leaves as it was it gives back as it was. */
export type RedactFunction = (text: string) => string;

/** What stands in recordings where something was taken out. */
export const MASK = "[redacted]";

/** JSON within a string within JSON: so many times are escapes looked behind. */
const MOST_LAYERS = 3;
const NUMBER = /-?\d[\d.eE+-]*/g;
const BACKSLASH = 0x5c;
const U = 0x75;
/** What stands behind a backslash for something else, as character codes. */
const ESCAPED: ReadonlyMap<number, number> = new Map(
  ["b\b", "f\f", "n\n", "r\r", "t\t"].map((it) => [it.charCodeAt(0), it.charCodeAt(1)]),
);

/**
 * A JSON text without what must not be shown, however it is escaped there. It stays JSON, and what holds no secret stays as it
 * is spelled.
 * @returns undefined if a secret goes over more than one value, so that no JSON would be left without it.
 */
export function maskJson(json: string, redact: RedactFunction): string | undefined {
  // Value by value takes a hundred times as long, and most messages hold no secret.
  if (redact(json) === json && !isHidingDeeper(json, MOST_LAYERS + 1, redact)) return json;
  const parts: string[] = [];
  // By hand: an expression for strings runs out of stack in those of megabytes.
  for (let at = 0; at < json.length;) {
    const quote = json.indexOf('"', at);
    const start = quote < 0 ? json.length : quote;
    const end = quote < 0 ? json.length : findEnd(json, start);
    parts.push(json.slice(at, start).replace(NUMBER, (number) => hideNumber(number, redact)));
    if (end > start) parts.push(disguiseString(json.slice(start, end), redact));
    at = end;
  }
  const shown = parts.join("");
  return redact(shown) === shown ? shown : undefined;
}

/** The index after the string that starts there. */
function findEnd(json: string, start: number): number {
  for (let quote = json.indexOf('"', start + 1); quote >= 0; quote = json.indexOf('"', quote + 1)) {
    let first = quote;
    while (json[first - 1] === "\\") first--;
    if ((quote - first) % 2 === 0) return quote + 1;
  }
  return json.length;
}

function hideNumber(number: string, redact: RedactFunction): string {
  return redact(number) === number ? number : `"${MASK}"`;
}

function disguiseString(string: string, redact: RedactFunction): string {
  const inner = string.slice(1, -1);
  // The mask needs no escapes, so what has none before has none after it.
  if (!inner.includes("\\")) return `"${redact(inner)}"`;
  const text = JSON.parse(string) as string;
  const masked = redact(text);
  if (isHidingDeeper(masked, MOST_LAYERS, redact)) return `"${MASK}"`;
  return masked === text && redact(inner) === inner ? string : JSON.stringify(masked);
}

/** Whether there is a secret in a text that shows when its own escapes are undone, so many times at most. */
function isHidingDeeper(text: string, layers: number, redact: RedactFunction): boolean {
  let plain = text;
  for (let layer = 0; layer < layers && plain.includes("\\"); layer++) {
    plain = undoEscapes(plain);
    if (redact(plain) !== plain) return true;
  }
  return false;
}

/** By code units: an expression with a callback takes seconds for what has millions of escapes. */
function undoEscapes(text: string): string {
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
        unit = ESCAPED.get(unit) ?? unit;
      }
    }
    units[end++] = unit;
  }
  return Buffer.from(units.buffer, 0, 2 * end).toString("utf16le");
}
