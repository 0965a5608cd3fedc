import type { ProcessStats } from "../process/child-process.ts";
import type { HubError } from "../base/errors.ts";
import type { LogLevel } from "../base/hub-events.ts";
import type { AuthChallenge } from "./http/target.ts";
import type { EncodedMessage, Message } from "../jsonrpc/message.ts";

/**
 * The folder transport/ carries messages to and from one peer, whether over pipes, over HTTP or in memory. Main type:
 * `Transport`, below, with `TransportEvents`; every implementation passes test/contract/transport.ts. Read next:
 * `stdio.ts` (child processes), `memory.ts` (in-process), `http/transport.ts` (Streamable HTTP and HTTP+SSE).
 *
 * A request that was sent on a Transport. Over HTTP it has its own response stream: the response to its POST. Over
 * stdio all requests share one stream, and only the message's id identifies the request.
 */
export interface SentRequest {
  /** Called when the response is no longer needed. Over HTTP it closes the stream; over stdio it does nothing. */
  abandon(): void;
  /** A number that the sender sets, to recognize the request when a message arrives on its stream. */
  request?: number;
}

/** The handle of a request over a shared stream: there is nothing to close. */
export const NO_OP_SENT_REQUEST: SentRequest = { abandon() {} };

/** The details of a request that a Transport needs. HTTP repeats some of them in headers. */
export interface SendOptions {
  readonly method: string;
  /** The name of the tool or prompt, or the URI of the resource, as the peer knows it. */
  readonly name?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The id of the client that sends the request; undefined: the hub itself, or a client that cannot be told apart. */
  readonly client?: string | undefined;
  /** The JSON-RPC id of the request; absent over stdio. */
  readonly id?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /**
   * Called at most once, when no response can arrive any more although the transport is still open. `notDelivered`: the
   * peer has certainly not executed the request; `answerLost`: the peer may have executed it; `unauthorized`: the peer
   * has rejected it, see `challenged`.
   */
  unanswered?(cause: HubError): void;
}

/**
 * The response channel of one request of the peer: over HTTP, the response to the POST. Transports with one shared
 * output, such as pipes, have no responders.
 */
export interface Responder {
  /**
   * Sends a message that belongs to the peer's request, before the response: for example a progress notification, or a
   * request that a server made while it handled the peer's request.
   */
  notify(message: EncodedMessage): void;
  /** Sends the response, or nothing if `message` is undefined. Called exactly once, and last. */
  respond(message: EncodedMessage | undefined): void;
}

/** Malformed output of a server. The connection goes on; the output is only reported. */
export type MalformedOutput =
  /**
   * A line on stdout that is not a message. `text`: the line, redacted and truncated; undefined above the rate limit.
   */
  | { readonly kind: "strayOutput"; readonly text: string | undefined }
  /** A message was not valid UTF-8: the invalid sequences were replaced by U+FFFD. */
  | { readonly kind: "invalidText" };

/**
 * The events that a Transport reports to its owner. The Transport calls these methods synchronously, in the order of
 * arrival, and never after `closed`.
 */
export interface TransportEvents {
  /**
   * A message has arrived.
   * @param sentRequest the request on whose response stream it arrived, if the transport has such streams
   * @param responder the response channel of a request or batch, if the transport has one for each
   */
  message(message: Message, sentRequest?: SentRequest, responder?: Responder): void;
  /** A line for the peer's log. `source` is the peer's stderr or stdout, or the transport itself (`hub`). */
  log(level: LogLevel, source: "stderr" | "stdout" | "hub", text: string): void;
  malformedOutput?(output: MalformedOutput): void;
  /**
   * A message over the size limit was discarded; the transport stays open. `head` and `tail` are its first and last
   * bytes (up to 4 KiB each), which may contain its id.
   */
  oversized(head: Uint8Array, tail: Uint8Array, size: number): void;
  /** Backpressure began or ended. `isFull`: whether sent messages accumulate, because the peer does not read. */
  pressure(isFull: boolean): void;
  /**
   * The peer requires credentials that the transport cannot obtain itself. Until the credentials exist, requests end
   * with `unanswered`.
   */
  challenged?(challenge: AuthChallenge): void;
  /**
   * The peer sends nothing more, but may still read: all that it has sent was delivered. The transport closes when
   * `idle` is called, which means that no request of the peer is open any more, or after some time; before that it
   * calls `abandonRequests`. Without this method it closes at once.
   */
  inputEnded?(idle: () => void): void;
  /** Cancels the open requests of the peer, and answers each with an error. */
  abandonRequests?(): void;
  /** The transport is closed. Called exactly once after a successful open, whichever side closed it. */
  closed(cause: HubError): void;
}

export interface NegotiatedProtocol {
  readonly era: "legacy" | "modern";
  readonly version: string;
}

/**
 * Sends messages to one peer and receives its messages. A Transport knows bytes and requests, not MCP.
 * Every implementation passes `transportContract` (test/contract/transport.ts).
 */
export interface Transport {
  /**
   * `http`, `nats`: requests can be lost one by one, while the transport stays open. `memory`: a peer in this process.
   */
  readonly kind: "stdio" | "http" | "nats" | "memory";
  /**
   * Opens the transport; called once. Aborting `signal` cancels the opening; then no process or connection is left.
   * @throws {HubError} commandNotFound, notExecutable, spawnFailed or cancelled
   */
  open(events: TransportEvents, signal: AbortSignal): Promise<void>;
  /**
   * Queues one message. Messages of the same turn of the event loop are written together, in order. The pieces are not
   * copied: see `ByteSlice`. Never blocks and never throws: a transport that is not open drops the message.
   */
  send(message: EncodedMessage, options?: SendOptions): SentRequest;
  /** Number of sent bytes that the peer has not accepted yet. */
  readonly queued: number;
  /**
   * Whether each request has its own response stream. A message on that stream belongs to the request, and with
   * protocol 2026-07-28 (modern), closing the stream cancels the request. Absent if all requests share one stream.
   */
  readonly hasStreams?: true | undefined;
  /** The secret id of the session over HTTP; undefined or absent: there is none. */
  readonly sessionId?: string | undefined;
  /** Removes the transport's secrets from a text. Absent if the transport has no secrets. */
  redact?(text: string): string;
  /** Sets the negotiated protocol, which HTTP sends in headers. */
  adopt?(protocol: NegotiatedProtocol): void;
  /** Stops reading, so that the peer sees backpressure; `resume` ends this. */
  pause(): void;
  resume(): void;
  /** The entries that differ from those that were listed last. Absent if there is one server only. */
  readonly differing?: readonly DifferingEntry[];
  /** Memory and processor use of the processes that the transport has started; undefined if there are none. */
  processStats(): Promise<ProcessStats | undefined>;
  /**
   * Closes the transport in bounded time. Settles when no process or connection is left. Later calls return the same
   * promise.
   */
  close(): Promise<void>;
}

/** Whether a request can be lost while the transport stays open. */
export function mayLoseRequests({ kind }: Pick<Transport, "kind">): boolean {
  return kind === "http" || kind === "nats";
}

/**
 * An entry of a list as some machines with a server have it, while others have the one that is listed under the same
 * name. Calls do not go to the machines that have this one.
 */
export interface DifferingEntry {
  readonly kind: "tools" | "prompts";
  /** The JSON of the entry. */
  readonly entry: Uint8Array;
  /** The names of the machines. */
  readonly machines: readonly string[];
}

/** A transport to a server. It knows the server's secrets, and redacts them. */
export type ServerTransport = Transport & Required<Pick<Transport, "redact">>;
