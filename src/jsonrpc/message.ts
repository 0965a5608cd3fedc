import type { Buffer } from "node:buffer";
import {
  applyEdits,
  cutPatch,
  type Edit,
  joinPieces,
  type Patch,
  type Piece,
  type Range,
  type Slice,
  sliceOf,
  type Span,
  sortEdits,
  utf8,
} from "../base/bytes.ts";
import type { RpcError } from "../base/errors.ts";
import { lastMember, type Member, scanObject, valueOf } from "../base/json.ts";

/**
 * jsonrpc/: JSON-RPC 2.0 messages as byte ranges, their parser, and newline-delimited streams of them.
 * Main type: `Message`, a parsed message on its bytes; `EncodedMessage` is what is written.
 * Read next: `parse.ts` (bytes to `Message`), then `pipe.ts` (byte streams to messages and back).
 *
 * One received JSON-RPC 2.0 message: its byte range in the chunk that it arrived in, and the ranges of its members.
 */
export type Frame = Request | Notification | Response | Batch | Invalid;

/** The range of a message in a chunk that may hold others. A Buffer per message would cost as much as parsing it. */
interface Framed extends Span {
  readonly bytes: Buffer;
}

export interface Request extends Framed {
  readonly kind: "request";
  readonly id: Id;
  /** The values of duplicate `id` members. */
  readonly moreIds: readonly Range[];
  readonly method: string;
  /** The value of `params`, of any JSON type. */
  readonly params: Range | undefined;
  /** The members of `params`, if the parser has scanned them anyway. */
  readonly members: readonly Member[] | undefined;
}

export interface Notification extends Framed {
  readonly kind: "notification";
  readonly method: string;
  readonly params: Range | undefined;
  /** As in `Request`. */
  readonly members: readonly Member[] | undefined;
}

export interface Response extends Framed {
  readonly kind: "response";
  /** Our requests have plain integer ids; undefined if the response has any other id. */
  readonly id: number | undefined;
  readonly outcome: "result" | "error";
  /** The value of `result` or `error`. Its content is not scanned if `shape` is `head` or `tail`. */
  readonly body: Range;
  /**
   * `head` and `tail`: the id stands before or behind the body, and can be replaced without scanning the body.
   * `scanned`: the message was checked byte by byte, and `ids` are the values of all its `id` members.
   */
  readonly shape:
    | { readonly at: "head" | "tail"; readonly chunks?: Cut }
    | { readonly at: "scanned"; readonly ids: readonly Range[] };
}

/** Reads the range `[start, end)` of a long response whose chunks have not been joined. */
export type Cut = (start: number, end: number) => readonly Slice[];

/** A JSON-RPC batch (MCP revision 2025-03-26). */
export interface Batch {
  readonly kind: "batch";
  readonly items: readonly Frame[];
}

export interface Invalid extends Framed {
  readonly kind: "invalid";
  readonly code: "parseError" | "invalidRequest";
  readonly reason: string;
  /** The id, if the message is a request with a valid one. */
  readonly id: Id | undefined;
  /** The parsed message, if it is well-formed JSON-RPC and only its text is not valid UTF-8. */
  readonly parsed?: Request | Notification | Response | undefined;
}

/** A peer's request id, in the peer's own spelling. */
export interface Id extends Slice {
  /** Equal for equal ids, however they are spelled; the key of lookup tables. */
  readonly key: string | number;
}

/**
 * The bytes of one JSON-RPC message without a line end: one buffer, consecutive pieces, or another message with edits.
 */
export type EncodedMessage = Uint8Array | readonly Piece[] | Patch;

/** The bytes of one message, without those of others in its chunk. */
export function bytesOf({ bytes, start, end }: Framed): Buffer {
  return end - start === bytes.length ? bytes : bytes.subarray(start, end);
}

/** A message with edits. Sorts `edits` in place. */
export function patch({ bytes, start, end }: Span, edits: Edit[]): Patch {
  return { bytes, start, end, edits: sortEdits(edits) };
}

/** A message with each of the ranges replaced by the same bytes. */
export function substitute(span: Span, ranges: readonly Range[], by: Piece): Patch {
  return patch(span, editsOf(ranges, by));
}

export function piecesOf(message: EncodedMessage): readonly Piece[] {
  if (message instanceof Uint8Array) return [message];
  return isPatch(message) ? cutPatch(message) : message;
}

export function isPatch(message: readonly Piece[] | Patch): message is Patch {
  return !Array.isArray(message);
}

/** Copies a message into one Buffer. */
export function joinMessage(message: EncodedMessage): Buffer {
  return joinPieces(piecesOf(message));
}

