import type { PositionFinder, ParsedFile } from "./document.ts";
import { parseStrictJson } from "./plain.ts";

export type FileFormat = "toml" | "json";

/** Detects a file's format by its extension, else by its text. */
export function detectFormat(file: string, text: string): FileFormat {
  if (/\.toml$/i.test(file)) return "toml";
  return /\.jsonc?$/i.test(file) || /^\s*(?:\{|\/[/*])/.test(text) ? "json" : "toml";
}

/** Parses TOML, or JSON with comments. Each parser is loaded on first use. */
export async function parseText(text: string, format: FileFormat): Promise<ParsedFile> {
  try {
    if (format === "toml") return (await import("./toml.ts")).parseToml(text);
    const plain = parseStrictJson(text);
    return plain === undefined
      ? await parseJson(text)
      : { ok: true, ...plain, duplicates: [], preparePositions: () => positionsOf(text) };
  } catch (error) {
    // Endless nesting overflows a parser's stack.
    if (!(error instanceof RangeError)) throw error;
    return { ok: false, message: "nested too deeply", position: undefined };
  }
}

async function parseJson(text: string): Promise<ParsedFile> {
  return (await import("./json.ts")).parseJson(text);
}

async function positionsOf(text: string): Promise<PositionFinder> {
  const parsed = await parseJson(text);
  return parsed.ok ? parsed.preparePositions() : () => undefined;
}
