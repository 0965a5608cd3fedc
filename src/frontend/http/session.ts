import { Register } from "../../register.ts";
import { randomUUID } from "node:crypto";
import type { Clock } from "../../clock.ts";
import { HubError } from "../../errors.ts";
import { lastMember, scanObject, stringOf } from "../../json.ts";
import { allowsBatches, isLegacyVersion, type LegacyVersion } from "../../protocol/legacy.ts";
import type { Deadlines } from "../../router/deadline.ts";
import type { Scope } from "../../upstream/scope.ts";
import { readFrame } from "../../wire/frame.ts";
import { type Frame, type Invalid, type Message, joinMessage } from "../../wire/jsonrpc.ts";
import type { Exchange, Inbound, Link, LinkEvents } from "../../wire/link.ts";
import { PIPE_EXCHANGE } from "../../wire/memory.ts";
import { accepted, type Answer, done, streamed } from "./answer.ts";
import { refuse } from "./refusal.ts";
import { type Asker, Reply, type Wants } from "./reply.ts";
import { EventStream, readEventId } from "./stream.ts";

/**
 * What one session holds of what was said to it: bytes (with that much unread, it may ask for nothing more), streams on which
 * all was said, and how long these are held, in ms.
 */
export const HELD = { most: 32 * 1024 * 1024, streams: 256, time: 5 * 60_000 };

/** The stream of what belongs to no request. */
const OWN = 0;
/** The first revision in which an event without data means something to clients. */
const PRIMED: LegacyVersion = "2025-11-25";

export interface SessionParts {
  readonly clock: Clock;
  /** Of all sessions. */
  readonly deadlines: Deadlines;
  /** The servers that it was opened for. */
  readonly scope: Scope;
  /** A request was answered. */
  answered(): void;
  /** Called once, when the session is over. */
  ended(): void;
}

/**
 * One client's session over HTTP as a Link: its POSTs bring frames, each with its own way back; what belongs to none of
 * them goes to the stream that the client GETs. Whoever does not read holds up nobody: what is said to it is held, within
 * bounds, and it is asked to read before it asks for more. A stream that is lost ends nothing.
 */
export class SessionLink implements Link {
  /** Nobody can guess it. */
  readonly id = randomUUID();
  readonly #parts: SessionParts;
  readonly #streams = new Map<number, EventStream>();
  readonly #own: EventStream;
  readonly #asker: Asker;
  readonly #replies = new Register<Reply>();
  /** Streams on which all was said, and when that was, oldest first: whoever lost one may come back for it. */
  #finished: { readonly key: number; readonly at: number }[] = [];
  #events: LinkEvents | undefined;
  #version: LegacyVersion | undefined;
  #isClosed = false;
  #count = OWN;
  /** There while nothing is to be read: what lets those go on who wait with a message. */
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

  get scope(): Scope {
    return this.#parts.scope;
  }

  /** What was negotiated; undefined before. */
  get version(): LegacyVersion | undefined {
    return this.#version;
  }

  /** Requests that are not answered yet. */
  get running(): number {
    return this.#replies.size;
  }

  /** Since when nobody has used it, in ms of the clock; undefined while somebody does. */
  get idleSince(): number | undefined {
    if (this.#replies.size > 0) return undefined;
    for (const stream of this.#streams.values()) if (stream.isRead) return undefined;
    return this.#lastUse;
  }

  open(events: LinkEvents, signal: AbortSignal): Promise<void> {
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

  send(message: Message): Exchange {
    if (!this.#isClosed) this.#own.push(message);
    return PIPE_EXCHANGE;
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

  vitals(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** What was said and not read stays unread: there is nobody who could come back for it. */
  close(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#isClosed = true;
    this.resume();
    // Before whoever runs them hears of the end and takes them back without a word.
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

  /** Takes what a POST has brought. */
  receive(frame: Frame, wants: Wants): Answer | Promise<Answer> {
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

  /** Takes what a POST has brought that is no message; the POST is answered by the caller. */
  reject(frame: Invalid): void {
    this.#touch();
    this.#events?.frame(frame, undefined, { notify() {}, respond() {} });
  }

  /** The stream of what belongs to no request, or of what was said since an event, on whatever stream that was. */
  listen(lastEvent: string | undefined): Answer {
    this.#touch();
    if (lastEvent === undefined) return this.#listen(this.#own);
    const event = readEventId(lastEvent);
    const stream = event && this.#streams.get(event.key);
    if (stream === undefined) return refuse(400, "Nothing is known of that event any more.");
    return this.#listen(stream, event?.seq);
  }

  #listen(stream: EventStream, after?: number): Answer {
    // To readers of events this status means that there is nothing to come back for.
    if (stream.isOver(after)) return done();
    return streamed(stream.attach(after));
  }

  /** Forgets what nobody comes back for any more, and the oldest of what is too much to hold. */
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

  /** Looks on its way at what was negotiated. */
  #greeting(reply: Reply): Inbound {
    return {
      notify: (message) => reply.notify(message),
      respond: (message) => {
        if (message !== undefined) this.#version = versionIn(message) ?? this.#version;
        reply.respond(message);
      },
    };
  }

  #answered(reply: Reply): void {
    this.#replies.take(reply.place);
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

/** Whether there is something in it that has to be answered. */
function isAnswered(frame: Frame): boolean {
  return frame.kind === "batch"
    ? frame.items.some(isAnswered)
    : frame.kind === "request" || frame.kind === "invalid";
}

/** The revision that an answer to `initialize` names. */
function versionIn(message: Message): LegacyVersion | undefined {
  const frame = readFrame(joinMessage(message));
  if (frame.kind !== "response" || frame.outcome !== "result") return undefined;
  const { bytes, body } = frame;
  const members = scanObject(bytes, body.start)?.items ?? [];
  const version = stringOf(bytes, lastMember(members, "protocolVersion"));
  return isLegacyVersion(version) ? version : undefined;
}
