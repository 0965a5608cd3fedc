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
import { createDialect, type Dialect, type ListenTopic } from "./dialects.ts";
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

/** The clients and tables that a server's notifications may concern. */
export interface IncomingNotificationsOptions {
  readonly pending: PendingRequests;
  readonly serverTasks: ServerTasks;
  readonly notifications: ServerNotifications;
  dialect(): Dialect | undefined;
  subscriptions(): Subscriptions | undefined;
  /** The server's lists of these kinds may have changed. */
  listChanged(kinds: readonly Kind[]): void;
}

/** Dispatches the server's messages that are not responses. */
export class IncomingNotifications {
  readonly #options: IncomingNotificationsOptions;

  constructor(options: IncomingNotificationsOptions) {
    this.#options = options;
  }

  /** @param sentRequest the request on whose stream it arrived, where the transport knows */
  onServerRequest(request: Request, sentRequest: SentRequest | undefined): void {
    const { serverTasks, notifications, pending } = this.#options;
    const serverTask = serverTasks.isEmpty ? undefined : serverTasks.taskOfMessage(request);
    const record = sentRequest && pending.requestOf(sentRequest);
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
        // The progress token of a call that became a task remains valid until the task ends.
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
        this.#options.subscriptions()?.onUpdated(this.#withoutSubscriptionId(notification));
        return;
      case ModernTaskMethod.changed:
        this.#options
          .subscriptions()
          ?.modernTasks.onNotification(this.#withoutSubscriptionId(notification));
        return;
      default:
        this.#forward(notification, serverTask, sentRequest && pending.requestOf(sentRequest));
    }
  }

  /** Changes of these kinds and of resources may have been missed during a gap. */
  onGap(kinds: readonly Kind[]): void {
    this.#options.listChanged(kinds);
    this.#options.subscriptions()?.onGap();
  }

  #forward(
    notification: Notification,
    serverTask: ServerTask | undefined,
    record: PendingRequest | undefined,
  ): void {
    if (this.#options.dialect()?.handleNotification(notification, record) === true) return;
    this.#options.notifications.onNotification(notification, serverTask, record);
  }

  #withoutSubscriptionId(notification: Notification): Notification {
    return this.#options.dialect()?.withoutSubscriptionId(notification) ?? notification;
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
  messageCount = 0;
  readonly #options: IncomingMessagesOptions;
  readonly #notifications: IncomingNotifications;
  readonly #warned = new Set<string>();

  constructor(options: IncomingMessagesOptions) {
    this.#options = options;
    this.#notifications = new IncomingNotifications(options);
  }

  /** @param sentRequest the request on whose stream it arrived, where the transport knows */
  onMessage(message: Message, sentRequest: SentRequest | undefined): void {
    this.messageCount++;
    switch (message.kind) {
      case "response":
        this.#onResponse(message);
        return;
      case "notification":
        this.#notifications.onNotification(message, sentRequest);
        return;
      case "request":
        if (this.#options.dialect()?.era !== "modern")
          this.#notifications.onServerRequest(message, sentRequest);
        else this.#refuseRequest(message);
        return;
      case "batch":
        if (this.#options.dialect()?.hasBatches !== true) {
          this.warnOnce("A batch was dropped: this revision has none.");
          return;
        }
        for (const item of message.items) this.onMessage(item, sentRequest);
        return;
      case "invalid":
        this.warnOnce(`A message was dropped: ${message.reason}.`);
    }
  }

  /** A message was too long to be read. */
  onOversized(head: Buffer, tail: Buffer, size: number): void {
    this.messageCount++;
    const text = this.#options.pending.failOversized(head, tail, size);
    if (text !== undefined) this.#options.log("warn", text);
  }

  /** A ping was answered with an error: the server is alive. */
  readonly onPingFailed = ({ code }: HubError): void => {
    if (code === "serverRefused" || code === "serverFailed") this.messageCount++;
  };

  /** Changes of these kinds may have been missed during a gap. */
  onGap(...[kinds]: Parameters<IncomingNotifications["onGap"]>): void {
    this.#notifications.onGap(kinds);
  }

  /** Logs a fault once per text: a server that has a fault usually repeats it. */
  warnOnce(text: string): void {
    if (this.#warned.has(text)) return;
    this.#warned.add(text);
    this.#options.log("warn", text);
  }

  /** Modern servers must not send requests (2026-07-28). A server that does gets an error, so that it does not wait. */
  #refuseRequest({ id, method }: Request): void {
    this.#options.notifications.refuseRequest(id, method);
    this.warnOnce("A request was refused: servers of its era send none.");
  }

  #onResponse(response: Response): void {
    const { pending, serverTasks, notifications } = this.#options;
    const record = response.id === undefined ? undefined : pending.remove(response.id);
    if (record !== undefined) {
      notifications.onRequestEnded(record);
      record.onResponse(response);
      return;
    }
    if (response.id !== undefined) pending.onLateResponse(response.id);
    serverTasks.onLateResponse(response, this.#options.dialect()?.era ?? "legacy");
    // A response after a cancellation is normal; a response to no request is a fault of the server.
    this.#options.log("debug", "An answer that nobody waits for was dropped.");
  }
}

/**
 * Maximum number of retries of a request whose answer was lost, and the delay before the first one, in ms; it doubles.
 */
const MAX_RETRIES = 3;
const FIRST_RETRY_DELAY = 100;

/** Retries idempotent requests over a transport that may lose single requests. */
export class OwnRequestRetry {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @throws what the last attempt throws, or the signal's reason */
  async run<T>(send: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (let retries = 0; ; retries++) {
      try {
        return await send();
      } catch (error) {
        if (retries === MAX_RETRIES || signal.aborted || !isLost(error)) throw error;
      }
      await this.#pause(FIRST_RETRY_DELAY * 2 ** retries, signal);
    }
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        cancelTimer();
        reject(signal.reason);
      };
      const cancelTimer = this.#clock.after(ms, () => {
        signal.removeEventListener("abort", abort);
        resolve();
      });
      signal.addEventListener("abort", abort, { once: true });
    });
  }
}

