import type { HubError } from "../../base/errors.ts";
import type { EncodedMessage, Message } from "../../jsonrpc/message.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import type { Truncated } from "../../jsonrpc/bounded-buffer.ts";
import type { HttpTransportKind } from "./target.ts";

/** One of the two HTTP transports of MCP: Streamable HTTP or HTTP+SSE. */
export interface HttpVariant {
  /** Whether each request has a response stream of its own. */
  readonly hasStreams: boolean;
  send(message: EncodedMessage, info: SendOptions | undefined): SentRequest;
  adopt(spoken: NegotiatedProtocol): void;
  /** Closes it within a bounded time; notifications that wait to be sent are sent first. */
  close(): Promise<void>;
}

/** Callbacks of a variant to its transport. */
export interface HttpVariantEvents {
  frame(frame: Message, exchange?: SentRequest): void;
  oversized(excess: Truncated): void;
  log(text: string): void;
  /** The number of queued bytes changed by `size`. Negative: the server has taken the bytes, or they were discarded. */
  loaded(size: number): void;
  /** The server has answered as this transport demands. */
  found(way: HttpTransportKind): void;
  /** The variant has failed and cannot be used any more. */
  ended(cause: HubError): void;
}

/** Time limit on close for sending what is queued, and again for the DELETE of the session, in ms. */
export const CLOSE_TIMEOUT = 600;
