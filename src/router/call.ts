import { Buffer } from "node:buffer";
import { type ByteRange, type Edit, joinPieces, type Piece, textOf, utf8 } from "../base/bytes.ts";
import { wallNow } from "../base/clock.ts";
import { compileAsUsual } from "../base/runtime.ts";
import { HubError } from "../base/errors.ts";
import type { CallTotals, CancelledBy, EventBus } from "../base/hub-events.ts";
import { isNamed } from "../catalog/exposure.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { renameInResult, type UriRenamer } from "../catalog/renamed-uris.ts";
import type { ListedRoute, Route, Section } from "../catalog/section.ts";
import { isWithin, skillRootOf } from "../catalog/skills.ts";
import { encodeUriTemplate, isUiUri } from "../catalog/uris.ts";
import {
  buildError,
  buildResult,
  bytesOf,
  type EncodedMessage,
  type Notification,
  replaceRanges,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { Method } from "../protocol/legacy.ts";
import { isAtLeast, type LogSeverity } from "../protocol/log-level.ts";
import type { Era } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { Connection } from "../upstream/connection.ts";
import type { RequestRewrite } from "../upstream/pending.ts";
import type {
  ClientChannel,
  ClientDeclaration,
  ClientRequest,
  ServerRequestTarget,
  ServerRequest,
} from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import type { Task } from "../upstream/tasks.ts";
import type { OperationMetrics } from "../telemetry/hub-metrics.ts";
import type { RequestSpan } from "../telemetry/request-span.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import type { ClientView } from "../views/client-view.ts";
import type { AgentCaller } from "../approval/policy.ts";
import type { HeldCall } from "./approval-gate.ts";
import type { Deadlines, DeadlineTarget } from "./deadlines.ts";
import type { ResourceLinks } from "./resource-lookup.ts";
import type { ClientTasks } from "./tasks.ts";
import { type CallOutcome, type CallRecord, CallUsage } from "./call-usage.ts";
import {
  errorTypeOf,
  errorTypeOfRecord,
  failureOfResponse,
  isFailure,
  rpcCodeOf,
} from "./error-type.ts";
import {
  deadlineAnswer,
  lostAnswer,
  notReadyReason,
  queuedReason,
  serverGoneError,
  timeoutMessage,
} from "./timeouts.ts";
import {
  type UpstreamHandler,
  UpstreamRequest,
  type UpstreamRequestOptions,
} from "./upstream-request.ts";

/** The way in which a client has called a tool through a tool of the hub, such as `call_tool`. */
export interface CallVia {
  /** The hub's tool. */
  readonly tool: string;
  /** Whether only tools may be called that count as read-only for approvals. */
  readonly isReadOnly: boolean;
  /** The reason for which no tool is called; undefined: nothing speaks against it. */
  readonly refusal: HubError | undefined;
  /**
   * Finds the tool that the client means.
   * @throws {HubError} unknownTool if several tools can be meant
   */
  find(tools: Section): ListedRoute | undefined;
  /** The error if `find` finds none. */
  notFoundError(tools: Section): HubError;
  /** The error if the tool does not count as read-only. @param name its exposed name */
  notReadOnlyError(name: string): HubError;
}

/** The client's side of a call: receives its response, progress and log messages. */
export interface Caller extends ServerRequestTarget {
  readonly sender: ClientDeclaration;
  /** The tool of the hub through which the client calls; undefined: it calls the tool by its own name. */
  readonly via?: CallVia | undefined;
  /** For a call that a plugin makes while it handles a client's call: the number of the client's call. */
  readonly parentCall?: number;
  /** The same call itself. */
  readonly outer?: Call | undefined;
  /** The span of the request, if it is recorded. */
  readonly span?: RequestSpan | undefined;
  /**
   * The `requestState` that the client's request had, if the hub itself has issued it for an earlier call, which goes on
   * with this one.
   */
  readonly retryOf?: string | undefined;
  /** The agent of toolmux that makes the call; undefined if the client makes it. */
  readonly agent?: AgentCaller | undefined;
  /** Called when the call's deadline is paused or resumed. Pauses nest: each needs its own resume. */
  setDeadlinePaused?(isPaused: boolean): void;
  /**
   * Called whenever one of the servers that may have the requested item has been listed or has failed.
   * @throws {HubError} if the request is invalid for that item
   */
  onListed?(catalog: Catalog): void;
  /**
   * Builds the answer to the client from a server's response.
   * @param from the era of the server
   * @param edits turn a modern server's result into a legacy one, for a legacy client
   */
  toClientMessage(response: Response, from: Era, edits?: readonly Edit[]): EncodedMessage;
  /**
   * Whether the client has declared the tasks extension. If so, the client itself polls the tasks that modern servers
   * create for its calls.
   */
  readonly supportsTasks?: boolean;
  /** The id of the legacy task that the client's call has become. */
  readonly taskId?: string | undefined;
  /** Called when a server has created a legacy task for the call. Later requests to the client belong to that task. */
  onTask?(task: Task): void;
  /** Answers the client with a task; absent if the client cannot have one. See `ToolCall.becomeTask`. */
  becomeTask?(): void;
  /**
   * Called with the progress that the hub itself reports for the call, even if the client has not asked for progress.
   */
  onOwnProgress?(progress: CallProgress): void;
  /**
   * Called when the hub has refused a request that a server made during this call, because the client has not declared
   * the capabilities `required`.
   */
  onMissingCapability?(required: object): void;
  /**
   * Answers the client; called exactly once. `message` is undefined if the call was cancelled: then the client gets no
   * answer.
   */
  respond(message: EncodedMessage | undefined): void;
  notify(message: EncodedMessage): void;
}

/** A client's request that is being processed. */
export interface RunningRequest {
  run(): void;
  cancel(reason: CancelReason, by: CancelledBy): void;
  /** The call; undefined until the request's route is known. */
  readonly call: Call | undefined;
}

/** The objects and counters that all calls of one client share. */
export interface CallContext {
  readonly deadlines: Deadlines;
  readonly callLog: CallLog;
  /** Remembers the resource links that servers' results contain, so that the client can read these resources. */
  readonly links: ResourceLinks;
  readonly view: ClientView;
  readonly client: ClientChannel;
  readonly tasks: ClientTasks;
  /** Number of the client's calls so far. */
  callCount: number;
}

/** A client's request, whose server is known. */
export interface RoutedRequest {
  readonly request: Request;
  readonly route: Route;
  readonly rewrite: RequestRewrite;
  /** The client's progress token, in its original bytes; undefined if the request has none. */
  readonly token: Piece | undefined;
  readonly caller: Caller;
  /** Time at which the request arrived, in ms of the clock. */
  readonly startedAt: number;
}

/** What a call has to pass before it is started: approvals and limits. It may hold the call. */
export interface CallGate {
  /** What the call waits for there; undefined: it does not wait. */
  readonly waitingFor: "approval" | "queue" | undefined;
  /** Whether listeners for notable events get the end of the call. */
  readonly isNotable: boolean;
  /** Lets the call go on at once or later, or refuses it. @param pass lets the call go on */
  hold(call: HeldCall, pass: () => void): void;
  /** @returns an error if the call must not be sent over the connection's session */
  checkBeforeSend(connection: Connection, wasSent: boolean): HubError | undefined;
  /** Called when the call has ended. */
  end(): void;
  /** Called when plugins send the call to its server. Calls back at once or later, one of both. */
  enterServer?(pass: () => void, refuse: (error: HubError) => void): void;
  /** Called when a server has created a task for the call. @param isEnd whether the call ends with it */
  keepFor?(task: Task, isEnd: boolean): void;
  /** Called before the end of a call whose client is asked to send it again with this `requestState`. */
  awaitRetry?(requestState: string): void;
}

/** Maximum number of calls that the event `calls` names. */
const MAX_REPORTED = 10;
const ENDED_BY_SHUTDOWN: CallEnd = { by: "shutdown" };
export const ANSWERED_WITH_ERROR: CallEnd = { failed: true };
const ANSWERED_WITH_RESULT: CallEnd = { failed: false };
/** Maximum size, in bytes, of a progress notification that is kept for `describe`. */
const MAX_KEPT_PROGRESS = 4096;

/**
 * A client's request, from its arrival until its one response. Owns the deadline and writes the call log; subclasses
 * obtain the response. Start here to follow a call: `run`, the subclass's `start`, then `finish`.
 */
export abstract class Call implements DeadlineTarget, ClientRequest, RoutedRequest {
  readonly request: Request;
  readonly route: Route;
  readonly rewrite: RequestRewrite;
  readonly token: Piece | undefined;
  readonly caller: Caller;
  readonly startedAt: number;
  readonly number: number;
  deadline: number;
  deadlineIndex: number | undefined;
  readonly context: CallContext;
  isOver = false;
  /** The gate that holds the call; undefined if it needs no approval and has no limits. */
  gate: CallGate | undefined;
  /** Maximum time without progress, in ms. */
  #timeout: number;
  #maxDeadline: number;
  /**
   * Number of reasons to pause the deadline, such as server requests that wait for the client; 0: not paused.
   * `#pausedAt`: start of the paused time that was not yet added to the deadline, in ms of `Deadlines.now`.
   */
  #pauseCount = 0;
  #pausedAt = 0;
  /** How long the call has waited for a person: for an approval, or for an answer of the client. In ms. */
  #personWait = 0;
  /** How long the call has waited to be sent to its server, in ms. `#queuedSince`: undefined if it does not wait. */
  #queueWait = 0;
  #queuedSince: number | undefined;
  /** The waits of which spans have told; undefined: of none. */
  #toldWaits: { readonly start: number; readonly person: number } | undefined;
  #hasBegun = false;
  /** A copy of the last progress notification, as JSON. */
  #progress: Uint8Array | undefined;
  /** Size of the server's or a plugin's answer, in bytes; 0 if there is none. */
  protected resultSize = 0;

  constructor(
    context: CallContext,
    { request, route, rewrite, token, caller, startedAt }: RoutedRequest,
  ) {
    const { limits } = route;
    this.context = context;
    this.request = request;
    this.route = route;
    this.rewrite = rewrite;
    this.token = token;
    this.caller = caller;
    this.startedAt = startedAt;
    this.number = context.callLog.nextNumber();
    context.callCount++;
    this.#timeout = limits.timeout;
    this.#maxDeadline = startedAt + limits.maxTimeout;
    this.deadline = Math.min(startedAt + limits.timeout, this.#maxDeadline);
  }

  run(): void {
    const { deadlines, callLog } = this.context;
    // With the first call, the process is no longer starting.
    if (this.number === 1) compileAsUsual?.();
    deadlines.add(this);
    if (this.isLogged && callLog.wantsStarts) {
      const now = wallNow();
      callLog.logStart(this.#identify(this.#duration, now), now);
    }
    // Listeners of the event that `logStart` emits may have cancelled the call.
    if (this.isOver) return;
    if (this.gate === undefined) this.#begin();
    else this.gate.hold(this, () => this.#begin());
  }

  #begin(): void {
    this.#hasBegun = true;
    this.start();
  }

  get call(): Call {
    return this;
  }

  /** Whether the call was passed on to its server or a plugin, and does not wait to be sent. */
  protected get isSent(): boolean {
    return this.#hasBegun && this.#queuedSince === undefined;
  }

  protected get isLogged(): boolean {
    return this.route.kind === "tools";
  }

  describe(): RunningCall {
    const { name: clientName, version: clientVersion } = this.caller.sender.info;
    const duration = this.#duration;
    return {
      ...this.#identify(duration, wallNow()),
      duration,
      clientName,
      clientVersion,
      kind: this.route.kind,
      waitingFor: this.gate?.waitingFor ?? (this.#pauseCount > 0 ? "client" : "server"),
      progress: this.#progress && readProgressParams(this.#progress),
    };
  }

  get #duration(): number {
    return this.context.deadlines.now() - this.startedAt;
  }

  #identify(duration: number, now: number): CallIdentity {
    const { route } = this;
    const { client, view } = this.context;
    const identity = {
      call: this.number,
      client: client.id,
      server: route.server,
      tool: route.remoteName,
      name: route.name,
      startedAt: Math.round(now - duration),
    };
    const { parentCall, via } = this.caller;
    return withOrigin(identity, parentCall, view.principal, via?.tool);
  }

  fail(error: HubError): void {
    const { request } = this;
    const end: CallEnd = error.code === "serverStopped" ? ENDED_BY_SHUTDOWN : { cause: error };
    const message =
      error.code === "answerLost" || error.code === "connectionLost" || error.code === "overLimit"
        ? lostAnswer(request, error)
        : buildError(request.id, error.toRpc());
    this.finish(message, end);
  }

  /** Ends a call that must not be made. The client gets the error as a result, because models see only results. */
  refuse(error: HubError): void {
    this.finish(lostAnswer(this.request, error), { cause: error });
  }

  /** Cancels the call because the operator wants it: the server is notified, and the client gets an error. */
  cancelByOperator(): void {
    const error = new HubError("cancelled", "The call was cancelled by the operator of the hub.");
    this.cancelUpstream("Cancelled by the operator of the hub.", error);
    this.finish(buildError(this.request.id, error.toRpc()), { by: "operator" });
  }

  onProgress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { token, caller } = this;
    this.restartTimeout();
    const bytes = bytesOf(notification);
    if (bytes.length <= MAX_KEPT_PROGRESS) this.#progress = Uint8Array.from(bytes);
    if (token === undefined) return;
    caller.notify(replaceRanges(notification, tokens, token));
  }

  /** Restarts the timeout after progress; `maxTimeout` still applies. */
  restartTimeout(): void {
    const { deadlines } = this.context;
    if (this.#pauseCount > 0) this.#addPausedTime();
    this.deadline = Math.min(deadlines.now() + this.#timeout, this.#maxDeadline);
  }

  /** Replaces the tool's limits: the call must end within `ms` milliseconds from now. */
  setDeadline(ms: number): void {
    if (this.isOver || this.#maxDeadline === Infinity) return;
    const { deadlines } = this.context;
    if (this.#pauseCount > 0) this.#addPausedTime();
    this.#timeout = ms;
    this.deadline = this.#maxDeadline = deadlines.now() + ms;
    if (this.#pauseCount === 0) deadlines.add(this);
  }

  /** Sends the client progress that the hub itself reports for the call, and restarts the timeout. */
  reportProgress(params: CallProgress): void {
    if (this.isOver) return;
    this.restartTimeout();
    const { token, caller } = this;
    caller.onOwnProgress?.(params);
    const members = JSON.stringify(params).slice(1);
    const start = `{"jsonrpc":"2.0","method":"${Method.progress}","params":{"progressToken":`;
    this.#progress = Buffer.from(`${start}null,${members}}`);
    if (token !== undefined) caller.notify(joinPieces([start, token, `,${members}}`]));
  }

  /** Forwards a log message of the server to the client. A legacy client that has set no level gets every message. */
  log(severity: LogSeverity, message: EncodedMessage): void {
    const { caller, route, context } = this;
    if (context.client.sees(route.server) !== true) return;
    const { era } = caller.sender;
    const level = era === "legacy" ? (this.channel?.level ?? "debug") : caller.sender.level;
    if (level !== undefined && isAtLeast(severity, level)) caller.notify(message);
  }

  get server(): string {
    return this.route.server;
  }

  get channel(): ClientChannel | undefined {
    return this.context.view.channel;
  }

  get taskId(): string | undefined {
    return this.caller.taskId;
  }

  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void {
    return this.caller.sendServerRequest(request);
  }

  onMissingCapability(needed: object): void {
    const { caller, route } = this;
    if (caller.onMissingCapability === undefined)
      this.channel?.onMissingCapability?.(route.server, needed);
    else caller.onMissingCapability(needed);
  }

  /** Whether the deadline is paused. */
  protected get isDeadlinePaused(): boolean {
    return this.#pauseCount > 0;
  }

  /** Pauses the deadline, for example because the server waits for an answer of the client, or resumes it. */
  setDeadlinePaused(paused: boolean): void {
    const { deadlines } = this.context;
    this.caller.setDeadlinePaused?.(paused);
    if (paused && this.#pauseCount++ === 0) {
      this.#pausedAt = deadlines.now();
      deadlines.remove(this);
    } else if (!paused && --this.#pauseCount === 0) {
      this.#addPausedTime();
      if (!this.isOver) deadlines.add(this);
    }
  }

  /** Begins to count the time for which the call waits to be sent, because its server has no session yet. */
  beginQueueWait(): void {
    this.#queuedSince ??= this.context.deadlines.now();
  }

  endQueueWait(): void {
    if (this.#queuedSince === undefined) return;
    this.#queueWait += this.context.deadlines.now() - this.#queuedSince;
    this.#queuedSince = undefined;
  }

  /**
   * Cancels the call because the client cancelled it or disconnected: the server is notified, the client is not
   * answered.
   */
  cancel(reason: CancelReason, by: CancelledBy): void {
    this.cancelUpstream(reason, new HubError("cancelled", "The call was cancelled."));
    this.finish(undefined, { by });
  }

  /** Answers the client after the deadline has passed, with a text that a model can act on. */
  expire(): void {
    const text = this.#timeoutMessage();
    this.cancelUpstream("The call took too long.", new HubError("callTimeout", text));
    this.finish(deadlineAnswer(this.request, text), { by: "deadline" });
  }

  removeDeadline(): void {
    this.context.deadlines.remove(this);
    this.deadline = this.#maxDeadline = Infinity;
  }

  resetDeadline(): void {
    const { route } = this;
    const { deadlines } = this.context;
    this.#maxDeadline = deadlines.now() + route.limits.maxTimeout;
    this.deadline = Math.min(deadlines.now() + route.limits.timeout, this.#maxDeadline);
    deadlines.add(this);
  }

  protected abstract start(): void;

  /** Cancels all requests in flight for the call. The promises that wait for them reject with `error`. */
  protected abstract cancelUpstream(reason: CancelReason, error: HubError): void;

  /**
   * The reason why the request was not sent within `seconds`, as a part of the timeout message; undefined if it was
   * sent and only the server's response is missing.
   */
  protected abstract waitReason(seconds: number): string | undefined;

  recordLinks(session: Session, response: Response): void {
    if (response.outcome === "error") return;
    if (session.handshake?.hasResources === true)
      this.context.links.record(session.server, response);
    const { request, route } = this;
    const { links } = this.context;
    const isApp = route.kind === "resources" && isUiUri(route.remoteName);
    if (isApp && request.method === Method.resourcesRead) links.addUiServer(session.server);
  }

  /** The function that maps the server's URIs to the client's; undefined if no URI needs to be changed. */
  protected get rename(): UriRenamer | undefined {
    const { route } = this;
    const { view } = this.context;
    const { server, name, remoteName } = route;
    const rename = view.catalog.uris.renamerFor(server);
    if (name === remoteName || isNamed(route.kind)) return rename;
    // If the client's URI for the resource names the server, the answer also uses such URIs for this resource and all
    // resources below it.
    if (name !== encodeUriTemplate(server, remoteName)) return rename;
    const root = skillRootOf(remoteName) ?? remoteName;
    return (uri) =>
      rename?.(uri) ?? (isWithin(uri, root) ? encodeUriTemplate(server, uri) : undefined);
  }

  /**
   * Replaces the server's URIs in a response by the URIs with which the client can read the resources. Returns the same
   * object if no URI needs to be changed.
   * @param result the range of the method's result in the response
   */
  protected withClientUris(response: Response, result: ByteRange = response.body): Response {
    const { rename } = this;
    if (rename === undefined || response.outcome === "error") return response;
    return applyMessageEdits(response, renameInResult(response.bytes, result, rename));
  }

  /** Ends the call. @param message the answer to the client; undefined: the client gets none */
  protected finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.isOver) return;
    this.isOver = true;
    this.context.deadlines.remove(this);
    this.gate?.end();
    this.logEnd(end);
    this.respond(message);
  }

  protected logEnd(end: CallEnd): void {
    const { callLog, client, view } = this.context;
    const { route, request, caller } = this;
    if (callLog.operations !== undefined && caller.parentCall === undefined)
      callLog.operations.server.observeOperation(
        request.method,
        this.isLogged ? route.name : "",
        route.server,
        this.clientName,
        errorTypeOf(end),
        this.#duration,
        caller.span,
      );
    if (caller.span !== undefined) this.#traceEnd(caller.span, end);
    if (!this.isLogged) return;
    if (this.#pauseCount > 0) this.#addPausedTime();
    const { isSent } = this;
    this.endQueueWait();
    const duration = this.#duration;
    const now = wallNow();
    const { usage } = callLog;
    const ended = usage.next();
    ended.call = this.number;
    ended.parentCall = caller.parentCall;
    ended.via = caller.via?.tool;
    ended.client = client.id;
    ended.clientName = caller.sender.info.name;
    ended.principal = view.principal;
    ended.server = route.server;
    ended.tool = route.remoteName;
    ended.name = route.name;
    ended.startedAt = Math.round(now - duration);
    ended.duration = duration;
    ended.personWait = this.#personWait;
    ended.queueWait = this.#queueWait;
    ended.sent = isSent;
    ended.outcome = outcomeOf(end);
    ended.code = typeof end === "object" && "cause" in end ? end.cause.code : undefined;
    ended.reason = typeof end === "object" && "cause" in end ? end.cause.message : undefined;
    ended.by = typeof end === "object" && "by" in end ? end.by : undefined;
    ended.requestSize = request.end - request.start;
    ended.resultSize = this.resultSize;
    usage.add(ended);
    if (callLog.wantsEnds) callLog.logEnd(ended, end, now, this.gate?.isNotable === true);
  }

  /** Says in the request's span for what the call has waited: its client gets an answer, and the call goes on. */
  traceAnswer(): void {
    const { span } = this.caller;
    if (span !== undefined) this.#traceWaits(span);
  }

  /** Called when the call goes on with another request of its client: the time in between is a part of none. */
  traceRetry(): void {
    if (this.#pauseCount > 0) this.#addPausedTime();
    if (this.#toldWaits !== undefined)
      this.#toldWaits = { ...this.#toldWaits, person: this.#personWait };
  }

  /** Says in a span for what the call has waited since this was last said. */
  #traceWaits(span: RequestSpan): void {
    if (this.#pauseCount > 0) this.#addPausedTime();
    const start = this.#queueWait + this.#openQueueWait;
    const person = this.#personWait;
    const told = this.#toldWaits;
    span.setServer(this.route.server);
    span.addWait("start", start - (told?.start ?? 0));
    span.addWait("client", person - (told?.person ?? 0) - span.waited("approval"));
    this.#toldWaits = { start, person };
  }

  /** Says in the request's span how the call has ended, and for what it has waited. */
  #traceEnd(span: RequestSpan, end: CallEnd): void {
    this.#traceWaits(span);
    if (end === "answered") return;
    if ("cause" in end) span.setOutcome({ type: end.cause.code, message: end.cause.message });
    else if ("by" in end)
      span.setOutcome({
        type: errorTypeOf(end),
        message: `The call was cancelled (${end.by}).`,
      });
  }

  /** For how long the call has waited to be sent since it began to wait the last time, in ms. */
  get #openQueueWait(): number {
    return this.#queuedSince === undefined ? 0 : this.context.deadlines.now() - this.#queuedSince;
  }

  /** The client's name in the manifest, else the one that it has sent; "" if there is none. */
  get clientName(): string {
    return this.context.view.principal ?? this.caller.sender.info.name;
  }

  /** How this response ends the call. Reads `isError` only if somebody wants to know. */
  protected endOf(response: Response): CallEnd {
    this.resultSize = response.body.end - response.body.start;
    const { callLog } = this.context;
    this.caller.span?.setOutcome(failureOfResponse(response, this.isLogged));
    if (response.outcome === "error")
      return callLog.operations === undefined
        ? ANSWERED_WITH_ERROR
        : { failed: true, rpcCode: rpcCodeOf(response) };
    if (!this.isLogged || !callLog.readsAnswers) return "answered";
    return isFailure(response) ? ANSWERED_WITH_ERROR : ANSWERED_WITH_RESULT;
  }

  protected respond(message: EncodedMessage | undefined): void {
    this.caller.respond(message);
  }

  /** Postpones the deadline and the maximum deadline by the paused time. */
  #addPausedTime(): void {
    const now = this.context.deadlines.now();
    const pausedTime = now - this.#pausedAt;
    this.#pausedAt = now;
    this.#personWait += pausedTime;
    this.#maxDeadline += pausedTime;
    this.deadline += pausedTime;
  }

  #timeoutMessage(): string {
    const { route } = this;
    const { deadlines } = this.context;
    const isTotal = deadlines.now() >= this.#maxDeadline;
    const seconds = (isTotal ? route.limits.maxTimeout : route.limits.timeout) / 1000;
    const waitReason =
      this.gate?.waitingFor === "queue" ? queuedReason(seconds) : this.waitReason(seconds);
    return timeoutMessage(route, { isTotal, seconds, waitReason });
  }
}

/** A call that no plugin handles: one request to the server, whose response goes straight to the client. */
export class RelayedCall extends Call implements UpstreamHandler {
  protected readonly upstream: UpstreamRequest;

  constructor(
    context: CallContext,
    routed: RoutedRequest,
    connection: Connection,
    options?: UpstreamRequestOptions,
  ) {
    super(context, routed);
    this.upstream = new UpstreamRequest(this, connection, this, options);
  }

  protected override get isSent(): boolean {
    return this.upstream.isSent;
  }

  get resultForm(): UpstreamHandler["resultForm"] {
    return this.caller.sender.era === "modern" ? "unchanged" : "legacy";
  }

  get tool(): ListedItem | undefined {
    const { route, caller } = this;
    return route.kind === "tools" && caller.sender.era === "legacy" ? route.item : undefined;
  }

  onSession(_: Session, hasWaited: boolean): boolean {
    const { route, gate } = this;
    const { connection, isSent } = this.upstream;
    const error =
      (hasWaited ? removedError(connection, route) : undefined) ??
      connection.pinError(route, isSent);
    const gateError = error === undefined ? gate?.checkBeforeSend(connection, isSent) : undefined;
    if (error !== undefined) this.fail(error);
    if (gateError !== undefined) this.refuse(gateError);
    return error === undefined && gateError === undefined;
  }

  renameUris(response: Response): Response {
    return this.withClientUris(response);
  }

  onTask(response: Response, session: Session): Response | undefined {
    const { caller } = this;
    const { tasks } = this.context;
    if (caller.supportsTasks !== true) return undefined;
    return tasks.addCreated(session, response, this, this.upstream.connection).response;
  }

  onAnswer(session: Session, raw: Response, from: Era, edits: readonly Edit[]): void {
    const { caller } = this;
    const { tasks } = this.context;
    const response =
      this.upstream.isTask && session.era === "legacy"
        ? (tasks.addIfCreated(session, raw, this, this.upstream.connection)?.response ?? raw)
        : raw;
    this.recordLinks(session, response);
    this.finish(caller.toClientMessage(response, from, edits), this.endOf(response));
  }

  onFailure(error: HubError): void {
    this.fail(error);
  }

  protected start(): void {
    this.upstream.start();
  }

  protected cancelUpstream(reason: CancelReason, error: HubError): void {
    this.upstream.cancel(reason, error.code);
  }

  protected waitReason(seconds: number): string | undefined {
    const { isWaiting, connection } = this.upstream;
    return isWaiting ? notReadyReason(seconds, connection) : undefined;
  }
}

/**
 * The result if the server does not declare `completions`. The hub itself always declares that capability, so clients
 * request completions for items of any server.
 */
const EMPTY_COMPLETION = utf8('{"completion":{"values":[]}}');

/** A `completion/complete` request. */
export class CompletionCall extends RelayedCall {
  override onSession(session: Session, hasWaited: boolean): boolean {
    if (session.supports("completions")) return super.onSession(session, hasWaited);
    this.finish(buildResult(this.request.id, EMPTY_COMPLETION), "answered");
    return false;
  }
}

/** Returns an error if the server no longer lists the tool or prompt; undefined otherwise, and for resources. */
export function removedError(connection: Connection, route: Route): HubError | undefined {
  const { kind, remoteName } = route;
  return isNamed(kind) && !connection.lists(kind, remoteName) ? serverGoneError(route) : undefined;
}

/** The fields that all events of a call contain. */
interface CallIdentity {
  /** The call's number, unique in this hub. */
  readonly call: number;
  /** For a call that a plugin makes while it handles a client's call: the number of the client's call. */
  readonly parentCall?: number;
  /** The tool of the hub through which the client has called the tool, such as `call_tool`. */
  readonly via?: string;
  /** The client's name in the manifest, if it has its own token there. */
  readonly principal?: string;
  /** The client's id; undefined if several clients cannot be told apart. */
  readonly client: string | undefined;
  readonly server: string;
  /** The server's own name of the called tool, or the name or URI of another item. */
  readonly tool: string;
  /** The exposed name, which clients see. */
  readonly name: string;
  /** Time at which the call started, in ms since the epoch. */
  readonly startedAt: number;
}

/** Adds `parentCall`, `principal` and `via` to the fields of an event if they are known. Most calls have none. */
function withOrigin<T extends object>(
  fields: T,
  parentCall: number | undefined,
  principal: string | undefined,
  via: string | undefined,
): T & Pick<CallIdentity, "parentCall" | "principal" | "via"> {
  if (parentCall === undefined && principal === undefined && via === undefined) return fields;
  return {
    ...fields,
    ...(parentCall !== undefined && { parentCall }),
    ...(principal !== undefined && { principal }),
    ...(via !== undefined && { via }),
  };
}

/** The fields that all events of a call's end contain. */
export interface CallSummary extends CallIdentity {
  /** Time since the start of the call, in ms. */
  readonly duration: number;
}

/** A call that has not ended. */
export interface RunningCall extends CallSummary {
  /** The name that the client has sent (`clientInfo.name`); "" if it has sent none. */
  readonly clientName: string;
  readonly clientVersion: string;
  /** The kind of the called item, such as a tool, a prompt or a resource. */
  readonly kind: Route["kind"];
  /**
   * `client`: the server has asked the client something, and the client has not answered; `approval`: nobody has
   * allowed the call yet; `queue`: as many calls run as may (`maxConcurrent`).
   */
  readonly waitingFor: "server" | "client" | "approval" | "queue";
  /** The server's last progress notification; undefined if there was none, or a very long one. */
  readonly progress: CallProgress | undefined;
}

/** The params of a progress notification (MCP, progress), without its token. */
export interface CallProgress {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

function readProgressParams(notification: Uint8Array): CallProgress | undefined {
  try {
    const { params } = JSON.parse(textOf(notification)) as { params?: Record<string, unknown> };
    const { progress, total, message } = params ?? {};
    if (typeof progress !== "number") return undefined;
    return {
      progress,
      ...(typeof total === "number" && { total }),
      ...(typeof message === "string" && { message }),
    };
  } catch {
    return undefined;
  }
}

/**
 * How a call ended. `failed`: whether the answer was an error, `rpcCode`: its JSON-RPC code as text, if it was read;
 * "answered": the answer was not checked for an error; `cause`: the hub answered with its own error; `by`: who cancelled
 * the call.
 */
export type CallEnd =
  | "answered"
  | { readonly failed: boolean; readonly rpcCode?: string }
  | { readonly cause: HubError }
  | { readonly by: CancelledBy };

/** Whether a call was not made because no person has allowed it. */
function isDenial({ code }: HubError): boolean {
  return code === "notApproved";
}

function outcomeOf(end: CallEnd): CallOutcome {
  if (end === "answered") return "answered";
  if ("by" in end) return "cancelled";
  if ("cause" in end) return isDenial(end.cause) ? "denied" : "failed";
  return end.failed ? "failed" : "answered";
}

/** The kinds of events of calls that have listeners. `changes`: that of the bus when they were looked up. */
interface WantedEvents {
  readonly starts: boolean;
  readonly ends: boolean;
  /** True if a listener wants the end of every call, and not only of notable ones. */
  readonly allEnds: boolean;
  readonly changes: number;
}

/** Numbers the calls, counts those that have ended, and emits events if there are subscribers. */
export class CallLog {
  readonly usage = new CallUsage();
  /** Metrics of requests; undefined while nobody wants them. */
  operations: OperationMetrics | undefined;
  /** Makes the spans of requests; undefined while none are made. */
  tracer: Tracer | undefined;
  readonly #bus: EventBus;
  #lastNumber = 0;
  /** The last result of `#listeners`. */
  #wanted: WantedEvents = { starts: false, ends: false, allEnds: false, changes: -1 };

  constructor(bus: EventBus) {
    this.#bus = bus;
  }

  /** The wanted events, which are looked up only after a change: a call asks for them five times. */
  get #listeners(): WantedEvents {
    const bus = this.#bus;
    const { changes } = bus;
    if (this.#wanted.changes === changes) return this.#wanted;
    return (this.#wanted = {
      starts: bus.hasListeners("callStarted"),
      ends: bus.hasListeners("callFinished") || bus.hasListeners("callCancelled"),
      allEnds: bus.hasListeners("callFinished", "all"),
      changes,
    });
  }

  nextNumber(): number {
    return ++this.#lastNumber;
  }

  logStart(identity: CallIdentity, now: number): void {
    const { call, client, server, tool, name, startedAt, parentCall, principal, via } = identity;
    const event = { kind: "callStarted", call, client, server, tool, name, startedAt } as const;
    this.#bus.emit(withOrigin(event, parentCall, principal, via), now);
  }

  /**
   * Emits the event for the end of a call.
   * @param ended the record of the call
   * @param isNotable whether listeners for notable events get it, even if the call was answered without an error
   */
  logEnd(ended: Readonly<CallRecord>, end: CallEnd, now: number, isNotable: boolean): void {
    const bus = this.#bus;
    const isPlain = !isNotable && outcomeOf(end) === "answered";
    if (isPlain && !this.#listeners.allEnds) return;
    const { call, client, server, tool, name, startedAt, duration } = ended;
    const { parentCall, principal, via } = ended;
    if (end === "answered" || "failed" in end) {
      const failed = end === "answered" ? undefined : end.failed;
      const kind = "callFinished";
      const outcome = "answered";
      // Nearly all calls end like this. The fields are listed one by one, because copying them with a spread would cost
      // more than the rest of this method.
      const finished = {
        kind,
        outcome,
        failed,
        call,
        client,
        server,
        tool,
        name,
        startedAt,
        duration,
      } as const;
      bus.emit(withOrigin(finished, parentCall, principal, via), now, isPlain ? "all" : "notable");
      return;
    }
    const known = { call, client, server, tool, name, startedAt, duration };
    const fields = withOrigin(known, parentCall, principal, via);
    if ("cause" in end) {
      const { cause } = end;
      bus.emit(
        isDenial(cause)
          ? { kind: "callFinished", outcome: "denied", failed: false, cause, ...fields }
          : { kind: "callFinished", outcome: "failed", failed: true, cause, ...fields },
      );
    } else {
      bus.emit({ kind: "callCancelled", by: end.by, ...fields });
    }
  }

  /**
   * Emits the event `calls` about the calls that have ended since `before`, if there are any.
   * @param duration the time since then, in ms
   * @returns the totals at present
   */
  reportCalls(before: CallTotals, duration: number): CallTotals {
    const { totals } = this.usage;
    const ended = totals.ended - before.ended;
    if (ended === 0) return totals;
    const last = this.usage.ended.slice(0, Math.min(ended, MAX_REPORTED)).toReversed();
    this.#bus.emit({
      kind: "calls",
      duration,
      ended,
      failed: totals.failed - before.failed,
      denied: totals.denied - before.denied,
      cancelled: totals.cancelled - before.cancelled,
      last: last.map(({ call, client, server, tool, name, startedAt, duration: took, ...more }) =>
        withOrigin(
          { call, client, server, tool, name, startedAt, duration: took },
          more.parentCall,
          more.principal,
          more.via,
        ),
      ),
    });
    return totals;
  }

  /** Begins to count requests, with the calls whose records are kept: nobody has wanted metrics before. */
  countOperations(operations: OperationMetrics): void {
    this.operations = operations;
    for (const call of this.usage.ended.toReversed()) {
      const { parentCall, name, server, principal, clientName, duration } = call;
      if (parentCall !== undefined) continue;
      const client = principal ?? clientName;
      const error = errorTypeOfRecord(call);
      operations.server.observeOperation(Method.toolsCall, name, server, client, error, duration);
    }
  }

  /** Whether somebody wants to know whether answers are errors. */
  get readsAnswers(): boolean {
    return this.operations !== undefined || this.wantsEnds;
  }

  get wantsStarts(): boolean {
    return this.#listeners.starts;
  }

  get wantsEnds(): boolean {
    return this.#listeners.ends;
  }
}
