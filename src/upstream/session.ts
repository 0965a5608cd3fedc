import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { LogLevel, LogSource } from "../base/events.ts";
import type { Kind, ListedItem } from "../catalog/listing.ts";
import {
  type Message,
  type Notification,
  type Request,
  type Response,
  withRequestId,
} from "../jsonrpc/message.ts";
import type { ProcessStats } from "../process/child-process.ts";
import { type Implementation, Method } from "../protocol/legacy.ts";
import type { Era } from "../protocol/modern.ts";
import { buildCancelled, type CancelReason, readProgress } from "../protocol/notifications.ts";
import { ModernTaskMethod } from "../protocol/tasks.ts";
import type { AuthChallenge, HttpTransportKind } from "../transport/http/target.ts";
import type {
  MalformedOutput,
  SentRequest,
  TransportEvents,
  Transport,
} from "../transport/transport.ts";
import { MessageAttribution } from "./attribution.ts";
import { chooseDialect, type Dialect, type ListenTopic } from "./dialects.ts";
import type { ServerFeature, ServerHandshake } from "./handshake.ts";
import {
  type EarlyExit,
  negotiate,
  type NegotiationPlan,
  type NegotiationResult,
} from "./negotiate.ts";
import { ServerNotifications } from "./notifications.ts";
import { type CacheHintTable, dropUncallableTools, listAll } from "./pages.ts";
import { PendingRequests, type PendingRequest, type RequestRewrite } from "./pending.ts";
import type { ConnectionClients } from "./profile.ts";
import type { Subscriptions } from "./subscriptions.ts";
import { ServerTasks, type ServerTask } from "./tasks.ts";

/** Whom a server's news may concern. */
export interface IncomingNotificationsOptions {
  readonly pending: PendingRequests;
  readonly jobs: ServerTasks;
  readonly voice: ServerNotifications;
  dialect(): Dialect | undefined;
  subscriptions(): Subscriptions | undefined;
  /** What it lists of these kinds may be another. */
  listChanged(kinds: readonly Kind[]): void;
}

/** What one server sends without having been asked, on its way to those whom it concerns. */
export class IncomingNotifications {
  readonly #parts: IncomingNotificationsOptions;

  constructor(parts: IncomingNotificationsOptions) {
    this.#parts = parts;
  }

  /** @param exchange the request on whose stream it came, where the link can tell */
  asked(request: Request, exchange: SentRequest | undefined): void {
    const { jobs, voice, pending } = this.#parts;
    const job = jobs.isEmpty ? undefined : jobs.taskOfMessage(request);
    const record = exchange && pending.at(exchange);
    voice.asked(job === undefined ? request : job.withOwnId(request), job, record);
  }

  notified(raw: Notification, exchange: SentRequest | undefined): void {
    const { pending, jobs } = this.#parts;
    const job = jobs.isEmpty ? undefined : jobs.taskOfMessage(raw);
    const notification = job === undefined ? raw : job.withOwnId(raw);
    switch (notification.method) {
      case Method.progress: {
        const progress = readProgress(notification);
        if (progress === undefined) return;
        const { id, tokens } = progress;
        // The token of a call that became a task is good for as long as the task.
        (pending.get(id) ?? jobs.byCall(id))?.onProgress(notification, tokens);
        return;
      }
      case Method.toolsListChanged:
        this.#parts.listChanged(["tools"]);
        return;
      case Method.promptsListChanged:
        this.#parts.listChanged(["prompts"]);
        return;
      case Method.resourcesListChanged:
        this.#parts.listChanged(["resources", "resourceTemplates", "skills"]);
        return;
      case Method.resourceUpdated:
        this.#parts.subscriptions()?.updated(this.#strip(notification));
        return;
      case ModernTaskMethod.changed:
        this.#parts.subscriptions()?.tickets.told(this.#strip(notification));
        return;
      default:
        this.#say(notification, job, exchange && pending.at(exchange));
    }
  }

  /** For a while nothing was heard of changes of these kinds, nor of those of resources. */
  missed(kinds: readonly Kind[]): void {
    this.#parts.listChanged(kinds);
    this.#parts.subscriptions()?.missed();
  }

  #say(
    notification: Notification,
    job: ServerTask | undefined,
    record: PendingRequest | undefined,
  ): void {
    if (this.#parts.dialect()?.hear(notification, record) === true) return;
    this.#parts.voice.notified(notification, job, record);
  }

  #strip(notification: Notification): Notification {
    return this.#parts.dialect()?.strip(notification) ?? notification;
  }
}

/** Whom it may be for that comes in of a server. */
export interface IncomingMessagesOptions extends IncomingNotificationsOptions {
  /** What the hub makes of messages that are of no use. */
  log(level: LogLevel, text: string): void;
}

