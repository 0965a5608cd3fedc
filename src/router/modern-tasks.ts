import type { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import {
  bodyOf,
  bytesOf,
  type EncodedMessage,
  type Notification,
  paramsOf,
  readId,
  type Response,
} from "../jsonrpc/message.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { type CancelReason, readProgressTokens } from "../protocol/notifications.ts";
import {
  ModernTaskMethod,
  type ModernTaskStatus,
  readModernTaskStatus,
  readTaskReference,
  type TaskReference,
} from "../protocol/tasks.ts";
import type { SessionWaiter } from "../upstream/connection.ts";
import type { PendingRequest } from "../upstream/pending.ts";
import type { ClientDeclaration } from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import { sessionOf } from "../upstream/state.ts";
import {
  cancelServerTask,
  type ModernServerTasks,
  ModernServerTask,
  readCreatedModernTask,
  type TaskWatcher,
} from "../upstream/tasks.ts";
import type { ClientView } from "../upstream/view.ts";
import {
  type CallEnd,
  Call,
  type SessionCallContext,
  silentCallLog,
  type TaskLocation,
} from "./call.ts";
import { prefixInputNames, readInputs, retryEditsOf } from "./input-required.ts";
import type { ResourceLinks } from "./resource-lookup.ts";
import { isRetryable, Retry } from "./retry.ts";
import type { ClientRequestContext } from "./tasks.ts";
import { deadlineError, notReadyReason } from "./timeouts.ts";

/** Maximum number of remembered tasks per client; ended ones are dropped first. */
const MAX_TASKS = 1024;
/** How often expired tasks are dropped, in ms. */
const EXPIRY_CHECK_INTERVAL = 60_000;

/** A task and the connection over which it was created. */
export interface ModernTaskEntry extends Pick<TaskLocation, "connection" | "route"> {
  readonly task: ModernServerTask;
  /** The list of open tasks of the session that created the task; undefined if the session keeps none. */
  readonly openTasks: ModernServerTasks | undefined;
  /** The client that created the task. */
  readonly owner: object;
}

/** The result embedded in a task's status, as a response of its own. */
export function resultOfTask(bytes: Buffer, task: JsonObject): Response | undefined {
  const body = task.member("result");
  if (body === undefined) return undefined;
  const { start, end } = body;
  const shape = { kind: "scanned", ids: [] } as const;
  return { kind: "response", bytes, start, end, id: undefined, outcome: "result", body, shape };
}

/** The tasks at modern servers that one client has created. Only that client can use their ids. */
export class ModernClientTasks {
  readonly #clock: Clock;
  /** Tasks by the hub's task id, oldest first. */
  readonly #entries = new Map<string, ModernTaskEntry>();
  #taskCount = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Registers the task that a result announces.
   * @returns the result with the hub's task id
   * @throws {HubError} invalidRequest if there are too many open tasks
   */
  add(answer: Response, { session, connection, route }: TaskLocation, owner: object): Response {
    const { server } = route;
    const created = readCreatedModernTask(answer);
    if (created === undefined) {
      const text = `Server "${server}" has made a task of the call, but does not say which.`;
      throw new HubError("internal", text, { server });
    }
    const { task: reference, status } = created;
    if (!this.#makeRoom()) {
      cancelServerTask(session, reference.id);
      throw new HubError("invalidRequest", `${MAX_TASKS} tasks of this client have not ended.`);
    }
    const task = new ModernServerTask(reference.id, ++this.#taskCount, status, this.#clock.now());
    const openTasks = session.subscriptions?.modernTasks;
    if (!task.isOver) openTasks?.add(task);
    this.#entries.set(task.id, { task, connection, route, openTasks, owner });
    this.#scheduleExpiry();
    return applyMessageEdits(answer, task.toOwnId(reference));
  }

  /** @throws {HubError} invalidParams if the client has no task of that id, or the server is not visible to it */
  find(id: string | undefined, view: ClientView): ModernTaskEntry {
    const entry = id === undefined ? undefined : this.#entries.get(id);
    const current = entry && view.connection(entry.route.server);
    if (entry === undefined || current === undefined) {
      throw new HubError("invalidParams", "There is no task of that id.");
    }
    // If its connection was stopped, the task may still exist at the server's current connection.
    return entry.connection.canStart ? entry : { ...entry, connection: current };
  }

  /** Stores the status that the server has reported. */
  recordStatus({ task, openTasks }: ModernTaskEntry, status: ModernTaskStatus): void {
    task.setStatus(status, this.#clock.now());
    if (task.isOver) openTasks?.delete(task);
  }

  /** Whether `owner` has a task that has not ended. */
  hasOpenTasks(owner: object): boolean {
    for (const entry of this.#entries.values()) {
      if (entry.owner === owner && !entry.task.isOver) return true;
    }
    return false;
  }

  /** The client has disconnected: cancels its open tasks. */
  close(): void {
    this.#cancelTimer?.();
    for (const entry of this.#entries.values()) {
      const session = sessionOf(entry.connection.state);
      if (!entry.task.isOver && session !== undefined)
        cancelServerTask(session, entry.task.remoteId);
      this.#remove(entry);
    }
  }

  #makeRoom(): boolean {
    if (this.#entries.size < MAX_TASKS) return true;
    const ended = [...this.#entries.values()].find(({ task: endedTask }) => endedTask.isOver);
    if (ended !== undefined) this.#remove(ended);
    return ended !== undefined;
  }

  #remove({ task, openTasks }: ModernTaskEntry): void {
    this.#entries.delete(task.id);
    openTasks?.delete(task);
  }

  #scheduleExpiry(): void {
    this.#cancelTimer ??= this.#clock.after(EXPIRY_CHECK_INTERVAL, () => {
      this.#cancelTimer = undefined;
      const now = this.#clock.now();
      for (const entry of this.#entries.values())
        if (entry.task.expiresAt <= now) this.#remove(entry);
      if (this.#entries.size > 0) this.#scheduleExpiry();
    });
  }
}

/** A modern client's request about a task, sent over the task's connection. */
export class ModernTaskRequest
  extends Call<SessionCallContext>
  implements PendingRequest, SessionWaiter
{
  readonly method: string;
  readonly isClientRequest = true;
  /** The server's id of the task. */
  readonly name: string;
  readonly #entry: ModernTaskEntry;
  readonly #tasks: ModernClientTasks;
  #sent: { readonly session: Session; readonly id: number } | undefined;
  /** Created at the first retry; stdio transports never retry. */
  #createdRetry: Retry | undefined;

  /** @throws {HubError} invalidParams if the client has no such task */
  constructor(context: ClientRequestContext, tasks: ModernClientTasks) {
    const { request, view, callLog } = context;
    const { bytes } = request;
    const params = paramsOf(request);
    const task = readTaskReference(params);
    const entry = tasks.find(task?.id, view);
    const tokens = readProgressTokens(params);
    const last = tokens.at(-1);
    super({
      ...context,
      route: entry.route,
      connection: entry.connection,
      callLog: silentCallLog(callLog),
      token: last && readId(bytes, last),
      rewrite: { edits: entry.task.toRemoteId(task), tokens },
    });
    this.method = request.method;
    this.name = entry.task.remoteId;
    this.#entry = entry;
    this.#tasks = tasks;
  }

  get sender(): ClientDeclaration {
    return this.context.caller.sender;
  }

  onSession(session: Session): void {
    if (this.isOver) return;
    const { request, rewrite } = this.context;
    const ownRewrite = session.mayResend ? retryEditsOf(rewrite, undefined) : rewrite;
    this.#sent = { session, id: session.relay(this, request, ownRewrite) };
  }

  override fail(error: HubError): void {
    const cause =
      this.#sent !== undefined && isRetryable(error) ? this.#retry.handleError(error) : error;
    if (cause === undefined) this.#sent = undefined;
    else super.fail(cause);
  }

  onResponse(response: Response): void {
    const { session } = this.#sent ?? {};
    if (session === undefined || this.isOver) return;
    const { caller } = this.context;
    const isStatus = response.outcome === "result" && this.method === ModernTaskMethod.get;
    const answer = isStatus ? this.#readStatus(session, response) : response;
    const result = isStatus ? bodyOf(answer).member("result") : undefined;
    const renamed = result === undefined ? answer : this.renameUris(answer, result);
    this.finish(caller.toClientMessage(renamed, session.era), "answered");
  }

  override expire(): void {
    this.cancelUpstream("It took too long.");
    this.fail(deadlineError(this.context));
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    this.#createdRetry?.cancel();
    super.finish(message, end);
  }

  protected start(): void {
    this.context.connection.withSession(this);
  }

  protected cancelUpstream(reason: CancelReason): void {
    if (this.#sent === undefined) this.context.connection.cancelWait(this);
    else this.#sent.session.cancel(this.#sent.id, reason);
  }

  protected waitReason(seconds: number): string | undefined {
    return this.#sent === undefined ? notReadyReason(seconds, this.context.connection) : undefined;
  }

  get #retry(): Retry {
    const { deadlines, connection, route } = this.context;
    const { method } = this;
    const resend = (): void => connection.withSession(this);
    this.#createdRetry ??= new Retry({ deadlines, connection, route, method, resend });
    return this.#createdRetry;
  }

  /** Records the task's status, and returns it as the client gets it: with the hub's task id and URIs. */
  #readStatus(session: Session, response: Response): Response {
    const { task, route } = this.#entry;
    const status = bodyOf(response);
    this.#tasks.recordStatus(this.#entry, readModernTaskStatus(status));
    const result = resultOfTask(response.bytes, status);
    if (result !== undefined) this.recordLinks(session, result);
    const required = readInputs(status);
    const names = required === undefined ? [] : prefixInputNames(route.server, required);
    return applyMessageEdits(response, [...task.toOwnId(readTaskReference(status)), ...names]);
  }
}

/** Callbacks of the subscriber. */
export interface TaskSubscriptionEvents {
  /** Tells whether the server will send notifications about the task. Called at most once. */
  onSubscribeAnswer(isAccepted: boolean): void;
  /** The task's status has changed. */
  onNotification(message: EncodedMessage): void;
}

/** A modern client's subscription to the notifications about one task. */
export class TaskSubscription implements SessionWaiter, TaskWatcher {
  readonly #entry: ModernTaskEntry;
  readonly #tasks: ModernClientTasks;
  readonly #events: TaskSubscriptionEvents;
  readonly #abort = new AbortController();
  readonly #links: ResourceLinks;
  #serverTasks: ModernServerTasks | undefined;

  constructor(
    entry: ModernTaskEntry,
    tasks: ModernClientTasks,
    links: ResourceLinks,
    events: TaskSubscriptionEvents,
  ) {
    this.#entry = entry;
    this.#tasks = tasks;
    this.#links = links;
    this.#events = events;
  }

  start(): void {
    this.#entry.connection.withSession(this);
  }

  onSession(session: Session): void {
    const { remoteId } = this.#entry.task;
    this.#serverTasks = session.subscriptions?.modernTasks;
    if (this.#serverTasks === undefined) {
      this.fail();
      return;
    }
    this.#serverTasks.watch(remoteId, this);
    session.subscribe(remoteId, this.#abort.signal, "task").then(
      () => this.#events.onSubscribeAnswer(true),
      () => this.fail(),
    );
  }

  fail(): void {
    if (this.#abort.signal.aborted) return;
    this.stop();
    this.#events.onSubscribeAnswer(false);
  }

  onNotification(notification: Notification, task: TaskReference): void {
    const { task: alias, route } = this.#entry;
    const status = paramsOf(notification);
    this.#tasks.recordStatus(this.#entry, readModernTaskStatus(status));
    const result = resultOfTask(notification.bytes, status);
    if (result !== undefined) this.#links.record(route.server, result);
    const required = readInputs(status);
    const names = required === undefined ? [] : prefixInputNames(route.server, required);
    this.#events.onNotification(
      bytesOf(applyMessageEdits(notification, [...alias.toOwnId(task), ...names])),
    );
  }

  /** Ends the subscription. */
  stop(): void {
    this.#abort.abort();
    this.#entry.connection.cancelWait(this);
    this.#serverTasks?.unwatch(this.#entry.task.remoteId, this);
    this.#serverTasks = undefined;
  }
}
