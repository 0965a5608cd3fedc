import { applyEdits, type ByteRange, type Edit, joinPieces, type Piece } from "../base/bytes.ts";
import type { HubError } from "../base/errors.ts";
import { JsonObject, scanObject, skipWhitespace } from "../base/json.ts";
import { encodeCursor, readCursorParam, type Route } from "../catalog/section.ts";
import {
  bodyOf,
  buildNotification,
  bytesOf,
  type Notification,
  paramsOf,
  randomToken,
  replaceRanges,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { type Era, readResultType } from "../protocol/modern.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import {
  LegacyTaskMethod,
  readCreatedTaskReference,
  readModernTaskStatus,
  readRelatedTaskReference,
  readTaskReference,
  readTaskReferences,
  readTaskStatus,
  replaceTaskId,
  requireInput,
  type TaskReference,
  type TaskStatus,
  withoutRelatedTask,
  withRelatedTask,
} from "../protocol/tasks.ts";
import type { Connection } from "./connection.ts";
import type { ClientChannel, ServerRequest } from "./profile.ts";
import type { Session } from "./session.ts";

/**
 * Maximum time for which the hub keeps a modern task, in ms. `any`: after the task's creation; `ended`: after its end,
 * if the server gives no `ttl`.
 */
const MAX_AGE = { any: 24 * 3_600_000, ended: 3_600_000 };
/**
 * Time that is added to a task's `ttl`, in ms: servers count from the creation of the task, but clients learn of the
 * task later.
 */
const TTL_TOLERANCE = 60_000;

/** The client, call and connection that a task was created for. */
export interface TaskOrigin {
  readonly client: ClientChannel;
  /** What the client sees, as far as a task needs it. */
  readonly view: {
    /** The client's connection to a server; undefined if the client does not see the server. */
    connection(server: string): Connection | undefined;
  };
  readonly route: Route;
  /** The original bytes of the client's progress token, if there is one. */
  readonly token: Piece | undefined;
  readonly connection: Connection;
  /** The number of the task among the client's tasks, from 1; used as the cursor of `tasks/list`. */
  readonly sequence: number;
  /** When the task was created, in ms of the clock. */
  readonly createdAt: number;
  /**
   * Called when the session of a legacy task has ended. If the task was running, it is lost; if it had ended, its
   * result is lost.
   */
  onLost(task: Task, cause: HubError): void;
}

/**
 * A task of a server, created for a client's call. It has two ids: the server's own, and the hub's, which the client
 * uses. So it does no harm if several servers, or one server before and after a restart, use equal ids.
 *
 * A legacy task (2025-11-25) ends with its session. A modern task (the tasks extension) may outlive its session; the
 * client polls the task.
 */
export class Task implements OpenTask {
  readonly era: Era;
  readonly id: string;
  readonly remoteId: string;
  readonly origin: TaskOrigin;
  /** The session in which the task was created. */
  readonly session: Session;
  /** The connection for requests about the task. */
  connection: Connection;
  #isOver = false;
  /** Called once when the task has ended or is forgotten. */
  #onOver: (() => void) | undefined;
  /** When the hub forgets the task, in ms of the clock. */
  expiresAt = Infinity;
  /** The error that ended the session of a legacy task. */
  lostCause: HubError | undefined;
  readonly #status: TaskStatus;
  /** The methods of the requests that wait for the client's answers; each is in it once per request. */
  readonly #inputs: string[] = [];

  constructor(session: Session, remoteId: string, status: TaskStatus, origin: TaskOrigin) {
    this.era = session.era;
    // The id must be unguessable: over HTTP, it may be the only proof that a modern task belongs to the client.
    this.id = this.era === "modern" ? randomToken() : crypto.randomUUID();
    this.remoteId = remoteId;
    this.session = session;
    this.connection = origin.connection;
    this.origin = origin;
    this.#status = status;
    this.update(status, origin.createdAt);
  }

  get server(): string {
    return this.session.server;
  }

  /** Whether the task's status is final. */
  get isOver(): boolean {
    return this.#isOver;
  }

