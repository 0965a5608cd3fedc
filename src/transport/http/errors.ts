import type { Buffer } from "node:buffer";
import { textOf } from "../../base/bytes.ts";
import type { HubError } from "../../base/errors.ts";
import { reasonInBody, saidByPeer } from "../../base/quote.ts";
import type { ResponseHead } from "../http-client/response-parser.ts";
import type { Redactor } from "../redact.ts";
import type { HttpRequester } from "./request.ts";

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

/** Quotes the reason in an unexpected body for an error message, as the end of a clause; see `saidByPeer`. */
export function saidInBody(bytes: Buffer, redactor: Redactor): string {
  return saidByPeer(reasonInBody(textOf(bytes.subarray(0, EXCERPT_LIMIT))), redactor);
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
  const detail = saidInBody(body, requester.redactor);
  if (status < 300) {
    const contentName = mediaTypeOf(head) === "" ? "something unnamed" : mediaTypeOf(head);
    const text = isJson(head)
      ? `it answered with JSON that is not JSON-RPC${detail}.`
      : `it answered with ${contentName} instead of JSON or events${detail}.`;
    return requester.error(isNegotiated ? "answerLost" : "serverRefused", text);
  }
  const retryAfter = headers.get("retry-after");
  const retryText = retryAfter === undefined ? "" : ` (Retry-After: ${retryAfter.slice(0, 50)})`;
  return requester.error(
    hubErrorCodeOf(head, isNegotiated),
    `it answered HTTP ${status}${retryText}${detail}.`,
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
