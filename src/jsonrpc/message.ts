import { Buffer } from "node:buffer";
import {
  applyEdits,
  type ByteRange,
  type ByteSlice,
  type ByteSpan,
  type EditedBytes,
  type Edit,
  joinPieces,
  makeSlice,
  piecesOfEdited,
  type Piece,
  sortEdits,
  textOf,
  utf8,
} from "../base/bytes.ts";
import type { RpcError } from "../base/errors.ts";
import {
  ANY_DEPTH,
  isDigit,
  OPEN_BRACE,
  type JsonMember,
  JsonObject,
  readString,
  skipValue,
} from "../base/json.ts";

/**
 * The folder jsonrpc/ has JSON-RPC 2.0 messages as byte ranges, their parser, and their newline-delimited streams. Main
 * types: `Message`, a parsed message as ranges of the received bytes, and `EncodedMessage`, a message to be written.
 * Read next: `parse.ts` (bytes to `Message`), then `pipe.ts` (byte streams to messages and back).
 *
 * One received JSON-RPC 2.0 message: its byte range in the chunk that it arrived in, and the ranges of its members.
 */
export type Message = Request | Notification | Response | Batch | InvalidMessage;

/**
 * The range of a message in a chunk, which may hold other messages. The message has no Buffer of its own, because
 * making one would cost as much as parsing the message.
 */
interface MessageBytes extends ByteSpan {
  readonly bytes: Buffer;
}

export interface Request extends MessageBytes {
  readonly kind: "request";
  readonly id: RequestId;
  /** The ranges of the values of further `id` members, if the message repeats the key. */
  readonly duplicateIds: readonly ByteRange[];
  readonly method: string;
  /** The value of `params`, of any JSON type. */
  readonly params: ByteRange | undefined;
  /** The members of `params`, if the parser has already scanned them. */
  readonly members: readonly JsonMember[] | undefined;
}

export interface Notification extends MessageBytes {
  readonly kind: "notification";
  readonly method: string;
  readonly params: ByteRange | undefined;
  /** The members of `params`, if the parser has already scanned them. */
  readonly members: readonly JsonMember[] | undefined;
}

export interface Response extends MessageBytes {
  readonly kind: "response";
  /** The id, if it is a plain integer, as in the hub's own requests; undefined if the response has any other id. */
  readonly id: number | undefined;
  readonly outcome: "result" | "error";
  /** The value of `result` or `error`. Its content is not scanned if `shape` is `head` or `tail`. */
  readonly body: ByteRange;
  /**
   * `head`: the id is before the body; `tail`: the id is after the body. In both shapes, the id can be replaced without
   * scanning the body. `scanned`: the message was checked byte by byte, and `ids` are the values of all `id` members.
   */
  readonly shape:
    | { readonly kind: "head" | "tail"; readonly slices?: SliceReader }
    | { readonly kind: "scanned"; readonly ids: readonly ByteRange[] };
}

/** Reads the range `[start, end)` of a long response whose chunks have not been joined. */
export type SliceReader = (start: number, end: number) => readonly ByteSlice[];

/** A JSON-RPC batch (MCP revision 2025-03-26). */
export interface Batch {
  readonly kind: "batch";
  readonly items: readonly Message[];
}

export interface InvalidMessage extends MessageBytes {
  readonly kind: "invalid";
  readonly code: "parseError" | "invalidRequest";
  readonly reason: string;
  /** The id, if the message is a request with a valid one. */
  readonly id: RequestId | undefined;
  /** The parsed message, if it is well-formed JSON-RPC and only its text is not valid UTF-8. */
  readonly parsed?: Request | Notification | Response | undefined;
}

/** A peer's request id: the bytes as the peer wrote them, and a key for lookup tables. */
export interface RequestId extends ByteSlice {
  /** Equal for equal ids, even if they are written differently, as `7` and `7.0` are. */
  readonly key: string | number;
}

/**
 * The bytes of one JSON-RPC message without a line end: one buffer, consecutive pieces, or another message with edits.
 */
export type EncodedMessage = Uint8Array | readonly Piece[] | EditedBytes;

/** The bytes of one message, without the other messages in its chunk. */
export function bytesOf({ bytes, start, end }: MessageBytes): Buffer {
  return end - start === bytes.length ? bytes : bytes.subarray(start, end);
}

/** A message with edits. Sorts `edits` in place. */
export function editMessage({ bytes, start, end }: ByteSpan, edits: Edit[]): EditedBytes {
  return { bytes, start, end, edits: sortEdits(edits) };
}

/** A message with each of the ranges replaced by the same bytes. */
export function replaceRanges(
  span: ByteSpan,
  ranges: readonly ByteRange[],
  replacement: Piece,
): EditedBytes {
  return editMessage(span, editsOf(ranges, replacement));
}

export function piecesOfMessage(message: EncodedMessage): readonly Piece[] {
  if (message instanceof Uint8Array) return [message];
  return isEdited(message) ? piecesOfEdited(message) : message;
}

export function isEdited(message: readonly Piece[] | EditedBytes): message is EditedBytes {
  return !Array.isArray(message);
}

