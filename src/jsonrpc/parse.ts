import { Buffer, isUtf8 } from "node:buffer";
import {
  type ByteRange,
  cachedTextOf,
  type Edit,
  type Piece,
  startsWithAt,
  textOf,
  utf8,
} from "../base/bytes.ts";
import { reasonIn } from "../base/quote.ts";
import {
  ANY_DEPTH,
  isDigit,
  type JsonMember,
  lastMember,
  parseRange,
  readString,
  scanArray,
  scanObject,
  skipString,
  skipValue,
  skipWhitespace,
} from "../base/json.ts";
import {
  buildResponse,
  editMessage,
  ERROR_MEMBER,
  type InvalidMessage,
  joinMessage,
  type Message,
  type Notification,
  parseDigits,
  readId,
  readOwnId,
  type RequestId,
  type Request,
  type Response,
  RESULT_MEMBER,
} from "./message.ts";

export const CR = 0x0d;
export const LF = 0x0a;
const METHOD_KEY = Buffer.from('"method"');
/**
 * A suffix of `METHOD_KEY` that is searched for first. `includes` looks for the first byte: quotes are frequent, and a
 * search that begins with one takes two and a half times as long.
 */
const METHOD_KEY_SUFFIX = METHOD_KEY.subarray(1);
const ESCAPED_LETTER_PREFIXES = [Buffer.from("\\u006"), Buffer.from("\\u007")];
const ESCAPE_PREFIX = Buffer.from("\\u00");
/**
 * The first two bytes of `ESCAPE_PREFIX` are searched for first: most texts do not contain them, and a search for two
 * bytes can cost a third of a search for four.
 */
const ESCAPE_START = ESCAPE_PREFIX.subarray(0, 2);

/** Results of searches in a range of bytes. What was not found in the range is not in any part of the range, either. */
export interface ByteScan {
  /** The bytes contain CR or LF, at which a line reader would split. */
  readonly hasLineEnd: boolean;
  /** The bytes may contain a `method` key, plain or escaped. */
  readonly mayHaveMethod: boolean;
}

export function scanBytes(bytes: Buffer): ByteScan {
  return { hasLineEnd: hasLineBreak(bytes), mayHaveMethod: mayHaveMethodKey(bytes) };
}

/** Whether a line reader would split the bytes. */
export function hasLineBreak(bytes: Buffer): boolean {
  return bytes.includes(CR) || bytes.includes(LF);
}

/** Whether the bytes may contain a `method` key, plain or escaped. */
function mayHaveMethodKey(bytes: Buffer): boolean {
  if (bytes.includes(METHOD_KEY_SUFFIX) && bytes.includes(METHOD_KEY)) return true;
  if (!bytes.includes(ESCAPE_START)) return false;
  return (
    bytes.includes(ESCAPE_PREFIX) &&
    ESCAPED_LETTER_PREFIXES.some((letter) => bytes.includes(letter))
  );
}

/**
 * Search results for a chunk, computed at first use and shared by the lines of the chunk (split at LF). A native search
 * call costs as much as searching a short line: one search per chunk, instead of several per line, saves a fifth of the
 * cost of a small request.
 */
export class ChunkScan implements ByteScan {
  readonly #chunk: Buffer;
  /** Set once a line of the chunk was not a valid message. */
  hasInvalidLine = false;
  /** Whether the last line was a request or a notification: then the next one probably is, too. */
  expectsRequest = false;
  #hasLineEnd: boolean | undefined;
  #mayHaveMethod: boolean | undefined;
  #isValidUtf8: boolean | undefined;

  constructor(chunk: Buffer) {
    this.#chunk = chunk;
  }

