import { createTable } from "./table.ts";

/** String literals. */
const STRING_LITERALS = /"(?:[^"\\]|\\.)*"/gs;

/**
 * Parses strict JSON without duplicate keys, the usual case, without loading the JSONC parser. Tables have no
 * prototype. Returns undefined for any other text. @throws {RangeError} nested too deeply
 */
export function parseStrictJson(text: string): { readonly root: unknown } | undefined {
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
  // Every key has one colon in the text; duplicate keys have been merged by JSON.parse.
  return text.replace(STRING_LITERALS, "").split(":").length - 1 === keys ? { root } : undefined;
}
