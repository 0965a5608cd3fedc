import type { ByteRange, Edit } from "../base/bytes.ts";
import { type ErrorCode, HubError, invalidAnswerError, toHubError } from "../base/errors.ts";
import { saidInBytes } from "../base/quote.ts";
import type { ListedItem } from "../catalog/listing.ts";
import {
  type EncodedMessage,
  bodyFaultOf,
  type Notification,
  paramsOf,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import type { Era } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import { mirroredParamsOf, paramHeaders } from "../protocol/param-headers.ts";
import { type Connection, serverStoppedError, type SessionWaiter } from "../upstream/connection.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { ClientChannel, ClientDeclaration } from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import { addressOf, type RequestFailure } from "../telemetry/request-attributes.ts";
import { AttemptSpan, type SentContext } from "../telemetry/request-span.ts";
import type { Call } from "./call.ts";
import { errorTypeOfResponse, failureOfResponse } from "./error-type.ts";
import {
  completeResultOf,
  InputRounds,
  readAnswer,
  toLegacyAnswer,
  type UnfinishedResult,
} from "./input-required.ts";
import { isRetryable, Retry } from "./retry.ts";
import { TaskPolling } from "./task-polling.ts";

/** Prepares an upstream request before it is sent over a session, and receives its outcome. */
export interface UpstreamHandler {
  /**
   * The form in which results of modern servers are returned. "unchanged": for modern clients; "legacy": converted for
   * legacy clients; "any": not checked, for requests whose result is always complete.
   */
  readonly resultForm: "unchanged" | "legacy" | "any";
  /** The called tool, if its structured output has to be converted for a legacy client. */
  readonly tool?: ListedItem | undefined;
  /**
   * Called when the session is open, before the request is sent.
   * @param hasWaited whether the request waited for the session. If so, the server may no longer have the tool
   * @returns whether to send the request; if not, the handler has already ended it
   */
  onSession(session: Session, hasWaited: boolean): boolean;
  /** Replaces the server's URIs in the response by the URIs with which the client can read the resources. */
  renameUris(response: Response): Response;
  /**
   * Called when a modern server has created a task.
   * @returns the response that announces the task to the client; undefined if the hub polls the task for the client
   * @throws {HubError} if the client cannot have the task
   */
  onTask?(response: Response, session: Session): Response | undefined;
  /**
   * Called with the server's complete response.
   * @param from the era whose form the response has
   * @param edits turn a modern server's response into a legacy one
   */
  onAnswer(session: Session, response: Response, from: Era, edits: readonly Edit[]): void;
  onFailure(error: HubError): void;
}

export interface UpstreamRequestOptions {
  /** The server's own id of the task that the request is about. */
  readonly taskId?: string;
  /** The edits to the client's request; by default those of the call. */
  readonly rewrite?: RequestRewrite;
  /** The arguments as JSON, if plugins have changed them. */
  readonly changedArguments?: string | undefined;
  /** Whether the request is task-augmented: then a legacy server may create a task. */
  readonly isTask?: boolean;
}

const NO_OPTIONS: UpstreamRequestOptions = {};
const NO_EDITS: readonly Edit[] = [];

/**
 * A client's request at one server. It waits for the session, and is then sent. It is repeated where that is safe, and
 * continued if a modern server asks for input. It ends exactly once, with an answer or an error. The session keeps this
 * object as its record of the pending request.
 */
export class UpstreamRequest implements PendingRequest, SessionWaiter {
  readonly clientRequest: Call;
  /** The connection for the request; changes when the pool replaces it. */
  connection: Connection;
  sender: ClientDeclaration;
  readonly #handler: UpstreamHandler;
  readonly #options: UpstreamRequestOptions;
  /**
   * "retrying": waits to be sent again; "unfinished": the server's result is incomplete, for example because the server
   * asks for input or has created a task.
   */
  #state: "waiting" | "sent" | "retrying" | "unfinished" | "done" = "waiting";
  /** The session over which the request was last sent. `#id`: the request's id in that session. */
  #session: Session | undefined;
  #id = 0;
  /** When the request was sent, in ms of the clock; undefined if it was not, has ended, or is not counted. */
  #sentAt: number | undefined;
  /** The span of the request since it was last sent; undefined if it has none. */
  #attempt: AttemptSpan | undefined;
  #hasWaited = false;
  /** The state of retries; created at the first retry, and never over stdio, where requests are not repeated. */
  #createdRetry: Retry | undefined;
  #inputRounds: InputRounds | undefined;
  #taskPolling: TaskPolling | undefined;
  /** Number of times that this request has paused its call's deadline and not yet resumed it. */
  #pauseCount = 0;

  constructor(call: Call, connection: Connection, handler: UpstreamHandler, options = NO_OPTIONS) {
    this.clientRequest = call;
    this.connection = connection;
    this.sender = call.caller.sender;
    this.#handler = handler;
    this.#options = options;
  }

  get isClientRequest(): true {
    return true;
  }

  get method(): string {
    return this.clientRequest.request.method;
  }

  /** The server's own name of the tool, prompt, resource or task. */
  get name(): string {
    return this.#options.taskId ?? this.clientRequest.route.remoteName;
  }

  get isTask(): boolean {
    return this.#options.isTask === true;
  }

  get channel(): ClientChannel | undefined {
    return this.clientRequest.channel;
  }

  get paramHeaders(): Readonly<Record<string, string>> | undefined {
    return paramHeadersOf(this.connection, this.clientRequest, this.#options.changedArguments);
  }

  get isSent(): boolean {
    return this.#session !== undefined;
  }

  /** Whether the request waits to be sent: the first time, or again after its answer was lost. */
  get isWaiting(): boolean {
    const isContinued = this.#inputRounds !== undefined || this.#taskPolling !== undefined;
    return (this.#state === "waiting" || this.#state === "retrying") && !isContinued;
  }

  start(): void {
    this.connection.withSession(this);
    this.#hasWaited = this.#state === "waiting";
    if (this.#hasWaited) this.clientRequest.beginQueueWait();
  }

  resend(): void {
    this.#state = "waiting";
    this.connection.withSession(this);
    if (this.isWaiting) this.clientRequest.beginQueueWait();
  }

  onSession(session: Session): void {
    if (this.#state !== "waiting") return;
    if (this.#hasWaited) this.clientRequest.endQueueWait();
    if (!this.#handler.onSession(session, this.#hasWaited)) {
      this.#end();
      return;
    }
    this.#state = "sent";
    this.#session = session;
    const { request, context } = this.clientRequest;
    if (context.callLog.operations !== undefined) this.#sentAt = context.deadlines.now();
    if (context.callLog.tracer !== undefined) this.#startAttempt(session);
    this.#id = session.relay(this, request, session.mayResend ? this.#nextRewrite : this.#rewrite);
    if (this.#attempt !== undefined) this.#attempt.id = this.#id;
  }

  onRetired(): void {
    const { route } = this.clientRequest;
    const { view } = this.clientRequest.context;
    try {
      const connection = view.connection(route.server);
      if (connection === undefined) throw serverStoppedError(route.server);
      this.connection = connection;
      connection.withSession(this);
    } catch (error) {
      this.fail(toHubError(error));
    }
  }

  onResponse(raw: Response): void {
    const session = this.#session;
    if (this.#state !== "sent" || session === undefined) return;
    if (this.#sentAt !== undefined) this.#countAttempt(errorTypeOfResponse(raw, this.#isToolCall));
    if (this.#attempt !== undefined) this.#endAttempt(failureOfResponse(raw, this.#isToolCall));
    if (session.mayResend && raw.outcome === "error" && this.#retry.handleHeaderMismatch(raw)) {
      this.#state = "retrying";
      return;
    }
    if (this.sender.isOwn === true) {
      const reason = bodyFaultOf(raw);
      if (reason !== undefined) {
        const said = saidInBytes(raw.bytes, raw.body, session.redactor);
        this.#failWith(invalidAnswerError(this.connection.spec.name, reason, said));
        return;
      }
    }
    const response = this.#handler.renameUris(raw);
    if (session.era === "legacy" || this.#handler.resultForm === "any") {
      this.#end();
      this.#handler.onAnswer(session, response, session.era, NO_EDITS);
      return;
    }
    const { sender, method, connection } = this;
    const answer = readAnswer(response, {
      server: connection.spec.name,
      displayName: session.displayName,
      method,
      sender,
      isUnchanged: this.#handler.resultForm === "unchanged",
      tool: this.#handler.tool,
      isForEverybody: connection.spec.isolation === "one",
      isSeen: () => this.clientRequest.context.client.sees(connection.spec.name) === true,
    });
    if (answer instanceof HubError) {
      this.#failWith(answer);
    } else if (answer.kind === "complete") {
      if (answer.response.outcome === "result") this.#inputRounds?.finish();
      this.#end();
      this.#handler.onAnswer(session, answer.response, "modern", answer.edits);
    } else {
      this.#continue(session, answer);
    }
  }

  /** Handles a lost request, or the failure of its server or connection: sends the request again where that is safe. */
  fail(error: HubError): void {
    if (this.#sentAt !== undefined) this.#countAttempt(error.code);
    if (this.#attempt !== undefined) this.#endAttempt({ type: error.code, message: error.message });
    const isLost = this.#state === "sent" && isRetryable(error);
    const cause = isLost ? this.#retry.handleError(error) : error;
    if (cause === undefined) this.#state = "retrying";
    else this.#failWith(cause);
  }

  onProgress(notification: Notification, tokens: readonly ByteRange[]): void {
    if (this.#state !== "done") this.clientRequest.onProgress(notification, tokens);
  }

  log(severity: LogSeverity, message: EncodedMessage): void {
    if (this.#state !== "done") this.clientRequest.log(severity, message);
  }

  /** Pauses the call's deadline, because the server waits for an answer of the client, or resumes it. */
  setDeadlinePaused(isPaused: boolean): void {
    if (this.#state === "done") return;
    this.#pauseCount += isPaused ? 1 : -1;
    this.clientRequest.setDeadlinePaused(isPaused);
  }

  /** Cancels the request at the server, because the answer is no longer needed. @param code the code of the error */
  cancel(reason: CancelReason, code: ErrorCode): void {
    const state = this.#state;
    if (state === "done") return;
    if (this.#sentAt !== undefined) this.#countAttempt(code);
    if (this.#attempt !== undefined)
      this.#endAttempt({ type: code, message: "The request was cancelled." });
    this.#end();
    this.#inputRounds?.cancel();
    this.#taskPolling?.cancel();
    if (state === "sent") this.#session?.cancel(this.#id, reason);
    else if (state === "waiting") this.connection.cancelWait(this);
  }

  /**
   * Handles the end of the task that the server created for the request.
   * @param response the task's outcome, in the form of a response to the call
   */
  onTaskEnded(session: Session, response: Response): void {
    const named = this.#handler.renameUris(response);
    const final = toLegacyAnswer(completeResultOf(named, this.#handler.tool));
    this.#end();
    this.#handler.onAnswer(session, final, "legacy", NO_EDITS);
  }

  #continue(session: Session, unfinished: UnfinishedResult): void {
    this.#state = "unfinished";
    switch (unfinished.kind) {
      case "inputRequired":
        this.#inputRounds ??= new InputRounds(this);
        this.#inputRounds.start(unfinished);
        return;
      case "tasksRequired":
        this.sender = { ...this.sender, hubPollsTasks: true };
        this.resend();
        return;
      case "task":
        this.#onTask(session, unfinished.response);
        return;
      case "inputForwarded":
        if (unfinished.requestState !== undefined)
          this.clientRequest.gate?.awaitRetry?.(unfinished.requestState);
        this.#inputRounds?.finish();
        this.#end();
        this.#handler.onAnswer(session, unfinished.response, "modern", NO_EDITS);
    }
  }

  #onTask(session: Session, response: Response): void {
    let announced: Response | undefined;
    try {
      announced = this.#handler.onTask?.(response, session);
    } catch (error) {
      this.#failWith(toHubError(error));
      return;
    }
    if (announced === undefined) {
      this.#taskPolling = new TaskPolling(session, this);
      this.#taskPolling.start(response);
      return;
    }
    this.#end();
    this.#handler.onAnswer(session, announced, "modern", NO_EDITS);
  }

  get #rewrite(): RequestRewrite {
    return this.#options.rewrite ?? this.clientRequest.rewrite;
  }

  /** The edits for the next send. Each send needs a new array, because `Session` adds its own edits to it. */
  get #nextRewrite(): RequestRewrite {
    const { edits, tokens } = this.#rewrite;
    return { edits: [...edits, ...(this.#inputRounds?.edits ?? NO_EDITS)], tokens };
  }

  get #retry(): Retry {
    const { route } = this.clientRequest;
    const { deadlines } = this.clientRequest.context;
    this.#createdRetry ??= new Retry({
      deadlines,
      route,
      method: this.method,
      refresh: () => this.connection.refresh(),
      resend: () => {
        this.#hasWaited = true;
        this.resend();
      },
    });
    return this.#createdRetry;
  }

  get #isToolCall(): boolean {
    return this.clientRequest.route.kind === "tools" && this.#options.taskId === undefined;
  }

  /** The trace context that the server gets in `_meta`; undefined: that of the client's request. */
  get sentContext(): SentContext | undefined {
    return this.#attempt?.sentContext;
  }

  /** Begins the span of the request, if that of the client's request is recorded. */
  #startAttempt(session: Session): void {
    let call: Call | undefined = this.clientRequest;
    while (call !== undefined && call.caller.span === undefined) call = call.caller.outer;
    const { span } = call?.caller ?? {};
    if (span === undefined) return;
    const { spec } = this.connection;
    this.#attempt = new AttemptSpan(span, {
      server: spec.name,
      method: this.method,
      name: this.#options.taskId === undefined ? this.name : undefined,
      network: session.network,
      address: addressOf(spec),
      protocolVersion: session.handshake?.protocol.version,
      sessionId: session.idDigest,
    });
  }

  #endAttempt(failure: RequestFailure | undefined): void {
    this.#attempt?.end(failure);
    this.#attempt = undefined;
  }

  /** Counts the time since the request was sent. @param errorType the kind of its error; "": none */
  #countAttempt(errorType: string): void {
    const { route, context, clientName } = this.clientRequest;
    const duration = context.deadlines.now() - (this.#sentAt ?? 0);
    this.#sentAt = undefined;
    const tool = this.#isToolCall ? route.remoteName : "";
    const { name: server } = this.connection.spec;
    context.callLog.operations?.client.observeOperation(
      this.method,
      tool,
      server,
      clientName,
      errorType,
      duration,
      this.#attempt,
    );
  }

  #failWith(error: HubError): void {
    if (this.#state === "done") return;
    this.#end();
    this.#handler.onFailure(error);
  }

  #end(): void {
    this.#state = "done";
    this.#createdRetry?.cancel();
    for (; this.#pauseCount > 0; this.#pauseCount--) this.clientRequest.setDeadlinePaused(false);
  }
}

const mirroredToolsCache = new WeakMap<readonly ListedItem[], ReadonlyMap<string, ListedItem>>();

/**
 * Returns the `Mcp-Param-*` headers of a call, as the server's listing declares them (Streamable HTTP, custom headers).
 * @param changedArguments the arguments as JSON, if they differ from the request's arguments
 */
function paramHeadersOf(
  connection: Connection,
  { route, request }: Call,
  changedArguments: string | undefined,
): Readonly<Record<string, string>> | undefined {
  const tools = connection.listing?.tools;
  const item = tools && mirroredToolsOf(tools).get(route.remoteName);
  if (route.kind !== "tools" || item === undefined) return undefined;
  return paramHeaders(
    item,
    changedArguments === undefined ? readArguments(request) : parseArguments(changedArguments),
  );
}

/** The tools with arguments that must also be sent as HTTP headers, by name. */
function mirroredToolsOf(tools: readonly ListedItem[]): ReadonlyMap<string, ListedItem> {
  const cached = mirroredToolsCache.get(tools);
  if (cached !== undefined) return cached;
  const mirrored = tools.filter((item) => mirroredParamsOf(item).length > 0);
  // The order is reversed so that the first of several tools with the same name wins.
  const index = new Map(mirrored.toReversed().map((item) => [item.key, item]));
  mirroredToolsCache.set(tools, index);
  return index;
}

/** Parses arguments that plugins have changed. Returns undefined for invalid JSON, which the server will reject. */
function parseArguments(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function readArguments(request: Request): unknown {
  return paramsOf(request).value("arguments");
}
