import { Buffer } from "node:buffer";
import { matches, type Range, shortTextOf, utf8 } from "../base/bytes.ts";
import { isDigit, scanObject, skipSpace } from "../base/json.ts";
import { plainInteger, readId } from "./id.ts";
import {
  ERROR_MEMBER,
  type Id,
  type Notification,
  type Request,
  type Response,
  RESULT_MEMBER,
} from "./message.ts";
import { ChunkSight, hasLineBreak, see, type Sight } from "./sight.ts";

const HEAD = utf8('{"jsonrpc":"2.0","id":');
const RESULT_START = utf8('{"result":');
const ERROR_START = utf8('{"error":');
const TAIL = utf8(',"jsonrpc":"2.0","id":');
/** The most frequent method, so it is not decoded each time. */
const TOOLS_CALL = utf8('tools/call"');
const PLAIN_METHOD = /^[A-Za-z0-9_./$-]+$/;
const METHOD_START = utf8('{"method":"');
const NOTIFICATION_START = utf8('{"jsonrpc":"2.0","method":"');
const VERSION_MEMBER = utf8(',"jsonrpc":"2.0"');
const METHOD_MEMBER = utf8(',"method":"');
const PARAMS_MEMBER = utf8(',"params":');
const VERSION_KEY = Buffer.from('"jsonrpc"');
/** The longest pattern for which `indexOf` runs about twice as fast as for longer ones. */
const VERSION_END = VERSION_KEY.subarray(1);
const NO_MORE: readonly Range[] = [];
const AT_HEAD = { at: "head" } as const;
const AT_TAIL = { at: "tail" } as const;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * The fast path: a response in one of the two shapes that JSON libraries write, whose body is not read. Only a second
 * `id`, `result`, `error` or `method` key could change the message's kind or id: `withResponseId` writes the id last,
 * so that it overrides a second one, and the body is searched for a `method` key, plain or escaped.
 */
export function readSpliceable(
  bytes: Buffer,
  start: number,
  end: number,
  sight?: Sight,
): Response | undefined {
  if (bytes[end - 1] !== 0x7d) return undefined;
  const response = readHeadShape(bytes, start, end) ?? readTailShape(bytes, start, end);
  if (response === undefined || !isTrimmed(bytes, response.body)) return undefined;
  return hidesNothing(bytes, response, sight) ? response : undefined;
}

/** Whether nothing in the body can make other parsers read the line as a different message. */
function hidesNothing(bytes: Buffer, { start, end, body }: Response, sight?: Sight): boolean {
  const version = bytes.indexOf(VERSION_KEY, body.start);
  if (version >= 0 && version < body.end) return false;
  return (sight !== undefined && isPlain(sight)) || isPlain(see(bytes.subarray(start, end)));
}

function isPlain({ hasBreak, hidesMethod }: Sight): boolean {
  return !hasBreak && !hidesMethod;
}

/**
 * Whether part of a line's body (without LF) could make other parsers read a different message; then it must be
 * scanned.
 */
export function hidesMessage(bytes: Buffer): boolean {
  // A client that reads a stream of JSON values could find a second message behind a body that ends early.
  const hasVersion = bytes.includes(VERSION_END) && bytes.includes(VERSION_KEY);
  return hasVersion || !isPlain(new ChunkSight(bytes));
}

function readHeadShape(bytes: Buffer, from: number, to: number): Response | undefined {
  if (!matches(bytes, from, HEAD)) return undefined;
  const digits = from + HEAD.length;
  let i = digits;
  while (isDigit(bytes[i])) i++;
  const outcome = matches(bytes, i, RESULT_MEMBER)
    ? "result"
    : matches(bytes, i, ERROR_MEMBER)
      ? "error"
      : undefined;
  // Requests begin the same way; `parseCommonShape` reads their id.
  if (outcome === undefined) return undefined;
  const id = plainInteger(bytes, digits, i);
  if (id === undefined) return undefined;
  const start = i + (outcome === "result" ? RESULT_MEMBER.length : ERROR_MEMBER.length);
  const end = to - 1;
  if (start >= end) return undefined;
  const body = { start, end };
  return { kind: "response", bytes, start: from, end: to, id, outcome, body, shape: AT_HEAD };
}

