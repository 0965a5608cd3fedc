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
} from "../bytes.ts";
import type { RpcError } from "../errors.ts";
import { lastMember, type Member, scanObject, valueOf } from "../json.ts";

/** One JSON-RPC 2.0 message as it came in: where it stands in the bytes that it came with, and where its parts do. */
export type Frame = Request | Notification | Response | Batch | Invalid;

/** Others may stand before and behind it: a Buffer for each message by itself costs as much as to find out what it says. */
interface Framed extends Span {
  readonly bytes: Buffer;
}

export interface Request extends Framed {
  readonly kind: "request";
  readonly id: Id;
  /** Wherever else the message spells its id. */
  readonly moreIds: readonly Range[];
  readonly method: string;
  /** The value of `params`, of whatever JSON type. */
  readonly params: Range | undefined;
  /** The members of `params`, where reading the message has yielded them anyway. */
  readonly members: readonly Member[] | undefined;
}

export interface Notification extends Framed {
  readonly kind: "notification";
  readonly method: string;
  readonly params: Range | undefined;
  /** As in a request. */
  readonly members: readonly Member[] | undefined;
}

export interface Response extends Framed {
  readonly kind: "response";
  /** Every request of ours has a plain integer id; an answer to anything else has none. */
  readonly id: number | undefined;
  readonly outcome: "result" | "error";
  /** The value of `result` or `error`. In a spliced shape its inside was not looked at. */
  readonly body: Range;
  /**
   * `head` and `tail` are the two shapes that can be given another id without a look at the body;
   * `scanned` was checked byte by byte, and `ids` are all of its `id` values.
   */
  readonly shape:
    | { readonly at: "head" | "tail"; readonly chunks?: Cut }
    | { readonly at: "scanned"; readonly ids: readonly Range[] };
}

/** Where a long response is still in the chunks that it came in: the runs of them from `start` to `end` of the message. */
export type Cut = (start: number, end: number) => readonly Slice[];

/** Several messages in one array, as revision 2025-03-26 allows. */
export interface Batch {
  readonly kind: "batch";
  readonly items: readonly Frame[];
}

export interface Invalid extends Framed {
  readonly kind: "invalid";
  readonly code: "parseError" | "invalidRequest";
  readonly reason: string;
  /** The id, if the message is a request that has a usable one. */
  readonly id: Id | undefined;
  /** The message as it was read, if it is well-formed JSON-RPC and only its text is not valid UTF-8. */
  readonly parsed?: Request | Notification | Response | undefined;
}

/** A peer's request id: the slice is exactly as the peer wrote it. */
export interface Id extends Slice {
  /** Equal for equal ids, whatever their spelling: what tables are keyed by. */
  readonly key: string | number;
}

/** Bytes of one JSON-RPC message, without a line end: one piece, several that follow each other, or those of another with edits. */
export type Message = Uint8Array | readonly Piece[] | Patch;

/** The bytes of a message alone. */
export function bytesOf({ bytes, start, end }: Framed): Buffer {
  return end - start === bytes.length ? bytes : bytes.subarray(start, end);
}

/** A message with edits in it, in whatever order: they are sorted where they are. */
export function patch({ bytes, start, end }: Span, edits: Edit[]): Patch {
  return { bytes, start, end, edits: sortEdits(edits) };
}

/** A message with the same in the place of each of the ranges. */
export function substitute(span: Span, ranges: readonly Range[], by: Piece): Patch {
  return patch(span, editsOf(ranges, by));
}

export function piecesOf(message: Message): readonly Piece[] {
  if (message instanceof Uint8Array) return [message];
  return isPatch(message) ? cutPatch(message) : message;
}

export function isPatch(message: readonly Piece[] | Patch): message is Patch {
  return !Array.isArray(message);
}

/** A message in memory of its own. */
export function joinMessage(message: Message): Buffer {
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

/** The code that an error says: nobody has looked yet whether it is one. */
export function codeOf({ bytes, body }: Pick<Response, "bytes" | "body">): unknown {
  const code = lastMember(scanObject(bytes, body.start)?.items ?? [], "code");
  return code && valueOf(bytes, code);
}

/** The same answer under another id: the bytes of its result or error are not touched, but for the edits of it. */
export function readdress(response: Response, id: Piece, edits: readonly Edit[] = NONE): Message {
  const { body, shape } = response;
  // By far the commonest come first: an array less for each. The bytes of what is in chunks are joined when somebody reads them.
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

/** The same request under another id, which is also in the place of its tokens, and with the edits of it, to which these are added. */
export function reissue(
  request: Pick<Request, keyof Span | "id" | "moreIds">,
  id: Piece,
  edits: Edit[],
  tokens: readonly Range[],
): Message {
  edits.push({ start: request.id.start, end: request.id.end, by: id });
  for (const range of request.moreIds) edits.push({ start: range.start, end: range.end, by: id });
  for (const range of tokens) edits.push({ start: range.start, end: range.end, by: id });
  return patch(request, edits);
}

/** From `start` to the end of the body. */
function cut(response: Response, start: number, edits: readonly Edit[]): readonly Piece[] {
  const { body, shape } = response;
  if (edits.length > 0 || shape.at === "scanned" || shape.chunks === undefined) {
    return applyEdits(response.bytes, edits, start, body.end);
  }
  return shape.chunks(start, body.end);
}

/** The same replacement for each of the ranges. */
export function editsOf(ranges: readonly Range[], by: Piece): Edit[] {
  return ranges.map(({ start, end }) => ({ start, end, by }));
}

/** A request of our own; `params` is written by JSON.stringify. */
export function buildRequest(id: number, method: string, params?: object): Uint8Array {
  return utf8(JSON.stringify({ jsonrpc: "2.0", id, method, ...(params && { params }) }));
}

export function buildNotification(method: string, params?: object): Uint8Array {
  return utf8(JSON.stringify({ jsonrpc: "2.0", method, ...(params && { params }) }));
}

/** A request around ready params. */
export function buildAsk(id: Piece, method: string, params: readonly Piece[] | undefined): Message {
  const member = params === undefined ? [] : [PARAMS_MEMBER, ...params];
  return [HEAD_WITHOUT_ID, ID_MEMBER, id, utf8(`,"method":"${method}"`), ...member, CLOSE];
}

/** An answer around ready result bytes. */
export function buildResult(id: Piece, result: Uint8Array): Message {
  return buildAnswer(id, "result", result);
}

/** An answer around a ready result or error. */
export function buildAnswer(
  id: Piece,
  outcome: Response["outcome"],
  ...body: readonly Piece[]
): Message {
  const member = outcome === "result" ? RESULT_MEMBER : ERROR_MEMBER;
  return [HEAD_WITHOUT_ID, member, ...body, ID_MEMBER, id, CLOSE];
}

/** An error answer; without a usable id it carries `"id":null`. */
export function buildError(id: Piece | undefined, error: RpcError): Message {
  return [
    HEAD_WITHOUT_ID,
    ERROR_MEMBER,
    utf8(JSON.stringify(error)),
    ID_MEMBER,
    id ?? NULL_ID,
    CLOSE,
  ];
}
