import { IdTable } from "../../base/id-table.ts";
import { randomUUID } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { lastMember, scanObject, readString } from "../../base/json.ts";
import { allowsBatches, isLegacyVersion, type LegacyVersion } from "../../protocol/legacy.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import type { ServerSubset } from "../../upstream/scope.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import {
  type Message,
  type InvalidMessage,
  type EncodedMessage,
  joinMessage,
} from "../../jsonrpc/message.ts";
import type {
  SentRequest,
  Responder,
  Transport,
  TransportEvents,
} from "../../transport/transport.ts";
import { NO_HANDLE } from "../../transport/memory.ts";
import { accepted, type Answer, done, streamed } from "./http1/answer.ts";
import { refuse } from "./errors.ts";
import { type Asker, Reply, type Wants } from "./post-response.ts";
import { EventStream, readEventId } from "./event-buffer.ts";

/**
 * Limits of one session: bytes of its streams (with as much unread, new requests get 429), number of finished streams
 * that can still be resumed, and how long, in ms.
 */
export const HELD = { most: 32 * 1024 * 1024, streams: 256, time: 5 * 60_000 };

/** Key of the standalone GET stream (Streamable HTTP, listening for messages). */
const OWN = 0;
/** The first revision whose clients understand an event without data (2025-11-25, sending messages). */
const PRIMED: LegacyVersion = "2025-11-25";

export interface SessionParts {
  readonly clock: Clock;
  /** Shared by all sessions. */
  readonly deadlines: Deadlines;
  /** The servers that it was opened for. */
  readonly scope: ServerSubset;
  /** A request was answered. */
  answered(): void;
  /** Called once, when the session has ended. */
  ended(): void;
}

/**
 * One client's session over HTTP as a transport: each POST brings a message with its own responder; what belongs to no
 * request goes to the stream that the client opens with GET. A client that does not read holds up nobody: its messages
 * are buffered up to `SESSION_LIMITS`, and then its requests are refused. A lost connection does not end the session.
 */