/** Takes in what a server sends: answers go to those who wait for them, all else to those whom it concerns. */
export class IncomingMessages {
  /** Messages that ever came, and refusals of pings. */
  heard = 0;
  readonly #parts: IncomingMessagesOptions;
  readonly #news: IncomingNotifications;
  readonly #complaints = new Set<string>();

  constructor(parts: IncomingMessagesOptions) {
    this.#parts = parts;
    this.#news = new IncomingNotifications(parts);
  }

  /** @param exchange the request on whose stream it came, where the link can tell */
  take(frame: Message, exchange: SentRequest | undefined): void {
    this.heard++;
    switch (frame.kind) {
      case "response":
        this.#settle(frame);
        return;
      case "notification":
        this.#news.notified(frame, exchange);
        return;
      case "request":
        if (this.#parts.dialect()?.era !== "modern") this.#news.asked(frame, exchange);
        else this.#refuse(frame);
        return;
      case "batch":
        if (this.#parts.dialect()?.hasBatches !== true) {
          this.complain("A batch was dropped: this revision has none.");
          return;
        }
        for (const item of frame.items) this.take(item, exchange);
        return;
      case "invalid":
        this.complain(`A message was dropped: ${frame.reason}.`);
    }
  }

  /** A message was too long to be kept. */
  lose(head: Buffer, tail: Buffer, size: number): void {
    this.heard++;
    const text = this.#parts.pending.lose(head, tail, size);
    if (text !== undefined) this.#parts.log("warn", text);
  }

  /** What was asked for a sign of life was turned away: only who lives can do that. */
  readonly turnedAway = ({ code }: HubError): void => {
    if (code === "serverRefused" || code === "serverFailed") this.heard++;
  };

  /** For a while nothing was heard of changes of these kinds. */
  missed(...[kinds]: Parameters<IncomingNotifications["missed"]>): void {
    this.#news.missed(kinds);
  }

  /** Said once: who does it once does it often. */
  complain(text: string): void {
    if (this.#complaints.has(text)) return;
    this.#complaints.add(text);
    this.#parts.log("warn", text);
  }

  /** Servers of the modern era send no requests (2026-07-28); one that does must not wait for an answer. */
  #refuse({ id, method }: Request): void {
    this.#parts.voice.refuse(id, method);
    this.complain("A request was refused: servers of its era send none.");
  }

  #settle(response: Response): void {
    const { pending, jobs, voice } = this.#parts;
    const record = response.id === undefined ? undefined : pending.take(response.id);
    if (record !== undefined) {
      voice.settled(record);
      record.onResponse(response);
      return;
    }
    if (response.id !== undefined) pending.late(response.id);
    jobs.onLateResponse(response, this.#parts.dialect()?.era ?? "legacy");
    // An answer after a cancel is usual; one that nobody asked for is the server's mistake.
    this.#parts.log("debug", "An answer that nobody waits for was dropped.");
  }
}

/** How often something is asked again whose answer was lost, and how long it waits before that, ever longer, in ms. */
const TIMES = 3;
const PAUSE = 100;

/** Asks again, over a link that may lose single requests, what does no harm if it is asked twice. */
export class OwnRequestRetry {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @throws what the last try throws, or the signal's reason */
  async of<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (let count = 0; ; count++) {
      try {
        return await ask();
      } catch (error) {
        if (count === TIMES || signal.aborted || !isLost(error)) throw error;
      }
      await this.#pause(PAUSE * 2 ** count, signal);
    }
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        undo();
        reject(signal.reason);
      };
      const undo = this.#clock.after(ms, () => {
        signal.removeEventListener("abort", abort);
        resolve();
      });
      signal.addEventListener("abort", abort, { once: true });
    });
  }
}

/** Whether a request was not answered although the link lives. */
function isLost(error: unknown): boolean {
  return (
    error instanceof HubError && (error.code === "notDelivered" || error.code === "answerLost")
  );
}

/** What a session is made from. */
export interface SessionOptions {
  readonly server: string;
  readonly link: Transport;
  /** For whom it is. */
  readonly audience: ConnectionClients;
  readonly clock: Clock;
  readonly events: SessionEvents;
}

/** What a session tells its connection. */
export interface SessionEvents {
  /** What it lists of these kinds may be another. */
  listChanged(kinds: readonly Kind[]): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  flaw?(flaw: MalformedOutput): void;
  /** The server wants another authorization than there is. */
  challenged(challenge: AuthChallenge): void;
  closed(cause: HubError): void;
}

