import { joinPieces, type Piece, sizeOf } from "../../bytes.ts";
import { type Message, piecesOf } from "../../wire/jsonrpc.ts";
import type { QueryHead } from "./query.ts";

/** What is said to an HTTP request. */
export interface Answer {
  readonly status: number;
  /** Without those that say where its body ends. */
  readonly headers: readonly Header[];
  /** Pieces are all of it; undefined: there is none. */
  readonly body: readonly Piece[] | ReadableStream<Uint8Array> | undefined;
}

export type Header = readonly [name: string, value: string];

const JSON_HEADERS: readonly Header[] = [["Content-Type", "application/json"]];
const NO_HEADERS: readonly Header[] = [];
const STREAM_HEADERS: readonly Header[] = [
  ["Content-Type", "text/event-stream"],
  ["Cache-Control", "no-cache, no-transform"],
  // Some gateways gather what they pass on, unless they are told not to.
  ["X-Accel-Buffering", "no"],
];
const ACCEPTED: Answer = { status: 202, headers: NO_HEADERS, body: undefined };
const DONE: Answer = { status: 204, headers: NO_HEADERS, body: undefined };

/** One message, and nothing else, as the whole answer. */
export function answer(message: Message, status = 200): Answer {
  const body = piecesOf(message);
  return { status, headers: JSON_HEADERS, body };
}

/** Nothing is to be said about what was sent. */
export function accepted(): Answer {
  return ACCEPTED;
}

/** It was done, and there is nothing to come back for. */
export function done(): Answer {
  return DONE;
}

/** A stream of server-sent events. */
export function streamed(body: ReadableStream<Uint8Array>): Answer {
  return { status: 200, headers: STREAM_HEADERS, body };
}

/** The same with more headers. */
export function withHeaders({ status, headers, body }: Answer, more: readonly Header[]): Answer {
  return { status, headers: [...headers, ...more], body };
}

/** How long its body is, in bytes; undefined: nobody knows yet. */
export function lengthOf({ body }: Answer): number | undefined {
  if (body instanceof ReadableStream) return undefined;
  let size = 0;
  for (const piece of body ?? []) size += sizeOf(piece);
  return size;
}

/** The same as web applications say it. */
export function responseOf({ status, headers, body }: Answer): Response {
  const init = { status, headers: headers.map(([name, value]): [string, string] => [name, value]) };
  if (body === undefined || body instanceof ReadableStream) return new Response(body ?? null, init);
  // Copied, so its memory is no other thread's.
  return new Response(joinPieces(body) as Uint8Array<ArrayBuffer>, init);
}

/** Of any other method some runtimes make GET, and some nothing. */
const METHODS: ReadonlySet<string> = new Set(
  "GET HEAD POST PUT PATCH DELETE OPTIONS QUERY".split(" "),
);

/** A request as web applications read it, without its body; undefined if its method is none that they know. */
export function requestOf({ method, target, fields }: QueryHead): Request | undefined {
  if (!METHODS.has(method)) return undefined;
  // Only the path counts: whoever it was sent to has been looked at.
  return new Request(new URL(`http://localhost${target}`), { method, headers: [...fields] });
}

/** What belongs to a connection, and is said by whoever has it. */
const OF_CONNECTIONS: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "date",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
]);

/** What a web application has said. */
export function answerOf({ status, headers, body }: Response): Answer {
  const said = [...headers].filter(([name]) => !OF_CONNECTIONS.has(name.toLowerCase()));
  // `Response.error()` has no status that could be said.
  return { status: status === 0 ? 500 : status, headers: said, body: body ?? undefined };
}