export const RESULT_MEMBER = utf8(',"result":');
export const ERROR_MEMBER = utf8(',"error":');
const HEAD_WITHOUT_ID = utf8('{"jsonrpc":"2.0"');
const VERSION_MEMBER = utf8(',"jsonrpc":"2.0"');
const ID_MEMBER = utf8(',"id":');
const PARAMS_MEMBER = utf8(',"params":');
const NULL_ID = utf8("null");
const CLOSE = utf8("}");

/** The `code` member of an error. It is not checked to be a number. */
export function codeOf({ bytes, body }: Pick<Response, "bytes" | "body">): unknown {
  const code = lastMember(scanObject(bytes, body.start)?.items ?? [], "code");
  return code && valueOf(bytes, code);
}

/** The same response under another id. The bytes of its body are unchanged, except for `edits`. */
export function readdress(
  response: Response,
  id: Piece,
  edits: readonly Edit[] = NONE,
): EncodedMessage {
  const { body, shape } = response;
  // The common cases come first and save an array. A response in chunks is joined only when its `bytes` are read.
  const isPlain = edits.length === 0 && (shape.at === "scanned" || shape.chunks === undefined);
  switch (shape.at) {
    case "head": {
      const member = response.outcome === "result" ? RESULT_MEMBER : ERROR_MEMBER;
      const start = body.start - member.length;
      if (!isPlain) return [HEAD_WITHOUT_ID, ...cut(response, start, edits), ID_MEMBER, id, CLOSE];
      const run = sliceOf(response.bytes, start, body.end);
      return [HEAD_WITHOUT_ID, run, ID_MEMBER, id, CLOSE];
    }
    case "tail":
      if (isPlain) {
        const run = sliceOf(response.bytes, response.start, body.end);
        return [run, VERSION_MEMBER, ID_MEMBER, id, CLOSE];
      }
      return [...cut(response, response.start, edits), VERSION_MEMBER, ID_MEMBER, id, CLOSE];
    case "scanned":
      return patch(response, [...editsOf(shape.ids, id), ...edits]);
  }
}

const NONE: readonly Edit[] = [];

/** The same request under another id, which also replaces its progress tokens. Adds to `edits`. */
export function reissue(
  request: Pick<Request, keyof Span | "id" | "moreIds">,
  id: Piece,
  edits: Edit[],
  tokens: readonly Range[],
): EncodedMessage {
  edits.push({ start: request.id.start, end: request.id.end, by: id });
  for (const range of request.moreIds) edits.push({ start: range.start, end: range.end, by: id });
  for (const range of tokens) edits.push({ start: range.start, end: range.end, by: id });
  return patch(request, edits);
}

/** The pieces from `start` to the end of the body. */
function cut(response: Response, start: number, edits: readonly Edit[]): readonly Piece[] {
  const { body, shape } = response;
  if (edits.length > 0 || shape.at === "scanned" || shape.chunks === undefined) {
    return applyEdits(response.bytes, edits, start, body.end);
  }
  return shape.chunks(start, body.end);
}

/** One edit per range, all with the same replacement. */
export function editsOf(ranges: readonly Range[], by: Piece): Edit[] {
  return ranges.map(({ start, end }) => ({ start, end, by }));
}

/** A request of our own; `params` is serialized by JSON.stringify. */
export function buildRequest(id: number, method: string, params?: object): Uint8Array {
  return utf8(JSON.stringify({ jsonrpc: "2.0", id, method, ...(params && { params }) }));
}

export function buildNotification(method: string, params?: object): Uint8Array {
  return utf8(JSON.stringify({ jsonrpc: "2.0", method, ...(params && { params }) }));
}

/** A request whose params are already encoded. */
export function buildAsk(
  id: Piece,
  method: string,
  params: readonly Piece[] | undefined,
): EncodedMessage {
  const member = params === undefined ? [] : [PARAMS_MEMBER, ...params];
  return [HEAD_WITHOUT_ID, ID_MEMBER, id, utf8(`,"method":"${method}"`), ...member, CLOSE];
}

/** A response whose result is already encoded. */
export function buildResult(id: Piece, result: Uint8Array): EncodedMessage {
  return buildAnswer(id, "result", result);
}

/** A response whose result or error is already encoded. */
export function buildAnswer(
  id: Piece,
  outcome: Response["outcome"],
  ...body: readonly Piece[]
): EncodedMessage {
  const member = outcome === "result" ? RESULT_MEMBER : ERROR_MEMBER;
  return [HEAD_WITHOUT_ID, member, ...body, ID_MEMBER, id, CLOSE];
}

/** An error response; without an id it carries `"id":null` (JSON-RPC 2.0, section 5). */
export function buildError(id: Piece | undefined, error: RpcError): EncodedMessage {
  return [
    HEAD_WITHOUT_ID,
    ERROR_MEMBER,
    utf8(JSON.stringify(error)),
    ID_MEMBER,
    id ?? NULL_ID,
    CLOSE,
  ];
}
