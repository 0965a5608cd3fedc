import type { Buffer } from "node:buffer";
import { textOf } from "../../base/bytes.ts";
import type { HubError } from "../../base/errors.ts";
import type { ResponseHead } from "../http-client/response-parser.ts";
import type { Redactor } from "../redact.ts";
import type { HttpRequester } from "./request.ts";

/** Maximum length of the excerpt of a body in an error message, in characters. */
const MAX_EXCERPT = 300;
/** Maximum number of bytes that are read of an unexpected body. */
export const EXCERPT_LIMIT = 16 * 1024;

export function isEventStream(head: ResponseHead): boolean {
  return (
    head.headers.get("content-type") === EVENT_STREAM_TYPE ||
    mediaTypeOf(head) === EVENT_STREAM_TYPE
  );
}

export function isJson(head: ResponseHead): boolean {
  const contentType = head.headers.get("content-type");
  return contentType === JSON_TYPE || /^application\/(?:[\w.+-]+\+)?json$/.test(mediaTypeOf(head));
}

const EVENT_STREAM_TYPE = "text/event-stream";
const JSON_TYPE = "application/json";

/** Returns the media type of the body without its parameters, in lower case. */
export function mediaTypeOf({ headers }: ResponseHead): string {
  const [mediaType = ""] = (headers.get("content-type") ?? "").split(";", 1);
  return mediaType.trim().toLowerCase();
}

/**
 * Makes an excerpt of an unexpected body for an error message: one line without markup and secrets; "" if the body
 * contains no text.
 */
export function excerptOfBody(head: ResponseHead, bytes: Buffer, redactor: Redactor): string {
  const text = textOf(bytes.subarray(0, EXCERPT_LIMIT));
  const content = (isJson(head) ? jsonErrorText(text) : undefined) ?? text;
  const withoutTags =
    mediaTypeOf(head) === "text/html" || /^\s*</.test(content) ? withoutMarkup(content) : content;
  // oxlint-disable-next-line no-control-regex
  const line = withoutTags.replace(/[\s\x00-\x1f\x7f]+/g, " ").trim();
  const redacted = redactor.applyTruncated(line, MAX_EXCERPT);
  return redacted.length < line.length && redacted.length === MAX_EXCERPT
    ? `${redacted}…`
    : redacted;
}

function withoutMarkup(text: string): string {
  return text
    .replace(/<!--[\s\S]*?(?:-->|$)|<(script|style|head)\b[\s\S]*?(?:<\/\1\s*>|$)/gi, " ")
    .replace(/<[^>]*(?:>|$)/g, " ");
}

/** Finds the error text in a JSON body, under one of the usual keys such as `error.message`. */
function jsonErrorText(text: string): string | undefined {
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

/**
 * Returns the error for a response that is not JSON-RPC.
 * @param isNegotiated whether the server has answered as an MCP server before
 */
export function errorOfResponse(
  head: ResponseHead,
  body: Buffer,
  requester: HttpRequester,
  isNegotiated: boolean,
): HubError {
  const { status, headers } = head;
  const excerpt = excerptOfBody(head, body, requester.redactor);
  const detail = excerpt === "" ? "" : `: ${excerpt}`;
  if (status < 300) {
    const contentName = mediaTypeOf(head) === "" ? "something unnamed" : mediaTypeOf(head);
    const text = `it answered with ${contentName} instead of JSON or events${detail}`;
    return requester.error(isNegotiated ? "answerLost" : "serverRefused", text);
  }
  const retryAfter = headers.get("retry-after");
  const retryText = retryAfter === undefined ? "" : ` (Retry-After: ${retryAfter.slice(0, 50)})`;
  return requester.error(
    hubErrorCodeOf(head, isNegotiated),
    `it answered HTTP ${status}${retryText}${detail}`,
  );
}

function hubErrorCodeOf(
  { status, headers }: ResponseHead,
  isNegotiated: boolean,
): HubError["code"] {
  // The server has not processed the request. Yet the code is not `notDelivered`, which would be retried: the hub has
  // already made all allowed retries.
  if (status === 429 || (status === 503 && headers.has("retry-after"))) return "serverFailed";
  if (status === 503) return isNegotiated ? "notDelivered" : "serverFailed";
  if (status >= 500) return isNegotiated ? "answerLost" : "serverFailed";
  return "serverRefused";
}
