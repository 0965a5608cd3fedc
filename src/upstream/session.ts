import type { Buffer } from "node:buffer";
import { type Edit, utf8 } from "../base/bytes.ts";
import { type Clock, pause, withTimeLimit } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { LogLevel, LogSource } from "../base/hub-events.ts";
import { conforms } from "../catalog/conformance.ts";
import {
  type DifferingItem,
  type Kind,
  type ListedItem,
  readItem,
  readPage,
} from "../catalog/listing.ts";
import {
  bodyOf,
  buildError,
  buildResult,
  bytesOf,
  type EncodedMessage,
  errorCodeOf,
  hasNoId,
  type Message,
  type Notification,
  paramsOf,
  type Request,
  type Response,
  withRequestId,
} from "../jsonrpc/message.ts";
import type { ProcessStats } from "../process/child-process.ts";
import { saidByPeer, type TextRedactor } from "../base/quote.ts";
import { applyMessageEdits, withId, withWellFormedError } from "../jsonrpc/parse.ts";
import { type Implementation, Method } from "../protocol/legacy.ts";
import type { Era } from "../protocol/modern.ts";
import {
  buildCancelled,
  type CancelReason,
  prefixLogMessage,
  readLogMessage,
  readProgress,
  readProgressTokens,
} from "../protocol/notifications.ts";
import { LegacyTaskMethod, ModernTaskMethod } from "../protocol/tasks.ts";
import {
  failureOfError,
  failureOfThrown,
  type PeerNetwork,
  type RequestFailure,
  targetOf,
} from "../telemetry/request-attributes.ts";
import { contextEdits, type SentContext } from "../telemetry/request-span.ts";
import { digestOf } from "../telemetry/trace-context.ts";
import type { OwnRequest } from "../telemetry/tracer.ts";
import type { AuthChallenge, HttpTransportKind } from "../transport/http/target.ts";
import {
  type MalformedOutput,
  mayLoseRequests,
  type SentRequest,
  type TransportEvents,
  type Transport,
} from "../transport/transport.ts";
import { MessageAttribution, type MessageOrigin } from "./attribution.ts";
import { createDialect, type Dialect, type ListenTopic } from "./dialects.ts";
import type { ServerFeature, ServerHandshake } from "./handshake-result.ts";
import {
  type EarlyExit,
  negotiate,
  type NegotiationPlan,
  type NegotiationResult,
} from "./negotiate.ts";
import { type CacheHintTable, dropUncallableTools, listAll } from "./pages.ts";
import { PendingRequests, type PendingRequest, type RequestRewrite } from "./pending.ts";
import type { ConnectionClients } from "./profile.ts";
import { ServerRequests } from "./server-requests.ts";
import type { Subscriptions } from "./subscriptions.ts";
import type { ServerTasks } from "./tasks.ts";

/**
 * Maximum number of retries of a request whose answer was lost. `FIRST_RETRY_DELAY`: the delay before the first retry,
 * in ms; it doubles with each retry.
 */
const MAX_RETRIES = 3;
const FIRST_RETRY_DELAY = 100;
/** Maximum size of the data that the server has not read yet, in bytes. Above it, the server's requests are dropped. */
const MAX_QUEUED_BYTES = 16 * 1024 * 1024;
const EMPTY_RESULT = utf8("{}");
/** Maximum time, in ms, for a server that declares no tools to answer whether it has some. */
const UNDECLARED_TOOLS_LIMIT = 1000;
const UNDECLARED_TOOLS =
  'lists tools but does not declare the capability "tools", so they are not used';
const METHOD_NOT_FOUND = -32601;

/**
 * Sends an idempotent request, and repeats it if it is lost, over a transport that may lose single requests.
 * @throws the error of the last attempt, or the signal's reason
 */