  set isOver(isOver: boolean) {
    this.#isOver = isOver;
    if (isOver) this.forget();
  }

  /** Time after its creation for which the server keeps the task, in ms; undefined: it does not say. */
  get ttl(): number | undefined {
    return this.#status.ttl;
  }

  /** Calls back once, when the task has ended, or when the hub forgets it. */
  whenOver(callback: () => void): void {
    if (this.#isOver) callback();
    else this.#onOver = callback;
  }

  /** Called when the hub forgets the task. */
  forget(): void {
    const callback = this.#onOver;
    this.#onOver = undefined;
    callback?.();
  }

  /** Adopts the status that the server has reported. @param now ms of the clock */
  update(status: TaskStatus, now: number): void {
    const hasEnded = status.isOver && !this.isOver;
    this.isOver ||= status.isOver;
    if (this.era === "legacy") return;
    if (this.isOver) this.connection.tasks.delete(this);
    const { ttl } = status;
    const limit = ttl === undefined ? MAX_AGE.any : Math.min(ttl + TTL_TOLERANCE, MAX_AGE.any);
    const end = this.origin.createdAt + limit;
    if (ttl !== undefined || !this.isOver) this.expiresAt = end;
    else if (hasEnded) this.expiresAt = Math.min(end, now + MAX_AGE.ended);
  }

  /**
   * Sends the client a request that belongs to this legacy task. Until the client has answered, the task's status is
   * `input_required` (2025-11-25, tasks, Input Required Status).
   * @returns a function that cancels the request
   */
  requestInput(
    request: ServerRequest,
    send: (request: ServerRequest) => (reason: CancelReason) => void,
  ): (reason: CancelReason) => void {
    if (this.isOver) return send(request);
    const { server } = this;
    const { method } = request;
    let isAnswered = false;
    const end = (): void => {
      if (isAnswered) return;
      isAnswered = true;
      this.#inputs.splice(this.#inputs.indexOf(method), 1);
      if (this.#inputs.length === 0) this.#sendStatus();
    };
    this.#inputs.push(method);
    if (this.#inputs.length === 1) this.#sendStatus();
    const cancel = send({
      server,
      method,
      params: (token) => {
        const params = request.params(token);
        return [withRelatedTask(params && joinPieces(params), this.id)];
      },
      answer: (outcome, body) => {
        end();
        request.answer(outcome, outcome === "result" ? withoutRelatedTask(body) : body);
      },
      fail: (error) => {
        end();
        request.fail(error);
      },
      progress: (notification, tokens) => request.progress(notification, tokens),
    });
    return (reason) => {
      end();
      cancel(reason);
    };
  }

  /** Notifies the client that the task waits for an answer, or works on. */
  #sendStatus(): void {
    if (this.isOver) return;
    const message = this.#inputMessage;
    const status = this.#toJson(message === undefined ? "working" : "input_required", message);
    this.origin.client.notify(this.server, buildNotification(LegacyTaskMethod.status, status));
  }

  get #inputMessage(): string | undefined {
    const methods = [...new Set(this.#inputs)];
    return methods.length === 0
      ? undefined
      : `The call waits for the client's answer to ${methods.join(" and ")}.`;
  }

  /**
   * Returns the edits that turn the server's status of this legacy task into the client's: with the hub's id, and
   * `input_required` while the client has been asked something. @param range the range of the status
   */
  toOwnStatus(range: ByteRange, status: JsonObject): Edit[] {
    const message = this.#inputMessage;
    return [
      ...this.toOwnId(readTaskReference(status), readRelatedTaskReference(status)),
      ...(message === undefined ? [] : requireInput(range, status, message)),
    ];
  }

  /** Returns edits that replace the server's id by the hub's. */
  toOwnId(...references: readonly (TaskReference | undefined)[]): Edit[] {
    return replaceTaskId(references, this.remoteId, this.id);
  }

  /** Returns edits that replace the hub's id by the server's. */
  toRemoteId(...references: readonly (TaskReference | undefined)[]): Edit[] {
    return replaceTaskId(references, this.id, this.remoteId);
  }

  /** Returns a message of the server about this task with the hub's id in it. */
  withOwnId<M extends Notification | Request>(message: M): M {
    return applyMessageEdits(message, this.toOwnId(...readTaskReferences(message)));
  }

  onProgress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { client, token } = this.origin;
    if (this.isOver || token === undefined) return;
    client.notify(this.server, replaceRanges(notification, tokens, token));
  }

  /** Forwards a legacy server's `notifications/tasks/status` to the client. */
  onStatus(notification: Notification): void {
    const status = paramsOf(notification);
    this.isOver ||= readTaskStatus(status).isOver;
    const { params } = notification;
    const message = this.#inputMessage;
    const edits =
      params === undefined || message === undefined ? [] : requireInput(params, status, message);
    this.origin.client.notify(this.server, bytesOf(applyMessageEdits(notification, edits)));
  }

  /**
   * Handles the end of the session. A legacy task is lost, and is reported to the client as failed unless it had
   * already ended. A modern server may keep the task; the next `tasks/get` shows whether it did.
   */
  onSessionLost(cause: HubError): void {
    if (this.era === "modern") return;
    this.lostCause = cause;
    this.origin.onLost(this, cause);
    if (this.isOver) return;
    this.isOver = true;
    const lost = buildNotification(LegacyTaskMethod.status, this.toTaskJson());
    this.origin.client.notify(this.server, lost);
  }

  onRetired(): void {
    const { view, route } = this.origin;
    const connection = view.connection(route.server);
    if (connection === undefined) return;
    this.connection = connection;
    connection.tasks.add(this);
  }

  /** The lost task as JSON, in the form of a result of `tasks/get`. */
  toTaskJson(): object {
    const message = `The task has gone with server "${this.server}": ${this.lostCause?.message}`;
    return this.#toJson("failed", message);
  }

  #toJson(status: string, statusMessage: string | undefined): object {
    const { createdAt, ttl = null } = this.#status;
    const now = new Date().toISOString();
    return {
      taskId: this.id,
      status,
      ...(statusMessage !== undefined && { statusMessage }),
      createdAt: createdAt ?? now,
      lastUpdatedAt: now,
      ttl,
    };
  }
}

/** A modern task that has not ended. While there is such a task, the server must not be stopped as idle. */
export interface OpenTask {
  /** Called when the session has ended, and the task may be lost. */
  onSessionLost(cause: HubError): void;
  /**
   * Called when the connection is no longer used. The task may go on over another connection, which the pool can
   * provide.
   */
  onRetired(): void;
}

/** Receives the server's notifications about a modern task. */
export interface TaskWatcher {
  onNotification(notification: Notification): void;
  /** Called when the connection is no longer used. The watcher must ask the pool for the new connection. */
  onRetired(): void;
}

/** A created task. `response`: the server's response, with the hub's id of the task in it. */
export interface CreatedTask {
  readonly task: Task;
  readonly response: Response;
}

const NEVER_ABORTED = new AbortController().signal;
/** Maximum number of cancelled calls that are remembered because the server may still create tasks for them. */
const MAX_CANCELLED_CALLS = 256;

/** The tasks of one server, over all sessions of one connection. */
export class ServerTasks {
  /** The legacy tasks by the server's ids. */
  readonly #byRemoteId = new Map<string, Task>();
  /** The legacy tasks by the ids of the calls that created them. These ids are also the calls' progress tokens. */
  readonly #byCall = new Map<number, Task>();
  /** The ids of cancelled calls for which the server may still create a task. */
  readonly #cancelledCalls = new Set<number>();
  /** The modern tasks that have not ended and that a client, or the hub for a client, polls. */
  readonly #open = new Set<OpenTask>();
  /** The watchers of modern tasks, by the server's id of the task. */
  readonly #watchers = new Map<string, Set<TaskWatcher>>();
  #session: Session | undefined;

