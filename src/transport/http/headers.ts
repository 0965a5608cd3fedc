import { Buffer } from "node:buffer";
import type { SendOptions, NegotiatedProtocol } from "../transport.ts";

/** The headers of every message. */
export const CONTENT_HEADERS =
  "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";

const SAFE = /^(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?$/;
const ENCODED = /^=\?base64\?.*\?=$/i;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** A text as the value of a header (Streamable HTTP, header encoding): as it is if it can be, or as Base64. */
export function encodeHeaderValue(value: string): string {
  if (SAFE.test(value) && !ENCODED.test(value)) return value;
  return `=?base64?${Buffer.from(value, "utf8").toString("base64")}?=`;
}

/** The headers that say what a request is: of the modern era all that is to be found in its body, too. */
export function messageHeaders(info: SendOptions, spoken: NegotiatedProtocol | undefined): string {
  let fields = "";
  if (spoken?.era !== "legacy" && info.method !== "initialize") {
    fields += `Mcp-Method: ${encodeHeaderValue(info.method)}\r\n`;
    if (info.name !== undefined) fields += `Mcp-Name: ${encodeHeaderValue(info.name)}\r\n`;
  }
  const { headers } = info;
  if (headers === undefined) return fields;
  for (const [name, value] of Object.entries(headers)) {
    if (!NAME.test(name)) continue;
    if (spoken !== undefined && /^mcp-protocol-version$/i.test(name)) continue;
    // What is encoded already has no other spelling.
    fields += `${name}: ${SAFE.test(value) ? value : encodeHeaderValue(value)}\r\n`;
  }
  return fields;
}
