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

/** The clients and tables that notifications of a server may concern. */
export interface IncomingNotificationsOptions {
  readonly pending: PendingRequests;
  readonly serverTasks: ServerTasks;
  readonly notifications: ServerNotifications;
  dialect(): Dialect | undefined;
  subscriptions(): Subscriptions | undefined;
  /** Its list of these kinds may have changed. */
  listChanged(kinds: readonly Kind[]): void;
}

/** Dispatches what one server sends without being asked. */
export class IncomingNotifications {
  readonly #options: IncomingNotificationsOptions;

  constructor(options: IncomingNotificationsOptions) {
    this.#options = options;
  }

  /** @param exchange the request on whose stream it arrived, where the transport knows */
  onServerRequest(request: Request, sentRequest: SentRequest | undefined): void {
    const { serverTasks, notifications, pending } = this.#options;
    const serverTask = serverTasks.isEmpty ? undefined : serverTasks.taskOfMessage(request);
    const record = sentRequest && pending.at(sentRequest);
    notifications.onServerRequest(
      serverTask === undefined ? request : serverTask.withOwnId(request),
      serverTask,
      record,
    );
  }

  onNotification(raw: Notification, sentRequest: SentRequest | undefined): void {
    const { pending, serverTasks } = this.#options;
    const serverTask = serverTasks.isEmpty ? undefined : serverTasks.taskOfMessage(raw);
    const notification = serverTask === undefined ? raw : serverTask.withOwnId(raw);
    switch (notification.method) {
      case Method.progress: {
        const progress = readProgress(notification);
        if (progress === undefined) return;
        const { id, tokens } = progress;
        // The progress token of a call that became a task stays valid as long as the task.
        (pending.get(id) ?? serverTasks.byCall(id))?.onProgress(notification, tokens);
        return;
      }
      case Method.toolsListChanged:
        this.#options.listChanged(["tools"]);
        return;
      case Method.promptsListChanged:
        this.#options.listChanged(["prompts"]);
        return;
      case Method.resourcesListChanged:
        this.#options.listChanged(["resources", "resourceTemplates", "skills"]);
        return;
      case Method.resourceUpdated:
        this.#options.subscriptions()?.updated(this.#strip(notification));
        return;
      case ModernTaskMethod.changed:
        this.#options.subscriptions()?.modernTasks.onNotification(this.#strip(notification));
        return;
      default:
        this.#say(notification, serverTask, sentRequest && pending.at(sentRequest));
    }
  }

  /** Changes of these kinds and of resources may have been missed for a while. */
  missed(kinds: readonly Kind[]): void {
    this.#options.listChanged(kinds);
    this.#options.subscriptions()?.missed();
  }

  #say(
    notification: Notification,
    serverTask: ServerTask | undefined,
    record: PendingRequest | undefined,
  ): void {
    if (this.#options.dialect()?.handleNotification(notification, record) === true) return;
    this.#options.notifications.onNotification(notification, serverTask, record);
  }

  #strip(notification: Notification): Notification {
    return this.#options.dialect()?.strip(notification) ?? notification;
  }
}

/** The options of `IncomingMessages`. */
export interface IncomingMessagesOptions extends IncomingNotificationsOptions {
  /** Logs messages that the hub cannot use. */
  log(level: LogLevel, text: string): void;
}

/** Dispatches every message of a server: answers to pending requests, all else to notifications and server requests. */
export class IncomingMessages {
  /** Number of messages received, including refused pings. */
  heard = 0;
  readonly #options: IncomingMessagesOptions;
  readonly #news: IncomingNotifications;
  readonly #complaints = new Set<string>();

  constructor(options: IncomingMessagesOptions) {
    this.#options = options;
    this.#news = new IncomingNotifications(options);
  }