  get hasLineEnd(): boolean {
    return (this.#hasLineEnd ??= this.#chunk.includes(CR));
  }

  get mayHaveMethod(): boolean {
    return (this.#mayHaveMethod ??= mayHaveMethodKey(this.#chunk));
  }

  /**
   * Whether all complete lines of the chunk are valid UTF-8. The first and last line may be cut inside a character.
   * @param firstLine start of the first complete line
   */
  isValidUtf8(firstLine: number): boolean {
    const chunk = this.#chunk;
    return (this.#isValidUtf8 ??=
      isUtf8(chunk) || isUtf8(chunk.subarray(firstLine, chunk.lastIndexOf(LF) + 1)));
  }
}

const ID_START = utf8('{"jsonrpc":"2.0","id":');
const RESULT_START = utf8('{"result":');
const ERROR_START = utf8('{"error":');
const ID_TAIL = utf8(',"jsonrpc":"2.0","id":');
/** The most frequent method; compared as bytes, so that it is not decoded each time. */
const TOOLS_CALL_END = utf8('tools/call"');
const PLAIN_METHOD = /^[A-Za-z0-9_./$-]+$/;
const METHOD_START = utf8('{"method":"');
const NOTIFICATION_START = utf8('{"jsonrpc":"2.0","method":"');
const VERSION_MEMBER = utf8(',"jsonrpc":"2.0"');
const METHOD_MEMBER = utf8(',"method":"');
const PARAMS_MEMBER = utf8(',"params":');
const VERSION_KEY = Buffer.from('"jsonrpc"');
/** A suffix of `VERSION_KEY` that is searched for first, as for `METHOD_KEY`. */
const VERSION_KEY_SUFFIX = VERSION_KEY.subarray(1);
const NO_DUPLICATE_IDS: readonly ByteRange[] = [];
const HEAD_SHAPE = { kind: "head" } as const;
const TAIL_SHAPE = { kind: "tail" } as const;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * The fast path: parses a response in one of the two shapes that JSON libraries write (`head` and `tail`, see
 * `Response`), without reading its body. The unread body may hold further keys of the message itself. A second `id` is
 * harmless, because `withResponseId` writes the id last, and the last one counts. Keys that would change the kind of the
 * message are found by `isUnambiguous`.
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
  if (mayHoldNullMember(bytes, response.body)) return undefined;
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
 * Whether a part of a line's body, without LF, could make other parsers read a different message. If so, the whole line
 * has to be scanned.
 */
export function mayHideMessage(bytes: Buffer): boolean {
  // If the body holds a complete JSON value followed by more, a streaming parser could read the rest as a second
  // message.
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
  // Not a response, but perhaps a request that begins with its id: `parseCommonShape` parses those.
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

/** Whether the body's range neither starts nor ends with white space: readers expect only the value in this range. */
function hasNoOuterSpace(bytes: Buffer, { start, end }: ByteRange): boolean {
  return skipWhitespace(bytes, start) === start && skipWhitespace(bytes, end - 1) !== end;
}

/**
 * Whether the body's range may hold two members, of which one is null: `{},"error":null` or `null,"error":{}`. Such a
 * response is scanned.
 */
function mayHoldNullMember(bytes: Buffer, { start, end }: ByteRange): boolean {
  const last = end - NULL_ID.length;
  if (last > start && startsWithAt(bytes, last, NULL_ID)) {
    const at = last - ERROR_MEMBER.length;
    const other = last - RESULT_MEMBER.length;
    if (startsWithAt(bytes, at, ERROR_MEMBER) || startsWithAt(bytes, other, RESULT_MEMBER))
      return true;
  }
  return end - start >= NULL_START.length && startsWithAt(bytes, start, NULL_START);
}
const NULL_ID = utf8("null");
const NULL_START = utf8("null,");

/**
 * Parses a request or notification that has one of the shapes that JSON libraries write. Its params are scanned once,
 * and their members are kept for later readers.
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

/** Parses an id that consists of digits only, or is a string without escapes. */
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

/** Parses a message from whose start a byte order mark was removed; a second one makes it invalid. */
function parseWithoutByteOrderMark(bytes: Buffer): Message {
  const { length } = bytes;
  return (
    parseSpliceableResponse(bytes, 0, length) ??
    parseCommonShape(bytes, 0, length) ??
    parseScanned(bytes)
  );
}

/**
 * Parses one message of a chunk that may hold several. On a malformed line, the fast paths may read up to the end of the
 * chunk before they give up. To keep many such lines from taking quadratic time, every line after the first invalid one
 * is parsed as a subarray of its own, beyond which nothing is read.
 */
export function parseInChunk(bytes: Buffer, start: number, end: number, scan: ChunkScan): Message {
  if (scan.hasInvalidLine || startsWithByteOrderMark(bytes, start))
    return parseMessage(bytes.subarray(start, end));
  const message = scan.expectsRequest
    ? (parseCommonShape(bytes, start, end, scan) ??
      parseSpliceableResponse(bytes, start, end, scan))
    : (parseSpliceableResponse(bytes, start, end, scan) ??
      parseCommonShape(bytes, start, end, scan));
  if (message !== undefined) {
    scan.expectsRequest = message.kind !== "response";
    return message;
  }
  const scannedMessage = parseScanned(bytes.subarray(start, end));
  scan.hasInvalidLine = scannedMessage.kind === "invalid";
  return scannedMessage;
}

/** Applies edits and parses the result. Edits that would change the kind of the message are dropped. */
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

/** Keys of the members that define a request, in upper and lower case, because some peers ignore case. */
const REQUEST_KEY = /^(?:id|method|params)$/iu;

/** The general path: the whole message is scanned, so that nothing malformed is forwarded. */
function parseScanned(bytes: Buffer): Message {
  const at = skipWhitespace(bytes, 0);
  if (bytes[at] === 0x5b) return parseBatch(bytes, at);
  const object = scanObject(bytes, at);
  if (object !== undefined && skipWhitespace(bytes, object.end) === bytes.length) {
    return classifyMessage(withoutLineBreaks(bytes), object.items);
  }
  const response = parseDeepResponse(bytes, at);
  if (response !== undefined) return response;
  return bytes[at] !== 0x7b && skipWhitespace(bytes, skipValue(bytes, at)) === bytes.length
    ? invalidMessage(bytes, "invalidRequest", "the message is not an object")
    : invalidMessage(bytes, "parseError", "the message is not valid JSON");
}

/**
 * Parses a response that the scan with limited depth has refused: results and errors may be nested to any depth, because
 * they are relayed unread. For all other messages the depth is limited.
 */
function parseDeepResponse(raw: Buffer, at: number): Response | undefined {
  const object = scanObject(raw, at, undefined, ANY_DEPTH);
  if (object === undefined || skipWhitespace(raw, object.end) !== raw.length) return undefined;
  const message = classifyMessage(withoutLineBreaks(raw), object.items);
  return message.kind === "response" ? message : undefined;
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

/** Maximum number of messages of a batch: all of them are handled in one turn of the event loop. */
const MAX_BATCH = 1000;

function parseBatch(raw: Buffer, at: number): Message {
  const array = scanArray(raw, at, MAX_BATCH);
  if (array === undefined || skipWhitespace(raw, array.end) !== raw.length) {
    const reason = `the batch is not valid JSON, or has more than ${MAX_BATCH} messages`;
    return invalidMessage(raw, "parseError", reason);
  }
  const bytes = withoutLineBreaks(raw);
  if (array.items.length === 0)
    return invalidMessage(bytes, "invalidRequest", "the batch is empty");
  const items = array.items.map(({ start, end }) => {
    const item = bytes.subarray(start, end);
    return item[0] === 0x5b
      ? invalidMessage(item, "invalidRequest", "a batch contains a batch")
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
  // The id is only needed to answer a malformed request with an error. A malformed response gets no error: its id is
  // one of the hub's, and the peer could take the error for the answer to its own request with that id.
  const isCallShape = methodMember !== undefined && result === undefined && error === undefined;
  const id = idMember && isCallShape ? readId(bytes, idMember) : undefined;
  if (!isVersion(bytes, version)) {
    return invalidMessage(bytes, "invalidRequest", 'the message lacks "jsonrpc": "2.0"', id);
  }
  if (methodMember === undefined) {
    if (result === undefined && error === undefined) {
      return invalidMessage(bytes, "invalidRequest", "the message has no method, result or error");
    }
    return classifyResponse(bytes, members, result, error);
  }
  const method = readString(bytes, methodMember);
  if (method === undefined || result !== undefined || error !== undefined) {
    const reason = method === undefined ? "the method is not a string" : "a request has no result";
    return invalidMessage(bytes, "invalidRequest", reason, id);
  }
  const params = lastMember(members, "params");
  // If a member is repeated, parsers differ on which one counts, and some ignore case: the peer could read another
  // request than the one that was checked here. Only a repeated `id` is allowed, because all ids are replaced.
  const other = members.find(
    (it) => it !== methodMember && it !== params && it.key !== "id" && REQUEST_KEY.test(it.key),
  );
  if (other !== undefined) {
    const reason = `parsers differ on what its member ${JSON.stringify(other.key)} means`;
    return invalidMessage(bytes, "invalidRequest", reason, id);
  }
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

/** If a response has both members and one is null, that one is absent. */
function classifyResponse(
  bytes: Buffer,
  members: readonly JsonMember[],
  result: JsonMember | undefined,
  error: JsonMember | undefined,
): Response {
  const idMember = lastMember(members, "id");
  if (result !== undefined && error !== undefined) {
    const isResult = isNull(bytes, error);
    if (isResult || isNull(bytes, result)) {
      const [outcome, body] = isResult
        ? (["result", result] as const)
        : (["error", error] as const);
      // The response is written again: its receiver might not accept both members.
      const id = idMember === undefined ? NULL_ID : bytes.subarray(idMember.start, idMember.end);
      return rewriteResponse(id, outcome, bytes.subarray(body.start, body.end));
    }
  }
  const ids = members.filter(({ key }) => ID_KEY.test(key));
  return result === undefined
    ? responseOf(bytes, "error", error ?? NO_BODY, idMember, ids)
    : responseOf(bytes, "result", result, idMember, ids);
}
const NO_BODY: ByteRange = { start: 0, end: 0 };

/** Writes a response, and returns it as if it had been scanned. */
function rewriteResponse(id: Piece, outcome: Response["outcome"], body: Piece): Response {
  const bytes = joinMessage(buildResponse(id, outcome, body));
  const members = scanObject(bytes, 0, undefined, ANY_DEPTH)?.items ?? [];
  const idMember = lastMember(members, "id");
  const ids = idMember === undefined ? [] : [idMember];
  return responseOf(bytes, outcome, lastMember(members, outcome) ?? NO_BODY, idMember, ids);
}

function responseOf(
  bytes: Buffer,
  outcome: Response["outcome"],
  body: ByteRange,
  idRange: ByteRange | undefined,
  ids: readonly ByteRange[],
): Response {
  const id = idRange && readOwnId(bytes, idRange);
  const shape = { kind: "scanned", ids } as const;
  return { kind: "response", bytes, start: 0, end: bytes.length, id, outcome, body, shape };
}

function isNull(bytes: Buffer, { start, end }: ByteRange): boolean {
  return end - start === NULL_ID.length && startsWithAt(bytes, start, NULL_ID);
}

/** The message of an error that has none. */
export const NO_ERROR_MESSAGE = "The server answered with an error without a message.";
/** The code of an error that has none (JSON-RPC 2.0, 5.1, internal error). */
const DEFAULT_ERROR_CODE = -32603;

/**
 * The same response with an error object that has a numeric code and a message. Clients could not read another error,
 * such as a text, and would wait for the response without end. What cannot be kept in the object is kept as its `data`.
 */
export function withWellFormedError(response: Response): Response {
  const error = wellFormedErrorOf(response.bytes, response.body);
  if (error === undefined) return response;
  const id = response.id === undefined ? NULL_ID : utf8(String(response.id));
  return rewriteResponse(id, "error", error);
}

/** The same response under an id, for a response without one. */
export function withId({ bytes, outcome, body }: Response, id: number): Response {
  return rewriteResponse(utf8(String(id)), outcome, bytes.subarray(body.start, body.end));
}

/** @returns undefined if the error is well-formed */
function wellFormedErrorOf(bytes: Buffer, range: ByteRange): Uint8Array | undefined {
  let error: unknown;
  try {
    error = parseRange(bytes, range);
  } catch {
    // It is nested too deeply to be read.
    return undefined;
  }
  const isObject = typeof error === "object" && error !== null && !Array.isArray(error);
  const members = isObject ? (error as Readonly<Record<string, unknown>>) : {};
  const { code, message } = members;
  const hasCode = Number.isSafeInteger(code);
  if (hasCode && typeof message === "string") return undefined;
  const reason = typeof message === "string" ? message : reasonIn(error);
  const data = isObject ? (members["data"] ?? (reason === undefined ? error : undefined)) : error;
  return utf8(
    JSON.stringify({
      code: hasCode ? code : DEFAULT_ERROR_CODE,
      message: reason ?? NO_ERROR_MESSAGE,
      ...(data !== undefined && data !== null && data !== reason && { data }),
    }),
  );
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
 * Parses the kind and id from the first and last bytes of a message that was too large to keep. Never throws: nobody has
 * checked the bytes.
 * @returns undefined if the id is not where JSON libraries put it, or is malformed
 */
export function parseTruncated(
  head: Buffer,
  tail: Buffer,
): { kind: "request" | "response"; id: RequestId } | undefined {
  // Each byte becomes one character, so that the id keeps its bytes although the edges may be cut inside a character.
  const headText = head.toString("latin1");
  const start = HEAD_MEMBER.exec(headText);
  const firstKey = start?.[2] ?? FIRST_MEMBER.exec(headText)?.[1];
  const idText = start?.[1] ?? TAIL_MEMBER.exec(tail.toString("latin1"))?.[1];
  if (idText === undefined || firstKey === undefined) return undefined;
  const bytes = Buffer.from(idText, "latin1");
  if (skipValue(bytes, 0) !== bytes.length || !isUtf8(bytes)) return undefined;
  const id = readId(bytes, { start: 0, end: bytes.length });
  if (id === undefined) return undefined;
  if (firstKey === "result" || firstKey === "error") return { kind: "response", id };
  return firstKey === "method" || firstKey === "params" ? { kind: "request", id } : undefined;
}

/**
 * Finds the id of a response that could not be parsed. Reads the members of the outermost object as far as they can be
 * told apart, whatever their values are; the rest may be cut off.
 * @returns undefined if the bytes look like a request, or have no id that the hub could have assigned
 */
export function findResponseId(message: InvalidMessage): number | undefined {
  const { bytes, start, end, code } = message;
  let id: ByteRange | undefined;
  let isResponse = false;
  for (const { key, value } of outerMembers(bytes, start, end)) {
    if (key === "method") return undefined;
    if (key === "id") id = value;
    if (key === "result" || key === "error") isResponse = true;
    // A response may lack both. An object without `jsonrpc`, too, is perhaps a line of a log.
    if (key === "jsonrpc" && code === "invalidRequest") isResponse = true;
  }
  if (!isResponse || id === undefined) return undefined;
  return skipValue(bytes, id.start) === id.end ? readOwnId(bytes, id) : undefined;
}

/** The members of an object that need not be valid JSON: strings, commas and nesting are recognized, values are not. */
function outerMembers(
  bytes: Buffer,
  start: number,
  end: number,
): readonly { readonly key: string; readonly value: ByteRange }[] {
  const members: { readonly key: string; readonly value: ByteRange }[] = [];
  let at = skipWhitespace(bytes, startsWithByteOrderMark(bytes, start) ? start + 3 : start);
  if (bytes[at] !== 0x7b) return members;
  for (at++; at < end; at++) {
    const keyStart = skipWhitespace(bytes, at);
    const keyEnd = skipString(bytes, keyStart);
    const colon = keyEnd < 0 ? -1 : skipWhitespace(bytes, keyEnd);
    if (colon < 0 || colon >= end || bytes[colon] !== 0x3a) return members;
    const valueStart = skipWhitespace(bytes, colon + 1);
    let depth = 0;
    for (at = valueStart; at < end; at++) {
      const byte = bytes[at];
      if (byte === QUOTE) {
        const stringEnd = skipString(bytes, at);
        // A string that does not end leaves no way to tell what follows.
        if (stringEnd < 0) at = end;
        else at = stringEnd - 1;
      } else if (byte === 0x7b || byte === 0x5b) depth++;
      else if (depth > 0 && (byte === 0x7d || byte === 0x5d)) depth--;
      else if (depth === 0 && (byte === 0x2c || byte === 0x7d)) break;
    }
    let valueEnd = Math.min(at, end);
    while (valueEnd > valueStart && (bytes[valueEnd - 1] ?? 0) <= 0x20) valueEnd--;
    members.push({
      key: textOf(bytes, keyStart + 1, keyEnd - 1),
      value: { start: valueStart, end: valueEnd },
    });
    if (bytes[at] !== 0x2c) return members;
  }
  return members;
}
