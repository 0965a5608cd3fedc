import { Buffer } from "node:buffer";
import { matches, type Range, textOf, utf8 } from "../bytes.ts";
import {
  lastMember,
  type Member,
  scanArray,
  scanObject,
  skipSpace,
  skipValue,
  stringOf,
  valueOf,
} from "../json.ts";
import {
  ERROR_MEMBER,
  type Frame,
  type Id,
  type Invalid,
  type Request,
  type Response,
  RESULT_MEMBER,
} from "./jsonrpc.ts";

const HEAD = utf8('{"jsonrpc":"2.0","id":');
const RESULT_START = utf8('{"result":');
const ERROR_START = utf8('{"error":');
const TAIL = utf8(',"jsonrpc":"2.0","id":');
const PLAIN_METHOD = /^[A-Za-z0-9_./$-]+$/;
const METHOD_START = utf8('{"method":"');
const METHOD_MEMBER = utf8(',"method":"');
const PARAMS_MEMBER = utf8(',"params":');
const METHOD_KEY = Buffer.from('"method"');
const VERSION_KEY = Buffer.from('"jsonrpc"');
const ESCAPED_LETTERS = [Buffer.from("\\u006"), Buffer.from("\\u007")];
const ESCAPE = Buffer.from("\\u00");
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const CR = 0x0d;
const LF = 0x0a;
/** More digits than any id that we give out has. */
const MAX_ID_DIGITS = 15;

/** Reads one message, without its line end. Never throws: what is no message is `invalid`. */
export function readFrame(bytes: Buffer): Frame {
  return readSpliceable(bytes) ?? readCommonRequest(bytes) ?? readScanned(bytes);
}

/**
 * The fast path: a response in one of the two shapes that every JSON library writes, whose body is left unread.
 * It can only be fooled about the message's kind or id by a second `id`, `result`, `error` or `method` key;
 * `readdress` writes the id last, so that a second `id` loses, and a `method`, spelled or escaped, is searched for.
 */
function readSpliceable(bytes: Buffer): Response | undefined {
  const end = bytes.length - 1;
  if (bytes[end] !== 0x7d) return undefined;
  const response = readHeadShape(bytes, end) ?? readTailShape(bytes, end);
  if (response === undefined || !isTrimmed(bytes, response.body)) return undefined;
  if (hasLineBreak(bytes) || bytes.includes(METHOD_KEY)) return undefined;
  // A second message could hide in a body that is not what it seems, for clients that read a stream of values.
  const version = bytes.indexOf(VERSION_KEY, response.body.start);
  if (version >= 0 && version < response.body.end) return undefined;
  return bytes.includes(ESCAPE) && ESCAPED_LETTERS.some((letter) => bytes.includes(letter))
    ? undefined
    : response;
}

function readHeadShape(bytes: Buffer, end: number): Response | undefined {
  if (!matches(bytes, 0, HEAD)) return undefined;
  let i = HEAD.length;
  while (isDigit(bytes[i])) i++;
  const id = plainInteger(bytes, HEAD.length, i);
  if (id === undefined) return undefined;
  const outcome = matches(bytes, i, RESULT_MEMBER)
    ? "result"
    : matches(bytes, i, ERROR_MEMBER)
      ? "error"
      : undefined;
  if (outcome === undefined) return undefined;
  const start = i + (outcome === "result" ? RESULT_MEMBER.length : ERROR_MEMBER.length);
  if (start >= end) return undefined;
  return { kind: "response", bytes, id, outcome, body: { start, end }, shape: { at: "head" } };
}

function readTailShape(bytes: Buffer, end: number): Response | undefined {
  const outcome = matches(bytes, 0, RESULT_START)
    ? "result"
    : matches(bytes, 0, ERROR_START)
      ? "error"
      : undefined;
  if (outcome === undefined) return undefined;
  let i = end;
  while (isDigit(bytes[i - 1])) i--;
  const id = plainInteger(bytes, i, end);
  const tail = i - TAIL.length;
  const start = outcome === "result" ? RESULT_START.length : ERROR_START.length;
  if (id === undefined || tail <= start || !matches(bytes, tail, TAIL)) return undefined;
  const body = { start, end: tail };
  return { kind: "response", bytes, id, outcome, body, shape: { at: "tail" } };
}

/** Whoever reads a body expects the value alone: white space around it is for the scanner. */
function isTrimmed(bytes: Buffer, { start, end }: Range): boolean {
  return skipSpace(bytes, start) === start && skipSpace(bytes, end - 1) !== end;
}