  /** @param exchange the request on whose stream it arrived, where the transport knows */
  onMessage(message: Message, sentRequest: SentRequest | undefined): void {
    this.heard++;
    switch (message.kind) {
      case "response":
        this.#settle(message);
        return;
      case "notification":
        this.#news.onNotification(message, sentRequest);
        return;
      case "request":
        if (this.#options.dialect()?.era !== "modern")
          this.#news.onServerRequest(message, sentRequest);
        else this.#refuse(message);
        return;
      case "batch":
        if (this.#options.dialect()?.hasBatches !== true) {
          this.complain("A batch was dropped: this revision has none.");
          return;
        }
        for (const item of message.items) this.onMessage(item, sentRequest);
        return;
      case "invalid":
        this.complain(`A message was dropped: ${message.reason}.`);
    }
  }

  /** A message was too long to be read. */
  onOversized(head: Buffer, tail: Buffer, size: number): void {
    this.heard++;
    const text = this.#options.pending.failOversized(head, tail, size);
    if (text !== undefined) this.#options.log("warn", text);
  }

  /** A ping was answered with an error: the server is alive. */
  readonly turnedAway = ({ code }: HubError): void => {
    if (code === "serverRefused" || code === "serverFailed") this.heard++;
  };

  /** Changes of these kinds may have been missed for a while. */
  missed(...[kinds]: Parameters<IncomingNotifications["missed"]>): void {
    this.#news.missed(kinds);
  }

  /** Logs a fault once, as a server that has it once has it often. */
  complain(text: string): void {
    if (this.#complaints.has(text)) return;
    this.#complaints.add(text);
    this.#options.log("warn", text);
  }

  /** Modern servers send no requests (2026-07-28); one that does must not be left waiting. */
  #refuse({ id, method }: Request): void {
    this.#options.notifications.refuse(id, method);
    this.complain("A request was refused: servers of its era send none.");
  }

  #settle(response: Response): void {
    const { pending, serverTasks, notifications } = this.#options;
    const record = response.id === undefined ? undefined : pending.remove(response.id);
    if (record !== undefined) {
      notifications.settled(record);
      record.onResponse(response);
      return;
    }
    if (response.id !== undefined) pending.onLateResponse(response.id);
    serverTasks.onLateResponse(response, this.#options.dialect()?.era ?? "legacy");
    // An answer after a cancel is normal; an answer to no request is a fault of the server.
    this.#options.log("debug", "An answer that nobody waits for was dropped.");
  }
}

/** How often a request is retried whose answer was lost, and the pause before each retry, doubling, in ms. */
const TIMES = 3;
const PAUSE = 100;

/** Retries idempotent requests over a transport that may lose single requests. */
export class OwnRequestRetry {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @throws what the last attempt throws, or the signal's reason */
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

/** Whether a request was not answered although the transport is open. */
function isLost(error: unknown): boolean {
  return (
    error instanceof HubError && (error.code === "notDelivered" || error.code === "answerLost")
  );
}

/** The options of a session. */
export interface SessionOptions {
  readonly server: string;
  readonly transport: Transport;
  /** The clients that use it. */
  readonly clients: ConnectionClients;
  readonly clock: Clock;
  readonly events: SessionEvents;
}

/** What a session reports to its connection. */
export interface SessionEvents {
  /** Its list of these kinds may have changed. */
  listChanged(kinds: readonly Kind[]): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  flaw?(output: MalformedOutput): void;
  /** The server demands another authorization. */
  challenged(challenge: AuthChallenge): void;
  closed(cause: HubError): void;
}

/** MCP spoken with one server over an open transport, in its dialect: handshake, pending requests, listings. */
export class Session implements TransportEvents {
  readonly server: string;
  readonly #options: SessionOptions;
  readonly #transport: Transport;
  readonly #pending: PendingRequests;
  /** The server's notifications. */
  readonly notifications: ServerNotifications;
  /** The tasks that clients' calls became. */
  readonly serverTasks: ServerTasks;
  readonly #reception: IncomingMessages;
  /** The handshake once it is complete, and with it the dialect. */
  met: ServerHandshake | undefined;
  #dialect: Dialect | undefined;
  greeting: NegotiationResult | undefined;
  /** Number of clients' requests sent, and the tool of the last one. */
  calls = 0;
  lastTool: string | undefined;
  /** The cache hints of its last lists, where the server sends them. */
  readonly hints: CacheHintTable = new Map();
  /** The `_meta` of its last lists, as JSON. */
  readonly metas = new Map<Kind, string>();
  /** The clients' subscriptions. */
  subscriptions: Subscriptions | undefined;
  #ping: number | undefined;
  readonly #repetition: OwnRequestRetry | undefined;

