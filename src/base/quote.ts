import { type ByteRange, textOf } from "./bytes.ts";
import { escapeInvisible } from "./escape.ts";

/** Maximum length of a quotation of a peer's text, in UTF-16 units, without its quotation marks. */
export const MAX_QUOTE = 500;

/** Removes secrets from a text; `Redactor` (transport/redact.ts) is one. */
export interface TextRedactor {
  apply(text: string): string;
}

/**
 * Quotes a text that a peer has sent, for a message to a person: `"text"`, in one line and in quotation marks of its
 * own. Secrets are removed, quotation marks, backslashes, control characters and invisible characters are escaped, and
 * a text longer than `MAX_QUOTE` is cut and ends with `…`.
 * @returns "" if the text has nothing that can be seen
 */
export function quotePeer(text: string, redactor?: TextRedactor): string {
  const redacted = redactor === undefined ? text : redactor.apply(text);
  const line = redacted.replace(/\s+/g, " ").trim();
  if (line === "") return "";
  let quoted = "";
  let cutAt = 0;
  for (const character of line) {
    const shown = character === '"' || character === "\\" ? `\\${character}` : character;
    const escaped = escapeInvisible(shown);
    // One unit is kept for the ellipsis, unless the text ends within the limit.
    if (quoted.length + escaped.length > MAX_QUOTE) return `"${quoted.slice(0, cutAt)}…"`;
    quoted += escaped;
    if (quoted.length < MAX_QUOTE) cutAt = quoted.length;
  }
  return `"${quoted}"`;
}

/**
 * What a peer said, as the end of a clause: `: "text"`, or "" if it said nothing that can be seen. @see quotePeer
 */
export function saidByPeer(text: string | undefined, redactor?: TextRedactor): string {
  const quoted = text === undefined ? "" : quotePeer(text, redactor);
  return quoted === "" ? "" : `: ${quoted}`;
}

/** Maximum depth at which `reasonIn` looks for a text. */
const MAX_REASON_DEPTH = 4;

/**
 * Finds the text for people in the JSON body of an error: under `message`, `error_description` (OAuth), `detail` or
 * `title` (RFC 9457), `msg`, `reason`, or in an object or array under `error`, `errors` or `detail`; a body may also be
 * just a text. A member that is null or empty counts as absent.
 * @returns undefined if there is none
 */
export function reasonIn(body: unknown): string | undefined {
  return findReason(body, MAX_REASON_DEPTH);
}

function findReason(value: unknown, depth: number): string | undefined {
  if (typeof value === "string") return value.trim() === "" ? undefined : value;
  if (typeof value !== "object" || value === null || depth === 0) return undefined;
  if (Array.isArray(value)) return findReason(value[0], depth - 1);
  const members = value as Readonly<Record<string, unknown>>;
  const { error } = members;
  // The `error` of OAuth is a code; of the others, the text is inside of it.
  const nested =
    typeof error === "object" && error !== null ? findReason(error, depth - 1) : undefined;
  if (nested !== undefined) return nested;
  for (const key of REASON_KEYS) {
    const found = findReason(members[key], depth - 1);
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * Finds the text for people in the body of an error: the reason in JSON (see `reasonIn`), else the text itself, of HTML
 * without its markup.
 */
export function reasonInBody(body: string): string | undefined {
  if (/^\s*[[{"]/.test(body)) {
    try {
      const reason = reasonIn(JSON.parse(body));
      if (reason !== undefined) return reason;
    } catch {
      // It is no JSON, or cut.
    }
  }
  const text = /^\s*</.test(body) ? withoutMarkup(body) : body;
  return text.trim() === "" ? undefined : text;
}

/** Number of bytes that are read of the body of an error. */
const MAX_ERROR_BODY = 16 * 1024;

/** Quotes the reason in a range of bytes, or its text; see `reasonInBody` and `saidByPeer`. */
export function saidInBytes(
  bytes: Uint8Array,
  { start, end }: ByteRange,
  redactor?: TextRedactor,
): string {
  const text = textOf(bytes, start, Math.min(end, start + MAX_ERROR_BODY));
  return saidByPeer(reasonInBody(text), redactor);
}

/**
 * Reads the start of the body of a refused request, and quotes the reason in it; see `saidByPeer`. Never rejects: "" if
 * the body cannot be read.
 */
export async function saidInResponse(response: Response, redactor?: TextRedactor): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  try {
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk, { stream: true });
      size += chunk.length;
      if (size >= MAX_ERROR_BODY) break;
    }
  } catch {
    // What has arrived is quoted.
  }
  return saidByPeer(reasonInBody(text), redactor);
}

function withoutMarkup(text: string): string {
  return text
    .replace(/<!--[\s\S]*?(?:-->|$)|<(script|style|head)\b[\s\S]*?(?:<\/\1\s*>|$)/gi, " ")
    .replace(/<[^>]*(?:>|$)/g, " ");
}

const REASON_KEYS = [
  "error_description",
  "message",
  "detail",
  "msg",
  "reason",
  "error",
  "errors",
  "title",
] as const;

/** The first `length` units, or one less where a surrogate pair would be cut. */
export function headOf(text: string, length: number): string {
  return text.slice(0, isInsidePair(text, length) ? length - 1 : length);
}

/** The last `length` units, or one less where a surrogate pair would be cut. */
export function tailOf(text: string, length: number): string {
  const start = Math.max(0, text.length - length);
  return text.slice(isInsidePair(text, start) ? start + 1 : start);
}

/** Whether `at` is between the two halves of a surrogate pair. */
export function isInsidePair(text: string, at: number): boolean {
  return /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(Math.max(0, at - 1), at + 1));
}
