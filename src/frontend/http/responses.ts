import { joinPieces, type Piece } from "../../base/bytes.ts";
import { type ErrorCode, HubError } from "../../base/errors.ts";
import { buildError, type EncodedMessage, piecesOfMessage } from "../../jsonrpc/message.ts";
import type { BodyError } from "./request-body.ts";

const JSON_HEADERS = { "Content-Type": "application/json" };
const STREAM_HEADERS = {
  "Content-Type": "text/event-stream",
  "Cache-Control": "no-cache, no-transform",
  // Some gateways buffer event streams unless this header is set (nginx: proxy_buffering).
  "X-Accel-Buffering": "no",
};

/** A response whose body is one JSON-RPC message. */
export function messageResponse(message: EncodedMessage, status = 200): Response {
  // `joinPieces` copies the bytes: the body of a Response must not be backed by a SharedArrayBuffer.
  const body = joinPieces(piecesOfMessage(message)) as Uint8Array<ArrayBuffer>;
  return new Response(body, { status, headers: JSON_HEADERS });
}

/** 202 without a body: notifications and responses were accepted (Streamable HTTP, sending messages). */
export function acceptedResponse(): Response {
  return new Response(null, { status: 202 });
}

/** 204: the stream is complete, and the client must not reconnect. */
export function noContentResponse(): Response {
  return new Response(null, { status: 204 });
}

/** A `text/event-stream` response. */
export function streamResponse(body: ReadableStream<Uint8Array>): Response {
  return new Response(body, { headers: STREAM_HEADERS });
}

/** An HTTP error response whose body gives the reason as a JSON-RPC error. */
export function errorResponse(
  status: number,
  text: string,
  { code = "invalidRequest", id, headers = {} }: ErrorResponseOptions = {},
): Response {
  const response = messageResponse(buildError(id, new HubError(code, text).toRpc()), status);
  for (const [name, value] of Object.entries(headers)) response.headers.set(name, value);
  return response;
}

interface ErrorResponseOptions {
  readonly code?: ErrorCode;
  /** Id of the refused JSON-RPC request. */
  readonly id?: Piece | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The response to a request whose body could not be read. */
export function bodyErrorResponse(error: BodyError, limit: number): Response {
  switch (error) {
    case "tooLarge": {
      const text = `The message is larger than the limit of ${limit} bytes.`;
      return errorResponse(413, text, { code: "messageTooLarge" });
    }
    case "tooMany":
      // 503 and not 413, because the client may send the same message again later.
      return errorResponse(503, "Too many request bodies are being received.", {
        code: "messageTooLarge",
        headers: { "Retry-After": "1" },
      });
    case "tooSlow":
      return errorResponse(408, "The message took too long to arrive.", CLOSE_CONNECTION);
    case "tooFragmented":
      return errorResponse(400, "The chunks of the message are too small.", CLOSE_CONNECTION);
    case "broken":
      return errorResponse(400, "The message is incomplete or malformed.", CLOSE_CONNECTION);
  }
}

/** Options of a response that closes the connection, because the rest of the request's body will not be read. */
const CLOSE_CONNECTION = { headers: { Connection: "close" } };

/** @param meant the path of an MCP endpoint that was probably meant */
export function notFoundResponse(meant?: string): Response {
  const text =
    meant === undefined
      ? "Not found. The MCP endpoint is /mcp."
      : `Not found: use ${meant} without a slash at the end.`;
  return errorResponse(404, text);
}

export function missingSessionResponse(): Response {
  return errorResponse(400, "This needs a session: send initialize first.");
}

export function methodNotAllowedResponse(): Response {
  const headers = { Allow: "GET, POST, DELETE" };
  return errorResponse(405, "This HTTP method is not allowed here.", { headers });
}

export function internalErrorResponse(error: unknown): Response {
  return errorResponse(500, error instanceof Error ? error.message : String(error), {
    code: "internal",
  });
}

export function shuttingDownResponse(): Response {
  return errorResponse(503, "The hub is stopping.", {
    code: "connectionLost",
    headers: { "Retry-After": "1" },
  });
}