  constructor(options: SessionOptions) {
    const { server, transport, clients, clock, events } = options;
    this.#options = options;
    this.#repetition = transport.adopt && new OwnRequestRetry(clock); // A pipe loses no single request.
    this.server = server;
    this.#transport = transport;
    this.#pending = new PendingRequests(server, transport, clock, (record) =>
      this.notifications.settled(record),
    );
    this.serverTasks = new ServerTasks(server, this.#pending, (params) =>
      this.#dialect?.complete(params),
    );
    this.notifications = new ServerNotifications({
      server,
      transport,
      clients,
      attribution: new MessageAttribution(clients, this.#pending, this.serverTasks),
      clock,
      pending: this.#pending,
      log: (text) => events.log("debug", "server", text),
      request: (method, params) =>
        void this.ask(method, params, new AbortController().signal).catch(() => {}),
      warn: (text) => this.#reception.complain(text),
    });
    this.#reception = new IncomingMessages({
      pending: this.#pending,
      serverTasks: this.serverTasks,
      notifications: this.notifications,
      dialect: () => this.#dialect,
      subscriptions: () => this.subscriptions,
      listChanged: (kinds) => events.listChanged(kinds),
      log: (level, text) => events.log(level, "stdout", text),
    });
  }

  /** Number of messages received: when it grows, the server is alive. */
  get heard(): number {
    return this.#reception.heard;
  }

