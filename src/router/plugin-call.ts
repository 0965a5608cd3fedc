import { type ByteRange, type Edit, textOf, utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { type JsonMember, lastMember, skipWhitespace } from "../base/json.ts";
import type { Route } from "../catalog/section.ts";
import {
  bytesOf,
  type EncodedMessage,
  joinMessage,
  type Notification,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { OwnAnswer, PluginAnswer, RelayedAnswer, toObjectJson } from "../plugin/answer.ts";
import { type CallChainState, CHAIN_STATE, type ChainedCall } from "../plugin/call-chain.ts";
import { describePluginFault, isOwnError, markHandled } from "../plugin/errors.ts";
import type { PluginInstance as PluginMember } from "../plugin/instance.ts";
import type { CallPath, PluginSet } from "../plugin/plugin-set.ts";
import type { Answer, ClientInfo, ToolCall, ToolInfo } from "../plugin/plugin.ts";
import { Method } from "../protocol/legacy.ts";
import type { LogSeverity } from "../protocol/log-level.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { Connection, SessionWaiter } from "../upstream/connection.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { ClientChannel, ClientDeclaration, ClientRequest } from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import { type CallEnd, type Caller, Call, type SessionCallContext } from "./call.ts";
import type { Deadlines } from "./deadlines.ts";
import {
  completeResultOf,
  readAnswer,
  retryEditsOf,
  toLegacyAnswer,
  wrapToolAnswer,
} from "./input-required.ts";
import type { TaskResultPluginCall } from "./plugin-task-result.ts";
import { isRetryable, Retry } from "./retry.ts";
import { UnfinishedCall } from "./task-polling.ts";
import { notReadyReason, serverGoneError } from "./timeouts.ts";
import { paramHeadersOf } from "./upstream-request.ts";

/** The part of a call that stays the same however often plugins change the call. */
export interface ToolCallContext extends CallChainState {
  readonly tool: ToolInfo;
  readonly client: ClientInfo;
  readonly number: number;
  readonly request: Request;
  /** The members of the request's `params`. */
  readonly members: readonly JsonMember[];
  readonly signal: AbortSignal;
}

const NO_SIGNALS: readonly AbortSignal[] = [];

/** A call as plugins see it; the request is parsed only when a plugin reads it. */
export class PluginToolCall implements ChainedCall {
  readonly [CHAIN_STATE]: ToolCallContext;
  readonly changedArguments: string | undefined;
  readonly cancelSignals: readonly AbortSignal[];
  #combinedSignal: AbortSignal | undefined;

  constructor(context: ToolCallContext, changedArguments?: string, cancelSignals = NO_SIGNALS) {
    this[CHAIN_STATE] = context;
    this.changedArguments = changedArguments;
    this.cancelSignals = cancelSignals;
  }

  get tool(): ToolInfo {
    return this[CHAIN_STATE].tool;
  }

  get client(): ClientInfo {
    return this[CHAIN_STATE].client;
  }

  get number(): number {
    return this[CHAIN_STATE].number;
  }

  get signal(): AbortSignal {
    const { signal } = this[CHAIN_STATE];
    if (this.cancelSignals.length === 0) return signal;
    this.#combinedSignal ??= AbortSignal.any([signal, ...this.cancelSignals]);
    return this.#combinedSignal;
  }

  get size(): number {
    const { start, end } = this[CHAIN_STATE].request;
    return end - start;
  }

  get argumentsJson(): string {
    if (this.changedArguments !== undefined) return this.changedArguments;
    const { request, members } = this[CHAIN_STATE];
    const member = lastMember(members, "arguments");
    const text = member && textOf(request.bytes, member.start, member.end);
    return text === undefined || text === "null" ? "{}" : text;
  }

  get arguments(): Readonly<Record<string, unknown>> {
    // Parsed at each read, so that a plugin that changes the object affects no other.
    return JSON.parse(this.argumentsJson) as Record<string, unknown>;
  }

  with({ arguments: newArguments, signal }: Parameters<ToolCall["with"]>[0]): ToolCall {
    const changedArguments =
      newArguments === undefined ? this.changedArguments : toObjectJson(newArguments);
    const cancelSignals =
      signal === undefined ? this.cancelSignals : [...this.cancelSignals, signal];
    return new PluginToolCall(this[CHAIN_STATE], changedArguments, cancelSignals);
  }

  answer(result: object | string): Answer {
    return new OwnAnswer(result);
  }

  refuse(text: string): Answer {
    return new OwnAnswer({ content: [{ type: "text", text }], isError: true });
  }
}

type RequestOutcome = Response | { readonly kind: "failure"; readonly reason: HubError };

/**
 * One request of a plugin call to its server; a call may send several. It is also the promise that `next()` returns:
 * the actual Promise is created lazily. If no plugin awaits it, the response goes to the client as if there were no
 * plugins.
 */
export class PluginUpstreamRequest implements PendingRequest, SessionWaiter, Promise<Answer> {
  readonly method = Method.toolsCall;
  readonly isClientRequest = true;
  readonly name: string;
  readonly #owner: UpstreamRequestOwner;
  readonly #rewrite: RequestRewrite;
  /** The arguments as JSON, if plugins have changed them. */
  readonly #changedArguments: string | undefined;
  #sent: { readonly session: Session; readonly id: number } | undefined;
  #waited = false;
  /** Whether the request was sent and is not answered yet. */
  #isInFlight = false;
  #createdRetry: Retry | undefined;
  #unfinishedCall: UnfinishedCall | undefined;
  #isDeadlinePaused = false;
  #isOver = false;
  /** Whether the response goes to the client directly, even if a plugin also reads it. */
  #isForwarded = false;
  #outcome: RequestOutcome | undefined;
  #promise: Promise<Answer> | undefined;
  #settlePromise: ((outcome: RequestOutcome) => void) | undefined;
  /** Removes the abort listener. */
  #removeAbortListener: (() => void) | undefined;

  /** @param changedArguments the arguments as JSON, if plugins have changed them; `rewrite` contains them, too */
  constructor(
    owner: UpstreamRequestOwner,
    rewrite: RequestRewrite,
    changedArguments: string | undefined,
  ) {
    this.#owner = owner;
    this.#rewrite = rewrite;
    this.#changedArguments = changedArguments;
    this.name = owner.route.remoteName;
  }

  get [Symbol.toStringTag](): string {
    return "Promise";
  }

  get sender(): ClientDeclaration {
    return this.#unfinishedCall?.sender ?? this.#owner.sender;
  }

  get channel(): ClientChannel | undefined {
    return this.#owner.channel;
  }

  get clientRequest(): ClientRequest {
    return this.#owner;
  }

  get paramHeaders(): Readonly<Record<string, string>> | undefined {
    return paramHeadersOf(this.#owner, this.#changedArguments);
  }

  get isSent(): boolean {
    return this.#sent !== undefined;
  }

  /** @param cancelSignals cancels the request when one of them is aborted */
  run(cancelSignals: readonly AbortSignal[]): void {
    if (cancelSignals.length > 0) this.#cancelOnAbort(AbortSignal.any([...cancelSignals]));
    if (this.#isOver) return;
    this.#owner.connection.withSession(this);
    this.#waited = this.#sent === undefined;
  }

  /** Makes the response go to the client directly. */
  forward(): void {
    this.#isForwarded = true;
    if (this.#outcome !== undefined) this.#forwardOutcome(this.#outcome);
  }

  onSession(session: Session): void {
    if (this.#isOver) return;
    const { route, connection, request } = this.#owner;
    if (this.#waited && !connection.lists("tools", route.remoteName)) {
      this.fail(serverGoneError(route));
      return;
    }
    const ownRewrite = session.mayResend
      ? retryEditsOf(this.#rewrite, this.#unfinishedCall)
      : this.#rewrite;
    this.#isInFlight = true;
    this.#sent = { session, id: session.relay(this, request, ownRewrite) };
  }

  get isTask(): boolean {
    return this.#owner.taskResultCall !== undefined;
  }

  onResponse(response: Response): void {
    if (this.#isOver) return;
    this.#isInFlight = false;
    const session = this.#sent?.session;
    const isRefused = session?.mayResend === true && response.outcome === "error";
    if (isRefused && this.#retry.handleHeaderMismatch(response)) return;
    const answer = session?.era === "modern" ? this.#readModern(session, response) : response;
    if (answer === undefined || (session?.era === "legacy" && this.#detectTask(session, answer)))
      return;
    this.#complete(session, answer);
  }

  fail(error: HubError): void {
    const reason =
      this.#isInFlight && !this.#isOver && isRetryable(error)
        ? this.#retry.handleError(error)
        : error;
    this.#isInFlight = false;
    if (reason !== undefined && this.#end()) this.#finish({ kind: "failure", reason });
  }

  onProgress(notification: Notification, tokens: readonly ByteRange[]): void {
    if (!this.#isOver) this.#owner.onProgress(notification, tokens);
  }

  log(severity: LogSeverity, message: EncodedMessage): void {
    if (!this.#isOver) this.#owner.log(severity, message);
  }

  setDeadlinePaused(paused: boolean): void {
    if (this.#isOver || paused === this.#isDeadlinePaused) return;
    this.#isDeadlinePaused = paused;
    this.#owner.setDeadlinePaused(paused);
  }

  /** The call no longer needs the response: cancels the request at the server. */
  cancel(cancelReason: CancelReason, reason: HubError): void {
    if (!this.#end()) return;
    this.#unfinishedCall?.cancel();
    if (this.#sent !== undefined) this.#sent.session.cancel(this.#sent.id, cancelReason);
    if (!this.#isInFlight) {
      this.#owner.connection.cancelWait(this);
    }
    this.#settleWith({ kind: "failure", reason });
  }

  // oxlint-disable-next-line unicorn/no-thenable -- it is a promise
  then<A = Answer, B = never>(
    onAnswer?: ((answer: Answer) => A | PromiseLike<A>) | null,
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#asPromise().then(onAnswer, onFailure);
  }

  catch<B = never>(
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<Answer | B> {
    return this.#asPromise().catch(onFailure);
  }

  finally(onEnd?: (() => void) | null): Promise<Answer> {
    return this.#asPromise().finally(onEnd);
  }

  #asPromise(): Promise<Answer> {
    if (this.#promise === undefined) {
      this.#promise = new Promise((resolve, reject) => {
        this.#settlePromise = (outcome) => {
          if (outcome.kind === "failure") reject(outcome.reason);
          else resolve(new RelayedAnswer(outcome));
        };
      });
      // Avoids an unhandled rejection if the plugin ignores the promise.
      this.#promise.catch(() => {});
      if (this.#outcome !== undefined) this.#settlePromise?.(this.#outcome);
    }
    return this.#promise;
  }

  #finish(outcome: RequestOutcome): void {
    if (this.#isForwarded) this.#forwardOutcome(outcome);
    this.#settleWith(outcome);
  }

  #forwardOutcome(outcome: RequestOutcome): void {
    if (outcome.kind === "failure") this.#owner.fail(outcome.reason);
    else this.#owner.onResponse(outcome);
  }

  /** Settles the promise, if it was created. */
  #settleWith(outcome: RequestOutcome): void {
    if (outcome.kind === "failure") markHandled(outcome.reason);
    this.#outcome = outcome;
    this.#settlePromise?.(outcome);
  }

  #complete(session: Session | undefined, answer: Response): void {
    if (!this.#end()) return;
    if (session !== undefined) this.#owner.recordLinks(session, answer);
    this.#finish(answer);
  }

  /** @returns a modern server's response as a legacy one; undefined if it is not complete */
  #readModern(session: Session, response: Response): Response | undefined {
    const { sender } = this;
    const { route, request, caller, deadlines, connection } = this.#owner;
    const { server } = route;
    const answer = readAnswer(response, {
      server,
      method: this.method,
      sender,
      isUnchanged: false,
    });
    if (answer instanceof HubError) {
      this.fail(answer);
      return undefined;
    }
    if (answer.kind === "complete") {
      if (answer.response.outcome === "result") this.#unfinishedCall?.finish();
      return toLegacyAnswer(answer);
    }
    this.#unfinishedCall ??= new UnfinishedCall({
      server,
      request,
      caller,
      deadlines,
      setDeadlinePaused: (isPaused) => this.setDeadlinePaused(isPaused),
      restartTimeout: () => this.#owner.restartTimeout(),
      resend: () => connection.withSession(this),
      onResponse: (final) =>
        this.#complete(session, toLegacyAnswer(completeResultOf(final, undefined))),
      fail: (error) => this.fail(error),
    });
    this.#unfinishedCall.continueCall(session, answer);
    return undefined;
  }

  /** @returns whether the response created a task, whose result is delivered later */
  #detectTask(session: Session, answer: Response): boolean {
    const { taskResultCall } = this.#owner;
    if (taskResultCall === undefined) return false;
    // Server requests that belong to the task do not pause the deadline.
    this.setDeadlinePaused(false);
    return taskResultCall.detectTask(this, session, answer);
  }

  get #retry(): Retry {
    const { deadlines, connection, route } = this.#owner;
    const { method } = this;
    const resend = (): void => {
      this.#waited = true;
      connection.withSession(this);
    };
    this.#createdRetry ??= new Retry({ deadlines, connection, route, method, resend });
    return this.#createdRetry;
  }

  #cancelOnAbort(signal: AbortSignal): void {
    const onAbort = (): void => {
      if (this.#isOver) return;
      const reason = pluginCancelError(signal.reason);
      this.cancel("Cancelled by a plugin of the hub.", reason);
      if (this.#isForwarded) this.#owner.fail(reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    this.#removeAbortListener = () => signal.removeEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
  }

  /** Ends the request. @returns false if it has ended before */
  #end(): boolean {
    if (this.#isOver) return false;
    this.setDeadlinePaused(false);
    this.#isOver = true;
    this.#createdRetry?.cancel();
    this.#removeAbortListener?.();
    this.#owner.onRequestEnd(this);
    return true;
  }
}

function pluginCancelError(reason: unknown): HubError {
  if (isOwnError(reason)) return reason;
  const text = `A plugin of the hub cancelled the call: ${describePluginFault(reason, undefined).message}`;
  return new HubError("cancelled", text, { cause: reason });
}

/** The part of the context that only plugin calls have. */
export interface PluginCallContext {
  readonly plugins: PluginSet;
  readonly callPath: CallPath;
  readonly client: ClientInfo;
  /** The plugin that makes the call, if one does: its own hooks are skipped. */
  readonly excludedPlugin: PluginMember | undefined;
  /** The members of the request's `params`. */
  readonly members: readonly JsonMember[];
  /** Set if the call is task-augmented. */
  readonly taskResultCall: TaskResultPluginCall | undefined;
}

/** A call that plugins see: they answer it, or send it once or several times, unchanged or changed. */
export class PluginCall
  extends Call<SessionCallContext>
  implements ToolCallContext, UpstreamRequestOwner
{
  latestAnswer: Promise<Answer> | undefined;
  readonly #pluginContext: PluginCallContext;
  /** The requests in flight; rarely more than one. */
  #requests: readonly PluginUpstreamRequest[] = EMPTY;
  #holders: readonly PluginMember[] = EMPTY;
  /** The response to its only request is the answer, and no plugin reads it. */
  #isForwarded = false;
  /** Whether the request was written to the server at least once. */
  #wasSent = false;
  #controller: AbortController | undefined;
  #endError: HubError | undefined;

  constructor(context: SessionCallContext, pluginContext: PluginCallContext) {
    super(context);
    this.#pluginContext = pluginContext;
  }

  get tool(): ToolInfo {
    return this.#pluginContext.callPath.tool;
  }

  get client(): ClientInfo {
    return this.#pluginContext.client;
  }

  get excludedPlugin(): PluginMember | undefined {
    return this.#pluginContext.excludedPlugin;
  }

  get holderCount(): number {
    return this.#holders.length;
  }

  get taskResultCall(): TaskResultPluginCall | undefined {
    return this.#pluginContext.taskResultCall;
  }

  get members(): readonly JsonMember[] {
    return this.#pluginContext.members;
  }

  get request(): Request {
    return this.context.request;
  }

  get route(): Route {
    return this.context.route;
  }

  get connection(): Connection {
    return this.context.connection;
  }

  get sender(): ClientDeclaration {
    return this.context.caller.sender;
  }

  get caller(): Caller {
    return this.context.caller;
  }

  get deadlines(): Deadlines {
    return this.context.deadlines;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.isOver) this.#controller.abort(this.#endReason());
    }
    return this.#controller.signal;
  }

  /** Sends the call to the server, with the plugins' changes. */
  send({ changedArguments, cancelSignals }: ChainedCall): Promise<Answer> {
    const upstreamRequest = new PluginUpstreamRequest(
      this,
      this.#rewriteWith(changedArguments),
      changedArguments,
    );
    this.#requests = [...this.#requests, upstreamRequest];
    // The call may have ended in this very turn of the event loop.
    const isOver = this.isOver || this.#endError !== undefined;
    if (isOver) upstreamRequest.cancel("The call has ended.", this.#endReason());
    else upstreamRequest.run(cancelSignals);
    return upstreamRequest;
  }

  onRequestEnd(upstreamRequest: Pick<PluginUpstreamRequest, "isSent">): void {
    this.#wasSent ||= upstreamRequest.isSent;
    this.#requests = this.#requests.filter((other) => other !== upstreamRequest);
  }

  addHolder(member: PluginMember, index: number): void {
    this.#holders = this.#holders.toSpliced(index, 0, member);
  }

  removeHolder(member: PluginMember): void {
    const index = this.#holders.lastIndexOf(member);
    this.#holders = this.#holders.filter((_, i) => i !== index);
  }

  onResponse(response: Response): void {
    this.finish(
      this.context.caller.toClientMessage(this.renameUris(response), "legacy"),
      "answered",
    );
  }

  protected start(): void {
    const { plugins, callPath } = this.#pluginContext;
    plugins.addUse();
    const answer = callPath.run(new PluginToolCall(this));
    if (!(answer instanceof PluginUpstreamRequest)) {
      const end = answer.then(
        (it) => this.#finishWith(it),
        (error: unknown) => this.fail(toHubError(error)),
      );
      void end.then(() => plugins.removeUse());
    } else if (this.isOver) {
      plugins.removeUse();
    } else {
      // No plugin waits for the response, so it goes straight to the client.
      this.#isForwarded = true;
      answer.forward();
    }
  }

  protected cancelUpstream(reason: CancelReason, error: HubError): void {
    if (this.#endError !== undefined) return;
    this.#endError = error;
    this.#cancelRequests(reason, error);
    this.#controller?.abort(error);
  }

  protected waitReason(seconds: number): string | undefined {
    if (this.#requests.some(({ isSent }) => isSent)) return undefined;
    const holder = this.#requests.length === 0 ? this.#holders.at(-1) : undefined;
    if (holder === undefined)
      return this.#wasSent ? undefined : notReadyReason(seconds, this.context.connection);
    holder.recordFailure("call", new Error("it did not end before the call's deadline"));
    const held = `was held by plugin "${holder.name}", which was not done within ${seconds} seconds.`;
    if (!this.#wasSent) return held;
    return `${held} Its server was called before that: check what took effect before it is repeated.`;
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.isOver) return;
    super.finish(message && this.#wrapOutput(message), end);
    // Plugins may still run, but their requests in flight are no longer needed.
    if (this.#requests.length > 0)
      this.#cancelRequests("The call was answered.", this.#endReason());
    if (this.#isForwarded) this.#pluginContext.plugins.removeUse();
  }

  /** Wraps a modern server's structured output, which has to be an object for a legacy client. */
  #wrapOutput(message: EncodedMessage): EncodedMessage {
    const { caller, route, view } = this.context;
    const isMixed =
      caller.sender.era === "legacy" && view.catalog.tools.info.modernServers.has(route.server);
    return isMixed ? wrapToolAnswer(message, route.item) : message;
  }

  /** Maps the URIs of a plugin's answer, too, which may differ from the server's. */
  #renameAnswerUris(message: EncodedMessage): EncodedMessage {
    if (this.rename === undefined) return message;
    const parsed = parseMessage(joinMessage(message));
    return parsed.kind === "response" ? bytesOf(this.renameUris(parsed)) : message;
  }

  #finishWith(answer: Answer): void {
    if (!PluginAnswer.is(answer)) return;
    const message = answer.withId(this.request.id);
    this.finish(this.#renameAnswerUris(message), "answered");
  }

  /** The error that pending work is rejected with; created lazily, as an Error is expensive. */
  #endReason(): HubError {
    this.#endError ??= new HubError("cancelled", "The call has ended.");
    return this.#endError;
  }

  #cancelRequests(reason: CancelReason, error: HubError): void {
    for (const upstreamRequest of this.#requests) upstreamRequest.cancel(reason, error);
  }

  #rewriteWith(changedArguments: string | undefined): RequestRewrite {
    const { rewrite } = this.context;
    const edits = [...rewrite.edits];
    if (changedArguments !== undefined)
      edits.push(...argumentEdits(this.request, this.members, changedArguments));
    return { edits, tokens: rewrite.tokens };
  }
}

const EMPTY: readonly never[] = [];

/** Replaces every `arguments` member of the request: servers' parsers differ on which duplicate counts. */
function argumentEdits(request: Request, members: readonly JsonMember[], json: string): Edit[] {
  const replacement = utf8(json);
  if (lastMember(members, "arguments") !== undefined) {
    return members.filter(({ key }) => key === "arguments").map((it) => ({ ...it, replacement }));
  }
  // `params` is not empty: it has at least the tool's name.
  const insertAt = skipWhitespace(request.bytes, request.params?.start ?? 0) + 1;
  return [{ start: insertAt, end: insertAt, replacement: utf8(`"arguments":${json},`) }];
}

/** A plugin call, from the point of view of its requests to the server. */
export interface UpstreamRequestOwner extends ClientRequest {
  readonly request: Request;
  readonly route: Route;
  readonly connection: Connection;
  readonly sender: ClientDeclaration;
  readonly caller: Caller;
  readonly deadlines: Deadlines;
  /** The call that adopts a created task; undefined unless the call is task-augmented. */
  readonly taskResultCall: TaskResultPluginCall | undefined;
  onProgress(notification: Notification, tokens: readonly ByteRange[]): void;
  restartTimeout(): void;
  /** Records the links of a server's response, before plugins change it. */
  recordLinks(session: Session, response: Response): void;
  setDeadlinePaused(paused: boolean): void;
  /** A request of the call has ended. */
  onRequestEnd(upstreamRequest: { readonly isSent: boolean }): void;
  /** The response to the call's only request, if no plugin reads it. */
  onResponse(response: Response): void;
  fail(error: HubError): void;
}