async function retryLost<T>(send: () => Promise<T>, clock: Clock, signal: AbortSignal): Promise<T> {
  for (let retries = 0; ; retries++) {
    try {
      return await send();
    } catch (error) {
      if (retries === MAX_RETRIES || signal.aborted || !isLost(error)) throw error;
    }
    await pause(clock, FIRST_RETRY_DELAY * 2 ** retries, signal);
  }
}

/** How servers are connected, by the kind of their transport, for spans. */
const NETWORKS: Readonly<Record<Transport["kind"], PeerNetwork>> = {
  stdio: { transport: "pipe" },
  http: { transport: "tcp", protocol: { name: "http", version: "1.1" } },
  memory: { transport: undefined },
  nats: { transport: "tcp" },
};

/** Whether a request got no answer although the transport is still open. */
function isLost(error: unknown): boolean {
  return (
    error instanceof HubError && (error.code === "notDelivered" || error.code === "answerLost")
  );
}

export interface SessionOptions {
  readonly server: string;
  /** The server's name for people; absent: `server`. */
  readonly displayName?: string;
  readonly transport: Transport;
  readonly clients: ConnectionClients;
  readonly clock: Clock;
  readonly subscriptions: Subscriptions;
  /** The tasks that clients' calls have created at the server. */
  readonly tasks: ServerTasks;
  readonly events: SessionEvents;
}

export interface SessionEvents {
  /** Called when the server's lists of these kinds may have changed. */
  listChanged(kinds: readonly Kind[]): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  malformedOutput?(output: MalformedOutput): void;
  /** Called when the server demands another authorization. */
  challenged(challenge: AuthChallenge): void;
  closed(cause: HubError): void;
  /** Called when one of the hub's own requests has ended. */
  requestEnded?(request: EndedRequest): void;
}

/** One of the hub's own requests that has ended, as far as its session knows it. */
export type EndedRequest = Omit<OwnRequest, "server" | "address">;

/**
 * An MCP session with one server over an open transport: handshake, pending requests and listings. The dialect handles
 * the differences between the eras.
 */
