import type { Buffer } from "node:buffer";
import { utf8 } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import {
  bodyOf,
  buildResult,
  bytesOf,
  type EncodedMessage,
  type Notification,
  paramsOf,
  readId,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import type { Era } from "../protocol/modern.ts";
import { readProgressTokens } from "../protocol/notifications.ts";
import {
  isTaskIdMethod,
  LegacyTaskMethod,
  ModernTaskMethod,
  readModernTaskStatus,
  readRelatedTaskReference,
  readTaskReference,
  readTaskStatus,
} from "../protocol/tasks.ts";
import type { Connection, SessionWaiter } from "../upstream/connection.ts";
import type { ClientChannel } from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import {
  cancelCreatedTask,
  type CreatedTask,
  exposeTask,
  isUnknownTaskError,
  readTaskPage,
  type Task,
  type TaskPage,
  type TaskWatcher,
} from "../upstream/tasks.ts";
import type { ClientView } from "../views/client-view.ts";
import {
  type Call,
  type CallContext,
  type Caller,
  RelayedCall,
  type RoutedRequest,
  type RunningRequest,
} from "./call.ts";
import type { DeadlineTarget } from "./deadlines.ts";
import { type HubMadeTask, CallTaskRequest, CallTaskSubscription } from "./hub-made-task.ts";
import { prefixInputNames, readInputs } from "./input-required.ts";
import type { PluginCall } from "./plugin-call.ts";
import { deadlineError } from "./timeouts.ts";
import type { UpstreamHandler } from "./upstream-request.ts";

/** Maximum number of remembered tasks per client. Tasks that have ended are dropped first. */
const MAX_TASKS: Readonly<Record<Era, number>> = { legacy: 256, modern: 1024 };
/** Maximum number of tasks per client that the hub itself has made from calls. */
const MAX_CALL_TASKS = 256;
const EXPIRY_CHECK_INTERVAL = 60_000;

interface TaskEntry {
  readonly task: Task;
  readonly pluginCall: PluginCall | undefined;
}

/**
 * The tasks of one client: those that it created at servers of its own era, and those that the hub created for its
 * calls. Clients cannot use each other's tasks.
 */
export class ClientTasks {
  /** Whether tasks of 2025-11-25 were declared to the client. */
  areDeclared = false;
  readonly #era: Era;
  readonly #clock: Clock;
  /** The tasks at servers, by the hub's task id; the oldest is first. */
  readonly #entries = new Map<string, TaskEntry>();
  /** The tasks that the hub has made, by id; the oldest is first. */
  readonly #callTasks = new Map<string, HubMadeTask>();
  #lastSequence = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(era: Era, clock: Clock) {
    this.#era = era;
    this.#clock = clock;
  }

  get all(): readonly Task[] {
    return [...this.#entries.values()].map(({ task }) => task);
  }

  hasOpen(client: ClientChannel): boolean {
    return this.all.some(({ isOver, origin }) => !isOver && origin.client === client);
  }

  /**
   * Makes room for one more task.
   * @throws {HubError} invalidRequest if there are too many open tasks
   */
  makeRoom(): void {
    const limit = MAX_TASKS[this.#era];
    if (this.#entries.size < limit) return;
    const ended = this.all.find(({ isOver }) => isOver);
    if (ended === undefined)
      throw new HubError("invalidRequest", `${limit} tasks of this client have not ended.`);
    this.remove(ended);
  }

  /**
   * Registers the task that a server's response announces.
   * @throws {HubError} internal if the response names no task, invalidRequest if there are too many open tasks
   */
  addCreated(
    session: Session,
    response: Response,
    call: Call,
    connection: Connection,
  ): CreatedTask {
    const { server } = session;
    try {
      this.makeRoom();
    } catch (error) {
      cancelCreatedTask(session, response);
      throw error;
    }
    const created = this.addIfCreated(session, response, call, connection);
    if (created !== undefined) return created;
    const text = `Server "${server}" created a task for the call but did not give its id.`;
    throw new HubError("internal", text, { server });
  }

  /**
   * Registers the task that a server's response announces, if it announces one.
   * @param pluginCall the call that waits for the task's result
   * @returns undefined if the response announces no task
   */
  addIfCreated(
    session: Session,
    response: Response,
    { route, token, context, caller, gate }: Call,
    connection: Connection,
    pluginCall?: PluginCall,
  ): CreatedTask | undefined {
    const created = session.tasks.addCreated(session, response, {
      client: context.client,
      view: context.view,
      route,
      token,
      connection,
      sequence: ++this.#lastSequence,
      createdAt: this.#clock.now(),
      onLost: (task, cause) => {
        // After the session has closed, the result of an ended task can no longer be requested: the task is forgotten,
        // as if it had expired.
        if (task.isOver) this.#entries.delete(task.id);
        task.forget();
        pluginCall?.onTaskLost(cause);
      },
    });
    if (created === undefined) return undefined;
    gate?.keepFor?.(created.task, pluginCall === undefined);
    this.#entries.set(created.task.id, { task: created.task, pluginCall });
    if (this.#era === "legacy") caller.onTask?.(created.task);
    if (this.#era === "modern") this.#scheduleExpiry();
    return created;
  }

  /**
   * Finds a task. @param view the catalog and connections of the requesting client
   * @throws {HubError} invalidParams if the client has no task of that id, or may not use its server
   */
  find(id: string | undefined, view: ClientView): TaskEntry {
    const entry = id === undefined ? undefined : this.#entries.get(id);
    if (entry === undefined) throw unknownTaskError();
    const { task } = entry;
    if (task.era === "legacy") return entry;
    const current = view.connection(task.origin.route.server);
    if (current === undefined) throw unknownTaskError();
    // The task's connection was replaced or stopped. The task may still exist at the server, so requests about the task
    // go to the server's current connection.
    if (!task.connection.canStart) task.connection = current;
    return entry;
  }

  /** Adds a task that the hub has made from a call. @returns false if too many such tasks have not ended */
  addCallTask(task: HubMadeTask): boolean {
    if (this.#callTasks.size >= MAX_CALL_TASKS) {
      const ended = [...this.#callTasks.values()].find(({ isOver }) => isOver);
      if (ended === undefined) return false;
      this.#callTasks.delete(ended.id);
    }
    this.#callTasks.set(task.id, task);
    this.#scheduleExpiry();
    return true;
  }

  /** Subscribes to a task. @throws {HubError} invalidParams if the client has no such task or may not use its server */
  subscribe(
    id: string,
    context: Pick<CallContext, "tasks" | "links" | "view">,
    events: TaskSubscriptionEvents,
  ): RunningTaskSubscription {
    const callTask = this.#findCallTask(id, context.view);
    if (callTask !== undefined) return new CallTaskSubscription(callTask, events);
    return new TaskSubscription(this.find(id, context.view).task, context, events);
  }

  /** Finds a task that the hub has made. @throws {HubError} invalidParams if the client may not use its server */
  #findCallTask(id: string | undefined, view: ClientView): HubMadeTask | undefined {
    const task = id === undefined ? undefined : this.#callTasks.get(id);
    if (task !== undefined && view.connection(task.server) === undefined) throw unknownTaskError();
    return task;
  }

  recordStatus(task: Task, status: JsonObject): void {
    task.update(readModernTaskStatus(status), this.#clock.now());
  }

  /** Makes the handler for a request about tasks. @throws {HubError} invalidParams if the client has no such task */
  route(context: CallContext, request: Request, caller: Caller, startedAt: number): RunningRequest {
    const { bytes, method } = request;
    if (this.#era === "legacy" && !isTaskIdMethod(method))
      return new TaskListRequest(context, request, caller, startedAt);
    const params = paramsOf(request);
    const reference = readTaskReference(params);
    const callTask = this.#findCallTask(reference?.id, context.view);
    if (callTask !== undefined) return new CallTaskRequest(callTask, request, caller);
    const { task, pluginCall } = this.find(reference?.id, context.view);
    const tokens = readProgressTokens(params);
    const last = tokens.at(-1);
    const { route } = task.origin;
    const routed: RoutedRequest = {
      request,
      caller,
      startedAt,
      token: last && readId(bytes, last),
      rewrite: { edits: task.toRemoteId(reference, readRelatedTaskReference(params)), tokens },
      route: method === LegacyTaskMethod.result ? { ...route, limits: NO_TIMEOUT } : route,
    };
    return task.era === "legacy"
      ? new LegacyTaskCall(context, routed, task, pluginCall)
      : new ModernTaskCall(context, routed, task);
  }

  /** Forgets a task, and cancels it if it has not ended. */
  remove(task: Task): void {
    const entry = this.#entries.get(task.id);
    this.#entries.delete(task.id);
    task.forget();
    entry?.pluginCall?.onTaskDropped();
    task.connection.tasks.drop(task);
  }

  /** Cancels and forgets all tasks, because the client has disconnected. */
  close(): void {
    this.#cancelTimer?.();
    for (const task of this.all) this.remove(task);
    for (const task of this.#callTasks.values()) task.cancel();
    this.#callTasks.clear();
  }

  #scheduleExpiry(): void {
    this.#cancelTimer ??= this.#clock.after(EXPIRY_CHECK_INTERVAL, () => {
      this.#cancelTimer = undefined;
      const now = this.#clock.now();
      for (const task of this.all) {
        if (task.expiresAt > now) continue;
        this.#entries.delete(task.id);
        task.forget();
        task.connection.tasks.delete(task);
      }
      for (const { id, expiresAt } of this.#callTasks.values())
        if (expiresAt <= now) this.#callTasks.delete(id);
      if (this.#entries.size + this.#callTasks.size > 0) this.#scheduleExpiry();
    });
  }
}

function unknownTaskError(): HubError {
  return new HubError("invalidParams", "This client has no task with this id.");
}

/** The limits of `tasks/result`: none, because it is answered only when the task has ended. */
const NO_TIMEOUT = { timeout: Infinity, maxTimeout: Infinity };

abstract class TaskCall extends RelayedCall {
  protected readonly task: Task;

  constructor(context: CallContext, routed: RoutedRequest, task: Task) {
    super(context, routed, task.connection, { taskId: task.remoteId });
    this.task = task;
  }

  override get resultForm(): UpstreamHandler["resultForm"] {
    return "any";
  }

  /** Changes nothing: the URIs are replaced later, after the task ids of the response. */
  override renameUris(response: Response): Response {
    return response;
  }

  override expire(): void {
    const error = deadlineError(this);
    this.cancelUpstream("It took too long.", error);
    this.fail(error);
  }

  protected override get isLogged(): boolean {
    return false;
  }

  protected answer(response: Response, from: Era): void {
    this.finish(this.caller.toClientMessage(response, from), "answered");
  }
}

/** A legacy client's request about a task. It is sent over the session in which the task was created. */
class LegacyTaskCall extends TaskCall {
  readonly #pluginCall: PluginCall | undefined;

  constructor(
    context: CallContext,
    routed: RoutedRequest,
    task: Task,
    pluginCall: PluginCall | undefined,
  ) {
    super(context, routed, task);
    this.#pluginCall = pluginCall;
  }

  override onSession(session: Session): boolean {
    if (session === this.task.session) return true;
    this.#answerLost(this.task.lostCause ?? unknownTaskError());
    return false;
  }

  override onAnswer(session: Session, response: Response): void {
    const { task } = this;
    const { outcome } = response;
    const body = outcome === "error" ? undefined : bodyOf(response);
    const related = body && readRelatedTaskReference(body);
    if (this.#method !== LegacyTaskMethod.result) {
      if (body !== undefined && readTaskStatus(body).isOver) task.isOver = true;
      const edits = body === undefined ? [] : task.toOwnStatus(response.body, body);
      this.#answer(applyMessageEdits(response, edits));
      return;
    }
    if (outcome === "result") task.isOver = true;
    const exposed = applyMessageEdits(response, task.toOwnId(related));
    this.recordLinks(session, exposed);
    if (this.#pluginCall === undefined) {
      this.#answer(exposed);
      return;
    }
    this.#pluginCall.deliver(exposed);
    void this.#pluginCall.finalAnswer?.then((final) => this.#answer(final));
  }

  protected override start(): void {
    const isResult = this.#method === LegacyTaskMethod.result;
    const final = isResult ? this.#pluginCall?.finalAnswer : undefined;
    if (final !== undefined) void final.then((response) => this.#answer(response));
    else if (this.task.lostCause === undefined) this.upstream.onSession(this.task.session);
    else this.#answerLost(this.task.lostCause);
  }

  get #method(): string {
    return this.request.method;
  }

  /** Answers with the last known status of the task, because its session is closed. */
  #answerLost(cause: HubError): void {
    if (this.#method === LegacyTaskMethod.get) {
      const task = utf8(JSON.stringify(this.task.toTaskJson()));
      this.finish(buildResult(this.request.id, task), "answered");
    } else if (this.#method === LegacyTaskMethod.result) {
      this.fail(cause);
    } else {
      const text = "The task has ended, so it cannot be cancelled.";
      this.fail(new HubError("invalidParams", text));
    }
  }

  #answer(response: Response): void {
    this.answer(this.withClientUris(response), "legacy");
  }
}

/** A modern client's request about a task. It is sent over the task's connection. */
class ModernTaskCall extends TaskCall {
  override onSession(): boolean {
    // With an answer to the server's question, the tool goes on: that is a part of its call.
    const isContinued = this.request.method === ModernTaskMethod.update;
    const error = isContinued ? this.upstream.connection.pinError(this.route) : undefined;
    if (error !== undefined) this.fail(error);
    return error === undefined;
  }

  override onAnswer(session: Session, response: Response): void {
    const { task } = this;
    const { method } = this.request;
    if (response.outcome === "error" || method !== ModernTaskMethod.get) {
      this.answer(response, session.era);
      return;
    }
    const status = bodyOf(response);
    this.context.tasks.recordStatus(task, status);
    const answer = exposeStatus(response, task, status);
    const embedded = resultOfTask(response.bytes, status);
    if (embedded !== undefined) this.recordLinks(session, embedded);
    const result = bodyOf(answer).member("result");
    this.answer(result === undefined ? answer : this.withClientUris(answer, result), session.era);
  }
}

/** Makes a response from the result in a task's status; undefined if there is no result. */
function resultOfTask(bytes: Buffer, status: JsonObject): Response | undefined {
  const body = status.member("result");
  if (body === undefined) return undefined;
  const { start, end } = body;
  const shape = { kind: "scanned", ids: [] } as const;
  return { kind: "response", bytes, start, end, id: undefined, outcome: "result", body, shape };
}

/**
 * Prepares a task's status for the client: replaces the task id by the hub's, and adds the server's name to the
 * messages of input requests.
 */
function exposeStatus<M extends Notification | Response>(
  message: M,
  task: Task,
  status: JsonObject,
): M {
  const required = readInputs(status);
  const names = required === undefined ? [] : prefixInputNames(task.session.displayName, required);
  return applyMessageEdits(message, [...task.toOwnId(readTaskReference(status)), ...names]);
}

/** A legacy client's `tasks/list` request. The hub requests the status of each task from its server. */
class TaskListRequest implements RunningRequest, DeadlineTarget {
  readonly deadline: number;
  deadlineIndex: number | undefined;
  readonly call = undefined;
  readonly #context: CallContext;
  readonly #request: Request;
  readonly #caller: Caller;
  readonly #page: TaskPage<Task>;
  readonly #abort = new AbortController();
  #isOver = false;

  constructor(context: CallContext, request: Request, caller: Caller, startedAt: number) {
    this.#context = context;
    this.#request = request;
    this.#caller = caller;
    this.#page = readTaskPage(context.tasks.all, ({ origin }) => origin.sequence, request);
    const timeouts = this.#page.entries.map(({ origin }) => origin.route.limits.timeout);
    this.deadline = startedAt + Math.max(0, ...timeouts);
  }

  run(): void {
    this.#context.deadlines.add(this);
    const { signal } = this.#abort;
    void Promise.all(this.#page.entries.map((task) => this.#fetchStatus(task, signal))).then(
      (tasks) => this.#respond(() => buildResult(this.#request.id, this.#page.write(tasks))),
    );
  }

  cancel(): void {
    this.#respond(() => undefined);
    this.#abort.abort(new HubError("cancelled", "No client waits for the call any more."));
  }

  /** Stops waiting: the list that the client gets lacks the tasks of servers that have not answered. */
  expire(): void {
    this.#abort.abort(new HubError("callTimeout", "The call took too long."));
  }

  async #fetchStatus(task: Task, signal: AbortSignal): Promise<Uint8Array | undefined> {
    if (task.lostCause !== undefined) return utf8(JSON.stringify(task.toTaskJson()));
    try {
      const params = { taskId: task.remoteId };
      const response = await task.session.sendRequest(LegacyTaskMethod.get, params, signal);
      const { outcome, bytes, body } = response;
      const status = bytes.subarray(body.start, body.end);
      if (outcome === "result") return exposeTask(task, status);
      if (isUnknownTaskError(status)) this.#context.tasks.remove(task);
    } catch {
      // If a server fails, only its own tasks are missing from the list.
    }
    return undefined;
  }

  #respond(message: () => EncodedMessage | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#context.deadlines.remove(this);
    this.#caller.respond(message());
  }
}

export interface TaskSubscriptionEvents {
  /** Called at most once, when it is known whether the server has accepted the subscription. */
  onSubscribeAnswer(isAccepted: boolean): void;
  onNotification(message: EncodedMessage): void;
}

/** A subscription to the notifications about one task. Call `start` to begin it and `stop` to end it. */
export type RunningTaskSubscription = TaskSubscription | CallTaskSubscription;

/** A modern client's subscription to the notifications about one task of a server. */
export class TaskSubscription implements SessionWaiter, TaskWatcher {
  readonly #task: Task;
  readonly #context: Pick<CallContext, "tasks" | "links" | "view">;
  readonly #events: TaskSubscriptionEvents;
  readonly #abort = new AbortController();
  #session: Session | undefined;
  #isAnswered = false;

  constructor(
    task: Task,
    context: Pick<CallContext, "tasks" | "links" | "view">,
    events: TaskSubscriptionEvents,
  ) {
    this.#task = task;
    this.#context = context;
    this.#events = events;
  }

  start(): void {
    this.#task.connection.withSession(this);
  }

  onSession(session: Session): void {
    const { remoteId } = this.#task;
    this.#session = session;
    session.tasks.watch(remoteId, this);
    session.subscribe(remoteId, this.#abort.signal, "task").then(
      () => this.#answer(true),
      () => {
        if (session === this.#session) this.fail();
      },
    );
  }

  fail(): void {
    if (this.#abort.signal.aborted) return;
    this.stop();
    this.#answer(false);
  }

  /** Continues the subscription over the connection that replaces the retired connection. */
  onRetired(): void {
    this.#session = undefined;
    const connection = this.#context.view.connection(this.#task.origin.route.server);
    if (connection === undefined) {
      this.fail();
      return;
    }
    this.#task.connection = connection;
    connection.withSession(this);
  }

  onNotification(notification: Notification): void {
    const status = paramsOf(notification);
    this.#context.tasks.recordStatus(this.#task, status);
    const result = resultOfTask(notification.bytes, status);
    if (result !== undefined) this.#context.links.record(this.#task.server, result);
    this.#events.onNotification(bytesOf(exposeStatus(notification, this.#task, status)));
  }

  stop(): void {
    this.#abort.abort();
    const { connection, remoteId } = this.#task;
    connection.cancelWait(this);
    this.#session?.tasks.unwatch(remoteId, this);
  }

  #answer(isAccepted: boolean): void {
    if (this.#isAnswered) return;
    this.#isAnswered = true;
    this.#events.onSubscribeAnswer(isAccepted);
  }
}
