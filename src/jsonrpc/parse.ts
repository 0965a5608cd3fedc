import { Buffer } from "node:buffer";
import { type Edit, startsWithAt, type ByteRange, textOf, utf8 } from "../base/bytes.ts";
import {
  ANY_DEPTH,
  lastMember,
  type JsonMember,
  scanArray,
  scanObject,
  skipWhitespace,
  skipValue,
  readString,
} from "../base/json.ts";
import { readOwnId, readId } from "./id.ts";
import {
  type Message,
  type RequestId,
  type InvalidMessage,
  type Notification,
  type Request,
  type Response,
  joinMessage,
  editMessage,
} from "./message.ts";
import { parseCommonShape, parseSpliceableResponse } from "./shapes.ts";
import { type ChunkScan, CR, hasLineBreak, LF } from "./sight.ts";

/**
 * Parses one message, without its line end; a byte order mark at its start is ignored. Never throws: bytes that are no
 * valid message give kind `invalid`.
 */
export function parseMessage(bytes: Buffer): Message {
  const { length } = bytes;
  return (
    parseSpliceableResponse(bytes, 0, length) ??
    parseCommonShape(bytes, 0, length) ??
    (startsWithByteOrderMark(bytes, 0)
      ? parseWithoutByteOrderMark(bytes.subarray(BYTE_ORDER_MARK.length))
      : parseScanned(bytes))
  );
}

/** UTF-8 byte order mark. Some libraries write one before each text (RFC 8259, section 8.1, lets parsers ignore it). */
const BYTE_ORDER_MARK = utf8("\ufeff");

function startsWithByteOrderMark(bytes: Buffer, start: number): boolean {
  return bytes[start] === BYTE_ORDER_MARK[0] && startsWithAt(bytes, start, BYTE_ORDER_MARK);
}

/** Parses a message whose byte order mark was removed; a second one makes it invalid. */
function parseWithoutByteOrderMark(bytes: Buffer): Message {
  const { length } = bytes;
  return (
    parseSpliceableResponse(bytes, 0, length) ??
    parseCommonShape(bytes, 0, length) ??
    parseScanned(bytes)
  );
}

/**
 * Parses a message inside a chunk of several. A fast path may read beyond the end of a malformed line, up to the end of
 * the chunk; after the first invalid line every further line is parsed on its own subarray.
 */
export function parseInChunk(bytes: Buffer, start: number, end: number, scan: ChunkScan): Message {
  if (scan.hasInvalidLine || startsWithByteOrderMark(bytes, start))
    return parseMessage(bytes.subarray(start, end));
  const message =
    parseSpliceableResponse(bytes, start, end, scan) ?? parseCommonShape(bytes, start, end, scan);
  if (message !== undefined) return message;
  const scannedMessage = parseScanned(bytes.subarray(start, end));
  scan.hasInvalidLine = scannedMessage.kind === "invalid";
  return scannedMessage;
}

/** Applies edits that do not change the kind of the message, and parses the result. */
export function applyMessageEdits<M extends Request | Notification | Response>(
  message: M,
  edits: readonly Edit[],
): M {
  if (edits.length === 0) return message;
  const revised = parseMessage(joinMessage(editMessage(message, [...edits])));
  return revised.kind === message.kind ? (revised as M) : message;
}

/** Some clients match keys without regard to case; every spelling of `id` must get the replaced value. */
const ID_KEY = /^id$/i;

/** The general path: the whole message is scanned, so that nothing malformed is forwarded. */
function parseScanned(bytes: Buffer): Message {
  const at = skipWhitespace(bytes, 0);
  if (bytes[at] === 0x5b) return parseBatch(bytes, at);
  const object = scanObject(bytes, at);
  if (object !== undefined && skipWhitespace(bytes, object.end) === bytes.length) {
    return classifyMessage(withoutLineBreaks(bytes), object.items);
  }
  const result = parseDeepResult(bytes, at);
  if (result !== undefined) return result;
  return bytes[at] !== 0x7b && skipWhitespace(bytes, skipValue(bytes, at)) === bytes.length
    ? invalidMessage(bytes, "invalidRequest", "the message is no object")
    : invalidMessage(bytes, "parseError", "the message is not valid JSON");
}

/** A result may be nested to any depth, as it is relayed unread; for all other messages the depth is limited. */
function parseDeepResult(raw: Buffer, at: number): Response | undefined {
  const object = scanObject(raw, at, undefined, ANY_DEPTH);
  if (object === undefined || skipWhitespace(raw, object.end) !== raw.length) return undefined;
  const message = classifyMessage(withoutLineBreaks(raw), object.items);
  return message.kind === "response" && message.outcome === "result" ? message : undefined;
}

/**
 * Replaces raw CR and LF by spaces. In valid JSON they are white space only, but line readers would split the message.
 */
