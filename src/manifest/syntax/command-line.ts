import { splitCommand } from "../interpolate.ts";
import { maskArguments } from "../plaintext-secrets.ts";

/** Maximum length of a command line that is suggested in a message, in UTF-16 units. */
const MAX_LENGTH = 2000;

/**
 * Suggests settings for a command line that was written as one string: `command = "npx", args = ["-y", "foo"]`.
 * Arguments that may be secrets are masked.
 * @returns undefined if the text is a single word, or too long for a message
 */
export function suggestArgs(text: string): string | undefined {
  const isLine = text.length <= MAX_LENGTH && /\s/.test(text.trim());
  const words = isLine ? splitCommand(text) : undefined;
  if (words === undefined || words.length < 2) return undefined;
  const [command, ...args] = maskArguments(words);
  return `command = ${quote(command)}, args = [${args.map(quote).join(", ")}]`;
}

/** Formats a text as a quoted string, which has the same form in TOML and JSON. */
function quote(text = ""): string {
  return JSON.stringify(text);
}
