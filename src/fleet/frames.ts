import { type ErrorCode, HubError } from "../base/errors.ts";

/** The names of the headers of requests and answers (wire version 1 of nats-mcp-gateway, and `Mcp-Accept-Parts`). */
export const Header = {
  wire: "Mcp-Wire",
  method: "Mcp-Method",
  name: "Mcp-Name",
  version: "MCP-Protocol-Version",
  frame: "Mcp-Frame",
  acceptParts: "Mcp-Accept-Parts",
  claim: "Mcp-Claim",
} as const;

export const WIRE_VERSION = "1";

/**
 * The kinds of messages of an answer. `msg`: a notification; `end`: the response, or nothing if the request was
 * cancelled; `err`: an error response that the hub or gateway made; `ka`: the request is still being worked at; `part`:
 * a piece of a response that does not fit into one message, of which the last one is in `end`.
 */
export const FRAME_KINDS = ["msg", "end", "err", "ka", "part"] as const;
export type FrameKind = (typeof FRAME_KINDS)[number];

/** Reads the header `Mcp-Frame`. */
export function frameKindOf(value: string): FrameKind | undefined {
  return FRAME_KINDS.find((kind) => kind === value);
}

/**
 * Time after which an answer first shows that it is still being worked at, in ms: a request may have been cancelled
 * before its exporter had subscribed to the subject of that.
 */
export const FIRST_KEEP_ALIVE = 2_000;
/** How often an answer that takes long shows that it is still being worked at, in ms. */
export const KEEP_ALIVE = 15_000;
/** Time without any frame after which the answer of a peer that cannot be pinged is lost, in ms. */
export const INACTIVITY = 60_000;

/** The size of the headers of a frame, at most, in bytes: it counts towards `max_payload`. */
export const FRAME_OVERHEAD = 4096;

/** The JSON-RPC codes of errors on the wire. They are in no answer to a client: `readWireError` replaces them. */
export const WireErrorCode = {
  lost: -32010,
  noGateway: -32011,
  tooLarge: -32012,
  denied: -32013,
  noCredentials: -32014,
} as const;

const CODES: ReadonlyMap<number, ErrorCode> = new Map([
  [WireErrorCode.lost, "answerLost"],
  [WireErrorCode.noGateway, "unreachable"],
  [WireErrorCode.tooLarge, "messageTooLarge"],
  [WireErrorCode.denied, "accessDenied"],
  [WireErrorCode.noCredentials, "serverFailed"],
]);

/** The error of the hub for an error of the wire; undefined if the code is not one of the wire. */
export function readWireError(
  code: number | undefined,
  message: string | undefined,
  server: string,
): HubError | undefined {
  const own = code === undefined ? undefined : CODES.get(code);
  if (own === undefined) return undefined;
  const said = message === undefined || message === "" ? "" : ` It said: ${message}`;
  const texts: Partial<Record<ErrorCode, string>> = {
    answerLost: `The answer of server "${server}" was lost on its machine. It may have run.`,
    unreachable: `No machine serves "${server}" now.`,
    messageTooLarge: `A message of server "${server}" is larger than NATS allows. Raise max_payload of the NATS server, for example to 8 MB.`,
    accessDenied: `NATS does not permit this request to server "${server}".`,
    serverFailed: `The machine that serves "${server}" has no credentials for it.`,
  };
  return new HubError(own, `${texts[own]}${said}`, { server });
}
