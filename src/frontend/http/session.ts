import { count } from "../../base/format.ts";
import { randomUUID } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { IdMap } from "../../base/in-flight-map.ts";
import {
  bodyOf,
  type EncodedMessage,
  type InvalidMessage,
  joinMessage,
  type Message,
  type Request as RpcRequest,
} from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { allowsBatches, isLegacyVersion, type LegacyVersion } from "../../protocol/legacy.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import {
  NO_OP_SENT_REQUEST,
  type Responder,
  type SentRequest,
  type TransportEvents,
  type Transport,
} from "../../transport/transport.ts";
import type { Exposure } from "../../manifest/exposures.ts";
import type { ServerSubset } from "../../upstream/profile.ts";
import { EventBuffer, readEventId } from "./event-buffer.ts";
import type { Principal } from "./principals.ts";
import { type AcceptedTypes, type PostReceiver, PostResponse } from "./post-response.ts";
import { acceptedResponse, errorResponse, noContentResponse, streamResponse } from "./responses.ts";

/**
 * Limits of one session. `maxBytes`: bytes that all its streams keep; while more bytes are unsent, new requests get
 * 429. `maxFinishedStreams`: number of finished streams that can still be resumed; `maxFinishedAge`: time for which a
 * finished stream can be resumed, in ms.
 */
export const SESSION_LIMITS = {
  maxBytes: 32 * 1024 * 1024,
  maxFinishedStreams: 256,
  maxFinishedAge: 5 * 60_000,
};

/** Key of the stream that a GET without `Last-Event-ID` opens (MCP, Streamable HTTP, listening for messages). */
const STANDALONE_STREAM = 0;
/** The first revision whose clients support an event without data (2025-11-25, sending messages). */
const PRIMING_VERSION: LegacyVersion = "2025-11-25";

/** The principal of a request, and the servers, mode and exposure that the request asks for. */
export interface RequestScope {
  readonly principal: Principal | undefined;
  /** `limit`: the servers that the principal may see; `subset`: those of them that the request asks for. */
  readonly limit: ServerSubset;
  readonly subset: ServerSubset;
  /** The mode that the URL names. */
  readonly mode: string | undefined;
  /** The exposure that the URL names. */
  readonly expose?: Exposure | undefined;
}

export interface HttpSessionOptions {
  readonly clock: Clock;
  /** Shared by all sessions. */
  readonly deadlines: Deadlines;
  /** The principal that opened the session, and the servers, mode and exposure that it asked for. */
  readonly scope: RequestScope;
  /** Called when a request was answered. */
  onAnswered(): void;
  /** Called once, when the session has ended. */
  onEnd(): void;
}

/**
 * One client's session over HTTP as a transport. Each POST carries a message and has its own responder; messages that
 * belong to no request go to the stream that the client opens with GET. A client that does not read does not delay
 * others: its messages are buffered up to `SESSION_LIMITS`, then its requests are rejected. A lost connection does not
 * end the session.
 */
export class SessionTransport implements Transport, PostReceiver {
  readonly kind = "http";
  /** The value of `Mcp-Session-Id`: random, secret. */
  readonly id = randomUUID();
  readonly deadlines: Deadlines;
  readonly #options: HttpSessionOptions;
  readonly #streams = new Map<number, EventBuffer>();
  readonly #standaloneStream: EventBuffer;
  readonly #responses = new IdMap<PostResponse>();
  /**
   * The finished streams that clients may still resume, oldest first. `at`: time at which the stream finished, in ms of
   * the clock.
   */
  #finished: { readonly key: number; readonly at: number }[] = [];
  #events: TransportEvents | undefined;
  #version: LegacyVersion | undefined;
  #isClosed = false;
  #streamCount = STANDALONE_STREAM;
  /** Set while the session is paused; settles when waiting POSTs may go on. */
  #paused: PromiseWithResolvers<void> | undefined;
  #lastUse: number;