function readTailShape(bytes: Buffer, from: number, to: number): Response | undefined {
  const outcome = matches(bytes, from, RESULT_START)
    ? "result"
    : matches(bytes, from, ERROR_START)
      ? "error"
      : undefined;
  if (outcome === undefined) return undefined;
  const end = to - 1;
  let i = end;
  while (isDigit(bytes[i - 1])) i--;
  const id = plainInteger(bytes, i, end);
  const tail = i - TAIL.length;
  const start = from + (outcome === "result" ? RESULT_START.length : ERROR_START.length);
  if (id === undefined || tail <= start || !matches(bytes, tail, TAIL)) return undefined;
  const body = { start, end: tail };
  return { kind: "response", bytes, start: from, end: to, id, outcome, body, shape: AT_TAIL };
}

/** Whether the body has no white space around it; readers expect the bare value. */
function isTrimmed(bytes: Buffer, { start, end }: Range): boolean {
  return skipSpace(bytes, start) === start && skipSpace(bytes, end - 1) !== end;
}

/**
 * A request or notification in one of the shapes that JSON libraries write. Its params are scanned once, and their
 * members are kept for later readers.
 */
export function readCommon(
  bytes: Buffer,
  from: number,
  to: number,
  sight?: Sight,
): Request | Notification | undefined {
  const last = to - 1;
  if (bytes[last] !== 0x7d) return undefined;
  let at: number;
  let id: Id | undefined;
  const isVersionLast = matches(bytes, from, METHOD_START);
  if (isVersionLast) {
    at = from + METHOD_START.length;
  } else if (matches(bytes, from, HEAD)) {
    id = plainId(bytes, from + HEAD.length);
    if (id === undefined || !matches(bytes, id.end, METHOD_MEMBER)) return undefined;
    at = id.end + METHOD_MEMBER.length;
  } else if (matches(bytes, from, NOTIFICATION_START)) {
    at = from + NOTIFICATION_START.length;
  } else {
    return undefined;
  }
  const isCall = matches(bytes, at, TOOLS_CALL);
  const quote = isCall ? at + TOOLS_CALL.length - 1 : bytes.indexOf(QUOTE, at);
  if (quote < 0 || !matches(bytes, quote + 1, PARAMS_MEMBER)) return undefined;
  const method = isCall ? "tools/call" : shortTextOf(bytes, at, quote);
  const start = quote + 1 + PARAMS_MEMBER.length;
  const params = scanObject(bytes, start);
  if (params === undefined || (!isCall && !PLAIN_METHOD.test(method))) return undefined;
  let end = params.end;
  if (isVersionLast && matches(bytes, end, TAIL)) {
    id = plainId(bytes, end + TAIL.length);
    end = id?.end ?? -1;
  } else if (isVersionLast) {
    end = matches(bytes, end, VERSION_MEMBER) ? end + VERSION_MEMBER.length : -1;
  }
  if (end !== last) return undefined;
  if (sight?.hasBreak !== false && hasLineBreak(bytes.subarray(from, to))) return undefined;
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
        moreIds: NO_MORE,
        method,
        params: range,
        members,
      };
}

/** An id of digits only, or a string without escapes. */
function plainId(bytes: Buffer, start: number): Id | undefined {
  let i = start;
  if (bytes[i] !== QUOTE) {
    while (isDigit(bytes[i])) i++;
    const key = plainInteger(bytes, start, i);
    return key === undefined ? undefined : { key, of: bytes, start, end: i };
  }
  for (i++; bytes[i] !== QUOTE; i++) {
    const byte = bytes[i];
    if (byte === undefined || byte < 0x20 || byte === BACKSLASH) return undefined;
  }
  return readId(bytes, { start, end: i + 1 });
}
