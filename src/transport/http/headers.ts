import { Buffer } from "node:buffer";
import type { SendOptions, NegotiatedProtocol } from "../transport.ts";

export const CONTENT_HEADERS =
  "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";

const PLAIN_VALUE = /^(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?$/;
const ENCODED_VALUE = /^=\?base64\?.*\?=$/i;
const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * Encodes a text as a header value (Streamable HTTP, value encoding): plain ASCII stays as it is, other text becomes
 * Base64.
 */
export function encodeHeaderValue(value: string): string {
  if (PLAIN_VALUE.test(value) && !ENCODED_VALUE.test(value)) return value;
  return `=?base64?${Buffer.from(value, "utf8").toString("base64")}?=`;
}

/**
 * Returns the header lines for a message: `options.headers` and, unless an older protocol version (legacy) was
 * negotiated, `Mcp-Method` and `Mcp-Name`, which repeat members of the body (protocol 2026-07-28).
 */
export function messageHeaders(
  options: SendOptions,
  protocol: NegotiatedProtocol | undefined,
): string {
  let lines = "";
  if (protocol?.era !== "legacy" && options.method !== "initialize") {
    lines += `Mcp-Method: ${encodeHeaderValue(options.method)}\r\n`;
    if (options.name !== undefined) lines += `Mcp-Name: ${encodeHeaderValue(options.name)}\r\n`;
  }
  const { headers } = options;
  if (headers === undefined) return lines;
  for (const [name, value] of Object.entries(headers)) {
    if (!HEADER_NAME.test(name)) continue;
    if (protocol !== undefined && /^mcp-protocol-version$/i.test(name)) continue;
    // A value that is already encoded is plain ASCII, so it is not encoded again.
    lines += `${name}: ${PLAIN_VALUE.test(value) ? value : encodeHeaderValue(value)}\r\n`;
  }
  return lines;
}
