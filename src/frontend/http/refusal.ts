import { joinPieces, type Piece } from "../../bytes.ts";
import { type ErrorCode, HubError } from "../../errors.ts";
import { buildError, type Message } from "../../wire/jsonrpc.ts";

const JSON_HEADERS = new Headers({ "Content-Type": "application/json" });

/** One message, and nothing else, as the whole answer to a request. */
export function answer(message: Message, status = 200): Response {
  const bytes = joinPieces(message instanceof Uint8Array ? [message] : message);
  // Copied, so its memory is no other thread's.
  return new Response(bytes as Uint8Array<ArrayBuffer>, { status, headers: JSON_HEADERS });
}

/** Refuses a request: an HTTP status, and the reason as a JSON-RPC error for whoever shows it. */
export function refuse(
  status: number,
  text: string,
  { code = "invalidRequest", id, headers = {} }: Refusal = {},
): Response {
  const response = answer(buildError(id, new HubError(code, text).toRpc()), status);
  for (const [name, value] of Object.entries(headers)) response.headers.set(name, value);
  return response;
}

interface Refusal {
  readonly code?: ErrorCode;
  /** Of the JSON-RPC request that is refused. */
  readonly id?: Piece | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Nothing is to be said about what was sent. */
export function accepted(): Response {
  return new Response(null, { status: 202 });
}

/** A stream of server-sent events. */
export function streamed(body: ReadableStream<Uint8Array>): Response {
  return new Response(body, {
    headers: {
      "Content-Type": "text/event-stream",
      "Cache-Control": "no-cache, no-transform",
      // Some gateways gather what they pass on, unless they are told not to.
      "X-Accel-Buffering": "no",
    },
  });
}