export class SessionLink implements Transport {
  /** The value of `Mcp-Session-Id`: random, secret. */
  readonly id = randomUUID();
  readonly #parts: SessionParts;
  readonly #streams = new Map<number, EventStream>();
  readonly #own: EventStream;
  readonly #asker: Asker;
  readonly #replies = new IdTable<Reply>();
  /** Finished streams and when they finished, oldest first: a client that lost one may resume it. */
  #finished: { readonly key: number; readonly at: number }[] = [];
  #events: TransportEvents | undefined;
  #version: LegacyVersion | undefined;
  #isClosed = false;
  #count = OWN;
  /** Set while paused: POSTs wait for `resumed`. */
  #gate: { readonly opened: Promise<void>; open(): void } | undefined;
  #lastUse: number;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#lastUse = parts.clock.now();
    this.#own = new EventStream(OWN, parts.clock, () => this.#touch());
    this.#streams.set(OWN, this.#own);
    this.#asker = {
      deadlines: parts.deadlines,
      open: () => this.#openStream(),
      aside: (message) => void this.send(message),
      answered: (reply) => this.#answered(reply),
    };
  }

  get scope(): ServerSubset {
    return this.#parts.scope;
  }

  /** The negotiated version; undefined before `initialize` is answered. */
  get version(): LegacyVersion | undefined {
    return this.#version;
  }

  /** Number of requests in flight. */
  get running(): number {
    return this.#replies.size;
  }

  /** Time of the last use, in ms of the clock; undefined while a request or a stream is open. */
  get idleSince(): number | undefined {
    if (this.#replies.size > 0) return undefined;
    for (const stream of this.#streams.values()) if (stream.isRead) return undefined;
    return this.#lastUse;
  }

  open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.#isClosed || this.#events !== undefined) {
      return Promise.reject(new HubError("cancelled", "The session was not opened."));
    }
    this.#events = events;
    return Promise.resolve();
  }

  get queued(): number {
    let sum = 0;
    for (const { unsent } of this.#streams.values()) sum += unsent;
    return sum;
  }

  send(message: EncodedMessage): SentRequest {
    if (!this.#isClosed) this.#own.push(message);
    return NO_HANDLE;
  }

  pause(): void {
    if (this.#gate !== undefined) return;
    let open = (): void => {};
    const opened = new Promise<void>((resolve) => (open = resolve));
    this.#gate = { opened, open };
  }

  resume(): void {
    this.#gate?.open();
    this.#gate = undefined;
  }

  processStats(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** Buffered messages are dropped: the session cannot be resumed. */
  close(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#isClosed = true;
    this.resume();
    // Before the owner of these requests learns of the end, and cancels them without an answer.
    for (const reply of this.#replies.values()) reply.abandon();
    this.#replies.clear();
    const events = this.#events;
    this.#events = undefined;
    events?.closed(new HubError("connectionLost", "The session has ended."));
    for (const stream of this.#streams.values()) stream.detach();
    this.#streams.clear();
    this.#parts.ended();
    return Promise.resolve();
  }

  /** Handles the message of a POST. */
  receive(frame: Message, wants: Wants): Answer | Promise<Answer> {
    this.#touch();
    if (this.#gate !== undefined) return this.#gate.opened.then(() => this.receive(frame, wants));
    if (this.#isClosed) return refuse(404, "The session has ended.");
    if (frame.kind === "batch" && !allowsBatches(this.#version)) {
      return refuse(400, "This protocol revision has no batches.");
    }
    if (!isAnswered(frame)) {
      this.#events?.frame(frame);
      return accepted();
    }
    if (this.queued > HELD.most) {
      const text = "Too much of what this session was sent is unread.";
      return refuse(429, text, { code: "notReading", headers: { "Retry-After": "1" } });
    }
    const reply = new Reply(this.#asker, wants);
    reply.place = this.#replies.add(reply);
    const isFirst = frame.kind === "request" && frame.method === "initialize";
    this.#events?.frame(frame, undefined, isFirst ? this.#greeting(reply) : reply);
    return reply.answer;
  }

  /** Handles an invalid message of a POST, which the caller answers. */
  reject(frame: InvalidMessage): void {
    this.#touch();
    this.#events?.frame(frame, undefined, { notify() {}, respond() {} });
  }

  /** Answers a GET: the standalone stream, or the rest of any stream after the event `Last-Event-ID`. */
  listen(lastEvent: string | undefined): Answer {
    this.#touch();
    if (lastEvent === undefined) return this.#listen(this.#own);
    const event = readEventId(lastEvent);
    const stream = event && this.#streams.get(event.key);
    if (stream === undefined) return refuse(400, "Nothing is known of that event any more.");
    return this.#listen(stream, event?.seq);
  }

  #listen(stream: EventStream, after?: number): Answer {
    // 204 tells an EventSource not to reconnect (HTML, server-sent events).
    if (stream.isOver(after)) return done();
    return streamed(stream.attach(after));
  }

  /** Forgets finished streams that are too old, and the oldest ones over the limits. */
  tidy(): void {
    const now = this.#parts.clock.now();
    let held = 0;
    for (const { size } of this.#streams.values()) held += size;
    let surplus = this.#finished.length - HELD.streams;
    this.#finished = this.#finished.filter(({ key, at }) => {
      const size = this.#streams.get(key)?.size ?? 0;
      if (surplus-- <= 0 && now - at < HELD.time && held <= HELD.most) return true;
      held -= size;
      this.#streams.delete(key);
      return false;
    });
  }

  /** Reads the negotiated version from the answer to `initialize`. */
  #greeting(reply: Reply): Responder {
    return {
      notify: (message) => reply.notify(message),
      respond: (message) => {
        if (message !== undefined) this.#version = versionIn(message) ?? this.#version;
        reply.respond(message);
      },
    };
  }

  #answered(reply: Reply): void {
    this.#replies.remove(reply.place);
    this.#touch();
    this.#parts.answered();
    if (reply.stream === undefined) return;
    this.#finished.push({ key: reply.stream.key, at: this.#lastUse });
    this.tidy();
  }

  #openStream(): EventStream {
    const key = ++this.#count;
    const stream = new EventStream(key, this.#parts.clock, () => this.#touch());
    if (this.#version === PRIMED) stream.prime();
    this.#streams.set(key, stream);
    return stream;
  }

  #touch(): void {
    this.#lastUse = this.#parts.clock.now();
  }
}

/** Whether it contains a message that has to be answered. */
function isAnswered(frame: Message): boolean {
  return frame.kind === "batch"
    ? frame.items.some(isAnswered)
    : frame.kind === "request" || frame.kind === "invalid";
}

/** The protocol version in an answer to `initialize`. */
function versionIn(message: EncodedMessage): LegacyVersion | undefined {
  const frame = parseMessage(joinMessage(message));
  if (frame.kind !== "response" || frame.outcome !== "result") return undefined;
  const { bytes, body } = frame;
  const members = scanObject(bytes, body.start)?.items ?? [];
  const version = readString(bytes, lastMember(members, "protocolVersion"));
  return isLegacyVersion(version) ? version : undefined;
}
