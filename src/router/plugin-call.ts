import { count } from "../base/format.ts";
import type { AgentCaller } from "../approval/policy.ts";
import { type Edit, textOf, utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import {
  isJsonObject,
  type JsonMember,
  lastMember,
  parseRange,
  skipWhitespace,
} from "../base/json.ts";
import {
  buildError,
  bytesOf,
  type EncodedMessage,
  joinMessage,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { OwnAnswer, PluginAnswer, RelayedAnswer, toObjectJson } from "../plugin/answer.ts";
import {
  type CallChainState,
  CHAIN_STATE,
  type ChainedCall,
  type ClientCatalogs,
} from "../plugin/handler-chain.ts";
import { describePluginFault, isOwnError, markHandled } from "../plugin/errors.ts";
import type { PluginInstance as PluginMember } from "../plugin/instance.ts";
import type { CallPath, PluginSet } from "../plugin/plugin-set.ts";
import type {
  Answer,
  CallOptions,
  ClientInfo,
  Form,
  FormResult,
  Progress,
  ToolCall,
  ToolInfo,
} from "../plugin/plugin.ts";
import type { Era } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { Connection } from "../upstream/connection.ts";
import type { RequestRewrite } from "../upstream/pending.ts";
import type { Session } from "../upstream/session.ts";
import { cancelCreatedTask, cancelTask, type Task } from "../upstream/tasks.ts";
import {
  ANSWERED_WITH_ERROR,
  Call,
  type CallContext,
  type CallEnd,
  type CallGate,
  removedError,
  type RoutedRequest,
} from "./call.ts";
import { canElicit, Elicitation } from "./elicitation.ts";
import { toLegacyAnswer, wrapToolOutput } from "./input-required.ts";
import type { OwnRequest } from "./own-request.ts";
import type { Router } from "./router.ts";
import {
  Sampling,
  type SamplingResult,
  type SamplingSupport,
  samplingSupportOf,
  usesTools,
} from "./plugin-sampling.ts";
import { notReadyReason } from "./timeouts.ts";
import {
  type UpstreamHandler,
  UpstreamRequest,
  type UpstreamRequestOptions,
} from "./upstream-request.ts";
import type { SpanContext } from "../telemetry/trace-context.ts";

/** The properties of a call that stay the same however often it is sent, even if plugins change the arguments. */
export interface ToolCallContext extends CallChainState {
  readonly tool: ToolInfo;
  readonly client: ClientInfo;
  readonly number: number;
  readonly request: Request;
  readonly members: readonly JsonMember[];
  readonly signal: AbortSignal;
  readonly agent: AgentCaller | undefined;
  readonly isTask: boolean;
}

const NO_SIGNALS: readonly AbortSignal[] = [];

/** A call as plugins see it. The request is parsed only when a plugin reads a member. */
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

  get meta(): Readonly<Record<string, unknown>> {
    const { members, request } = this[CHAIN_STATE];
    const member = lastMember(members, "_meta");
    const value: unknown = member && parseRange(request.bytes, member);
    return isJsonObject(value) ? value : {};
  }

  get agent(): AgentCaller | undefined {
    return this[CHAIN_STATE].agent;
  }

  get isTask(): boolean {
    return this[CHAIN_STATE].isTask;
  }

  progress(progress: Progress): void {
    this[CHAIN_STATE].reportProgress(progress);
  }

  setDeadline(ms: number): void {
    this[CHAIN_STATE].setDeadline(ms);
  }

  becomeTask(): void {
    this[CHAIN_STATE].becomeTask();
  }

  get argumentsJson(): string {
    if (this.changedArguments !== undefined) return this.changedArguments;
    const { request, members } = this[CHAIN_STATE];
    const member = lastMember(members, "arguments");
    const text = member && textOf(request.bytes, member.start, member.end);
    return text === undefined || text === "null" ? "{}" : text;
  }

  get arguments(): Readonly<Record<string, unknown>> {
    // The JSON is parsed at each read, so that a plugin that changes the object does not affect other plugins.
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

  get canElicit(): boolean {
    return this[CHAIN_STATE].canElicit;
  }

  elicit(form: Form, signal?: AbortSignal): Promise<FormResult> {
    return ignorable(this[CHAIN_STATE].elicit(form, this.#signalsWith(signal)));
  }

  get canSample(): SamplingSupport {
    return this[CHAIN_STATE].canSample;
  }

  sample(params: Readonly<Record<string, unknown>>, signal?: AbortSignal): Promise<SamplingResult> {
    return ignorable(this[CHAIN_STATE].sample(params, this.#signalsWith(signal)));
  }

  #signalsWith(signal: AbortSignal | undefined): readonly AbortSignal[] {
    return signal === undefined ? this.cancelSignals : [...this.cancelSignals, signal];
  }
}

/** Prevents an unhandled rejection if the plugin ignores the promise. */
function ignorable<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

type Outcome = Response | { readonly kind: "failure"; readonly reason: HubError };

/**
 * The answer to one request that a `PluginCall` sends to its server. This object is the promise that `next()` returns
 * to a plugin. A real Promise is created only if a plugin awaits it; otherwise the answer goes straight to the client.
 */
export class UpstreamAnswer implements UpstreamHandler, Promise<Answer> {
  readonly resultForm = "legacy";
  readonly #call: PluginCall;
  readonly #request: UpstreamRequest;
  /** Whether the answer goes to the client directly, even if a plugin also reads it. */
  #isForwarded = false;
  #outcome: Outcome | undefined;
  #deferred: PromiseWithResolvers<Answer> | undefined;
  #removeAbortListener: (() => void) | undefined;

  constructor(call: PluginCall, connection: Connection, options: UpstreamRequestOptions) {
    this.#call = call;
    this.#request = new UpstreamRequest(call, connection, this, options);
  }

  get [Symbol.toStringTag](): string {
    return "Promise";
  }

  get isSent(): boolean {
    return this.#request.isSent;
  }

  get connection(): Connection {
    return this.#request.connection;
  }

  /**
   * Sends the request.
   * @param cancelSignals the request is cancelled when one of them is aborted
   * @param gate may hold the request
   */
  run(cancelSignals: readonly AbortSignal[], gate: CallGate | undefined): void {
    if (cancelSignals.length > 0) this.#cancelOnAbort(AbortSignal.any([...cancelSignals]));
    if (gate?.enterServer === undefined) this.#start();
    else
      gate.enterServer(
        () => this.#start(),
        (error) => this.onFailure(error),
      );
  }

  #start(): void {
    if (this.#outcome === undefined) this.#request.start();
  }

  forward(): void {
    this.#isForwarded = true;
    if (this.#outcome !== undefined) this.#forward(this.#outcome);
  }

  onSession(_: Session, hasWaited: boolean): boolean {
    const { connection, isSent } = this.#request;
    const { route, gate } = this.#call;
    const removed =
      (hasWaited ? removedError(connection, route) : undefined) ??
      connection.pinError(route, isSent);
    const error = removed ?? gate?.checkBeforeSend(connection, isSent);
    if (error !== undefined) this.onFailure(error);
    return error === undefined;
  }

  /** Changes nothing: URIs are renamed later, in the answer that the plugins give to the client. */
  renameUris(response: Response): Response {
    return response;
  }

  onAnswer(session: Session, response: Response, _: Era, edits: readonly Edit[]): void {
    if (session.era === "legacy" && this.#call.onPossibleTask(this, session, response)) return;
    this.settle(session, toLegacyAnswer({ kind: "complete", response, edits }));
  }

  onFailure(reason: HubError): void {
    if (this.#end({ kind: "failure", reason }) && this.#isForwarded) this.#call.fail(reason);
  }

  settle(session: Session, response: Response): void {
    if (this.#outcome !== undefined) return;
    this.#call.recordLinks(session, response);
    if (this.#end(response) && this.#isForwarded) this.#call.onForwarded(response);
  }

  /** Cancels the request at the server, because the call no longer needs the answer. */
  cancel(cancelReason: CancelReason, reason: HubError): void {
    this.#request.cancel(cancelReason, reason.code);
    this.#end({ kind: "failure", reason });
  }

  // oxlint-disable-next-line unicorn/no-thenable -- it is a promise
  then<A = Answer, B = never>(
    onAnswer?: ((answer: Answer) => A | PromiseLike<A>) | null,
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#promise.then(onAnswer, onFailure);
  }

  catch<B = never>(
    onFailure?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<Answer | B> {
    return this.#promise.catch(onFailure);
  }

  finally(onEnd?: (() => void) | null): Promise<Answer> {
    return this.#promise.finally(onEnd);
  }

  get #promise(): Promise<Answer> {
    if (this.#deferred === undefined) {
      this.#deferred = Promise.withResolvers<Answer>();
      // Prevents an unhandled rejection if the plugin ignores the promise.
      this.#deferred.promise.catch(() => {});
      if (this.#outcome !== undefined) this.#settlePromise(this.#outcome);
    }
    return this.#deferred.promise;
  }

  #settlePromise(outcome: Outcome): void {
    if (outcome.kind === "failure") this.#deferred?.reject(outcome.reason);
    else this.#deferred?.resolve(new RelayedAnswer(outcome, this.#call.server));
  }

  #forward(outcome: Outcome): void {
    if (outcome.kind === "failure") this.#call.fail(outcome.reason);
    else this.#call.onForwarded(outcome);
  }

  #cancelOnAbort(signal: AbortSignal): void {
    const onAbort = (): void => {
      if (this.#outcome !== undefined) return;
      const reason = pluginCancelError(signal.reason);
      this.cancel("Cancelled by a plugin of the hub.", reason);
      if (this.#isForwarded) this.#call.fail(reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    this.#removeAbortListener = () => signal.removeEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
  }

  /** Settles the answer. @returns false if it was already settled */
  #end(outcome: Outcome): boolean {
    if (this.#outcome !== undefined) return false;
    if (outcome.kind === "failure") markHandled(outcome.reason);
    this.#outcome = outcome;
    this.#removeAbortListener?.();
    this.#call.onAnswerEnd(this);
    this.#settlePromise(outcome);
    return true;
  }
}

function pluginCancelError(reason: unknown): HubError {
  if (isOwnError(reason)) return reason;
  const text = `A plugin cancelled the call: ${describePluginFault(reason, undefined).message}`;
  return new HubError("cancelled", text, { cause: reason });
}

export interface PluginCallContext {
  /** The client's router. */
  readonly router: Router;
  readonly plugins: PluginSet;
  readonly callPath: CallPath;
  readonly client: ClientInfo;
  /** The plugin that makes the call, if any. Its own hooks are not run for this call. */
  readonly excludedPlugin: PluginMember | undefined;
  readonly members: readonly JsonMember[];
  /** Whether the call is task-augmented: then a legacy server may create a task. */
  readonly isTask: boolean;
}

/**
 * A tool call that plugins process: they answer it themselves, or send it once or several times, perhaps changed.
 *
 * If the client asks for a task and the server creates one, the client is answered at once with the task. The plugins
 * continue to wait for the task's result, and their answer becomes the answer to `tasks/result`.
 */
export class PluginCall extends Call implements ToolCallContext {
  latestAnswer: Promise<Answer> | undefined;
  readonly #connection: Connection;
  readonly #pluginContext: PluginCallContext;
  /** The answers that the call still waits for; rarely more than one. */
  #answers: readonly UpstreamAnswer[] = EMPTY;
  #holders: readonly PluginMember[] = EMPTY;
  /** Whether the server's response goes straight to the client because no plugin reads it. */
  #isForwarded = false;
  #wasSent = false;
  /** The open requests of plugins to the client. */
  readonly #openRequests = new Set<Pick<OwnRequest<unknown>, "withdraw">>();
  /** The listeners for pauses of the deadline; created when the first one is added. */
  #pauseListeners: Set<(isPaused: boolean) => void> | undefined;
  #controller: AbortController | undefined;
  #endError: HubError | undefined;
  /**
   * The task that the server has created for the call. `answer`: the plugins' promise, which waits for the task's
   * result.
   */
  #task:
    | {
        readonly task: Task;
        readonly answer: UpstreamAnswer;
        /** The answer to the client's `tasks/result`. */
        readonly final: PromiseWithResolvers<Response>;
        /**
         * "running": the plugins wait for the task's result; "delivered": they have received it; "decided": they have
         * answered the client.
         */
        state: "running" | "delivered" | "decided";
      }
    | undefined;

  constructor(
    context: CallContext,
    routed: RoutedRequest,
    connection: Connection,
    pluginContext: PluginCallContext,
  ) {
    super(context, routed);
    this.#connection = connection;
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

  get agent(): AgentCaller | undefined {
    return this.caller.agent;
  }

  get isTask(): boolean {
    return this.#pluginContext.isTask;
  }

  becomeTask(): void {
    if (!this.isOver) this.caller.becomeTask?.();
  }

  catalogs(): Promise<ClientCatalogs> {
    return this.#pluginContext.router.catalogs();
  }

  get members(): readonly JsonMember[] {
    return this.#pluginContext.members;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.isOver) this.#controller.abort(this.#endReason());
    }
    return this.#controller.signal;
  }

  get canElicit(): boolean {
    return canElicit(this.caller.sender);
  }

  async elicit(form: Form, signals: readonly AbortSignal[]): Promise<FormResult> {
    const signal = AbortSignal.any([this.signal, ...signals]);
    if (signal.aborted) throw pluginCancelError(signal.reason);
    if (!this.canElicit) {
      const text = "The client cannot be asked: it has not declared that it shows forms.";
      throw markHandled(new HubError("notAsked", text, { server: this.server }));
    }
    return this.#ask(() => new Elicitation(this.#connection.spec, form), signal);
  }

  get canSample(): SamplingSupport {
    return samplingSupportOf(this.caller.sender);
  }

  async sample(
    params: Readonly<Record<string, unknown>>,
    signals: readonly AbortSignal[],
  ): Promise<SamplingResult> {
    const signal = AbortSignal.any([this.signal, ...signals]);
    if (signal.aborted) throw pluginCancelError(signal.reason);
    const { canSample, server } = this;
    if (canSample === false || (canSample === "text" && usesTools(params))) {
      const what = canSample === false ? "sampling" : "sampling with tools";
      const text = `The client's model cannot be asked: the client has not declared ${what}.`;
      throw markHandled(new HubError("notAsked", text, { server }));
    }
    return this.#ask(() => new Sampling(server, params), signal);
  }

  /** Sends a plugin's request to the client and waits for the answer. The call's deadline is paused meanwhile. */
  async #ask<Result>(make: () => OwnRequest<Result>, signal: AbortSignal): Promise<Result> {
    try {
      const request = make();
      const withdraw = (): void =>
        request.withdraw(
          "The call that needed this request has ended.",
          pluginCancelError(signal.reason),
        );
      signal.addEventListener("abort", withdraw, { once: true });
      this.#openRequests.add(request);
      this.setDeadlinePaused(true);
      try {
        request.send(this.caller);
        return await request.result;
      } finally {
        this.setDeadlinePaused(false);
        this.#openRequests.delete(request);
        signal.removeEventListener("abort", withdraw);
      }
    } catch (error) {
      throw markHandled(toHubError(error));
    }
  }

  get span(): SpanContext | undefined {
    return this.caller.span;
  }

  watchPauses(listener: (isPaused: boolean) => void): () => void {
    this.#pauseListeners ??= new Set();
    this.#pauseListeners.add(listener);
    if (this.isDeadlinePaused) listener(true);
    return () => void this.#pauseListeners?.delete(listener);
  }

  override setDeadlinePaused(paused: boolean): void {
    super.setDeadlinePaused(paused);
    if (this.#pauseListeners === undefined) return;
    for (const listener of this.#pauseListeners) listener(this.isDeadlinePaused);
  }

  /** Calls a tool for a plugin as a part of this call; `args` is JSON text. See `Host.call`. */
  async callTool(
    plugin: PluginMember,
    name: string,
    args: string,
    { signal, onProgress, agent, meta, ownHooks = false }: CallOptions,
  ): Promise<Answer> {
    if (this.isOver) throw this.#endReason();
    const signals = signal === undefined ? [this.signal] : [this.signal, signal];
    const excluded = ownHooks ? undefined : plugin;
    const response = await this.#pluginContext.router.callTool(excluded, {
      outer: this,
      name,
      args,
      signal: AbortSignal.any(signals),
      onProgress,
      agent,
      meta,
    });
    return new RelayedAnswer(response);
  }

  /** Sends the call to the server with the arguments and signals that the plugins have set. */
  send({ changedArguments, cancelSignals }: ChainedCall): Promise<Answer> {
    const answer = new UpstreamAnswer(this, this.#connection, {
      rewrite: this.#rewriteWith(changedArguments),
      changedArguments,
      isTask: this.#pluginContext.isTask,
    });
    this.#answers = [...this.#answers, answer];
    // The call may have ended in this turn of the event loop, while plugin code was still running.
    const isOver = this.isOver || this.#endError !== undefined;
    if (isOver) answer.cancel("The call has ended.", this.#endReason());
    else answer.run(cancelSignals, this.gate);
    return answer;
  }

  onAnswerEnd(answer: UpstreamAnswer): void {
    this.#wasSent ||= answer.isSent;
    this.#answers = this.#answers.filter((other) => other !== answer);
  }

  /**
   * Handles a legacy server's response to a task-augmented call.
   * @returns whether the response created a task. If so, `answer` waits for the task's result
   */
  onPossibleTask(answer: UpstreamAnswer, session: Session, response: Response): boolean {
    if (!this.#pluginContext.isTask) return false;
    const { caller } = this;
    const { tasks } = this.context;
    if (this.#task !== undefined) {
      // A call has at most one task. If a plugin has sent the call again, the server's second task is cancelled.
      if (!cancelCreatedTask(session, response)) return false;
      const text = "A call that became a task cannot be sent again.";
      answer.onFailure(new HubError("notSupported", text));
      return true;
    }
    const created = tasks.addIfCreated(session, response, this, answer.connection, this);
    if (created === undefined) return false;
    this.logEnd("answered");
    this.#task = {
      task: created.task,
      answer,
      final: Promise.withResolvers<Response>(),
      state: "running",
    };
    this.removeDeadline();
    caller.respond(caller.toClientMessage(created.response, session.era));
    return true;
  }

  /** The plugins' answer to `tasks/result`; undefined while they wait for the task's result. */
  get finalAnswer(): Promise<Response> | undefined {
    return this.#task?.state === "running" ? undefined : this.#task?.final.promise;
  }

  deliver(result: Response): void {
    this.#deliver((answer, { session }) => answer.settle(session, result));
  }

  /** Gives the plugins an error, because the task will have no result. */
  onTaskLost(cause: HubError): void {
    this.#deliver((answer) => answer.onFailure(cause));
  }

  /** Cancels the call, because the task's result cannot be requested any more. */
  onTaskDropped(): void {
    if (!this.isOver) this.cancel("No client waits for the call any more.", "disconnect");
  }

  /** Passes the task's outcome to the plugins, at most once. A new deadline limits the time for their answer. */
  #deliver(deliver: (answer: UpstreamAnswer, task: Task) => void): void {
    if (this.#task?.state !== "running") return;
    this.#task.state = "delivered";
    if (!this.isOver) this.resetDeadline();
    deliver(this.#task.answer, this.#task.task);
  }

  /** Answers the client. If the call has a task, the message answers `tasks/result` instead of the call. */
  protected override respond(message: EncodedMessage | undefined): void {
    if (this.#task === undefined) {
      super.respond(message);
      return;
    }
    const { task, final, state } = this.#task;
    // The plugins have answered without waiting for the task's result: nobody needs the task any more.
    if (state === "running" && message !== undefined && !task.isOver)
      cancelTask(task.session, task.remoteId);
    const droppedError = new HubError("cancelled", "The task was removed.");
    const answer = message ?? buildError(this.request.id, droppedError.toRpc());
    const response = parseMessage(joinMessage(answer));
    if (response.kind !== "response") return;
    this.#task.state = "decided";
    final.resolve(response);
  }

  protected override logEnd(end: CallEnd): void {
    if (this.#task === undefined) super.logEnd(end);
  }

  addHolder(member: PluginMember, index: number): void {
    this.#holders = this.#holders.toSpliced(index, 0, member);
  }

  removeHolder(member: PluginMember): void {
    const index = this.#holders.lastIndexOf(member);
    this.#holders = this.#holders.filter((_, i) => i !== index);
  }

  /** Handles the server's response if no plugin reads it. */
  onForwarded(response: Response): void {
    const message = this.caller.toClientMessage(this.withClientUris(response), "legacy");
    this.finish(message, this.endOf(response));
  }

  protected start(): void {
    const { plugins, callPath } = this.#pluginContext;
    plugins.addUse();
    const answer = callPath.run(new PluginToolCall(this));
    if (!(answer instanceof UpstreamAnswer)) {
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
    if (this.#answers.some(({ isSent }) => isSent)) return undefined;
    const holder = this.#answers.length === 0 ? this.#holders.at(-1) : undefined;
    if (holder === undefined)
      return this.#wasSent ? undefined : notReadyReason(seconds, this.#connection);
    holder.recordFailure("call", new Error("it did not end before the call's deadline"));
    const held = `was held by plugin "${holder.name}", which was not done within ${count(seconds, "second")}.`;
    if (!this.#wasSent) return held;
    return `${held} Its server was called before that: check what took effect before it is repeated.`;
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    if (this.isOver) return;
    super.finish(message && this.#wrapOutput(message), end);
    // Plugin code may continue after its answer, but the requests that it has sent are no longer needed.
    if (this.#answers.length > 0) this.#cancelRequests("The call was answered.", this.#endReason());
    for (const request of this.#openRequests)
      request.withdraw("The call was answered.", this.#endReason());
    if (this.#isForwarded) this.#pluginContext.plugins.removeUse();
  }

  /** Wraps a modern server's structured output for a legacy client, for which it must be an object. */
  #wrapOutput(message: EncodedMessage): EncodedMessage {
    const { caller, route } = this;
    const { view } = this.context;
    const isMixed =
      caller.sender.era === "legacy" && view.catalog.tools.info.modernServers.has(route.server);
    return isMixed ? wrapToolOutput(message, route.item) : message;
  }

  /** Renames the URIs in the plugins' answer, because plugins may have added URIs to the server's response. */
  #renameAnswerUris(message: EncodedMessage): EncodedMessage {
    if (this.rename === undefined) return message;
    const parsed = parseMessage(joinMessage(message));
    return parsed.kind === "response" ? bytesOf(this.withClientUris(parsed)) : message;
  }

  #finishWith(answer: Answer): void {
    if (!PluginAnswer.is(answer)) return;
    const message = answer.withId(this.request.id);
    this.finish(this.#renameAnswerUris(message), this.#endOfAnswer(answer, message));
  }

  #endOfAnswer({ kind, size }: Answer, message: EncodedMessage): CallEnd {
    this.resultSize = size;
    const { readsAnswers } = this.context.callLog;
    if (!readsAnswers && this.caller.span === undefined)
      return kind === "error" ? ANSWERED_WITH_ERROR : "answered";
    const parsed = parseMessage(joinMessage(message));
    return parsed.kind === "response" ? this.endOf(parsed) : "answered";
  }

  /** The error with which pending promises reject. Created only when needed, because an Error is expensive. */
  #endReason(): HubError {
    this.#endError ??= new HubError("cancelled", "The call has ended.");
    return this.#endError;
  }

  #cancelRequests(reason: CancelReason, error: HubError): void {
    for (const answer of this.#answers) answer.cancel(reason, error);
  }

  #rewriteWith(changedArguments: string | undefined): RequestRewrite {
    const { rewrite } = this;
    const edits = [...rewrite.edits];
    if (changedArguments !== undefined)
      edits.push(...argumentEdits(this.request, this.members, changedArguments));
    return { edits, tokens: rewrite.tokens };
  }
}

const EMPTY: readonly never[] = [];

/**
 * Replaces every `arguments` member of the request: if there are several, some servers' parsers use the first one,
 * others the last.
 */
function argumentEdits(request: Request, members: readonly JsonMember[], json: string): Edit[] {
  const replacement = utf8(json);
  if (lastMember(members, "arguments") !== undefined) {
    return members.filter(({ key }) => key === "arguments").map((it) => ({ ...it, replacement }));
  }
  // A comma can always follow the inserted member, because `params` contains at least the tool's name.
  const insertAt = skipWhitespace(request.bytes, request.params?.start ?? 0) + 1;
  return [{ start: insertAt, end: insertAt, replacement: utf8(`"arguments":${json},`) }];
}
