import { type ConnectPhase, HubError } from "../base/errors.ts";
import { parseRange } from "../base/json.ts";
import { membersOf } from "./handshake.ts";
import type { Response } from "../jsonrpc/message.ts";

/** The longest text of a server's that is repeated, in UTF-16 units. */
const LONGEST = 2000;

/** The parsed result of a server's answer to the hub itself. @throws {HubError} handshakeFailed, hubLoop */
export function parseOwnResult(server: string, response: Response, step: ConnectPhase): unknown {
  let value: unknown;
  try {
    value = parseRange(response.bytes, response.body);
  } catch {
    throw unexpectedAnswerError(server, step, "sent an answer that is malformed");
  }
  if (response.outcome === "result") return value;
  const { message, data } = membersOf(value);
  const what = typeof message === "string" ? `an error: ${message.slice(0, LONGEST)}` : "an error";
  // A toolmux that this hub would start without end says so in its own code: another attempt would end the same.
  if (membersOf(data)["code"] === "hubLoop") {
    throw new HubError("hubLoop", `Server "${server}" answered with ${what}`, { server, step });
  }
  throw unexpectedAnswerError(server, step, `answered with ${what}`);
}

/** What a server did instead of what it was asked for. */
export function unexpectedAnswerError(server: string, step: ConnectPhase, what: string): HubError {
  return new HubError("handshakeFailed", `Server "${server}" ${what}.`, { server, step });
}
