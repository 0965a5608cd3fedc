import type { KeyPath, Position, Problem } from "../problems.ts";
import { createTable } from "../table.ts";

/** Finds the position of a key or of its value; if the path has no position, that of the nearest table around it. */
export type PositionFinder = (path: KeyPath, at: Problem["at"]) => Position | undefined;

export type ParsedFile =
  | {
      readonly ok: true;
      /** The parsed file. Its tables have no prototype. */
      readonly root: unknown;
      /**
       * Keys that occur twice in the same table: the last one counts. TOML files have none, because TOML forbids them.
       */
      readonly duplicates: readonly DuplicateKey[];
      /** Makes the function that finds positions. This costs a second parse, so it is done only to print problems. */
      readonly preparePositions: () => Promise<PositionFinder>;
    }
  | { readonly ok: false; readonly message: string; readonly position: Position | undefined };

/** A key that occurs again in the same table, and the position of the later occurrence. */
export interface DuplicateKey {
  readonly path: KeyPath;
  readonly position: Position;
}

const STRING_LITERALS = /"[^"\\]*(?:\\.[^"\\]*)*(?:"|$)/gs;

/**
 * Parses strict JSON without duplicate keys. This is the usual case, which does not need the JSONC parser. The tables
 * have no prototype.
 * @returns undefined for any other text
 * @throws {RangeError} nested too deeply
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
  // Outside of strings, a JSON text has one colon per key. If there are more colons than parsed keys, JSON.parse has
  // merged duplicate keys.
  return text.replace(STRING_LITERALS, "").split(":").length - 1 === keys ? { root } : undefined;
}

export type FileFormat = "toml" | "json";

/** Detects a file's format by its extension, else by its text. */
export function detectFormat(file: string, text: string): FileFormat {
  if (/\.toml$/i.test(file)) return "toml";
  return /\.jsonc?$/i.test(file) || /^\s*(?:\{|\/[/*])/.test(text) ? "json" : "toml";
}

/** Parses TOML, or JSON with comments. Each parser is loaded on first use. */
export async function parseText(text: string, format: FileFormat): Promise<ParsedFile> {
  try {
    const parsed = await parseAs(text, format);
    return parsed.ok && isDeeper(parsed.root, MAX_DEPTH) ? TOO_DEEP : parsed;
  } catch (error) {
    // Very deep nesting overflows the parser's call stack (RangeError).
    if (!(error instanceof RangeError)) throw error;
    return TOO_DEEP;
  }
}

const TOO_DEEP = { ok: false, message: "nested too deeply", position: undefined } as const;

async function parseAs(text: string, format: FileFormat): Promise<ParsedFile> {
  if (format === "toml") return (await import("./toml.ts")).parseToml(text);
  const plain = parseStrictJson(text);
  return plain === undefined
    ? parseJson(text)
    : { ok: true, ...plain, duplicates: [], preparePositions: () => positionsOf(text) };
}

/** Maximum depth of tables and arrays. All that reads a file takes time in proportion to the depth of each value. */
const MAX_DEPTH = 256;

/** Whether tables and arrays are nested deeper. */
function isDeeper(root: unknown, depth: number): boolean {
  let level: readonly unknown[] = [root];
  for (let left = depth; left >= 0 && level.length > 0; left--) {
    level = level.flatMap((value): unknown[] =>
      typeof value === "object" && value !== null ? Object.values(value) : [],
    );
  }
  return level.length > 0;
}

async function parseJson(text: string): Promise<ParsedFile> {
  return (await import("./json.ts")).parseJson(text);
}

async function positionsOf(text: string): Promise<PositionFinder> {
  const parsed = await parseJson(text);
  return parsed.ok ? parsed.preparePositions() : () => undefined;
}