/** MCP spoken with one server over an open Link, in the dialect that it speaks: the greeting, the table of pending requests, the listings. */
export class Session implements TransportEvents {
  readonly server: string;
  readonly #parts: SessionOptions;
  readonly #link: Transport;
  readonly #pending: PendingRequests;
  /** What the server says of its own accord. */
  readonly voice: ServerNotifications;
  /** What clients' calls were made into that does not end with its answer. */
  readonly jobs: ServerTasks;
  readonly #reception: IncomingMessages;
  /** What the server has said of itself, once it was met; and the dialect that it speaks. */
  met: ServerHandshake | undefined;
  #dialect: Dialect | undefined;
  greeting: NegotiationResult | undefined;
  /** Clients' requests that were ever sent, and the tool of the last one. */
  calls = 0;
  lastTool: string | undefined;
  /** For how long its lists hold, as they were last, as far as it says so. */
  readonly hints: CacheHintTable = new Map();
  /** The `_meta` of its lists, as they were last, as JSON. */
  readonly metas = new Map<Kind, string>();
  /** What clients have subscribed to. */
  subscriptions: Subscriptions | undefined;
  #ping: number | undefined;
  readonly #repetition: OwnRequestRetry | undefined;

  constructor(parts: SessionOptions) {
    const { server, link, audience, clock, events } = parts;
    this.#parts = parts;
    this.#repetition = link.adopt && new OwnRequestRetry(clock); // A pipe loses no single request.
    this.server = server;
    this.#link = link;
    this.#pending = new PendingRequests(server, link, clock, (record) =>
      this.voice.settled(record),
    );
    this.jobs = new ServerTasks(server, this.#pending, (params) => this.#dialect?.complete(params));
    this.voice = new ServerNotifications({
      server,
      link,
      clients: audience,
      attribution: new MessageAttribution(audience, this.#pending, this.jobs),
      clock,
      pending: this.#pending,
      log: (text) => events.log("debug", "server", text),
      request: (method, params) =>
        void this.ask(method, params, new AbortController().signal).catch(() => {}),
      warn: (text) => this.#reception.complain(text),
    });
    this.#reception = new IncomingMessages({
      pending: this.#pending,
      jobs: this.jobs,
      voice: this.voice,
      dialect: () => this.#dialect,
      subscriptions: () => this.subscriptions,
      listChanged: (kinds) => events.listChanged(kinds),
      log: (level, text) => events.log(level, "stdout", text),
    });
  }

  /** Messages that ever came: what makes it grow proves that the server lives. */
  get heard(): number {
    return this.#reception.heard;
  }

  /** Opens the link and meets the server as `greet` does; `linked` is called between the two. @throws {HubError} handshakeFailed, or what the link says */
  async open(
    clientInfo: Implementation,
    approach: NegotiationPlan,
    signal: AbortSignal,
    linked: () => void,
  ): Promise<EarlyExit | undefined> {
    const { server, audience, clock, events } = this.#parts;
    await this.#link.open(this, signal);
    linked();
    const common = { server, clock, clientInfo, capabilities: audience.capabilities };
    // What a server is met with is never cancelled (cancellation, behavior requirements).
    const drop = (id: number): void => void this.#pending.drop(id);
    const greeting = await negotiate({
      ...approach,
      ...common,
      signal,
      sendRequest: (method, params, until, headers) =>
        this.#pending.ask(method, params, until, drop, headers),
    });
    if ("cause" in greeting) return greeting;
    if (this.#pending.ended !== undefined) throw this.#pending.ended;
    this.greeting = greeting;
    this.met = greeting.handshake;
    const isModern = greeting.handshake.protocol.era === "modern";
    this.#link.adopt?.(greeting.handshake.protocol);
    this.#pending.isMirrored = isModern && this.#link.adopt !== undefined;
    this.#dialect = chooseDialect(greeting.handshake, {
      ...common,
      transport: this.#link,
      pending: this.#pending,
      voice: this.voice,
      ask: (method, params, until) => this.ask(method, params, until),
      onGap: (kinds) => this.#reception.missed(kinds),
      log: (level, text) => events.log(level, "server", text),
    });
    this.#dialect.begin();
    return undefined;
  }

  /** The one that the server speaks. */
  get era(): Era {
    return this.#dialect?.era ?? "legacy";
  }

  get way(): HttpTransportKind | undefined {
    if (this.#link.adopt === undefined) return undefined;
    return this.#link.hasStreams === true ? "http" : "sse";
  }

  /** A request may have to be written more than once. */
  get mayRepeat(): boolean {
    return this.era === "modern" || this.#link.adopt !== undefined;
  }

  /** Clients' requests that have not been answered. */
  get inFlight(): number {
    return this.#pending.relayed;
  }

  /** Clients wait for something that it does. */
  get isAtWork(): boolean {
    return this.inFlight > 0 || this.jobs.hasRunning;
  }

  /** Everything of that kind that the server has; nothing if it offers none. @throws {HubError} handshakeFailed at step `list`, or the link's end. */
  async list(kind: Kind, signal: AbortSignal): Promise<readonly ListedItem[]> {
    if (!this.offers(kind)) return [];
    const complain = (text: string): void => this.#parts.events.log("warn", "server", text);
    const items = await listAll({
      server: this.server,
      kind,
      ...(this.era === "modern" && { hints: this.hints }),
      metas: this.metas,
      ask: (method, params) => this.ask(method, params, signal),
      complain,
    });
    const isMirrored = kind === "tools" && this.#pending.isMirrored;
    return isMirrored ? dropUncallableTools(items, complain) : items;
  }

  offers(kind: Kind): boolean {
    return this.met?.kinds.has(kind) === true;
  }

  can(feature: ServerFeature): boolean {
    return this.met?.features.has(feature) === true;
  }

  /** Asks for a sign of life: whatever comes back shows in `heard`. A ping that was not answered is forgotten. */
  ping(): void {
    if (this.#ping !== undefined) this.#pending.drop(this.#ping);
    const { pulse = Method.ping } = this.#dialect ?? {};
    const params = this.#dialect?.complete(undefined);
    this.#ping = this.#pending.post(pulse, params, this.#reception.turnedAway);
  }

  /** Settles when no client's request is in flight. */
  quiet(): Promise<void> {
    return this.#pending.quiet();
  }

  vitals(): Promise<ProcessStats | undefined> {
    return this.#link.vitals();
  }

  /** Sends a client's request on under an id of the session's own. @returns that id, for `cancel`. */
  relay(record: PendingRequest, request: Request, { edits, tokens }: RequestRewrite): number {
    const id = this.#pending.nextId();
    this.calls++;
    if (record.method === Method.toolsCall) this.lastTool = record.name;
    if (record.sender !== undefined) this.#dialect?.dress(request, record.sender, edits);
    this.#pending.send(id, record, withRequestId(request, id, edits, tokens));
    return id;
  }

  /** Asks something of the hub's own, which may be asked twice; cancelled with the signal. @throws {HubError} cancelled, or the link's end */
  ask(method: string, params: object | undefined, signal: AbortSignal): Promise<Response> {
    const whole = this.#dialect?.complete(params) ?? params;
    const ask = () => this.#pending.ask(method, whole, signal, (id) => this.cancel(id));
    return this.#repetition?.of(ask, signal) ?? ask();
  }

  /** Begins to hear of a resource, or of a task. @throws {HubError} if the server does not agree, or does not answer */
  async subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    await this.#dialect?.subscribe(id, signal, topic);
  }

  unsubscribe(id: string, topic?: ListenTopic): void {
    this.#dialect?.unsubscribe(id, topic);
  }

  /** Forgets a request and tells the server. Whoever waits for it is not called any more. */
  cancel(id: number, why: CancelReason = "The hub gave up."): void {
    const record = this.#pending.get(id);
    if (record === undefined) return;
    if (this.#dialect?.mayMakeTask(record) === true) this.jobs.onCallCancelled(id);
    // Where a request has a stream of its own, to let go of that says it all in the modern era; of old it says nothing.
    const isSaid = this.#link.hasStreams === true && this.era === "modern";
    if (!isSaid) this.#link.send(buildCancelled(id, why));
    this.#pending.drop(id);
    this.voice.settled(record);
    this.voice.abandon();
  }

  pause(): void {
    this.#link.pause();
  }

  resume(): void {
    this.#link.resume();
  }

  /** Fails everything pending and ends the link, bounded in time. */
  close(): Promise<void> {
    const { server } = this;
    this.voice.close();
    this.#fail(new HubError("serverStopped", `Server "${server}" was stopped.`, { server }));
    return this.#link.close();
  }

  frame(frame: Message, exchange?: SentRequest): void {
    this.#reception.take(frame, exchange);
  }

  log(level: LogLevel, source: LogSource, text: string): void {
    this.#parts.events.log(level, source, text);
  }

  flaw(flaw: MalformedOutput): void {
    this.#parts.events.flaw?.(flaw);
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.#reception.lose(head, tail, size);
  }

  challenged(challenge: AuthChallenge): void {
    this.#parts.events.challenged(challenge);
  }

  /** What a server does not read is bounded where it is sent: by the table of what is pending, and by its voice. */
  pressure(): void {}

  closed(cause: HubError): void {
    this.#fail(cause);
    // Before it was met, what is asked of it fails, and that says it.
    if (this.met !== undefined) this.#parts.events.closed(cause);
  }

  /** Nothing that was begun comes to its end any more. */
  #fail(cause: HubError): void {
    this.#dialect?.close();
    this.#pending.fail(cause);
    this.jobs.fail(cause);
  }
}
