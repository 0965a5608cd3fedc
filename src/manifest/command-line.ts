import { splitCommand } from "./interpolate.ts";
import { maskArguments } from "./plaintext-secrets.ts";

/**
 * Suggests settings for a command line that was written as one string: `command = "npx", args = ["-y", "foo"]`.
 * Arguments that may be secrets are masked.
 * @returns undefined if the text is a single word
 */
export function suggestArgs(text: string): string | undefined {
  const words = /\s/.test(text.trim()) ? splitCommand(text) : undefined;
  if (words === undefined || words.length < 2) return undefined;
  const [command, ...args] = maskArguments(words);
  return `command = ${quote(command)}, args = [${args.map(quote).join(", ")}]`;
}

/** Formats a text as a quoted string, which has the same form in TOML and JSON. */
function quote(text = ""): string {
  return JSON.stringify(text);
}