  /**
   * Opens the transport and does the handshake; `linked` is called between the two.
   * @throws {HubError} handshakeFailed, or what the transport throws
   */
  async open(
    clientInfo: Implementation,
    approach: NegotiationPlan,
    signal: AbortSignal,
    linked: () => void,
  ): Promise<EarlyExit | undefined> {
    const { server, clients, clock, events } = this.#options;
    await this.#transport.open(this, signal);
    linked();
    const common = { server, clock, clientInfo, capabilities: clients.capabilities };
    // A handshake request is never cancelled (cancellation, behavior requirements).
    const abandon = (id: number): void => void this.#pending.abandon(id);
    const greeting = await negotiate({
      ...approach,
      ...common,
      signal,
      sendRequest: (method, params, until, headers) =>
        this.#pending.ask(method, params, until, abandon, headers),
    });
    if ("cause" in greeting) return greeting;
    if (this.#pending.ended !== undefined) throw this.#pending.ended;
    this.greeting = greeting;
    this.met = greeting.handshake;
    const isModern = greeting.handshake.protocol.era === "modern";
    this.#transport.adopt?.(greeting.handshake.protocol);
    this.#pending.isMirrored = isModern && this.#transport.adopt !== undefined;
    this.#dialect = chooseDialect(greeting.handshake, {
      ...common,
      transport: this.#transport,
      pending: this.#pending,
      notifications: this.notifications,
      ask: (method, params, until) => this.ask(method, params, until),
      onGap: (kinds) => this.#reception.missed(kinds),
      log: (level, text) => events.log(level, "server", text),
    });
    this.#dialect.onHandshake();
    return undefined;
  }

  /** The era of the session. */
  get era(): Era {
    return this.#dialect?.era ?? "legacy";
  }

  get way(): HttpTransportKind | undefined {
    if (this.#transport.adopt === undefined) return undefined;
    return this.#transport.hasStreams === true ? "http" : "sse";
  }

  /** Whether a request may have to be written more than once. */
  get mayRepeat(): boolean {
    return this.era === "modern" || this.#transport.adopt !== undefined;
  }

  /** Number of clients' requests that are not answered. */
  get inFlight(): number {
    return this.#pending.relayed;
  }

  /** Whether the server is working on something that clients wait for. */
  get isBusy(): boolean {
    return this.inFlight > 0 || this.serverTasks.hasRunning;
  }

  /**
   * All entries of a kind; none if the server does not declare it.
   * @throws {HubError} handshakeFailed at step `list`, or the transport's end
   */
  async list(kind: Kind, signal: AbortSignal): Promise<readonly ListedItem[]> {
    if (!this.offers(kind)) return [];
    const complain = (text: string): void => this.#options.events.log("warn", "server", text);
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

  /** Sends a ping: any answer counts in `heard`. An unanswered ping is dropped. */
  ping(): void {
    if (this.#ping !== undefined) this.#pending.abandon(this.#ping);
    const { healthCheckMethod: pulse = Method.ping } = this.#dialect ?? {};
    const params = this.#dialect?.complete(undefined);
    this.#ping = this.#pending.post(pulse, params, this.#reception.turnedAway);
  }

  /** Resolves when no client's request is in flight. */
  quiet(): Promise<void> {
    return this.#pending.quiet();
  }

  vitals(): Promise<ProcessStats | undefined> {
    return this.#transport.vitals();
  }

  /** Sends a client's request under an id of the session's own. @returns that id, for `cancel` */
  relay(record: PendingRequest, request: Request, { edits, tokens }: RequestRewrite): number {
    const id = this.#pending.nextId();
    this.calls++;
    if (record.method === Method.toolsCall) this.lastTool = record.name;
    if (record.sender !== undefined) this.#dialect?.addSender(request, record.sender, edits);
    this.#pending.send(id, record, withRequestId(request, id, edits, tokens));
    return id;
  }

  /**
   * Sends an idempotent request of the hub's own; cancelled with the signal.
   * @throws {HubError} cancelled, or the transport's end
   */
  ask(method: string, params: object | undefined, signal: AbortSignal): Promise<Response> {
    const whole = this.#dialect?.complete(params) ?? params;
    const ask = () => this.#pending.ask(method, whole, signal, (id) => this.cancel(id));
    return this.#repetition?.of(ask, signal) ?? ask();
  }

  /** Subscribes to a resource or a task. @throws {HubError} if the server refuses or does not answer */
  async subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    await this.#dialect?.subscribe(id, signal, topic);
  }

  unsubscribe(id: string, topic?: ListenTopic): void {
    this.#dialect?.unsubscribe(id, topic);
  }

  /** Drops a request and notifies the server. Its record is not called any more. */
  cancel(id: number, why: CancelReason = "The hub gave up."): void {
    const record = this.#pending.get(id);
    if (record === undefined) return;
    if (this.#dialect?.mayMakeTask(record) === true) this.serverTasks.onCallCancelled(id);
    // In the modern era closing the request's own stream is the cancellation; in the legacy era it means nothing.
    const isSaid = this.#transport.hasStreams === true && this.era === "modern";
    if (!isSaid) this.#transport.send(buildCancelled(id, why));
    this.#pending.abandon(id);
    this.notifications.settled(record);
    this.notifications.abandon();
  }

  pause(): void {
    this.#transport.pause();
  }

  resume(): void {
    this.#transport.resume();
  }

  /** Fails everything pending and closes the transport, within a time limit. */
  close(): Promise<void> {
    const { server } = this;
    this.notifications.close();
    this.#fail(new HubError("serverStopped", `Server "${server}" was stopped.`, { server }));
    return this.#transport.close();
  }

  frame(message: Message, sentRequest?: SentRequest): void {
    this.#reception.onMessage(message, sentRequest);
  }

  log(level: LogLevel, source: LogSource, text: string): void {
    this.#options.events.log(level, source, text);
  }

  flaw(output: MalformedOutput): void {
    this.#options.events.flaw?.(output);
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.#reception.onOversized(head, tail, size);
  }

  challenged(challenge: AuthChallenge): void {
    this.#options.events.challenged(challenge);
  }

  /** What a server does not read is bounded where it is sent: by the pending requests and by the notifications. */
  pressure(): void {}

  closed(cause: HubError): void {
    this.#fail(cause);
    // Before the handshake is complete, its request fails and reports the cause.
    if (this.met !== undefined) this.#options.events.closed(cause);
  }

  /** Fails everything that is still open. */
  #fail(cause: HubError): void {
    this.#dialect?.close();
    this.#pending.fail(cause);
    this.serverTasks.fail(cause);
  }
}
