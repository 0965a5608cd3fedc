import { isTable } from "../table.ts";

/* TOML output. */

/** `key = value` in one line. */
export function formatTomlPair([key, value]: readonly [string, unknown]): string {
  return `${formatTomlKey(key)} = ${formatTomlValue(value)}`;
}

export function formatTomlKey(key: string): string {
  return /^[A-Za-z0-9_-]+$/.test(key) ? key : formatTomlString(key);
}

function formatTomlString(text: string): string {
  return JSON.stringify(text).replaceAll("\u007f", "\\u007f");
}

/** A value in one line. */
export function formatTomlValue(value: unknown): string {
  if (typeof value === "string") return formatTomlString(value);
  if (Array.isArray(value)) return `[${value.map(formatTomlValue).join(", ")}]`;
  if (!isTable(value)) return String(value);
  const pairs = Object.entries(value).map(formatTomlPair);
  return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`;
}
