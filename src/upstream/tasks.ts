import { applyEdits, type ByteRange, joinPieces, type Piece, utf8 } from "../base/bytes.ts";
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
import {
  ModernTaskMethod,
  type ModernTaskStatus,
  readCreatedTaskReference,
  readModernTaskStatus,
  readRelatedTaskReference,
  readTaskReference,
  readTaskStatus,
  TaskAlias,
  TaskAliases,
  LegacyTaskMethod,
  type TaskReference,
  type TaskStatus,
} from "../protocol/tasks.ts";
import type { PendingRequests } from "./pending.ts";
import type { ClientChannel } from "./profile.ts";

/**
 * Maximum time for which a task is kept, and for which one is kept after its end if the server gives no `ttl`, in ms.
 */
const MAX_AGE = { any: 24 * 3_600_000, ended: 3_600_000 };
/** Servers count the `ttl` from the creation of a task, clients from when they learn of it; this tolerance is in ms. */
const TTL_TOLERANCE = 60_000;

/** A task of a modern server; its client polls it with `tasks/get`. */
export class ModernServerTask extends TaskAlias implements OpenTask {
  readonly #createdAt: number;
  #endedAt = 0;
  isOver = false;
  /** When the task is forgotten, in ms of the clock. */
  expiresAt = 0;

  /** @param now ms of the clock */
  constructor(remoteId: string, sequence: number, status: ModernTaskStatus, now: number) {
    // Over HTTP, the id may be the only proof that the task belongs to this client.
    super(remoteId, sequence, randomToken());
    this.#createdAt = now;
    this.setStatus(status, now);
  }

  /** The server reported the task's status. */
  setStatus({ isOver, ttl }: ModernTaskStatus, now: number): void {
    if (isOver && !this.isOver) this.#endedAt = now;
    this.isOver ||= isOver;
    const isKept = ttl !== undefined || !this.isOver;
    const limit = ttl === undefined ? MAX_AGE.any : Math.min(ttl + TTL_TOLERANCE, MAX_AGE.any);
    const end = this.#createdAt + limit;
    this.expiresAt = isKept ? end : Math.min(end, this.#endedAt + MAX_AGE.ended);
  }

  /** Servers may keep tasks beyond their own end: `tasks/get` shows whether this one did. */
  onSessionLost(): void {}
}

/** A task that has not ended. */
export interface OpenTask {
  /** The server is gone, and the task may be lost. */
  onSessionLost(): void;
}

/** Is notified when the server sends a notification about a task. */
export interface TaskWatcher {
  /** @param task the ranges of its id in the notification */
  onNotification(notification: Notification, task: TaskReference): void;
}

/** The part of a session that subscribes to tasks. */
export interface TaskSession {
  subscribe(id: string, signal: AbortSignal, topic: "task"): Promise<void>;
  unsubscribe(id: string, topic: "task"): void;
}

const NEVER = new AbortController().signal;

/** The tasks of one modern server that clients wait for. They outlive sessions, as servers may keep tasks. */
export class ModernServerTasks {
  /** The tasks that have not ended. */
  readonly #open = new Set<OpenTask>();
  /** The watchers by the server's task id. */
  readonly #watchers = new Map<string, Set<TaskWatcher>>();
  #session: TaskSession | undefined;
  /** The tasks of the connection that replaced this connection. */
  #successor: ModernServerTasks | undefined;

  /** Whether tasks need the server, so that it must not be stopped as idle. */
  get isUsed(): boolean {
    return this.#open.size > 0 || this.#watchers.size > 0;
  }