/** Copies a message into one Buffer. */
export function joinMessage(message: EncodedMessage): Buffer {
  return joinPieces(piecesOfMessage(message));
}

export const RESULT_MEMBER = utf8(',"result":');
export const ERROR_MEMBER = utf8(',"error":');
const HEAD_WITHOUT_ID = utf8('{"jsonrpc":"2.0"');
const VERSION_MEMBER = utf8(',"jsonrpc":"2.0"');
const ID_MEMBER = utf8(',"id":');
const PARAMS_MEMBER = utf8(',"params":');
const NULL_ID = utf8("null");
const CLOSE_BRACE = utf8("}");

/** The params of a request or notification; an object without members if there are none or they are no object. */
export function paramsOf({ bytes, params, members }: Request | Notification): JsonObject {
  return members === undefined ? JsonObject.at(bytes, params) : new JsonObject(bytes, members);
}

/** The result or error of a response; an object without members if it is no object. */
export function bodyOf({ bytes, body }: Pick<Response, "bytes" | "body">): JsonObject {
  return JsonObject.at(bytes, body);
}

/** Whether a response has no id, or the id null: its sender could not read the request (JSON-RPC 2.0, 5). */
export function hasNoId({ bytes, shape }: Response): boolean {
  if (shape.kind !== "scanned") return false;
  return shape.ids.every(({ start, end }) => bytes.compare(NULL_ID, 0, 4, start, end) === 0);
}

/**
 * Whether the body is one JSON value of any depth. The body of a response that is spliced (`head`, `tail`) is unread,
 * so it may be anything.
 */
export function hasValidBody(response: Response): boolean {
  if (response.shape.kind === "scanned") return true;
  const { bytes, body } = response;
  return skipValue(bytes, body.start, ANY_DEPTH) === body.end;
}

/**
 * What makes the body useless for a reader of its members, as a clause; undefined if nothing does.
 * @see hasValidBody
 */
export function bodyFaultOf(response: Response): string | undefined {
  const { outcome, bytes, body } = response;
  if (!hasValidBody(response)) return `the ${outcome} is not one JSON value`;
  return bytes[body.start] === OPEN_BRACE ? undefined : `the ${outcome} is not an object`;
}

/** The `code` member of an error. It is not checked to be a number. */
export function errorCodeOf(response: Pick<Response, "bytes" | "body">): unknown {
  return bodyOf(response).value("code");
}

/** The same response under another id. The bytes of its body are unchanged, except for `edits`. */
export function withResponseId(
  response: Response,
  id: Piece,
  edits: readonly Edit[] = NO_EDITS,
): EncodedMessage {
  const { body, shape } = response;
  // A body that is one slice, the common case, needs no array of pieces. If the response has `slices`, `bytes` is not
  // read here: its getter would join the chunks.
  const isSingleSlice =
    edits.length === 0 && (shape.kind === "scanned" || shape.slices === undefined);
  switch (shape.kind) {
    case "head": {
      const member = response.outcome === "result" ? RESULT_MEMBER : ERROR_MEMBER;
      const start = body.start - member.length;
      if (!isSingleSlice)
        return [
          HEAD_WITHOUT_ID,
          ...piecesToBodyEnd(response, start, edits),
          ID_MEMBER,
          id,
          CLOSE_BRACE,
        ];
      const slice = makeSlice(response.bytes, start, body.end);
      return [HEAD_WITHOUT_ID, slice, ID_MEMBER, id, CLOSE_BRACE];
    }
    case "tail":
      if (isSingleSlice) {
        const slice = makeSlice(response.bytes, response.start, body.end);
        return [slice, VERSION_MEMBER, ID_MEMBER, id, CLOSE_BRACE];
      }
      return [
        ...piecesToBodyEnd(response, response.start, edits),
        VERSION_MEMBER,
        ID_MEMBER,
        id,
        CLOSE_BRACE,
      ];
    case "scanned":
      return editMessage(response, [...editsOf(shape.ids, id), ...edits]);
  }
}

const NO_EDITS: readonly Edit[] = [];

/**
 * The same request with `edits` applied and another id, which also replaces the progress tokens at `tokenRanges`.
 * Appends to `edits`.
 */
export function withRequestId(
  request: Pick<Request, keyof ByteSpan | "id" | "duplicateIds">,
  id: Piece,
  edits: Edit[],
  tokenRanges: readonly ByteRange[],
): EncodedMessage {
  edits.push({ start: request.id.start, end: request.id.end, replacement: id });
  for (const valueRange of request.duplicateIds)
    edits.push({ start: valueRange.start, end: valueRange.end, replacement: id });
  for (const valueRange of tokenRanges)
    edits.push({ start: valueRange.start, end: valueRange.end, replacement: id });
  return editMessage(request, edits);
}

/** The pieces from `start` to the end of the body. */
function piecesToBodyEnd(
  response: Response,
  start: number,
  edits: readonly Edit[],
): readonly Piece[] {
  const { body, shape } = response;
  if (edits.length > 0 || shape.kind === "scanned" || shape.slices === undefined) {
    return applyEdits(response.bytes, edits, start, body.end);
  }
  return shape.slices(start, body.end);
}

