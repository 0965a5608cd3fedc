import type { Buffer } from "node:buffer";

/** The head of an answer over HTTP. */
export interface ResponseHead {
  readonly status: number;
  /** By their names in lower case; several of one name are joined with commas. */
  readonly fields: ReadonlyMap<string, string>;
  /** Whether the connection may be used again after it. */
  readonly isLasting: boolean;
}

/** A longer head is refused, in bytes. */
export const MAX_RESPONSE_HEAD = 64 * 1024;

const END = "\r\n\r\n";
const STATUS = /^HTTP\/1\.([01]) (\d{3})(?=[ \r]|$)/;

/**
 * Reads the head of an answer from its first bytes.
 * @returns it, and where what follows it begins; undefined if more has to come; `malformed` if it is none.
 */
export function parseResponseHead(
  bytes: Buffer,
): { readonly head: ResponseHead; readonly end: number } | "malformed" | undefined {
  const at = bytes.indexOf(END);
  if (at < 0) return mayGoOn(bytes) ? undefined : "malformed";
  const text = bytes.toString("latin1", 0, at);
  const [, minor, status] = STATUS.exec(text) ?? [];
  if (status === undefined) return "malformed";
  const fields = new Map<string, string>();
  let end = text.indexOf("\r\n");
  while (end >= 0) {
    const start = end + 2;
    end = text.indexOf("\r\n", start);
    const colon = text.indexOf(":", start);
    const isField = colon > start && (end < 0 || colon < end);
    const first = text.charCodeAt(start);
    // A line that begins with a space goes on with the last one, which nobody does any more but who wants to deceive.
    if (!isField || first === 0x20 || first === 0x09) return "malformed";
    const name = text.slice(start, colon).toLowerCase();
    const value = text.slice(colon + 1, end < 0 ? text.length : end).trim();
    const before = fields.get(name);
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const connection = fields.get("connection");
  // With both of them somebody on the way may take something else for the end of the body (RFC 9112, 6.3).
  const isDoubtful = fields.has("transfer-encoding") && fields.has("content-length");
  const isKept =
    minor === "1"
      ? connection === undefined || !/\bclose\b/i.test(connection)
      : connection !== undefined && /\bkeep-alive\b/i.test(connection);
  const isLasting = isKept && !isDoubtful;
  return { head: { status: Number(status), fields, isLasting }, end: at + END.length };
}

const BEGINNING = "HTTP/1.";

/** Whether they may be a part of one: with lines that end otherwise it would never end. */
function mayGoOn(bytes: Buffer): boolean {
  if (bytes.length > MAX_RESPONSE_HEAD || bytes.includes("\n\n")) return false;
  const first = bytes.toString("latin1", 0, Math.min(bytes.length, BEGINNING.length));
  return BEGINNING.startsWith(first);
}
