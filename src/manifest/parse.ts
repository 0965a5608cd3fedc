import type { ParseResult } from "./document.ts";

export type Format = "toml" | "json";

/** What a file is written in; where its name does not say, the text does. */
export function detectFormat(file: string, text: string): Format {
  if (/\.toml$/i.test(file)) return "toml";
  return /\.jsonc?$/i.test(file) || /^\s*(?:\{|\/[/*])/.test(text) ? "json" : "toml";
}

/** Parses TOML, or JSON with comments. Each parser is loaded when it is first needed. */
export async function parseText(text: string, format: Format): Promise<ParseResult> {
  const parse =
    format === "toml"
      ? (await import("./toml.ts")).parseToml
      : (await import("./json.ts")).parseJson;
  try {
    return parse(text);
  } catch (error) {
    // Nesting without end overflows a parser's stack.
    if (!(error instanceof RangeError)) throw error;
    return { ok: false, message: "nested too deeply", position: undefined };
  }
}
