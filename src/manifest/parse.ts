import type { Locate, ParseResult } from "./document.ts";
import { parsePlain } from "./plain.ts";

export type Format = "toml" | "json";

/** Detects a file's format by its extension, else by its text. */
export function detectFormat(file: string, text: string): Format {
  if (/\.toml$/i.test(file)) return "toml";
  return /\.jsonc?$/i.test(file) || /^\s*(?:\{|\/[/*])/.test(text) ? "json" : "toml";
}

/** Parses TOML, or JSON with comments. Each parser is loaded on first use. */
export async function parseText(text: string, format: Format): Promise<ParseResult> {
  try {
    if (format === "toml") return (await import("./toml.ts")).parseToml(text);
    const plain = parsePlain(text);
    return plain === undefined
      ? await parseJson(text)
      : { ok: true, ...plain, doubled: [], locate: () => locateIn(text) };
  } catch (error) {
    // Endless nesting overflows a parser's stack.
    if (!(error instanceof RangeError)) throw error;
    return { ok: false, message: "nested too deeply", position: undefined };
  }
}

async function parseJson(text: string): Promise<ParseResult> {
  return (await import("./json.ts")).parseJson(text);
}

async function locateIn(text: string): Promise<Locate> {
  const parsed = await parseJson(text);
  return parsed.ok ? parsed.locate() : () => undefined;
}