  /** Adds a task that has not ended. */
  add(task: OpenTask): void {
    if (this.#successor === undefined) this.#open.add(task);
    else this.#successor.add(task);
  }

  /** The task has ended, or no client waits for it. */
  delete(task: OpenTask): void {
    this.#successor?.delete(task);
    this.#open.delete(task);
  }

  watch(id: string, watcher: TaskWatcher): void {
    if (this.#successor !== undefined) {
      this.#successor.watch(id, watcher);
      return;
    }
    const watchers = this.#watchers.get(id) ?? new Set();
    this.#watchers.set(id, watchers.add(watcher));
  }

  /** Removes a watcher; after the last one the server is unsubscribed. */
  unwatch(id: string, watcher: TaskWatcher): void {
    this.#successor?.unwatch(id, watcher);
    const watchers = this.#watchers.get(id);
    if (watchers?.delete(watcher) !== true || watchers.size > 0) return;
    this.#watchers.delete(id);
    this.#session?.unsubscribe(id, "task");
  }

  /** The server sent a notification about a task. */
  onNotification(notification: Notification): void {
    const task = readTaskReference(paramsOf(notification));
    if (task === undefined) return;
    for (const watcher of this.#watchers.get(task.id) ?? [])
      watcher.onNotification(notification, task);
  }

  /** A new session is open: subscribes to all watched tasks again. */
  attach(session: TaskSession): void {
    this.#session = session;
    // A failure to subscribe is harmless: watchers also poll.
    for (const id of this.#watchers.keys()) session.subscribe(id, NEVER, "task").catch(() => {});
  }

  detach(): void {
    this.#session = undefined;
    for (const task of this.#open) task.onSessionLost();
  }

  /** Moves everything to another connection, which has no session yet and replaces this one. */
  handOver(successor: ModernServerTasks): void {
    for (const task of this.#open) successor.add(task);
    for (const [id, watchers] of this.#watchers) {
      for (const watcher of watchers) successor.watch(id, watcher);
    }
    this.#open.clear();
    this.#watchers.clear();
    this.#successor = successor;
  }
}

/** A session that sends requests of the hub's own. */
interface RequestSender {
  sendRequest(method: string, params: object, signal: AbortSignal): Promise<Response>;
}

/** Cancels a task that no client waits for any more. */
export function cancelServerTask(session: RequestSender, taskId: string): void {
  session.sendRequest(ModernTaskMethod.cancel, { taskId }, NEVER).catch(() => {});
}

/** The task that the answer to a call contains; undefined if it contains none. */
export function readCreatedModernTask(response: Response): CreatedModernTask | undefined {
  const result = bodyOf(response);
  const task = readTaskReference(result);
  return task && { task, status: readModernTaskStatus(result) };
}

export interface CreatedModernTask {
  readonly task: TaskReference;
  readonly status: ModernTaskStatus;
}

/** The client and the call that a task was created for. */
export interface TaskOrigin {
  readonly client: ClientChannel;
  readonly route: Route;
  /** The client's progress token, byte for byte, if it gave one. */
  readonly token: Piece | undefined;
  /** 1-based sequence number among the client's tasks. */
  readonly sequence: number;
  /** The server has ended, and with it the task, or the result of a task that had ended. */
  onLost(task: ServerTask, cause: HubError): void;
}

/**
 * A legacy task of a server, created for a client's call. It ends with the session and belongs to that client alone.
 */
export class ServerTask extends TaskAlias {
  readonly server: string;
  readonly origin: TaskOrigin;
  /** The error that ended the session; undefined while the session is open. */
  lostCause: HubError | undefined;
  readonly #status: TaskStatus;
  #isOver: boolean;

  constructor(server: string, remoteId: string, status: TaskStatus, origin: TaskOrigin) {
    super(remoteId, origin.sequence);
    this.server = server;
    this.origin = origin;
    this.#status = status;
    this.#isOver = status.isOver;
  }

  /** Whether the task's status is terminal. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Records the task's status; the task's result counts as terminal. */
  recordStatus(isOver: boolean): void {
    this.#isOver ||= isOver;
  }

  onProgress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { client, token } = this.origin;
    if (this.#isOver || token === undefined) return;
    client.notify(this.server, replaceRanges(notification, tokens, token));
  }

  /** Forwards a `notifications/tasks/status` of the server. */
  onStatus(notification: Notification): void {
    this.recordStatus(readTaskStatus(paramsOf(notification)).isOver);
    this.origin.client.notify(this.server, bytesOf(notification));
  }

  /** The session has ended: reports the task to its client as failed, unless it had ended already. */
  onServerLost(cause: HubError): void {
    this.lostCause = cause;
    this.origin.onLost(this, cause);
    if (this.#isOver) return;
    this.#isOver = true;
    const { client } = this.origin;
    client.notify(this.server, buildNotification(LegacyTaskMethod.status, this.toTaskJson()));
  }

  /** A lost task as a result of `tasks/get`. */
  toTaskJson(): object {
    const { createdAt, ttl } = this.#status;
    const now = new Date().toISOString();
    return {
      taskId: this.id,
      status: "failed",
      statusMessage: `The task has gone with server "${this.server}": ${this.lostCause?.message}`,
      createdAt: createdAt ?? now,
      lastUpdatedAt: now,
      ttl,
    };
  }
}

/** Maximum number of remembered cancelled calls: the server may still create a task for them. */
const MAX_CANCELLED_CALLS = 256;

/** The tasks that the server has created for clients' calls in one session; for legacy servers. */
export class ServerTasks extends TaskAliases<ServerTask> {
  readonly #server: string;
  readonly #pending: PendingRequests;
  readonly #completeParams: (params: object) => object | undefined;
  /** By the ids of the calls that created them; these ids are the calls' progress tokens. */
  readonly #byCall = new Map<number, ServerTask>();
  /** The ids of calls that were cancelled and may still create a task. */
  readonly #cancelledCalls = new Set<number>();

  /** @param completeParams adds to the params of a request what the server's era requires */
  constructor(
    server: string,
    pending: PendingRequests,
    completeParams: (params: object) => object | undefined,
  ) {
    super();
    this.#server = server;
    this.#pending = pending;
    this.#completeParams = completeParams;
  }

  /** Whether any task has not ended. */
  get hasRunning(): boolean {
    return !this.isEmpty && this.all.some(({ isOver }) => !isOver);
  }

  /** Records the task that a call has created, according to the response. @returns undefined if it has created none */
  addCreated(response: Response, origin: TaskOrigin): CreatedTask | undefined {
    const created = readTaskCreation(response);
    if (created === undefined || response.id === undefined) return undefined;
    const { reference, result } = created;
    const serverTask = new ServerTask(this.#server, reference.id, readTaskStatus(result), origin);
    this.add(serverTask);
    this.#byCall.set(response.id, serverTask);
    const edits = serverTask.toOwnId(reference, readRelatedTaskReference(result));
    return { task: serverTask, response: applyMessageEdits(response, edits) };
  }

  /** The task that a progress token belongs to. */
  byCall(id: number): ServerTask | undefined {
    return this.#byCall.get(id);
  }

  /** The call was cancelled: a task that it creates later is cancelled. */
  onCallCancelled(id: number): void {
    this.#cancelledCalls.add(id);
    const [oldest] = this.#cancelledCalls;
    if (this.#cancelledCalls.size > MAX_CANCELLED_CALLS && oldest !== undefined)
      this.#cancelledCalls.delete(oldest);
  }

  /** A response came to a call that is no longer in flight: cancels the task that it has created. */
  onLateResponse(response: Response, era: Era): void {
    if (response.id === undefined || !this.#cancelledCalls.delete(response.id)) return;
    if (era === "legacy") this.cancelCreated(response);
    else if (isModernTask(response)) this.#cancel(readCreatedModernTask(response)?.task.id);
  }

  /** Cancels the task that a call has created, according to the response. @returns whether there is one */
  cancelCreated(response: Response): boolean {
    const created = readTaskCreation(response);
    if (created !== undefined) this.#cancel(created.reference.id);
    return created !== undefined;
  }

  /** Cancels a task that has not ended. */
  cancel(task: ServerTask): void {
    if (!task.isOver) this.#cancel(task.remoteId);
  }

  /** Forgets a task, because its client has left or does not keep it; cancels it if it has not ended. */
  drop(task: ServerTask): void {
    this.delete(task);
    for (const [id, each] of this.#byCall) if (each === task) this.#byCall.delete(id);
    this.cancel(task);
  }

  /** The session has ended: all tasks are forgotten and reported as lost. */
  fail(cause: HubError): void {
    const tasks = this.all;
    this.clear();
    this.#byCall.clear();
    for (const task of tasks) task.onServerLost(cause);
  }

  #cancel(taskId: string | undefined): void {
    if (taskId !== undefined)
      this.#pending.sendWithoutWaiting(LegacyTaskMethod.cancel, this.#completeParams({ taskId }));
  }
}

/** A created task, and the server's response with the task id replaced by the hub's. */
export interface CreatedTask {
  readonly task: ServerTask;
  readonly response: Response;
}

/** Whether the result of a modern server is a task. */
function isModernTask(response: Response): boolean {
  return response.outcome === "result" && readResultType(bodyOf(response)) === "task";
}

function readTaskCreation(
  response: Response,
): { readonly reference: TaskReference; readonly result: JsonObject } | undefined {
  if (response.outcome === "error") return undefined;
  const result = bodyOf(response);
  const reference = readCreatedTaskReference(result);
  return reference && { reference, result };
}

/** Page size of `tasks/list`. */
const PAGE_SIZE = 50;
const CURSOR_KIND = "tasks";
const INVALID_PARAMS = -32602;

/** One page of a `tasks/list` result. */
export interface TaskPage<Entry> {
  readonly entries: readonly Entry[];
  /** Builds the result from the JSON of the page's tasks; undefined tasks are left out. */
  write(tasks: readonly (Uint8Array | undefined)[]): Uint8Array;
}

/**
 * The page that a `tasks/list` request asks for; `all` is ordered by sequence number.
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

/** The result of `tasks/get` with the task id replaced by the hub's; undefined if the result is not an object. */
export function exposeTask(alias: TaskAlias, body: Uint8Array): Uint8Array | undefined {
  if (scanObject(body, skipWhitespace(body, 0)) === undefined) return undefined;
  const task = JsonObject.of(body);
  const edits = alias.toOwnId(readTaskReference(task), readRelatedTaskReference(task));
  return joinPieces(applyEdits(body, edits));
}

/** Whether an error says that there is no such task. */
export function isUnknownTaskError(body: Uint8Array): boolean {
  return JsonObject.of(body).value("code") === INVALID_PARAMS;
}

/** The JSON of the params of a request about one task. */
export function taskParams(id: string): Uint8Array {
  return utf8(JSON.stringify({ taskId: id }));
}