/** Edits that replace each of the ranges by the same bytes. */
export function editsOf(ranges: readonly ByteRange[], replacement: Piece): Edit[] {
  return ranges.map(({ start, end }) => ({ start, end, replacement }));
}

/** Builds a request; `params` is serialized by JSON.stringify. */
export function buildRequest(id: number, method: string, params?: object): Uint8Array {
  return utf8(JSON.stringify({ jsonrpc: "2.0", id, method, ...(params && { params }) }));
}

export function buildNotification(method: string, params?: object): Uint8Array {
  return utf8(JSON.stringify({ jsonrpc: "2.0", method, ...(params && { params }) }));
}

/** A request whose params are already encoded. */
export function buildRequestWithParams(
  id: Piece,
  method: string,
  params: readonly Piece[] | undefined,
): EncodedMessage {
  const member = params === undefined ? [] : [PARAMS_MEMBER, ...params];
  return [HEAD_WITHOUT_ID, ID_MEMBER, id, utf8(`,"method":"${method}"`), ...member, CLOSE_BRACE];
}

/** A response whose result is already encoded. */
export function buildResult(id: Piece, result: Uint8Array): EncodedMessage {
  return buildResponse(id, "result", result);
}

/** A response whose result or error is already encoded. */
export function buildResponse(
  id: Piece,
  outcome: Response["outcome"],
  ...body: readonly Piece[]
): EncodedMessage {
  const member = outcome === "result" ? RESULT_MEMBER : ERROR_MEMBER;
  return [HEAD_WITHOUT_ID, member, ...body, ID_MEMBER, id, CLOSE_BRACE];
}

/** An error response; without an id it carries `"id":null` (JSON-RPC 2.0, section 5). */
export function buildError(id: Piece | undefined, error: RpcError): EncodedMessage {
  return [
    HEAD_WITHOUT_ID,
    ERROR_MEMBER,
    utf8(JSON.stringify(error)),
    ID_MEMBER,
    id ?? NULL_ID,
    CLOSE_BRACE,
  ];
}

/** Maximum number of digits in an id that the hub assigns. */
const MAX_ID_DIGITS = 15;

/** Parses a request id: a string or a number. Undefined for anything else, including null. Never throws. */
export function readId(bytes: Uint8Array, range: ByteRange): RequestId | undefined {
  const key = idKeyOf(bytes, range);
  return key === undefined ? undefined : { key, bytes, start: range.start, end: range.end };
}

function idKeyOf(bytes: Uint8Array, range: ByteRange): string | number | undefined {
  const digits = parseDigits(bytes, range.start, range.end);
  if (digits !== undefined) return digits;
  const first = bytes[range.start];
  const text = readString(bytes, range);
  if (text !== undefined) return `"${text}`;
  if (first !== 0x2d && !isDigit(first)) return undefined;
  const literal = textOf(bytes, range.start, range.end);
  const value = Number(literal);
  return Number.isSafeInteger(value) ? value : literal;
}

/**
 * Prefix of the ids of the hub's requests to clients: such a string cannot be mistaken for a numeric id of the client.
 */
const OWN_ID_PREFIX = "toolmux-";

export function formatOwnId(number: number): string {
  return OWN_ID_PREFIX + String(number);
}

const OWN_ID_PATTERN = new RegExp(`^(?:${OWN_ID_PREFIX})?(\\d{1,15})$`);

/**
 * Parses an id that the hub assigned and a peer has sent back. Like other MCP implementations, it also accepts `7.0`
 * and `"7"` for 7. Never throws.
 */
export function readOwnId(bytes: Uint8Array, range: ByteRange): number | undefined {
  const digits = parseDigits(bytes, range.start, range.end);
  if (digits !== undefined) return digits;
  // An object or array is not decoded: it may be nested more deeply than the runtime's parser can follow.
  const first = bytes[range.start];
  const isNumber = first === 0x2d || isDigit(first);
  const literal = isNumber
    ? textOf(bytes, range.start, range.end)
    : OWN_ID_PATTERN.exec(readString(bytes, range) ?? "")?.[1];
  const number = Number(literal ?? NaN);
  return Number.isSafeInteger(number) && number >= 0 ? number : undefined;
}

/**
 * Makes an unguessable token: `byteCount` random bytes as base64url. Uses the global `crypto`, because loading
 * node:crypto would dominate start-up time.
 */
export function randomToken(byteCount = 32): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(byteCount))).toString("base64url");
}

/** The value of a run of digits; undefined if it is empty, too long or has a leading zero. */
export function parseDigits(bytes: Uint8Array, start: number, end: number): number | undefined {
  if (end <= start || end - start > MAX_ID_DIGITS) return undefined;
  if (bytes[start] === 0x30 && end - start > 1) return undefined;
  let value = 0;
  for (let i = start; i < end; i++) {
    if (!isDigit(bytes[i])) return undefined;
    value = value * 10 + ((bytes[i] ?? 0x30) - 0x30);
  }
  return value;
}