function withoutLineBreaks(raw: Buffer): Buffer {
  if (!hasLineBreak(raw)) return raw;
  const copy = Buffer.from(raw);
  for (const lineEnd of [CR, LF]) {
    for (let i = copy.indexOf(lineEnd); i >= 0; i = copy.indexOf(lineEnd, i + 1)) copy[i] = 0x20;
  }
  return copy;
}

function parseBatch(raw: Buffer, at: number): Message {
  const array = scanArray(raw, at);
  if (array === undefined || skipWhitespace(raw, array.end) !== raw.length) {
    return invalidMessage(raw, "parseError", "the message is not valid JSON");
  }
  const bytes = withoutLineBreaks(raw);
  if (array.items.length === 0)
    return invalidMessage(bytes, "invalidRequest", "the batch is empty");
  const items = array.items.map(({ start, end }) => {
    const item = bytes.subarray(start, end);
    return item[0] === 0x5b
      ? invalidMessage(item, "invalidRequest", "a batch holds a batch")
      : parseMessage(item);
  });
  return { kind: "batch", items };
}

function classifyMessage(bytes: Buffer, members: readonly JsonMember[]): Message {
  const version = lastMember(members, "jsonrpc");
  const methodMember = lastMember(members, "method");
  const result = lastMember(members, "result");
  const error = lastMember(members, "error");
  const idMember = lastMember(members, "id");
  // The id of a response is one of ours: an error sent to that id would hit a request of the peer's own.
  const isCallShape = methodMember !== undefined && result === undefined && error === undefined;
  const id = idMember && isCallShape ? readId(bytes, idMember) : undefined;
  if (!isVersion(bytes, version)) {
    return invalidMessage(bytes, "invalidRequest", 'the message lacks "jsonrpc": "2.0"', id);
  }
  if (methodMember === undefined) {
    const body = result ?? error;
    if (body === undefined) {
      return invalidMessage(bytes, "invalidRequest", "the message has no method, result or error");
    }
    return {
      kind: "response",
      bytes,
      start: 0,
      end: bytes.length,
      id: idMember && readOwnId(bytes, idMember),
      outcome: result === undefined ? "error" : "result",
      body,
      shape: { kind: "scanned", ids: members.filter(({ key }) => ID_KEY.test(key)) },
    };
  }
  const method = readString(bytes, methodMember);
  if (method === undefined || result !== undefined || error !== undefined) {
    const reason = method === undefined ? "the method is no string" : "a request has no result";
    return invalidMessage(bytes, "invalidRequest", reason, id);
  }
  const params = lastMember(members, "params");
  const span = { bytes, start: 0, end: bytes.length };
  if (idMember === undefined)
    return { kind: "notification", ...span, method, params, members: undefined };
  if (id === undefined) {
    return invalidMessage(bytes, "invalidRequest", "the id is neither a string nor a number");
  }
  const moreIds = members.filter((member) => member.key === "id" && member !== idMember);
  return {
    kind: "request",
    ...span,
    id,
    duplicateIds: moreIds,
    method,
    params,
    members: undefined,
  };
}

function invalidMessage(
  bytes: Buffer,
  code: InvalidMessage["code"],
  reason: string,
  id?: RequestId,
): InvalidMessage {
  return { kind: "invalid", bytes, start: 0, end: bytes.length, code, reason, id };
}

function isVersion(bytes: Buffer, range: ByteRange | undefined): boolean {
  if (range === undefined) return false;
  return startsWithAt(bytes, range.start, QUOTED_VERSION) || readString(bytes, range) === "2.0";
}
const QUOTED_VERSION = utf8('"2.0"');

const HEAD_MEMBER =
  /^\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,\s*"(\w+)"/;
const FIRST_MEMBER = /^\{\s*"(\w+)"/;
const TAIL_MEMBER =
  /,\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*\}\s*$/;

/**
 * Kind and id of a message that was too large to keep, from its first and last bytes.
 * @returns undefined if the id is not where JSON libraries put it
 */
export function parseTruncated(
  head: Buffer,
  tail: Buffer,
): { kind: "request" | "response"; id: RequestId } | undefined {
  const start = HEAD_MEMBER.exec(textOf(head));
  const firstKey = start?.[2] ?? FIRST_MEMBER.exec(textOf(head))?.[1];
  const idText = start?.[1] ?? TAIL_MEMBER.exec(textOf(tail))?.[1];
  if (idText === undefined || firstKey === undefined) return undefined;
  const bytes = utf8(idText);
  const id = readId(bytes, { start: 0, end: bytes.length });
  if (id === undefined) return undefined;
  if (firstKey === "result" || firstKey === "error") return { kind: "response", id };
  return firstKey === "method" || firstKey === "params" ? { kind: "request", id } : undefined;
}
