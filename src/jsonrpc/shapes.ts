import { Buffer } from "node:buffer";
import { startsWithAt, type ByteRange, cachedTextOf, utf8 } from "../base/bytes.ts";
import { isDigit, scanObject, skipWhitespace } from "../base/json.ts";
import { parseDigits, readId } from "./id.ts";
import {
  ERROR_MEMBER,
  type RequestId,
  type Notification,
  type Request,
  type Response,
  RESULT_MEMBER,
} from "./message.ts";
import { ChunkScan, hasLineBreak, scanBytes, type ByteScan } from "./sight.ts";

const ID_START = utf8('{"jsonrpc":"2.0","id":');
const RESULT_START = utf8('{"result":');
const ERROR_START = utf8('{"error":');
const ID_TAIL = utf8(',"jsonrpc":"2.0","id":');
/** The most frequent method, so it is not decoded each time. */
const TOOLS_CALL_END = utf8('tools/call"');
const PLAIN_METHOD = /^[A-Za-z0-9_./$-]+$/;
const METHOD_START = utf8('{"method":"');
const NOTIFICATION_START = utf8('{"jsonrpc":"2.0","method":"');
const VERSION_MEMBER = utf8(',"jsonrpc":"2.0"');
const METHOD_MEMBER = utf8(',"method":"');
const PARAMS_MEMBER = utf8(',"params":');
const VERSION_KEY = Buffer.from('"jsonrpc"');
/** The longest pattern for which `indexOf` runs about twice as fast as for longer ones. */
const VERSION_KEY_SUFFIX = VERSION_KEY.subarray(1);
const NO_DUPLICATE_IDS: readonly ByteRange[] = [];
const HEAD_SHAPE = { kind: "head" } as const;
const TAIL_SHAPE = { kind: "tail" } as const;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * The fast path: a response in one of the two shapes that JSON libraries write, whose body is not read. Only a second
 * `id`, `result`, `error` or `method` key could change the message's kind or id: `withResponseId` writes the id last,
 * so that it overrides a second one, and the body is searched for a `method` key, plain or escaped.
 */
export function parseSpliceableResponse(
  bytes: Buffer,
  start: number,
  end: number,
  scan?: ByteScan,
): Response | undefined {
  if (bytes[end - 1] !== 0x7d) return undefined;
  const response = parseHeadShape(bytes, start, end) ?? parseTailShape(bytes, start, end);
  if (response === undefined || !hasNoOuterSpace(bytes, response.body)) return undefined;
  return isUnambiguous(bytes, response, scan) ? response : undefined;
}

/** Whether nothing in the body can make other parsers read the line as a different message. */
function isUnambiguous(bytes: Buffer, { start, end, body }: Response, scan?: ByteScan): boolean {
  const versionIndex = bytes.indexOf(VERSION_KEY, body.start);
  if (versionIndex >= 0 && versionIndex < body.end) return false;
  return (
    (scan !== undefined && isPlainScan(scan)) || isPlainScan(scanBytes(bytes.subarray(start, end)))
  );
}

function isPlainScan({ hasLineEnd: hasBreak, mayHaveMethod: hidesMethod }: ByteScan): boolean {
  return !hasBreak && !hidesMethod;
}

/**
 * Whether part of a line's body (without LF) could make other parsers read a different message; then it must be
 * scanned.
 */
export function mayHideMessage(bytes: Buffer): boolean {
  // A client that reads a stream of JSON values could find a second message behind a body that ends early.
  const hasVersion = bytes.includes(VERSION_KEY_SUFFIX) && bytes.includes(VERSION_KEY);
  return hasVersion || !isPlainScan(new ChunkScan(bytes));
}

function parseHeadShape(bytes: Buffer, from: number, to: number): Response | undefined {
  if (!startsWithAt(bytes, from, ID_START)) return undefined;
  const idStart = from + ID_START.length;
  let i = idStart;
  while (isDigit(bytes[i])) i++;
  const outcome = startsWithAt(bytes, i, RESULT_MEMBER)
    ? "result"
    : startsWithAt(bytes, i, ERROR_MEMBER)
      ? "error"
      : undefined;
  // Requests begin the same way; `parseCommonShape` reads their id.
  if (outcome === undefined) return undefined;
  const id = parseDigits(bytes, idStart, i);
  if (id === undefined) return undefined;
  const start = i + (outcome === "result" ? RESULT_MEMBER.length : ERROR_MEMBER.length);
  const end = to - 1;
  if (start >= end) return undefined;
  const body = { start, end };
  return { kind: "response", bytes, start: from, end: to, id, outcome, body, shape: HEAD_SHAPE };
}

