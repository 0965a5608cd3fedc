import { isTable } from "../table.ts";

/* TOML output. */

/** `key = value` in one line. */
export function printPair([key, value]: readonly [string, unknown]): string {
  return `${printKey(key)} = ${printValue(value)}`;
}

export function printKey(key: string): string {
  return /^[A-Za-z0-9_-]+$/.test(key) ? key : printText(key);
}

function printText(text: string): string {
  return JSON.stringify(text).replaceAll("\u007f", "\\u007f");
}

/** A value in one line. */
export function printValue(value: unknown): string {
  if (typeof value === "string") return printText(value);
  if (Array.isArray(value)) return `[${value.map(printValue).join(", ")}]`;
  if (!isTable(value)) return String(value);
  const pairs = Object.entries(value).map(printPair);
  return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`;
}
