import { createTable } from "./table.ts";

/** Anything between two quotes. */
const TEXTS = /"(?:[^"\\]|\\.)*"/gs;

/**
 * The value of a strict JSON text in which no key stands twice in one table, as nearly all are, without a parser that would
 * have to be loaded. Tables in it have no prototype. undefined: the text is another. @throws {RangeError} nested too deeply
 */
export function parsePlain(text: string): { readonly root: unknown } | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    if (error instanceof RangeError) throw error;
    return undefined;
  }
  let keys = 0;
  const copy = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(copy);
    if (typeof value !== "object" || value === null) return value;
    const table = createTable<unknown>();
    for (const [key, inner] of Object.entries(value)) {
      keys++;
      table[key] = copy(inner);
    }
    return table;
  };
  const root = copy(parsed);
  // Every key has a colon, and those that stood twice have become one.
  return text.replace(TEXTS, "").split(":").length - 1 === keys ? { root } : undefined;
}
