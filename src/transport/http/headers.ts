import { Buffer } from "node:buffer";
import type { SendOptions, NegotiatedProtocol } from "../transport.ts";

/** Content headers of every POST. */
export const CONTENT_HEADERS =
  "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";

const SAFE = /^(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?$/;
const ENCODED = /^=\?base64\?.*\?=$/i;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * Encodes a text as a header value (Streamable HTTP, value encoding): unchanged if it is plain ASCII, else in Base64.
 */
export function encodeHeaderValue(value: string): string {
  if (SAFE.test(value) && !ENCODED.test(value)) return value;
  return `=?base64?${Buffer.from(value, "utf8").toString("base64")}?=`;
}

/**
 * Headers that describe a request: in the modern era `Mcp-Method` and `Mcp-Name`, which repeat members of the body; and
 * the headers given with it.
 */
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
    // A value that is already encoded passes unchanged.
    fields += `${name}: ${SAFE.test(value) ? value : encodeHeaderValue(value)}\r\n`;
  }
  return fields;
}