/**
 * A request in one of the two shapes that every JSON library writes. Its params are checked byte by byte, but
 * only once: their members are kept for whoever looks at them next.
 */
function readCommonRequest(bytes: Buffer): Request | undefined {
  const end = bytes.length - 1;
  if (bytes[end] !== 0x7d) return undefined;
  let at = 0;
  let id: Range | undefined;
  if (matches(bytes, 0, HEAD)) {
    id = plainId(bytes, HEAD.length);
    if (id === undefined || !matches(bytes, id.end, METHOD_MEMBER)) return undefined;
    at = id.end + METHOD_MEMBER.length;
  } else if (matches(bytes, 0, METHOD_START)) {
    at = METHOD_START.length;
  } else {
    return undefined;
  }
  const quote = bytes.indexOf(QUOTE, at);
  if (quote < 0 || !matches(bytes, quote + 1, PARAMS_MEMBER)) return undefined;
  const method = textOf(bytes, at, quote);
  const start = quote + 1 + PARAMS_MEMBER.length;
  const params = scanObject(bytes, start);
  if (params === undefined || !PLAIN_METHOD.test(method)) return undefined;
  if (id === undefined) {
    if (!matches(bytes, params.end, TAIL)) return undefined;
    id = plainId(bytes, params.end + TAIL.length);
    if (id?.end !== end) return undefined;
  } else if (params.end !== end) {
    return undefined;
  }
  const read = readId(bytes, id);
  if (read === undefined || hasLineBreak(bytes)) return undefined;
  return {
    kind: "request",
    bytes,
    id: read,
    ids: [id],
    method,
    params: { start, end: params.end },
    members: params.items,
  };
}

