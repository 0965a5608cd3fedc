import type { HubError } from "../errors.ts";
import type { LogLevel } from "../events.ts";
import type { Challenge } from "./http/credentials.ts";
import type { Frame, Message } from "./jsonrpc.ts";
import type { ProcessEntry } from "./table.ts";

/**
 * One request sent over a Link, and what comes back on it. Over HTTP it is the stream of its own POST;
 * on a shared pipe it is only the id inside the frame, and it ends with its answer or with the link.
 */
export interface Exchange {
  /** Says that nobody waits for the answer any more: HTTP closes the stream, a shared pipe has nothing to close. */
  abandon(): void;
  /** The number that its owner gave the request, so that what comes on its stream is found by it. */
  request?: number;
}

/** What a Link may need to know of a request beyond its bytes; HTTP writes it into headers. */
export interface Outgoing {
  readonly method: string;
  /** The tool's or prompt's name, or the resource's URI, as the peer knows it. */
  readonly name?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
  /**
   * Called at most once: this exchange can bring no answer any more, although the link lives. `notDelivered`: the peer has
   * certainly done nothing for it; `answerLost`: it may have; `unauthorized`: it did not let it in, see `challenged`.
   */
  unanswered?(cause: HubError): void;
}

/**
 * One request of the peer, on a link that has a way back for each of them (HTTP: the response to its POST). Links that have one
 * way for everything, as pipes do, have none of these.
 */
export interface Inbound {
  /** Sends something that belongs to the request, before its answer: its progress, what is asked for its sake. */
  notify(message: Message): void;
  /** Sends the answer; undefined: there will be none. Called exactly once, and last. */
  respond(message: Message | undefined): void;
}

/** Something wrong with what a server sends, which costs it nothing but a note. */
export type Flaw =
  /** A line of stdout is no message. `text`: the line, redacted and cut; undefined if there are too many to look at each. */
  | { readonly kind: "strayOutput"; readonly text: string | undefined }
  /** A message was not valid UTF-8: U+FFFD is in the place of the invalid sequences. */
  | { readonly kind: "invalidText" };

/** What a Link tells its owner. All are called synchronously, in wire order, and never after `closed`. */
export interface LinkEvents {
  /**
   * One message came in; `exchange` says on which request's stream, where the link can tell. A request, or a batch of them,
   * comes with its way back, where it has one of its own.
   */
  frame(frame: Frame, exchange?: Exchange, inbound?: Inbound): void;
  /** A line for the peer's log: stderr, stray output, a message that was dropped. */
  log(level: LogLevel, source: "stderr" | "stdout", text: string): void;
  /** Called for each occurrence: the owner counts. */
  flaw?(flaw: Flaw): void;
  /**
   * A message over the size limit was thrown away as it came in; the link lives on.
   * `head` and `tail` are its first and last bytes (up to 4 KiB each), for whoever can find its id there.
   */
  oversized(head: Uint8Array, tail: Uint8Array, size: number): void;
  /** `full`: what was sent piles up because the peer does not read; false once it has drained. */
  pressure(full: boolean): void;
  /** The peer wants another authorization than the link has, or can get by itself. What was sent meanwhile is `unanswered`. */
  challenged?(challenge: Challenge): void;
  /** The link is dead: called exactly once after a successful open, whoever ended it. */
  closed(cause: HubError): void;
}

/** The era and the revision of the protocol that a peer was found to speak. */
export interface Spoken {
  readonly era: "legacy" | "modern";
  readonly version: string;
}

/** The processes of a peer that the link has started. */
export interface Vitals {
  /** The one that was started; the others descend from it. */
  readonly pid: number;
  readonly processes: number;
  /** Resident memory of all of them, in bytes. */
  readonly memory: number;
  /** Each of them. */
  readonly each: readonly ProcessEntry[];
}

/**
 * A pipe of frames to one peer. It knows bytes and exchanges, not MCP.
 * Every implementation passes `linkContract` (test/contract/link.ts).
 */
export interface Link {
  /**
   * Opens the pipe, once. Aborting `signal` gives up and leaves nothing behind.
   * @throws {HubError} commandNotFound, notExecutable, spawnFailed or cancelled
   */
  open(events: LinkEvents, signal: AbortSignal): Promise<void>;
  /**
   * Queues one message; all that is sent in one turn goes out in one write, in order. Its pieces are not copied and must
   * not be changed afterwards. Never blocks, never
   * throws: on a link that is not open the message is dropped (`closed` tells the owner of the link's end).
   */
  send(message: Message, info?: Outgoing): Exchange;
  /** Bytes queued that the peer has not taken yet. */
  readonly queued: number;
  /**
   * Each exchange has a way back of its own: what comes on it belongs to it, and in the modern era to abandon it is to cancel
   * it. Links where all share one have none of these.
   */
  readonly hasStreams?: true | undefined;
  /** Takes out of a text what must not be shown of what the link was made with. Absent: that is nothing. */
  redact?(text: string): string;
  /** The peer has been met: what is spoken with it from now on, as headers may have to say it. */
  adopt?(spoken: Spoken): void;
  /** Stops reading from the peer, so that its own pipe fills; `resume` undoes it. */
  pause(): void;
  resume(): void;
  /** What runs at the other end, if that is something of this machine that the link has started. */
  vitals(): Promise<Vitals | undefined>;
  /** Ends the link, bounded in time, and settles when nothing of it is left; repeated calls join the first. */
  close(): Promise<void>;
}

/** One to a server, which is given what must not be shown. */
export type DiscreetLink = Link & Required<Pick<Link, "redact">>;
