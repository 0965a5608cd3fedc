import type { HubError } from "../../base/errors.ts";
import type { EncodedMessage, Message } from "../../jsonrpc/message.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import type { TruncatedMessage } from "../../jsonrpc/bounded-buffer.ts";
import type { HttpTransportKind } from "./target.ts";

/** One of the two HTTP transports of MCP: Streamable HTTP or HTTP+SSE. */
export interface HttpVariant {
  /** Whether each request has a response stream of its own. */
  readonly hasStreams: boolean;
  send(message: EncodedMessage, options: SendOptions | undefined): SentRequest;
  adopt(protocol: NegotiatedProtocol): void;
  /** Closes the variant within a bounded time; waiting notifications are sent first. */
  close(): Promise<void>;
}

/** Callbacks of a variant to its transport. */
export interface HttpVariantEvents {
  message(message: Message, sentRequest?: SentRequest): void;
  oversized(truncated: TruncatedMessage): void;
  log(text: string): void;
  /** The number of queued bytes changed by `delta`. Negative: the server has taken bytes, or they were discarded. */
  queuedChanged(delta: number): void;
  /** The server has answered as this kind of transport requires. */
  kindDetected(kind: HttpTransportKind): void;
  /** The variant has failed and cannot be used any more. */
  ended(cause: HubError): void;
}

/** Time limit of `close` for sending what is queued, and again for the DELETE of the session, in ms. */
export const CLOSE_TIMEOUT = 600;
