import { splitCommand } from "./interpolate.ts";
import { maskArguments } from "./plaintext-secrets.ts";

/**
 * Splits a command that was written as one text with its arguments, and formats the settings to write instead: `command
 * = "npx", args = ["-y", "foo"]`. Words that may be secrets are masked.
 * @returns undefined if the text is a single word
 */
export function suggestArgs(text: string): string | undefined {
  const words = /\s/.test(text.trim()) ? splitCommand(text) : undefined;
  if (words === undefined || words.length < 2) return undefined;
  const [command, ...args] = maskArguments(words);
  return `command = ${quote(command)}, args = [${args.map(quote).join(", ")}]`;
}

/** Quotes a text as in TOML and JSON. */
function quote(text = ""): string {
  return JSON.stringify(text);
}