/** Whether a request was not answered although the transport is still open. */
function isLost(error: unknown): boolean {
  return (
    error instanceof HubError && (error.code === "notDelivered" || error.code === "answerLost")
  );
}

/** The options of a session. */
export interface SessionOptions {
  readonly server: string;
  readonly transport: Transport;
  /** The clients that use the session. */
  readonly clients: ConnectionClients;
  readonly clock: Clock;
  readonly events: SessionEvents;
}

/** What a session reports to its connection. */
export interface SessionEvents {
  /** The server's lists of these kinds may have changed. */
  listChanged(kinds: readonly Kind[]): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  malformedOutput?(output: MalformedOutput): void;
  /** The server demands another authorization. */
  challenged(challenge: AuthChallenge): void;
  closed(cause: HubError): void;
}

/**
 * An MCP session with one server over an open transport, in the server's dialect: handshake, pending requests,
 * listings.
 */
export class Session implements TransportEvents {
  readonly server: string;
  readonly #options: SessionOptions;
  readonly #transport: Transport;
  readonly #pending: PendingRequests;
  /** Handles the server's notifications and requests. */
  readonly notifications: ServerNotifications;
  /** The server's tasks, which clients' calls have created. */
  readonly serverTasks: ServerTasks;
  readonly #incoming: IncomingMessages;
  /** The handshake once it is complete; the dialect is set with it. */
  handshake: ServerHandshake | undefined;
  #dialect: Dialect | undefined;
  negotiation: NegotiationResult | undefined;
  /** Number of clients' requests sent, and the tool of the last one. */
  callCount = 0;
  lastTool: string | undefined;
  /** The cache hints of its last lists, where the server sends them. */
  readonly cacheHints: CacheHintTable = new Map();
  /** The `_meta` of its last lists, as JSON. */
  readonly listMeta = new Map<Kind, string>();
  /** The clients' subscriptions. */
  subscriptions: Subscriptions | undefined;
  #pingId: number | undefined;
  readonly #ownRequestRetry: OwnRequestRetry | undefined;

