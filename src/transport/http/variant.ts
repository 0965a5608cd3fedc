import type { HubError } from "../../base/errors.ts";
import type { EncodedMessage, Message } from "../../jsonrpc/message.ts";
import type { NegotiatedProtocol, SendOptions, SentRequest } from "../transport.ts";
import type { Truncated } from "../../jsonrpc/bounded-buffer.ts";
import type { HttpTransportKind } from "./target.ts";

/** One of the ways over HTTP, as a link goes it. */
export interface HttpVariant {
  /** Whether each request has its answer on a stream of its own. */
  readonly hasStreams: boolean;
  send(message: EncodedMessage, info: SendOptions | undefined): SentRequest;
  adopt(spoken: NegotiatedProtocol): void;
  /** Ends it, bounded in time: what was sent before is sent yet. */
  close(): Promise<void>;
}

/** What a course tells its link. */
export interface HttpVariantEvents {
  frame(frame: Message, exchange?: SentRequest): void;
  oversized(excess: Truncated): void;
  log(text: string): void;
  /** So many bytes were given to it; negative: the server has taken them, or they are not wanted any more. */
  loaded(size: number): void;
  /** The server goes this way. */
  found(way: HttpTransportKind): void;
  /** It cannot be gone any further. */
  ended(cause: HubError): void;
}

/** How long the last words may take, and the good-bye, in ms. */
export const CLOSE_TIMEOUT = 600;