function parseTailShape(bytes: Buffer, from: number, to: number): Response | undefined {
  const outcome = startsWithAt(bytes, from, RESULT_START)
    ? "result"
    : startsWithAt(bytes, from, ERROR_START)
      ? "error"
      : undefined;
  if (outcome === undefined) return undefined;
  const end = to - 1;
  let i = end;
  while (isDigit(bytes[i - 1])) i--;
  const id = parseDigits(bytes, i, end);
  const tailStart = i - ID_TAIL.length;
  const start = from + (outcome === "result" ? RESULT_START.length : ERROR_START.length);
  if (id === undefined || tailStart <= start || !startsWithAt(bytes, tailStart, ID_TAIL))
    return undefined;
  const body = { start, end: tailStart };
  return { kind: "response", bytes, start: from, end: to, id, outcome, body, shape: TAIL_SHAPE };
}

/** Whether the body has no white space around it; readers expect the bare value. */
function hasNoOuterSpace(bytes: Buffer, { start, end }: ByteRange): boolean {
  return skipWhitespace(bytes, start) === start && skipWhitespace(bytes, end - 1) !== end;
}

/**
 * A request or notification in one of the shapes that JSON libraries write. Its params are scanned once, and their
 * members are kept for later readers.
 */
export function parseCommonShape(
  bytes: Buffer,
  from: number,
  to: number,
  scan?: ByteScan,
): Request | Notification | undefined {
  const closeBrace = to - 1;
  if (bytes[closeBrace] !== 0x7d) return undefined;
  let methodStart: number;
  let id: RequestId | undefined;
  const isVersionLast = startsWithAt(bytes, from, METHOD_START);
  if (isVersionLast) {
    methodStart = from + METHOD_START.length;
  } else if (startsWithAt(bytes, from, ID_START)) {
    id = parsePlainId(bytes, from + ID_START.length);
    if (id === undefined || !startsWithAt(bytes, id.end, METHOD_MEMBER)) return undefined;
    methodStart = id.end + METHOD_MEMBER.length;
  } else if (startsWithAt(bytes, from, NOTIFICATION_START)) {
    methodStart = from + NOTIFICATION_START.length;
  } else {
    return undefined;
  }
  const isToolsCall = startsWithAt(bytes, methodStart, TOOLS_CALL_END);
  const methodEnd = isToolsCall
    ? methodStart + TOOLS_CALL_END.length - 1
    : bytes.indexOf(QUOTE, methodStart);
  if (methodEnd < 0 || !startsWithAt(bytes, methodEnd + 1, PARAMS_MEMBER)) return undefined;
  const method = isToolsCall ? "tools/call" : cachedTextOf(bytes, methodStart, methodEnd);
  const start = methodEnd + 1 + PARAMS_MEMBER.length;
  const params = scanObject(bytes, start);
  if (params === undefined || (!isToolsCall && !PLAIN_METHOD.test(method))) return undefined;
  let end = params.end;
  if (isVersionLast && startsWithAt(bytes, end, ID_TAIL)) {
    id = parsePlainId(bytes, end + ID_TAIL.length);
    end = id?.end ?? -1;
  } else if (isVersionLast) {
    end = startsWithAt(bytes, end, VERSION_MEMBER) ? end + VERSION_MEMBER.length : -1;
  }
  if (end !== closeBrace) return undefined;
  if (scan?.hasLineEnd !== false && hasLineBreak(bytes.subarray(from, to))) return undefined;
  const range = { start, end: params.end };
  const members = params.items;
  return id === undefined
    ? { kind: "notification", bytes, start: from, end: to, method, params: range, members }
    : {
        kind: "request",
        bytes,
        start: from,
        end: to,
        id,
        duplicateIds: NO_DUPLICATE_IDS,
        method,
        params: range,
        members,
      };
}

/** An id of digits only, or a string without escapes. */
function parsePlainId(bytes: Buffer, start: number): RequestId | undefined {
  let i = start;
  if (bytes[i] !== QUOTE) {
    while (isDigit(bytes[i])) i++;
    const key = parseDigits(bytes, start, i);
    return key === undefined ? undefined : { key, bytes, start, end: i };
  }
  for (i++; bytes[i] !== QUOTE; i++) {
    const byte = bytes[i];
    if (byte === undefined || byte < 0x20 || byte === BACKSLASH) return undefined;
  }
  return readId(bytes, { start, end: i + 1 });
}
