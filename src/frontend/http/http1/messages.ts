import type { Buffer } from "node:buffer";
import { joinPieces, type Piece, pieceSize } from "../../../base/bytes.ts";
import { type EncodedMessage, piecesOfMessage } from "../../../jsonrpc/message.ts";

/** Request headers, by case-insensitive name. Several headers with one name are joined with commas. */
export interface RequestHeaders extends Iterable<[string, string]> {
  /** @returns null if there is no such header */
  get(name: string): string | null;
}

/** The head of a request. Requests with equal heads may share one object. */
export interface HttpRequestHead {
  readonly method: string;
  /** Path and query as they were sent; begins with a slash. */
  readonly target: string;
  readonly headers: RequestHeaders;
}

/**
 * Why a body was not read to its end. `tooMany`: all bodies that are being received would take too much memory
 * together.
 */
export type BodyError = "tooLarge" | "tooMany" | "tooSlow" | "broken";

/** An HTTP request that is to be answered. */
export interface HttpServerRequest {
  readonly head: HttpRequestHead;
  /** Reads the body, of at most `limit` bytes. Must not be called twice. Never rejects. */
  read(limit: number): Buffer | BodyError | Promise<Buffer | BodyError>;
  /**
   * Calls back, never synchronously, if the client disconnects, or has disconnected, before it is answered.
   * @returns a function that unsubscribes
   */
  onDisconnect(callback: () => void): () => void;
}

/** An HTTP response before it is written. */
export interface HttpAnswer {
  readonly status: number;
  /** Without the headers that frame the body (Content-Length, Transfer-Encoding). */
  readonly headers: readonly HttpHeader[];
  /** Pieces that together are the whole body, or a stream of it; undefined: no body. */
  readonly body: readonly Piece[] | ReadableStream<Uint8Array> | undefined;
}

export type HttpHeader = readonly [name: string, value: string];

const JSON_HEADERS: readonly HttpHeader[] = [["Content-Type", "application/json"]];
const NO_HEADERS: readonly HttpHeader[] = [];
const STREAM_HEADERS: readonly HttpHeader[] = [
  ["Content-Type", "text/event-stream"],
  ["Cache-Control", "no-cache, no-transform"],
  // Some gateways buffer event streams unless this header is set (nginx: proxy_buffering).
  ["X-Accel-Buffering", "no"],
];
const ACCEPTED: HttpAnswer = { status: 202, headers: NO_HEADERS, body: undefined };
const NO_CONTENT: HttpAnswer = { status: 204, headers: NO_HEADERS, body: undefined };

/** A response whose body is one JSON-RPC message. */
export function messageAnswer(message: EncodedMessage, status = 200): HttpAnswer {
  const body = piecesOfMessage(message);
  return { status, headers: JSON_HEADERS, body };
}

/** 202 without a body: notifications and responses were accepted (Streamable HTTP, sending messages). */
export function acceptedAnswer(): HttpAnswer {
  return ACCEPTED;
}

/** 204: the stream is complete, and the client must not reconnect. */
export function noContentAnswer(): HttpAnswer {
  return NO_CONTENT;
}

/** A `text/event-stream` response. */
export function streamAnswer(body: ReadableStream<Uint8Array>): HttpAnswer {
  return { status: 200, headers: STREAM_HEADERS, body };
}

/** The same response with more headers. */
export function withHeaders(
  { status, headers, body }: HttpAnswer,
  added: readonly HttpHeader[],
): HttpAnswer {
  return { status, headers: [...headers, ...added], body };
}

/** Length of the body in bytes; undefined for a stream. */
export function bodyLengthOf({ body }: HttpAnswer): number | undefined {
  if (body instanceof ReadableStream) return undefined;
  let size = 0;
  for (const piece of body ?? []) size += pieceSize(piece);
  return size;
}

/** The response as a web `Response`. */
export function toWebResponse({ status, headers, body }: HttpAnswer): Response {
  const init = { status, headers: headers.map(([name, value]): [string, string] => [name, value]) };
  if (body === undefined || body instanceof ReadableStream) return new Response(body ?? null, init);
  // `joinPieces` copies: a Response's body must not be backed by a SharedArrayBuffer.
  return new Response(joinPieces(body) as Uint8Array<ArrayBuffer>, init);
}

/** The methods that `Request` supports in every runtime; some turn others into GET, or throw. */
const WEB_METHODS: ReadonlySet<string> = new Set(
  "GET HEAD POST PUT PATCH DELETE OPTIONS QUERY".split(" "),
);

/** Converts to a web `Request` without a body; undefined if `Request` does not support the method. */
export function toWebRequest({ method, target, headers }: HttpRequestHead): Request | undefined {
  if (!WEB_METHODS.has(method)) return undefined;
  // Only the path matters: Host is checked separately.
  return new Request(new URL(`http://localhost${target}`), { method, headers: [...headers] });
}

/** Headers about the connection or the framing, which the HTTP server itself writes (RFC 9110, 7.6.1). */
const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "date",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
]);

/** Converts the web `Response` of a plugin's web application. */
export function fromWebResponse({ status, headers, body }: Response): HttpAnswer {
  const ownHeaders = [...headers].filter(([name]) => !CONNECTION_HEADERS.has(name.toLowerCase()));
  // `Response.error()` has status 0, which cannot be sent.
  return { status: status === 0 ? 500 : status, headers: ownHeaders, body: body ?? undefined };
}
