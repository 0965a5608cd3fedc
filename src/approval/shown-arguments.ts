import { escapeInvisible } from "../base/escape.ts";
import { headOf, tailOf } from "../base/quote.ts";
import { formatSize } from "../base/format.ts";

/** Maximum length of the shown text, in UTF-16 units. */
const MAX_SHOWN = 2000;
/**
 * Lengths to which texts inside the arguments are cut, in UTF-16 units. They are tried in turn until everything fits.
 */
const VALUE_LIMITS = [1000, 300, 100, 40] as const;
/** Maximum length of arguments that are shown, in UTF-16 units: reading longer ones would delay other calls. */
const MAX_READ = 1024 * 1024;

/** A JSON token: a string, a punctuation mark, or a number or word. The text is known to be valid JSON. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*(?:"|$)|[{}[\],:]|[^\s"{}[\],:]+/g;

/**
 * Arguments for people: JSON with indentation, at most 2,000 characters. Long texts are cut in the middle, invisible
 * characters are escaped. Numbers, the order of keys and repeated keys are shown as they are sent.
 * @param json the JSON text of the arguments; several texts if the request repeats the key `arguments`
 * @param redact removes secrets
 */
export function formatShownArguments(
  json: readonly string[],
  redact: (text: string) => string,
): string {
  const size = json.reduce((sum, text) => sum + text.length, 0);
  if (size > MAX_READ) return `(${formatSize(size)} of arguments, which are too long to be shown)`;
  const tokens = json.map((text) =>
    (text.match(TOKEN) ?? []).map((token) =>
      token.startsWith('"') ? { string: redact(decode(token)) } : token,
    ),
  );
  for (const limit of VALUE_LIMITS) {
    const text = tokens.map((list) => format(list, limit)).join("\n");
    if (text.length <= MAX_SHOWN) return text;
  }
  const text = tokens.map((list) => format(list, VALUE_LIMITS[3])).join("\n");
  return cutMiddle(text, MAX_SHOWN);
}

type Token = string | { readonly string: string };

function format(tokens: readonly Token[], limit: number): string {
  let text = "";
  let depth = 0;
  const newLine = (): string => `\n${"  ".repeat(Math.min(depth, 20))}`;
  for (const [at, token] of tokens.entries()) {
    const before = tokens[at - 1];
    const isEmpty = before === "{" || before === "[";
    if (token === "}" || token === "]") {
      depth--;
      text += isEmpty ? token : newLine() + token;
      continue;
    }
    if (isEmpty) text += newLine();
    if (typeof token !== "string")
      text += cutMiddle(escapeInvisible(JSON.stringify(token.string)), limit);
    else if (token === ",") text += token + newLine();
    else if (token === ":") text += ": ";
    else text += token.length > limit ? cutMiddle(token, limit) : token;
    if (token === "{" || token === "[") depth++;
  }
  return text;
}

/** Keeps both ends of a text that is longer than `limit`. */
function cutMiddle(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const omission = ` … (${text.length} characters) … `;
  const room = Math.max(limit - omission.length, 2);
  const tail = Math.floor(room / 3);
  return headOf(text, room - tail) + omission + tailOf(text, tail);
}

function decode(token: string): string {
  try {
    return JSON.parse(token) as string;
  } catch {
    return token;
  }
}