  constructor(options: HttpSessionOptions) {
    this.#options = options;
    this.deadlines = options.deadlines;
    this.#lastUse = options.clock.now();
    this.#standaloneStream = new EventBuffer(STANDALONE_STREAM, options.clock, () => this.#touch());
    this.#streams.set(STANDALONE_STREAM, this.#standaloneStream);
  }

  get sessionId(): string {
    return this.id;
  }

  get scope(): RequestScope {
    return this.#options.scope;
  }

  /** The negotiated version; undefined before `initialize` is answered. */
  get version(): LegacyVersion | undefined {
    return this.#version;
  }

  /** Number of requests in flight. */
  get inFlight(): number {
    return this.#responses.size;
  }

  /** Time of the last use, in ms of the clock; undefined while a request or a stream is open. */
  get idleSince(): number | undefined {
    if (this.#responses.size > 0) return undefined;
    for (const stream of this.#streams.values()) if (stream.hasReader) return undefined;
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
    if (!this.#isClosed) this.#standaloneStream.push(message);
    return NO_OP_SENT_REQUEST;
  }

  /** Whether requests wait before they are handled. */
  get isPaused(): boolean {
    return this.#paused !== undefined;
  }

  pause(): void {
    this.#paused ??= Promise.withResolvers<void>();
  }

  resume(): void {
    this.#paused?.resolve();
    this.#paused = undefined;
  }

  processStats(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** Ends the session and drops its buffered messages: a session that has ended cannot be resumed. */
  close(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#isClosed = true;
    this.resume();
    // Answer these requests before the call of `closed()`, which makes the legacy client cancel them without an answer.
    for (const response of this.#responses.values())
      response.cancel(errorResponse(404, "The session has ended."));
    this.#responses.clear();
    const events = this.#events;
    this.#events = undefined;
    events?.closed(new HubError("connectionLost", "The session has ended."));
    for (const stream of this.#streams.values()) stream.detach();
    this.#streams.clear();
    this.#options.onEnd();
    return Promise.resolve();
  }

  /** Handles the message of a POST. */
  receive(message: Message, accepts: AcceptedTypes): Response | Promise<Response> {
    this.#touch();
    if (this.#paused !== undefined)
      return this.#paused.promise.then(() => this.receive(message, accepts));
    if (this.#isClosed) return errorResponse(404, "The session has ended.");
    if (message.kind === "batch" && !allowsBatches(this.#version)) {
      return errorResponse(400, "This protocol revision does not support batches.");
    }
    if (!needsAnswer(message)) {
      this.#events?.message(message);
      return acceptedResponse();
    }
    if (this.queued > SESSION_LIMITS.maxBytes) {
      const text = "The client of this session has too many unread messages.";
      return errorResponse(429, text, { code: "notReading", headers: { "Retry-After": "1" } });
    }
    const response = new PostResponse(this, accepts);
    response.tableKey = this.#responses.add(response);
    const isInitialize = message.kind === "request" && message.method === "initialize";
    this.#events?.message(
      message,
      undefined,
      isInitialize ? this.#initializeResponder(response) : response,
    );
    return response.answer;
  }

  /** Passes an invalid message of a POST to `TransportEvents.message`; the caller answers the POST. */
  receiveInvalid(message: InvalidMessage): void {
    this.#touch();
    this.#events?.message(message, undefined, { notify() {}, respond() {} });
  }

  /**
   * Answers a GET with the standalone stream or, if it names an event, with the events that follow in the event's
   * stream.
   * @param lastEvent the value of `Last-Event-ID`
   */
  openEventStream(lastEvent: string | undefined): Response {
    this.#touch();
    if (lastEvent === undefined) return this.#attachReader(this.#standaloneStream);
    const event = readEventId(lastEvent);
    const stream = event && this.#streams.get(event.key);
    if (stream === undefined) return errorResponse(400, "This event is no longer stored.");
    return this.#attachReader(stream, event?.seq);
  }

  #attachReader(stream: EventBuffer, after?: number): Response {
    // 204 tells an EventSource not to reconnect (HTML, server-sent events).
    if (stream.isOver(after)) return noContentResponse();
    return streamResponse(stream.attach(after));
  }

  /**
   * Drops the finished streams that are too old, and the oldest ones as long as the session exceeds `SESSION_LIMITS`.
   */
  prune(): void {
    const now = this.#options.clock.now();
    let heldBytes = 0;
    for (const { size } of this.#streams.values()) heldBytes += size;
    let surplus = this.#finished.length - SESSION_LIMITS.maxFinishedStreams;
    this.#finished = this.#finished.filter(({ key, at }) => {
      const size = this.#streams.get(key)?.size ?? 0;
      if (
        surplus-- <= 0 &&
        now - at < SESSION_LIMITS.maxFinishedAge &&
        heldBytes <= SESSION_LIMITS.maxBytes
      )
        return true;
      heldBytes -= size;
      this.#streams.delete(key);
      return false;
    });
  }

  /** Makes a responder that also reads the negotiated version from the answer to `initialize`. */
  #initializeResponder(response: PostResponse): Responder {
    return {
      notify: (message) => response.notify(message),
      respond: (message) => {
        if (message !== undefined) this.#version = negotiatedVersionOf(message) ?? this.#version;
        response.respond(message);
      },
    };
  }

  /** Sends a message on the standalone stream: it belongs to a request, but cannot go into the request's response. */
  sendSeparately(message: EncodedMessage): void {
    this.send(message);
  }

  statusOf(): number {
    return 200;
  }

  onResponseEnd(response: PostResponse): void {
    if (this.#isClosed) return;
    this.#responses.remove(response.tableKey);
    this.#touch();
    this.#options.onAnswered();
    if (response.stream?.key === undefined) return;
    this.#finished.push({ key: response.stream.key, at: this.#lastUse });
    this.prune();
  }

  openStream(): EventBuffer {
    const key = ++this.#streamCount;
    const stream = new EventBuffer(key, this.#options.clock, () => this.#touch());
    if (this.#version === PRIMING_VERSION) stream.prime();
    this.#streams.set(key, stream);
    return stream;
  }

  #touch(): void {
    this.#lastUse = this.#options.clock.now();
  }
}

/** Whether a message must be answered; for a batch: whether at least one of its messages must be answered. */
function needsAnswer(message: Message): boolean {
  return message.kind === "batch"
    ? message.items.some(needsAnswer)
    : message.kind === "request" || message.kind === "invalid";
}

/** The protocol version in an answer to `initialize`. */
function negotiatedVersionOf(message: EncodedMessage): LegacyVersion | undefined {
  const parsed = parseMessage(joinMessage(message));
  if (parsed.kind !== "response" || parsed.outcome !== "result") return undefined;
  const version = bodyOf(parsed).string("protocolVersion");
  return isLegacyVersion(version) ? version : undefined;
}

/** `limit`: time after which an unused session is closed; `interval`: time between two checks; both in ms. */
export const IDLE_LIMITS = { limit: 30 * 60_000, interval: 60_000 };

/** Maximum number of sessions. */
export const MAX_SESSIONS = 10_000;

export interface HttpSessionsOptions {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly maxSessions: number;
  /**
   * Whether a new session beyond `maxSessions` ends the one that has been idle the longest; if not, the new one is
   * refused.
   */
  readonly evictsIdle: boolean;
  /** Serves a client on a transport. */
  accept(transport: Transport, scope: RequestScope): Promise<void>;
}

/** All sessions, by id. */
export class HttpSessions {
  readonly #options: HttpSessionsOptions;
  readonly #sessions = new Map<string, SessionTransport>();
  /** Settles when no request is in flight; undefined if nobody waits for that. */
  #idle: PromiseWithResolvers<void> | undefined;
  #cancelTimer: () => void;

  constructor(options: HttpSessionsOptions) {
    this.#options = options;
    this.#cancelTimer = this.#scheduleIdleCheck();
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Whether no further session can be opened. */
  get isFull(): boolean {
    const { maxSessions, evictsIdle } = this.#options;
    if (this.#sessions.size < maxSessions) return false;
    return !evictsIdle || this.#longestIdle === undefined;
  }

  get #longestIdle(): SessionTransport | undefined {
    let longest: SessionTransport | undefined;
    for (const session of this.#sessions.values()) {
      const { idleSince } = session;
      if (idleSince !== undefined && idleSince < (longest?.idleSince ?? Infinity))
        longest = session;
    }
    return longest;
  }

  find(id: string): SessionTransport | undefined {
    return this.#sessions.get(id);
  }

  /** Opens a session for an `initialize` request, and closes it again if the request fails. */
  async create(
    request: RpcRequest,
    accepts: AcceptedTypes,
    scope: RequestScope,
  ): Promise<Response> {
    const { name, maxSessions = Infinity } = scope.principal ?? {};
    if (maxSessions !== Infinity && this.#countOf(name) >= maxSessions) {
      const text = `Client "${name}" has reached its limit of ${count(maxSessions, "session")}: end one of them first.`;
      const headers = { "Retry-After": "60" };
      return errorResponse(503, text, { code: "notReading", id: request.id, headers });
    }
    if (this.isFull) {
      const text = `The limit of ${count(this.#options.maxSessions, "session")} is reached: try again later.`;
      const headers = { "Retry-After": "60" };
      return errorResponse(503, text, { code: "notReading", id: request.id, headers });
    }
    if (this.#sessions.size >= this.#options.maxSessions) await this.#longestIdle?.close();
    const session: SessionTransport = new SessionTransport({
      clock: this.#options.clock,
      deadlines: this.#options.deadlines,
      scope,
      onAnswered: () => this.#resolveIdle(),
      onEnd: () => {
        this.#sessions.delete(session.id);
        this.#resolveIdle();
      },
    });
    this.#sessions.set(session.id, session);
    // `accept` settles when the session ends, and rejects if it cannot begin.
    void this.#options.accept(session, scope).catch(() => session.close());
    const response = await session.receive(request, accepts);
    const hasFailed = session.version === undefined && session.inFlight === 0;
    if (hasFailed) await session.close();
    else response.headers.set("Mcp-Session-Id", session.id);
    return response;
  }

  /** Ends the sessions of a principal, or, if it is undefined, those of clients without a token. */
  closeOf(principal: string | undefined): void {
    for (const session of this.#sessions.values())
      if (session.scope.principal?.name === principal) void session.close();
  }

  #countOf(principal: string | undefined): number {
    let number = 0;
    for (const { scope } of this.#sessions.values())
      if (scope.principal?.name === principal) number++;
    return number;
  }

  /** Settles when no request of any session is in flight. */
  untilIdle(): Promise<void> {
    this.#idle ??= Promise.withResolvers<void>();
    const { promise } = this.#idle;
    this.#resolveIdle();
    return promise;
  }

  /** Ends all sessions. */
  async close(): Promise<void> {
    this.#cancelTimer();
    await Promise.all([...this.#sessions.values()].map((session) => session.close()));
  }

  #resolveIdle(): void {
    if (this.#idle === undefined) return;
    for (const { inFlight } of this.#sessions.values()) if (inFlight > 0) return;
    this.#idle.resolve();
    this.#idle = undefined;
  }

  #scheduleIdleCheck(): () => void {
    return this.#options.clock.after(IDLE_LIMITS.interval, () => {
      const threshold = this.#options.clock.now() - IDLE_LIMITS.limit;
      for (const session of this.#sessions.values()) {
        session.prune();
        if ((session.idleSince ?? Infinity) <= threshold) void session.close();
      }
      this.#cancelTimer = this.#scheduleIdleCheck();
    });
  }
}
