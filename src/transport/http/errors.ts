import type { Buffer } from "node:buffer";
import type { HubError } from "../../base/errors.ts";
import { excerptOfBody, mediaTypeOf } from "./excerpt.ts";
import type { ResponseHead } from "../http-client/head.ts";
import type { HttpRequester } from "./request.ts";

/** What an answer means that is none of JSON-RPC. `isMet`: the server has answered as one of MCP before. */
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
  // It has said when it will, and was asked as often as it may be.
  if (status === 429 || (status === 503 && fields.has("retry-after"))) return "serverFailed";
  if (status === 503) return isMet ? "notDelivered" : "serverFailed";
  if (status >= 500) return isMet ? "answerLost" : "serverFailed";
  return "serverRefused";
}