export class Session implements TransportEvents {
  readonly server: string;
  /** The server's name for people. */
  readonly displayName: string;
  readonly #options: SessionOptions;
  readonly #transport: Transport;
  readonly #pending: PendingRequests;
  readonly tasks: ServerTasks;
  readonly subscriptions: Subscriptions;
  readonly #serverRequests: ServerRequests;
  readonly #attribution: MessageAttribution;
  /** The result of the handshake; set together with `#dialect` when the handshake is complete. */
  handshake: ServerHandshake | undefined;
  #dialect: Dialect | undefined;
  negotiation: NegotiationResult | undefined;
  /** Number of received messages, including errors that answer pings. While it grows, the server is alive. */
  messageCount = 0;
  callCount = 0;
  lastTool: string | undefined;
  /** The cache hints of the server's last lists; empty if the server sends none. */
  readonly cacheHints: CacheHintTable = new Map();
  /** The `_meta` of the server's last lists, as JSON. */
  readonly listMeta = new Map<Kind, string>();
  /** What differs from the server's last lists. */
  readonly #differing = new Map<Kind, readonly DifferingItem[]>();
  #hasUndeclaredTools = false;
  /** Settles when it is known whether a server that declares no tools has some; undefined before that is asked. */
  #diagnosis: Promise<void> | undefined;
  #pingId: number | undefined;
  readonly #closed = new AbortController();
  /** Removes the server's secrets from texts. */
  readonly #redactor: TextRedactor = {
    apply: (text) => this.#transport.redact?.(text) ?? text,
  };
  /** The warnings that were already logged. */
  readonly #warned = new Set<string>();

  constructor(options: SessionOptions) {
    const { server, transport, clients, clock, tasks } = options;
    this.#options = options;
    this.server = server;
    this.displayName = options.displayName ?? server;
    this.#transport = transport;
    this.#pending = new PendingRequests(server, transport, clock, (record) =>
      this.#serverRequests.onRequestEnded(record),
    );
    this.tasks = tasks;
    this.subscriptions = options.subscriptions;
    const pending = this.#pending;
    const attribution = new MessageAttribution(server, clients, pending, tasks);
    this.#attribution = attribution;
    const warn = (text: string): void => this.#warnOnce(text);
    this.#serverRequests = new ServerRequests({
      ...options,
      displayName: this.displayName,
      attribution,
      pending,
      warn,
    });
  }

  /**
   * Opens the transport, calls `onTransportOpen`, and does the handshake.
   * @throws {HubError} handshakeFailed, or the error of the transport
   */
  async open(
    clientInfo: Implementation,
    plan: NegotiationPlan,
    signal: AbortSignal,
    onTransportOpen: () => void,
  ): Promise<EarlyExit | undefined> {
    const { server, transport, clients, clock, events } = this.#options;
    await transport.open(this, signal);
    onTransportOpen();
    // The specification forbids cancelling `initialize`. If the handshake is aborted, the hub only stops waiting.
    const abandon = (id: number): void => void this.#pending.abandon(id);
    const result = await negotiate({
      ...plan,
      server,
      redactor: this.#redactor,
      clock,
      clientInfo,
      capabilities: clients.capabilities,
      signal,
      sendRequest: (method, params, until, headers) =>
        this.#sendOwn(method, params, until, abandon, headers),
    });
    if ("cause" in result) return result;
    if (this.#pending.endCause !== undefined) throw this.#pending.endCause;
    this.negotiation = result;
    const { peer } = result.handshake;
    const redact = (text: string | undefined): string | undefined =>
      text === undefined ? undefined : (transport.redact?.(text) ?? text);
    this.handshake = {
      ...result.handshake,
      // The name and version are words of the server, which may repeat a secret.
      peer: { ...peer, name: redact(peer.name), version: redact(peer.version) },
    };
    const isModern = result.handshake.protocol.era === "modern";
    this.#transport.adopt?.(result.handshake.protocol);
    this.#pending.sendsParamHeaders = isModern && this.#isRemote;
    this.#dialect = createDialect(result.handshake, {
      server,
      transport,
      clients,
      clock,
      clientInfo,
      pending: this.#pending,
      sendRequest: (method, params, until) => this.sendRequest(method, params, until),
      onGap: (kinds) => {
        events.listChanged(kinds);
        this.subscriptions.onGap();
      },
      warn: (text) => events.log("warn", "server", text),
    });
    this.#dialect.onHandshake();
    return undefined;
  }

  /** Whether the transport may lose a single request and stay open, as over HTTP. */
  get #isRemote(): boolean {
    return mayLoseRequests(this.#transport);
  }

  get era(): Era {
    return this.#dialect?.era ?? "legacy";
  }

  get httpTransportKind(): HttpTransportKind | undefined {
    if (this.#transport.kind !== "http") return undefined;
    return this.#transport.hasStreams === true ? "http" : "sse";
  }

  /** Whether a request may have to be written more than once. */
  get mayResend(): boolean {
    return this.era === "modern" || this.#isRemote;
  }

  get inFlight(): number {
    return this.#pending.clientRequestCount;
  }

  /** Whether the server has requests in flight or unfinished tasks, for which clients wait. */
  get isBusy(): boolean {
    return this.inFlight > 0 || this.tasks.clients.length > 0;
  }

  /**
   * Whether clients have subscriptions or modern tasks at the server. If so, the server must not be stopped as idle.
   */
  get isSubscribed(): boolean {
    return this.subscriptions.isUsed || this.tasks.isUsed;
  }

  /**
   * Lists all items of a kind. Returns none if the server does not declare the kind.
   * @throws {HubError} handshakeFailed at step `list`, or the error with which the transport closed
   */
  async list(kind: Kind, signal: AbortSignal): Promise<readonly ListedItem[]> {
    if (!this.offers(kind)) return [];
    const warn = (text: string): void => this.#warnOnce(text);
    const items = await listAll({
      server: this.server,
      kind,
      redactor: this.#redactor,
      ...(this.era === "modern" && { cacheHints: this.cacheHints }),
      listMeta: this.listMeta,
      requestPage: (method, params) => this.sendRequest(method, params, signal),
      warn,
    });
    // Kept with the list that it belongs to: lists of other kinds are read at other times.
    const differing = this.#transport.differing?.flatMap(({ kind: own, entry, machines }) => {
      const item = own === kind ? readItem(entry, own, conforms) : undefined;
      return item === undefined ? [] : [{ kind: own, item, machines }];
    });
    if (differing !== undefined) this.#differing.set(kind, differing);
    const sendsParamHeaders = kind === "tools" && this.#pending.sendsParamHeaders;
    return sendsParamHeaders ? dropUncallableTools(items, warn) : items;
  }

  /** What some machines with the server have instead of what was listed last; undefined if there is one server only. */
  get differing(): readonly DifferingItem[] | undefined {
    return this.#transport.differing && [...this.#differing.values()].flat();
  }

  /** What is wrong with the declared capabilities: texts that begin with a verb. */
  get capabilityFaults(): readonly string[] {
    const faults = this.handshake?.capabilityFaults ?? [];
    return this.#hasUndeclaredTools ? [...faults, UNDECLARED_TOOLS] : faults;
  }

  /** Settles when all `capabilityFaults` of an open session are known, within a limited time. Never rejects. */
  get diagnosed(): Promise<void> {
    return this.#diagnosis ?? Promise.resolve();
  }

  /** Asks a server that declares no tools for its tools, so that the user can be told if it has some. */
  async #findUndeclaredTools(): Promise<void> {
    const limit = {
      clock: this.#options.clock,
      after: UNDECLARED_TOOLS_LIMIT,
      signal: this.#closed.signal,
      reason: () => new HubError("connectTimeout", "The server does not list tools."),
    };
    try {
      const response = await withTimeLimit(limit, (limited) =>
        this.sendRequest(Method.toolsList, undefined, limited),
      );
      if (response.outcome === "error") return;
      const page = readPage(response.bytes, response.body, "tools");
      this.#hasUndeclaredTools = page !== undefined && page.items.length > 0;
      if (this.#hasUndeclaredTools) this.log("warn", "server", `It ${UNDECLARED_TOOLS}.`);
    } catch {
      // A server need not answer what it has not declared.
    }
  }

  offers(kind: Kind): boolean {
    return this.handshake?.kinds.has(kind) === true;
  }

  supports(feature: ServerFeature): boolean {
    return this.handshake?.features.has(feature) === true;
  }

  /** Sends a ping; any answer increments `messageCount`. An earlier ping without an answer is dropped. */
  ping(): void {
    if (this.#pingId !== undefined) this.#pending.abandon(this.#pingId);
    const { healthCheckMethod: pingMethod = Method.ping } = this.#dialect ?? {};
    const params = this.#dialect?.completeParams(undefined);
    this.#pingId = this.#pending.sendWithoutWaiting(pingMethod, params, this.#onPingFailed);
  }

  /** Handles the error of a ping. An error with which the server itself answers also shows that the server is alive. */
  readonly #onPingFailed = ({ code }: HubError): void => {
    if (code === "serverRefused" || code === "serverFailed") this.messageCount++;
  };

  whenIdle(): Promise<void> {
    return this.#pending.whenIdle();
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#transport.processStats();
  }

  /** Sends a client's request with a new id. @returns the id, for `cancel` */
  relay(record: PendingRequest, request: Request, { edits, tokens }: RequestRewrite): number {
    const id = this.#pending.nextId();
    this.callCount++;
    if (record.method === Method.toolsCall) this.lastTool = record.name;
    if (record.sender !== undefined) this.#dialect?.addSender(request, record.sender, edits);
    const { sentContext } = record;
    if (sentContext !== undefined) {
      this.#pending.send(id, record, this.#withContext(record, request, id, edits, sentContext));
      return id;
    }
    this.#pending.send(id, record, withRequestId(request, id, edits, tokens));
    return id;
  }

  /** The message of a request with a trace context in its `_meta`. @param edits all other edits of the message */
  #withContext(
    { sender }: PendingRequest,
    request: Request,
    id: number,
    edits: readonly Edit[],
    sentContext: SentContext,
  ): EncodedMessage {
    // Between the eras, other edits add or remove members of `_meta`, or `_meta` itself: they are applied first.
    const isTranslated = sender !== undefined && sender.era !== this.era;
    const edited = isTranslated ? applyMessageEdits(request, edits) : request;
    const own = isTranslated ? [] : edits;
    const tokens = readProgressTokens(paramsOf(edited));
    return withRequestId(edited, id, [...own, ...contextEdits(edited, sentContext)], tokens);
  }

  /** How the server is connected, for spans. */
  get network(): PeerNetwork {
    return NETWORKS[this.#transport.kind];
  }

  /** A digest of the id that a server over HTTP has given the session; undefined if there is none. */
  get idDigest(): string | undefined {
    return digestOf(this.#transport.sessionId);
  }

  /** Sends one of the hub's own requests once, and tells how it has ended. */
  #sendOwn(
    method: string,
    params: object | undefined,
    signal: AbortSignal,
    cancel: (id: number) => void,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response> {
    if (signal.aborted) return Promise.reject(signal.reason as Error);
    const { events, clock } = this.#options;
    const sentAt = clock.now();
    const id = this.#pending.nextId();
    const end = (failure: RequestFailure | undefined): void =>
      events.requestEnded?.({
        method,
        name: targetOf(method, params),
        id,
        network: this.network,
        protocolVersion: this.handshake?.protocol.version,
        sessionId: this.idDigest,
        failure,
        duration: clock.now() - sentAt,
      });
    const sent = this.#pending.sendRequest(id, method, params, signal, cancel, headers);
    sent.then(
      (response) => end(response.outcome === "error" ? failureOfError(response) : undefined),
      (error: unknown) => end(failureOfThrown(error)),
    );
    return sent;
  }

  /**
   * Sends one of the hub's own requests, which must be idempotent. Aborting the signal cancels the request.
   * @throws the signal's reason, or {HubError} if the request is lost or the transport closes
   */
  sendRequest(method: string, params: object | undefined, signal: AbortSignal): Promise<Response> {
    const fullParams = this.#dialect?.completeParams(params) ?? params;
    const send = () => this.#sendOwn(method, fullParams, signal, (id) => this.cancel(id));
    // Over stdio, a request is lost only together with the session, so a retry is pointless.
    return this.#isRemote ? retryLost(send, this.#options.clock, signal) : send();
  }

  /** Subscribes to a resource or a task. @throws {HubError} if the server refuses or does not answer */
  async subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    await this.#dialect?.subscribe(id, signal, topic);
  }

  unsubscribe(id: string, topic?: ListenTopic): void {
    this.#dialect?.unsubscribe(id, topic);
  }

  /** Drops a request and notifies the server. No method of its record is called any more. */
  cancel(id: number, reason: CancelReason = "The hub gave up."): void {
    const record = this.#pending.get(id);
    if (record === undefined) return;
    if (this.#dialect?.mayCreateTask(record) === true) this.tasks.onCallCancelled(id);
    // Over HTTP, closing the response stream of a modern request cancels the request. In the legacy era, a notification
    // is needed.
    const isImplied = this.#transport.hasStreams === true && this.era === "modern";
    if (!isImplied) this.#transport.send(buildCancelled(id, reason));
    this.#pending.abandon(id);
    this.#serverRequests.onRequestEnded(record);
    this.#serverRequests.onRequestCancelled();
  }

  /** Called when the server's items are listed for the first time in this session. */
  onListed(): void {
    this.#serverRequests.onListed();
    // Nobody waits for this: a server need not answer what it has not declared.
    if (!this.offers("tools")) this.#diagnosis ??= this.#findUndeclaredTools();
  }

  /** Called when a client has come, left or changed the log level that it wants. */
  updateLogLevel(): void {
    this.#dialect?.updateLogLevel();
  }

  rootsChanged(notification: Notification): void {
    this.#dialect?.rootsChanged(notification);
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
    this.#serverRequests.close();
    this.#closed.abort();
    this.#fail(new HubError("serverStopped", `Server "${server}" was stopped.`, { server }));
    return this.#transport.close();
  }

  /** Handles a message. @param sentRequest the request on whose response stream it arrived; undefined if on none */
  message(message: Message, sentRequest?: SentRequest): void {
    this.messageCount++;
    switch (message.kind) {
      case "response":
        if (message.outcome === "error") this.#onError(withWellFormedError(message));
        else this.#onResponse(message);
        return;
      case "notification":
        this.#onNotification(message, sentRequest);
        return;
      case "request":
        this.#onRequest(message, sentRequest);
        return;
      case "batch":
        if (this.#dialect?.hasBatches !== true)
          this.#warnOnce("A batch was dropped: this protocol version has no batches.");
        else for (const item of message.items) this.message(item, sentRequest);
        return;
      case "invalid":
        if (this.#pending.failInvalid(message)) return;
        this.#warnOnce(`A message was dropped: ${message.reason}.`);
    }
  }

  /** Removes the server's secrets from texts. */
  get redactor(): TextRedactor {
    return { apply: (text) => this.#transport.redact?.(text) ?? text };
  }

  log(level: LogLevel, source: LogSource, text: string): void {
    this.#options.events.log(level, source, text);
  }

  malformedOutput(output: MalformedOutput): void {
    this.#options.events.malformedOutput?.(output);
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    this.messageCount++;
    const text = this.#pending.failOversized(head, tail, size);
    if (text !== undefined) this.log("warn", "stdout", text);
  }

  challenged(challenge: AuthChallenge): void {
    this.#options.events.challenged(challenge);
  }

  /** Does nothing: `PendingRequests` and `#onRequest` limit the data that the server has not read yet. */
  pressure(): void {}

  closed(cause: HubError): void {
    this.#fail(cause);
    // During the handshake, no event is needed: the handshake's request fails with the same cause.
    if (this.handshake !== undefined) this.#options.events.closed(cause);
  }

  /**
   * Handles an error response. One without an id is the answer to the client's or the handshake's request in flight, if
   * that is the only one. It is not if the hub's messages have streams of their own, or if its code means an unknown
   * method: that may be the answer to a notification.
   */
  #onError(response: Response): void {
    if (response.id !== undefined || !hasNoId(response)) {
      this.#onResponse(response);
      return;
    }
    const isAmbiguous =
      this.#transport.hasStreams === true || errorCodeOf(response) === METHOD_NOT_FOUND;
    const id = isAmbiguous ? undefined : this.#pending.onlyAwaited;
    if (id === undefined) {
      const said = saidByPeer(bodyOf(response).string("message"), this.redactor);
      const text = `An error without an id was dropped, because it may answer any message${said}.`;
      this.log("warn", "stdout", text);
    } else this.#onResponse(withId(response, id));
  }

  #onResponse(response: Response): void {
    const { id } = response;
    const record = id === undefined ? undefined : this.#pending.remove(id);
    if (record !== undefined) {
      this.#serverRequests.onRequestEnded(record);
      record.onResponse(response);
      return;
    }
    if (id !== undefined) this.#pending.onLateResponse(id);
    this.tasks.onLateResponse(this, response);
    // A response after a cancellation is normal. A response to no request is a fault of the server.
    this.log("debug", "stdout", "An answer that nobody waits for was dropped.");
  }

  #onRequest(raw: Request, sentRequest: SentRequest | undefined): void {
    // A server may keep sending requests without reading the answers. Its requests are dropped so that the answers do
    // not pile up.
    if (this.#transport.queued > MAX_QUEUED_BYTES) return;
    const { server } = this;
    if (this.era === "modern") {
      // Modern servers must not send requests (2026-07-28). The error keeps such a server from waiting for an answer.
      const text = `Server "${server}" sent a request "${raw.method}", which its protocol revision does not have.`;
      const error = new HubError("methodNotFound", text, { server });
      this.#transport.send(buildError(raw.id, error.toRpc()));
      this.#warnOnce("A request was refused: in its protocol version servers send no requests.");
    } else if (raw.method === Method.ping) {
      this.#transport.send(buildResult(raw.id, EMPTY_RESULT));
    } else {
      const { message, origin } = this.#originOf(raw, sentRequest);
      this.#serverRequests.handle(message, origin);
    }
  }

  #onNotification(raw: Notification, sentRequest: SentRequest | undefined): void {
    const { message: notification, origin } = this.#originOf(raw, sentRequest);
    if (this.#dialect?.handleNotification(notification) === true) return;
    const { events } = this.#options;
    switch (notification.method) {
      case Method.progress: {
        const progress = readProgress(notification);
        if (progress === undefined) return;
        const { id, tokens } = progress;
        // If a call became a task, the progress token of the call is valid until the task ends.
        (this.#pending.get(id) ?? this.tasks.byCall(id))?.onProgress(notification, tokens);
        return;
      }
      case Method.message:
        this.#onLogMessage(notification, origin);
        return;
      case Method.toolsListChanged:
        events.listChanged(["tools"]);
        return;
      case Method.promptsListChanged:
        events.listChanged(["prompts"]);
        return;
      case Method.resourcesListChanged:
        events.listChanged(["resources", "resourceTemplates", "skills"]);
        return;
      case Method.resourceUpdated:
        this.subscriptions.onUpdated(this.#withoutSubscriptionId(notification));
        return;
      case Method.cancelled:
        this.#serverRequests.cancel(notification);
        return;
      case Method.elicitationComplete:
        this.#attribution
          .clientOf(notification, origin)
          ?.notify(this.server, bytesOf(notification));
        return;
      case LegacyTaskMethod.status:
        origin.task?.onStatus(notification);
        return;
      case ModernTaskMethod.changed:
        this.tasks.onNotification(this.#withoutSubscriptionId(notification));
    }
  }

  #onLogMessage(notification: Notification, origin: MessageOrigin): void {
    const text = readLogMessage(notification);
    if (text !== undefined) this.log("debug", "server", text);
    const line = prefixLogMessage(this.server, notification);
    if (line !== undefined) this.#attribution.forwardLog(notification, line, origin, this.era);
  }

  /**
   * Finds the task that the message names, and the request on whose response stream the message arrived. In the
   * returned message, the hub's id replaces the server's id of the task.
   */
  #originOf<M extends Notification | Request>(
    raw: M,
    sentRequest: SentRequest | undefined,
  ): { readonly message: M; readonly origin: MessageOrigin } {
    const task = this.tasks.taskOfMessage(raw);
    const record = sentRequest && this.#pending.requestOf(sentRequest);
    return { message: task?.withOwnId(raw) ?? raw, origin: { task, record } };
  }

  #withoutSubscriptionId(notification: Notification): Notification {
    return this.#dialect?.withoutSubscriptionId(notification) ?? notification;
  }

  /** Logs a warning unless the same text was already logged: a faulty server usually repeats its fault. */
  #warnOnce(text: string): void {
    if (this.#warned.has(text)) return;
    this.#warned.add(text);
    this.log("warn", "stdout", text);
  }

  #fail(cause: HubError): void {
    this.#dialect?.close();
    this.#pending.fail(cause);
    this.tasks.onSessionLost(this, cause);
  }
}
