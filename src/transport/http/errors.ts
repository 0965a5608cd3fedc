import type { Buffer } from "node:buffer";
import { textOf } from "../../base/bytes.ts";
import type { HubError } from "../../base/errors.ts";
import type { ResponseHead } from "../http-client/connection.ts";
import type { Redactor } from "../redact.ts";
import type { HttpRequester } from "./request.ts";

/** Maximum length of an excerpt, in characters. */
const LONGEST = 300;
/** How much of an unexpected body is read for an excerpt, in bytes. */
export const EXCERPT_LIMIT = 16 * 1024;

export function isEventStream(head: ResponseHead): boolean {
  return head.fields.get("content-type") === EVENTS || mediaTypeOf(head) === EVENTS;
}

export function isJson(head: ResponseHead): boolean {
  const kind = head.fields.get("content-type");
  return kind === JSON_TYPE || /^application\/(?:[\w.+-]+\+)?json$/.test(mediaTypeOf(head));
}

const EVENTS = "text/event-stream";
const JSON_TYPE = "application/json";

/** The media type of the body without its parameters, in lower case. */
export function mediaTypeOf({ fields }: ResponseHead): string {
  const [kind = ""] = (fields.get("content-type") ?? "").split(";", 1);
  return kind.trim().toLowerCase();
}

/**
 * An excerpt of an unexpected body for an error message: one line without markup and secrets; "" if there is no text.
 */
export function excerptOfBody(head: ResponseHead, bytes: Buffer, redactor: Redactor): string {
  const text = textOf(bytes.subarray(0, EXCERPT_LIMIT));
  const said = (isJson(head) ? messageOf(text) : undefined) ?? text;
  const plain =
    mediaTypeOf(head) === "text/html" || /^\s*</.test(said) ? withoutMarkup(said) : said;
  // oxlint-disable-next-line no-control-regex
  const line = plain.replace(/[\s\x00-\x1f\x7f]+/g, " ").trim();
  const safe = redactor.applyTruncated(line, LONGEST);
  return safe.length < line.length && safe.length === LONGEST ? `${safe}…` : safe;
}

function withoutMarkup(text: string): string {
  return text
    .replace(/<!--[\s\S]*?(?:-->|$)|<(script|style|head)\b[\s\S]*?(?:<\/\1\s*>|$)/gi, " ")
    .replace(/<[^>]*(?:>|$)/g, " ");
}

/** The error text in a JSON body, under one of the usual keys. */
function messageOf(text: string): string | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  for (const path of [
    ["error", "message"],
    ["error_description"],
    ["message"],
    ["detail"],
    ["error"],
  ]) {
    let found = value;
    for (const key of path) found = (found as Readonly<Record<string, unknown>> | null)?.[key];
    if (typeof found === "string" && found !== "") return found;
  }
  return undefined;
}

/** The error for a response that is not JSON-RPC. `isMet`: the server has answered as an MCP server before. */
export function errorOfResponse(
  head: ResponseHead,
  body: Buffer,
  passage: HttpRequester,
  isMet: boolean,
): HubError {
  const { status, fields } = head;
  const excerpt = excerptOfBody(head, body, passage.redactor);
  const said = excerpt === "" ? "" : `: ${excerpt}`;
  if (status < 300) {
    const what = mediaTypeOf(head) === "" ? "something unnamed" : mediaTypeOf(head);
    const text = `it answered with ${what} instead of JSON or events${said}`;
    return passage.error(isMet ? "answerLost" : "serverRefused", text);
  }
  const retry = fields.get("retry-after");
  const later = retry === undefined ? "" : ` (Retry-After: ${retry.slice(0, 50)})`;
  return passage.error(codeOf(head, isMet), `it answered HTTP ${status}${later}${said}`);
}

function codeOf({ status, fields }: ResponseHead, isMet: boolean): HubError["code"] {
  // The server has not processed the request, and the allowed retries are used up.
  if (status === 429 || (status === 503 && fields.has("retry-after"))) return "serverFailed";
  if (status === 503) return isMet ? "notDelivered" : "serverFailed";
  if (status >= 500) return isMet ? "answerLost" : "serverFailed";
  return "serverRefused";
}