  constructor(options: SessionOptions) {
    const { server, transport, clients, clock, events } = options;
    this.#options = options;
    this.#ownRequestRetry = transport.adopt && new OwnRequestRetry(clock); // Only transports that can lose single requests need it; a pipe cannot.
    this.server = server;
    this.#transport = transport;
    this.#pending = new PendingRequests(server, transport, clock, (record) =>
      this.notifications.onRequestEnded(record),
    );
    this.serverTasks = new ServerTasks(server, this.#pending, (params) =>
      this.#dialect?.completeParams(params),
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
        void this.sendRequest(method, params, new AbortController().signal).catch(() => {}),
      warn: (text) => this.#incoming.warnOnce(text),
    });
    this.#incoming = new IncomingMessages({
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
  get messageCount(): number {
    return this.#incoming.messageCount;
  }

  /**
   * Opens the transport and does the handshake; `onTransportOpen` is called between the two.
   * @throws {HubError} handshakeFailed, or what the transport throws
   */
  async open(
    clientInfo: Implementation,
    plan: NegotiationPlan,
    signal: AbortSignal,
    onTransportOpen: () => void,
  ): Promise<EarlyExit | undefined> {
    const { server, clients, clock, events } = this.#options;
    await this.#transport.open(this, signal);
    onTransportOpen();
    const common = { server, clock, clientInfo, capabilities: clients.capabilities };
    // The specification forbids cancelling `initialize`: an aborted handshake request is only abandoned.
    const abandon = (id: number): void => void this.#pending.abandon(id);
    const result = await negotiate({
      ...plan,
      ...common,
      signal,
      sendRequest: (method, params, until, headers) =>
        this.#pending.sendRequest(method, params, until, abandon, headers),
    });
    if ("cause" in result) return result;
    if (this.#pending.endCause !== undefined) throw this.#pending.endCause;
    this.negotiation = result;
    this.handshake = result.handshake;
    const isModern = result.handshake.protocol.era === "modern";
    this.#transport.adopt?.(result.handshake.protocol);
    this.#pending.sendsParamHeaders = isModern && this.#transport.adopt !== undefined;
    this.#dialect = createDialect(result.handshake, {
      ...common,
      transport: this.#transport,
      pending: this.#pending,
      notifications: this.notifications,
      sendRequest: (method, params, until) => this.sendRequest(method, params, until),
      onGap: (kinds) => this.#incoming.onGap(kinds),
      log: (level, text) => events.log(level, "server", text),
    });
    this.#dialect.onHandshake();
    return undefined;
  }

  /** The era of the session. */
  get era(): Era {
    return this.#dialect?.era ?? "legacy";
  }

  get httpTransportKind(): HttpTransportKind | undefined {
    if (this.#transport.adopt === undefined) return undefined;
    return this.#transport.hasStreams === true ? "http" : "sse";
  }

  /** Whether a request may have to be written more than once. */
  get mayResend(): boolean {
    return this.era === "modern" || this.#transport.adopt !== undefined;
  }

  /** Number of clients' requests in flight. */
  get inFlight(): number {
    return this.#pending.clientRequestCount;
  }

  /** Whether the server works on something that clients wait for. */
  get isBusy(): boolean {
    return this.inFlight > 0 || this.serverTasks.hasRunning;
  }

  /**
   * Lists all items of a kind; empty if the server does not declare the kind.
   * @throws {HubError} handshakeFailed at step `list`, or the error with which the transport closed
   */
  async list(kind: Kind, signal: AbortSignal): Promise<readonly ListedItem[]> {
    if (!this.offers(kind)) return [];
    const warn = (text: string): void => this.#options.events.log("warn", "server", text);
    const items = await listAll({
      server: this.server,
      kind,
      ...(this.era === "modern" && { cacheHints: this.cacheHints }),
      listMeta: this.listMeta,
      requestPage: (method, params) => this.sendRequest(method, params, signal),
      warn,
    });
    const sendsParamHeaders = kind === "tools" && this.#pending.sendsParamHeaders;
    return sendsParamHeaders ? dropUncallableTools(items, warn) : items;
  }

  offers(kind: Kind): boolean {
    return this.handshake?.kinds.has(kind) === true;
  }

  supports(feature: ServerFeature): boolean {
    return this.handshake?.features.has(feature) === true;
  }

  /** Sends a ping; any answer increments `messageCount`. An unanswered ping is dropped. */
  ping(): void {
    if (this.#pingId !== undefined) this.#pending.abandon(this.#pingId);
    const { healthCheckMethod: pingMethod = Method.ping } = this.#dialect ?? {};
    const params = this.#dialect?.completeParams(undefined);
    this.#pingId = this.#pending.sendWithoutWaiting(
      pingMethod,
      params,
      this.#incoming.onPingFailed,
    );
  }

  /** Resolves when no client's request is in flight. */
  whenIdle(): Promise<void> {
    return this.#pending.whenIdle();
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#transport.vitals();
  }

  /** Sends a client's request with a new id that the session allocates. @returns that id, for `cancel` */
  relay(record: PendingRequest, request: Request, { edits, tokens }: RequestRewrite): number {
    const id = this.#pending.nextId();
    this.callCount++;
    if (record.method === Method.toolsCall) this.lastTool = record.name;
    if (record.sender !== undefined) this.#dialect?.addSender(request, record.sender, edits);
    this.#pending.send(id, record, withRequestId(request, id, edits, tokens));
    return id;
  }

  /**
   * Sends an idempotent request of the hub's own; aborting the signal cancels it.
   * @throws the signal's reason, or {HubError} if the request is lost or the transport closes
   */
  sendRequest(method: string, params: object | undefined, signal: AbortSignal): Promise<Response> {
    const fullParams = this.#dialect?.completeParams(params) ?? params;
    const send = () =>
      this.#pending.sendRequest(method, fullParams, signal, (id) => this.cancel(id));
    return this.#ownRequestRetry?.run(send, signal) ?? send();
  }

  /** Subscribes to a resource or a task. @throws {HubError} if the server refuses or does not answer */
  async subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    await this.#dialect?.subscribe(id, signal, topic);
  }

  unsubscribe(id: string, topic?: ListenTopic): void {
    this.#dialect?.unsubscribe(id, topic);
  }

  /** Drops a request and notifies the server. Its record is not called any more. */
  cancel(id: number, reason: CancelReason = "The hub gave up."): void {
    const record = this.#pending.get(id);
    if (record === undefined) return;
    if (this.#dialect?.mayCreateTask(record) === true) this.serverTasks.onCallCancelled(id);
    // In the modern era, closing the request's own stream is the cancellation; in the legacy era it has no meaning.
    const isImplied = this.#transport.hasStreams === true && this.era === "modern";
    if (!isImplied) this.#transport.send(buildCancelled(id, reason));
    this.#pending.abandon(id);
    this.notifications.onRequestEnded(record);
    this.notifications.onRequestCancelled();
  }

  pause(): void {
    this.#transport.pause();
  }

  resume(): void {
    this.#transport.resume();
  }

  /** Fails all pending requests and tasks, and closes the transport, within a limited time. */
  close(): Promise<void> {
    const { server } = this;
    this.notifications.close();
    this.#fail(new HubError("serverStopped", `Server "${server}" was stopped.`, { server }));
    return this.#transport.close();
  }

  frame(message: Message, sentRequest?: SentRequest): void {
    this.#incoming.onMessage(message, sentRequest);
  }

  log(level: LogLevel, source: LogSource, text: string): void {
    this.#options.events.log(level, source, text);
  }

  flaw(output: MalformedOutput): void {
    this.#options.events.malformedOutput?.(output);
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.#incoming.onOversized(head, tail, size);
  }

  challenged(challenge: AuthChallenge): void {
    this.#options.events.challenged(challenge);
  }

  /** Unread data is limited where it is sent: by the pending requests and by the notifications. */
  pressure(): void {}

  closed(cause: HubError): void {
    this.#fail(cause);
    // Before the handshake is complete, its own request fails and reports the cause.
    if (this.handshake !== undefined) this.#options.events.closed(cause);
  }

  /** Fails all pending requests, tasks and subscriptions. */
  #fail(cause: HubError): void {
    this.#dialect?.close();
    this.#pending.fail(cause);
    this.serverTasks.fail(cause);
  }
}