/** The range of an id that is plain digits or a string without escapes. */
function plainId(bytes: Buffer, start: number): Range | undefined {
  let i = start;
  if (bytes[i] !== QUOTE) {
    while (isDigit(bytes[i])) i++;
    return plainInteger(bytes, start, i) === undefined ? undefined : { start, end: i };
  }
  for (i++; bytes[i] !== QUOTE; i++) {
    const byte = bytes[i];
    if (byte === undefined || byte < 0x20 || byte === BACKSLASH) return undefined;
  }
  return { start, end: i + 1 };
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

/** The value of a run of digits, or undefined if it is empty, too long or has a leading zero. */
function plainInteger(bytes: Uint8Array, start: number, end: number): number | undefined {
  if (end <= start || end - start > MAX_ID_DIGITS) return undefined;
  if (bytes[start] === 0x30 && end - start > 1) return undefined;
  let value = 0;
  for (let i = start; i < end; i++) {
    if (!isDigit(bytes[i])) return undefined;
    value = value * 10 + ((bytes[i] ?? 0x30) - 0x30);
  }
  return value;
}

/** Some clients' parsers take no notice of the case of a key: none may find an id that is not theirs. */
const ID_KEY = /^id$/i;

/** The general path: the whole message is checked, so that nothing malformed travels on. */
function readScanned(raw: Buffer): Frame {
  const at = skipSpace(raw, 0);
  if (raw[at] === 0x5b) return readBatch(raw, at);
  const object = scanObject(raw, at);
  if (object !== undefined && skipSpace(raw, object.end) === raw.length) {
    return classify(onOneLine(raw), object.items);
  }
  return raw[at] !== 0x7b && skipSpace(raw, skipValue(raw, at)) === raw.length
    ? invalid(raw, "invalidRequest", "the message is no object")
    : invalid(raw, "parseError", "the message is not valid JSON");
}

/** Only for what was scanned: valid JSON holds a raw CR or LF as white space only, and line readers end a line there. */
function onOneLine(raw: Buffer): Buffer {
  if (!hasLineBreak(raw)) return raw;
  const copy = Buffer.from(raw);
  for (const end of [CR, LF]) {
    for (let i = copy.indexOf(end); i >= 0; i = copy.indexOf(end, i + 1)) copy[i] = 0x20;
  }
  return copy;
}

function hasLineBreak(bytes: Buffer): boolean {
  return bytes.includes(CR) || bytes.includes(LF);
}

function readBatch(raw: Buffer, at: number): Frame {
  const array = scanArray(raw, at);
  if (array === undefined || skipSpace(raw, array.end) !== raw.length) {
    return invalid(raw, "parseError", "the message is not valid JSON");
  }
  const bytes = onOneLine(raw);
  if (array.items.length === 0) return invalid(bytes, "invalidRequest", "the batch is empty");
  const items = array.items.map(({ start, end }) => {
    const item = bytes.subarray(start, end);
    return item[0] === 0x5b
      ? invalid(item, "invalidRequest", "a batch holds a batch")
      : readFrame(item);
  });
  return { kind: "batch", items };
}

function classify(bytes: Buffer, members: readonly Member[]): Frame {
  const version = lastMember(members, "jsonrpc");
  const methodMember = lastMember(members, "method");
  const result = lastMember(members, "result");
  const error = lastMember(members, "error");
  const idMember = lastMember(members, "id");
  // The id of an answer is one of the hub's: an error sent to it would hit the peer's own request of that id.
  const asks = methodMember !== undefined && result === undefined && error === undefined;
  const id = idMember && asks ? readId(bytes, idMember) : undefined;
  if (!isVersion(bytes, version)) {
    return invalid(bytes, "invalidRequest", 'the message lacks "jsonrpc": "2.0"', id);
  }
  if (methodMember === undefined) {
    const body = result ?? error;
    if (body === undefined) {
      return invalid(bytes, "invalidRequest", "the message has no method, result or error");
    }
    return {
      kind: "response",
      bytes,
      id: idMember && integerOf(bytes, idMember),
      outcome: result === undefined ? "error" : "result",
      body,
      shape: { at: "scanned", ids: members.filter(({ key }) => ID_KEY.test(key)) },
    };
  }
  const method = stringOf(bytes, methodMember);
  if (method === undefined || result !== undefined || error !== undefined) {
    const reason = method === undefined ? "the method is no string" : "a request has no result";
    return invalid(bytes, "invalidRequest", reason, id);
  }
  const params = lastMember(members, "params");
  if (idMember === undefined) return { kind: "notification", bytes, method, params };
  if (id === undefined) {
    return invalid(bytes, "invalidRequest", "the id is neither a string nor a number");
  }
  const ids = members.filter((member) => member.key === "id");
  return { kind: "request", bytes, id, ids, method, params, members: undefined };
}

function invalid(bytes: Buffer, code: Invalid["code"], reason: string, id?: Id): Invalid {
  return { kind: "invalid", bytes, code, reason, id };
}

function isVersion(bytes: Buffer, range: Range | undefined): boolean {
  if (range === undefined) return false;
  return matches(bytes, range.start, VERSION) || stringOf(bytes, range) === "2.0";
}
const VERSION = utf8('"2.0"');

/** An id that is a string or a number; undefined for anything else, null included. */
export function readId(bytes: Uint8Array, range: Range): Id | undefined {
  const slice = bytes.subarray(range.start, range.end);
  const plain = plainInteger(bytes, range.start, range.end);
  if (plain !== undefined) return { key: plain, bytes: slice };
  const first = bytes[range.start];
  const text = stringOf(bytes, range);
  if (text !== undefined) return { key: `"${text}`, bytes: slice };
  if (first !== 0x2d && !isDigit(first)) return undefined;
  const spelled = textOf(bytes, range.start, range.end);
  const value = Number(spelled);
  return { key: Number.isSafeInteger(value) ? value : spelled, bytes: slice };
}

/** An id of ours, also if the peer sends it back as `7.0` or `"7"`, which other clients put up with. */
function integerOf(bytes: Uint8Array, range: Range): number | undefined {
  const plain = plainInteger(bytes, range.start, range.end);
  if (plain !== undefined) return plain;
  const value = valueOf(bytes, range);
  const number = typeof value === "string" && /^\d{1,15}$/.test(value) ? Number(value) : value;
  return typeof number === "number" && Number.isSafeInteger(number) && number >= 0
    ? number
    : undefined;
}

const HEAD_MEMBER =
  /^\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,\s*"(\w+)"/;
const FIRST_MEMBER = /^\{\s*"(\w+)"/;
const TAIL_MEMBER =
  /,\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*\}\s*$/;

/**
 * What can be told of a message that was too large to be kept, from its first and last bytes.
 * @returns undefined if no id stands where JSON libraries write it.
 */
export function readEdges(
  head: Buffer,
  tail: Buffer,
): { kind: "request" | "response"; id: Id } | undefined {
  const start = HEAD_MEMBER.exec(textOf(head));
  const first = start?.[2] ?? FIRST_MEMBER.exec(textOf(head))?.[1];
  const spelled = start?.[1] ?? TAIL_MEMBER.exec(textOf(tail))?.[1];
  if (spelled === undefined || first === undefined) return undefined;
  const bytes = utf8(spelled);
  const id = readId(bytes, { start: 0, end: bytes.length });
  if (id === undefined) return undefined;
  if (first === "result" || first === "error") return { kind: "response", id };
  return first === "method" || first === "params" ? { kind: "request", id } : undefined;
}
