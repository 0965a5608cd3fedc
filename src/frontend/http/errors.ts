import type { Piece } from "../../base/bytes.ts";
import { type ErrorCode, HubError } from "../../base/errors.ts";
import { buildError } from "../../jsonrpc/message.ts";
import { answer, type Answer, withHeaders } from "./http1/answer.ts";
import type { Trouble } from "./http1/messages.ts";

/** An error answer: an HTTP status, with the reason as a JSON-RPC error in the body. */
export function refuse(
  status: number,
  text: string,
  { code = "invalidRequest", id, headers }: Refusal = {},
): Answer {
  const refusal = answer(buildError(id, new HubError(code, text).toRpc()), status);
  return headers === undefined ? refusal : withHeaders(refusal, Object.entries(headers));
}

interface Refusal {
  readonly code?: ErrorCode;
  /** Id of the refused JSON-RPC request. */
  readonly id?: Piece | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The answer to a request whose body could not be read. */
export function refuseBody(trouble: Trouble, limit: number): Answer {
  switch (trouble) {
    case "tooLarge": {
      const text = `A message has at most ${limit} bytes here.`;
      return refuse(413, text, { code: "messageTooLarge" });
    }
    case "tooMany":
      // 503, not 413: the message may be sent again.
      return refuse(503, "Too much is being received at once.", {
        code: "messageTooLarge",
        headers: { "Retry-After": "1" },
      });
    case "tooSlow":
      return refuse(408, "The message took too long to come in.");
    case "broken":
      return refuse(400, "The message has no end.");
  }
}

export function refuseNothing(): Answer {
  return refuse(404, "There is nothing here. MCP is spoken at /mcp.");
}

export function refuseSessionless(): Answer {
  return refuse(400, "This needs a session: begin with initialize.");
}

export function refuseMethod(): Answer {
  const headers = { Allow: "GET, POST, DELETE" };
  return refuse(405, "There is no such method here.", { headers });
}

export function refuseFailure(error: unknown): Answer {
  return refuse(500, error instanceof Error ? error.message : String(error), { code: "internal" });
}

export function refuseEnd(): Answer {
  return refuse(503, "The hub is stopping.", {
    code: "connectionLost",
    headers: { "Retry-After": "1" },
  });
}