  /** Whether there are open or watched modern tasks. If so, the server must not be stopped as idle. */
  get isUsed(): boolean {
    return this.#open.size > 0 || this.#watchers.size > 0;
  }

  /** The clients with legacy tasks that have not ended. */
  get clients(): readonly ClientChannel[] {
    if (this.#byRemoteId.size === 0) return [];
    const open = [...this.#byRemoteId.values()].filter(({ isOver }) => !isOver);
    return open.map(({ origin }) => origin.client);
  }

  /** Returns the legacy task that a server's message names. */
  taskOfMessage(message: Notification | Request): Task | undefined {
    if (this.#byRemoteId.size === 0) return undefined;
    for (const reference of readTaskReferences(message)) {
      const task = reference && this.#byRemoteId.get(reference.id);
      if (task !== undefined) return task;
    }
    return undefined;
  }

  /** Returns the legacy task that a progress token belongs to. */
  byCall(id: number): Task | undefined {
    return this.#byCall.get(id);
  }

  /** Adds the task that a response announces. @returns undefined if the response announces no task */
  addCreated(session: Session, response: Response, origin: TaskOrigin): CreatedTask | undefined {
    const created = readCreatedTask(response, session.era);
    if (created === undefined) return undefined;
    const { reference, related, status } = created;
    const task = new Task(session, reference.id, status, origin);
    if (task.era === "modern") {
      if (!task.isOver) this.add(task);
    } else {
      this.#byRemoteId.set(task.remoteId, task);
      if (response.id !== undefined) this.#byCall.set(response.id, task);
    }
    return { task, response: applyMessageEdits(response, task.toOwnId(reference, related)) };
  }

  add(task: OpenTask): void {
    this.#open.add(task);
  }

  /** Removes a modern task that has ended, or that no client waits for. */
  delete(task: OpenTask): void {
    this.#open.delete(task);
  }

  /** Forgets a task, and cancels it if it has not ended. */
  drop(task: Task): void {
    this.#open.delete(task);
    if (this.#byRemoteId.get(task.remoteId) === task) this.#byRemoteId.delete(task.remoteId);
    for (const [id, each] of this.#byCall) if (each === task) this.#byCall.delete(id);
    const session = task.era === "legacy" ? task.session : this.#session;
    if (!task.isOver && task.lostCause === undefined) cancelTask(session, task.remoteId);
  }

  /** Remembers a cancelled call: a task that the server creates for it later is cancelled. */
  onCallCancelled(id: number): void {
    this.#cancelledCalls.add(id);
    const [oldest] = this.#cancelledCalls;
    if (this.#cancelledCalls.size > MAX_CANCELLED_CALLS && oldest !== undefined)
      this.#cancelledCalls.delete(oldest);
  }

  /** Handles a response to a call that is no longer in flight: cancels the task that the response announces. */
  onLateResponse(session: Session, response: Response): void {
    if (response.id !== undefined && this.#cancelledCalls.delete(response.id))
      cancelCreatedTask(session, response);
  }

  watch(id: string, watcher: TaskWatcher): void {
    const watchers = this.#watchers.get(id) ?? new Set();
    this.#watchers.set(id, watchers.add(watcher));
  }

  /** Removes a watcher. After the last one, unsubscribes at the server. */
  unwatch(id: string, watcher: TaskWatcher): void {
    const watchers = this.#watchers.get(id);
    if (watchers?.delete(watcher) !== true || watchers.size > 0) return;
    this.#watchers.delete(id);
    this.#session?.unsubscribe(id, "task");
  }

  onNotification(notification: Notification): void {
    const task = readTaskReference(paramsOf(notification));
    if (task === undefined) return;
    for (const watcher of this.#watchers.get(task.id) ?? []) watcher.onNotification(notification);
  }

  /** Subscribes to all watched tasks again, over a new session. */
  attach(session: Session): void {
    this.#session = session;
    // A failed subscription does no harm, because watchers also poll.
    for (const id of this.#watchers.keys())
      session.subscribe(id, NEVER_ABORTED, "task").catch(() => {});
  }

  /** Forgets the legacy tasks of a session that has ended, and reports them as lost. */
  onSessionLost(session: Session, cause: HubError): void {
    const legacy = [...this.#byRemoteId.values()].filter((task) => task.session === session);
    for (const task of legacy) this.#byRemoteId.delete(task.remoteId);
    this.#byCall.clear();
    this.#cancelledCalls.clear();
    for (const task of legacy) task.onSessionLost(cause);
    if (session !== this.#session) return;
    this.#session = undefined;
    for (const task of this.#open) task.onSessionLost(cause);
  }

  retire(): void {
    const [open, watchers] = [[...this.#open], [...this.#watchers.values()]];
    this.#open.clear();
    this.#watchers.clear();
    for (const task of open) task.onRetired();
    for (const watcher of watchers.flatMap((each) => [...each])) watcher.onRetired();
  }
}

/** Cancels a task at the server, because no client waits for the task any more. */
export function cancelTask(session: Session | undefined, taskId: string): void {
  session?.sendRequest(LegacyTaskMethod.cancel, { taskId }, NEVER_ABORTED).catch(() => {});
}

/** Cancels the task that a response announces. @returns whether the response announces a task */
export function cancelCreatedTask(session: Session, response: Response): boolean {
  const created = readCreatedTask(response, session.era);
  if (created !== undefined) cancelTask(session, created.reference.id);
  return created !== undefined;
}

/** Reads the task that the answer to a call announces; undefined if the answer announces no task. */
function readCreatedTask(
  response: Response,
  era: Era,
):
  | {
      readonly reference: TaskReference;
      readonly related: TaskReference | undefined;
      readonly status: TaskStatus;
    }
  | undefined {
  if (response.outcome === "error") return undefined;
  const result = bodyOf(response);
  if (era === "legacy") {
    const reference = readCreatedTaskReference(result);
    const related = readRelatedTaskReference(result);
    return reference && { reference, related, status: readTaskStatus(result) };
  }
  const reference = readResultType(result) === "task" ? readTaskReference(result) : undefined;
  return reference && { reference, related: undefined, status: readModernTaskStatus(result) };
}

const PAGE_SIZE = 50;
const CURSOR_KIND = "tasks";
const INVALID_PARAMS = -32602;

export interface TaskPage<Entry> {
  readonly entries: readonly Entry[];
  /** Builds the result from the JSON of the page's tasks; undefined tasks are left out. */
  write(tasks: readonly (Uint8Array | undefined)[]): Uint8Array;
}

/**
 * Selects the page of tasks that a `tasks/list` request asks for. `all` must be ordered by sequence number.
 * @throws {HubError} invalidParams
 */
export function readTaskPage<Entry>(
  all: readonly Entry[],
  sequenceOf: (entry: Entry) => number,
  request: Request,
): TaskPage<Entry> {
  const after = Number(readCursorParam(CURSOR_KIND, request) ?? 0);
  const rest = all.filter((entry) => sequenceOf(entry) > after);
  const entries = rest.slice(0, PAGE_SIZE);
  const last = rest.length > PAGE_SIZE ? entries.at(-1) : undefined;
  const end =
    last === undefined
      ? "]}"
      : `],"nextCursor":"${encodeCursor(CURSOR_KIND, `${sequenceOf(last)}`)}"}`;
  return {
    entries,
    write: (tasks) => {
      const shown = tasks.flatMap((task) => task ?? []);
      const list = shown.flatMap((task, i) => (i === 0 ? [task] : [",", task]));
      return joinPieces([`{"tasks":[`, ...list, end]);
    },
  };
}

/** Inserts the hub's task id in a result of `tasks/get`. @returns undefined if the result is not an object */
export function exposeTask(task: Task, body: Uint8Array): Uint8Array | undefined {
  if (scanObject(body, skipWhitespace(body, 0)) === undefined) return undefined;
  const range = { start: skipWhitespace(body, 0), end: body.length };
  return joinPieces(applyEdits(body, task.toOwnStatus(range, JsonObject.of(body))));
}

/** Whether an error of the server says that the task does not exist. */
export function isUnknownTaskError(body: Uint8Array): boolean {
  return JsonObject.of(body).value("code") === INVALID_PARAMS;
}
