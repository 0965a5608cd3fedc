import { Buffer } from "node:buffer";
import { type Edit, matches, type Range, textOf, utf8 } from "../base/bytes.ts";
import {
  ANY_DEPTH,
  lastMember,
  type Member,
  scanArray,
  scanObject,
  skipSpace,
  skipValue,
  stringOf,
} from "../base/json.ts";
import { integerOf, readId } from "./id.ts";
import {
  type Frame,
  type Id,
  type Invalid,
  type Notification,
  type Request,
  type Response,
  joinMessage,
  patch,
} from "./message.ts";
import { readCommon, readSpliceable } from "./shapes.ts";
import { type ChunkSight, CR, hasLineBreak, LF } from "./sight.ts";

/**
 * Parses one message, without its line end; a byte order mark at its start is ignored. Never throws: bytes that are no
 * valid message give kind `invalid`.
 */
export function readFrame(bytes: Buffer): Frame {
  const { length } = bytes;
  return (
    readSpliceable(bytes, 0, length) ??
    readCommon(bytes, 0, length) ??
    (hasMark(bytes, 0) ? readUnmarked(bytes.subarray(MARK.length)) : readScanned(bytes))
  );
}

/** UTF-8 byte order mark. Some libraries write one before each text (RFC 8259, section 8.1, lets parsers ignore it). */
const MARK = utf8("\ufeff");

function hasMark(bytes: Buffer, start: number): boolean {
  return bytes[start] === MARK[0] && matches(bytes, start, MARK);
}

/** Parses a message whose byte order mark was removed; a second one makes it invalid. */
function readUnmarked(bytes: Buffer): Frame {
  const { length } = bytes;
  return readSpliceable(bytes, 0, length) ?? readCommon(bytes, 0, length) ?? readScanned(bytes);
}

/**
 * Parses a message inside a chunk of several. A fast path may read beyond the end of a malformed line, up to the end of
 * the chunk; after the first invalid line every further line is parsed on its own subarray.
 */
export function readFramePart(bytes: Buffer, start: number, end: number, sight: ChunkSight): Frame {
  if (sight.isTorn || hasMark(bytes, start)) return readFrame(bytes.subarray(start, end));
  const frame = readSpliceable(bytes, start, end, sight) ?? readCommon(bytes, start, end, sight);
  if (frame !== undefined) return frame;
  const scanned = readScanned(bytes.subarray(start, end));
  sight.isTorn = scanned.kind === "invalid";
  return scanned;
}

/** Applies edits that do not change the kind of the message, and parses the result. */
export function revise<F extends Request | Notification | Response>(
  frame: F,
  edits: readonly Edit[],
): F {
  if (edits.length === 0) return frame;
  const revised = readFrame(joinMessage(patch(frame, [...edits])));
  return revised.kind === frame.kind ? (revised as F) : frame;
}

/** Some clients match keys without regard to case; every spelling of `id` must get the replaced value. */
const ID_KEY = /^id$/i;

/** The general path: the whole message is scanned, so that nothing malformed is forwarded. */
function readScanned(raw: Buffer): Frame {
  const at = skipSpace(raw, 0);
  if (raw[at] === 0x5b) return readBatch(raw, at);
  const object = scanObject(raw, at);
  if (object !== undefined && skipSpace(raw, object.end) === raw.length) {
    return classify(onOneLine(raw), object.items);
  }
  const answer = readDeep(raw, at);
  if (answer !== undefined) return answer;
  return raw[at] !== 0x7b && skipSpace(raw, skipValue(raw, at)) === raw.length
    ? invalid(raw, "invalidRequest", "the message is no object")
    : invalid(raw, "parseError", "the message is not valid JSON");
}

/** A result may be nested to any depth, as it is relayed unread; for all other messages the depth is limited. */
function readDeep(raw: Buffer, at: number): Response | undefined {
  const object = scanObject(raw, at, undefined, ANY_DEPTH);
  if (object === undefined || skipSpace(raw, object.end) !== raw.length) return undefined;
  const frame = classify(onOneLine(raw), object.items);
  return frame.kind === "response" && frame.outcome === "result" ? frame : undefined;
}

/**
 * Replaces raw CR and LF by spaces. In valid JSON they are white space only, but line readers would split the message.
 */
function onOneLine(raw: Buffer): Buffer {
  if (!hasLineBreak(raw)) return raw;
  const copy = Buffer.from(raw);
  for (const end of [CR, LF]) {
    for (let i = copy.indexOf(end); i >= 0; i = copy.indexOf(end, i + 1)) copy[i] = 0x20;
  }
  return copy;
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
  // The id of a response is one of ours: an error sent to that id would hit a request of the peer's own.
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
      start: 0,
      end: bytes.length,
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
  const span = { bytes, start: 0, end: bytes.length };
  if (idMember === undefined)
    return { kind: "notification", ...span, method, params, members: undefined };
  if (id === undefined) {
    return invalid(bytes, "invalidRequest", "the id is neither a string nor a number");
  }
  const moreIds = members.filter((member) => member.key === "id" && member !== idMember);
  return { kind: "request", ...span, id, moreIds, method, params, members: undefined };
}

function invalid(bytes: Buffer, code: Invalid["code"], reason: string, id?: Id): Invalid {
  return { kind: "invalid", bytes, start: 0, end: bytes.length, code, reason, id };
}

function isVersion(bytes: Buffer, range: Range | undefined): boolean {
  if (range === undefined) return false;
  return matches(bytes, range.start, VERSION) || stringOf(bytes, range) === "2.0";
}
const VERSION = utf8('"2.0"');

const HEAD_MEMBER =
  /^\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,\s*"(\w+)"/;
const FIRST_MEMBER = /^\{\s*"(\w+)"/;
const TAIL_MEMBER =
  /,\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*\}\s*$/;

/**
 * Kind and id of a message that was too large to keep, from its first and last bytes.
 * @returns undefined if the id is not where JSON libraries put it
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
