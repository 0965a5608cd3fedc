import type { Buffer } from "node:buffer";
import type { HubError } from "../../base/errors.ts";
import { excerptOf, kindOf } from "./excerpt.ts";
import type { Head } from "../http-client/head.ts";
import type { Passage } from "./request.ts";

/** What an answer means that is none of JSON-RPC. `isMet`: the server has answered as one of MCP before. */
export function judge(head: Head, body: Buffer, passage: Passage, isMet: boolean): HubError {
  const { status, fields } = head;
  const excerpt = excerptOf(head, body, passage.redactor);
  const said = excerpt === "" ? "" : `: ${excerpt}`;
  if (status < 300) {
    const what = kindOf(head) === "" ? "something unnamed" : kindOf(head);
    const text = `it answered with ${what} instead of JSON or events${said}`;
    return passage.error(isMet ? "answerLost" : "serverRefused", text);
  }
  const retry = fields.get("retry-after");
  const later = retry === undefined ? "" : ` (Retry-After: ${retry.slice(0, 50)})`;
  return passage.error(codeOf(head, isMet), `it answered HTTP ${status}${later}${said}`);
}

function codeOf({ status, fields }: Head, isMet: boolean): HubError["code"] {
  // It has said when it will, and was asked as often as it may be.
  if (status === 429 || (status === 503 && fields.has("retry-after"))) return "serverFailed";
  if (status === 503) return isMet ? "notDelivered" : "serverFailed";
  if (status >= 500) return isMet ? "answerLost" : "serverFailed";
  return "serverRefused";
}
