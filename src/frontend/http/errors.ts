import type { Piece } from "../../base/bytes.ts";
import { type ErrorCode, HubError } from "../../base/errors.ts";
import { buildError } from "../../jsonrpc/message.ts";
import { type BodyError, type HttpAnswer, messageAnswer, withHeaders } from "./http1/messages.ts";

/** An HTTP error response whose body gives the reason as a JSON-RPC error. */
export function errorAnswer(
  status: number,
  text: string,
  { code = "invalidRequest", id, headers }: ErrorAnswerOptions = {},
): HttpAnswer {
  const response = messageAnswer(buildError(id, new HubError(code, text).toRpc()), status);
  return headers === undefined ? response : withHeaders(response, Object.entries(headers));
}

interface ErrorAnswerOptions {
  readonly code?: ErrorCode;
  /** Id of the refused JSON-RPC request. */
  readonly id?: Piece | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The answer to a request whose body could not be read. */
export function bodyErrorAnswer(error: BodyError, limit: number): HttpAnswer {
  switch (error) {
    case "tooLarge": {
      const text = `A message has at most ${limit} bytes here.`;
      return errorAnswer(413, text, { code: "messageTooLarge" });
    }
    case "tooMany":
      // 503 in the place of 413, because the client may send the same message again.
      return errorAnswer(503, "Too much is being received at once.", {
        code: "messageTooLarge",
        headers: { "Retry-After": "1" },
      });
    case "tooSlow":
      return errorAnswer(408, "The message took too long to come in.");
    case "broken":
      return errorAnswer(400, "The message has no end.");
  }
}

export function notFoundAnswer(): HttpAnswer {
  return errorAnswer(404, "There is nothing here. MCP is spoken at /mcp.");
}

export function missingSessionAnswer(): HttpAnswer {
  return errorAnswer(400, "This needs a session: begin with initialize.");
}

export function methodNotAllowedAnswer(): HttpAnswer {
  const headers = { Allow: "GET, POST, DELETE" };
  return errorAnswer(405, "There is no such method here.", { headers });
}

export function internalErrorAnswer(error: unknown): HttpAnswer {
  return errorAnswer(500, error instanceof Error ? error.message : String(error), {
    code: "internal",
  });
}

export function shuttingDownAnswer(): HttpAnswer {
  return errorAnswer(503, "The hub is stopping.", {
    code: "connectionLost",
    headers: { "Retry-After": "1" },
  });
}
