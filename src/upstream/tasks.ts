import type { Piece, ByteRange } from "../base/bytes.ts";
import type { Route } from "../catalog/section.ts";
import type { HubError } from "../base/errors.ts";
import type { Era } from "../protocol/era.ts";
import { readResultType } from "../protocol/modern.ts";
import {
  membersAt,
  type TaskMention,
  readRelatedTask,
  readCreatedTask,
  readTaskStatus,
  type TaskStatus,
  TaskMethod,
} from "../protocol/tasks.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import {
  buildNotification,
  type Notification,
  type Response,
  bytesOf,
  replaceRanges,
} from "../jsonrpc/message.ts";
import { TaskAlias, TaskAliases } from "../protocol/alias.ts";
import type { ClientChannel } from "./audience.ts";
import type { PendingRequests } from "./pending.ts";
import { readCreatedModernTask } from "./ticket.ts";

/** The client and the call of which a task was created. */
export interface TaskOrigin {
  readonly client: ClientChannel;
  readonly route: Route;
  /** The client's progress token as it was spelled, if it gave one. */
  readonly token: Piece | undefined;
  /** 1-based sequence number of the task among the client's. */
  readonly sequence: number;
  /** The server has ended, and with it the task, or the result of one that had ended. */
  onLost(task: ServerTask, cause: HubError): void;
}

/** A legacy task of a server, created of a client's call. It ends with the session and belongs to that client alone. */
export class ServerTask extends TaskAlias {
  readonly server: string;
  readonly origin: TaskOrigin;
  /** The error that ended the session; undefined while the server is there. */
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

  /** Whether its status is terminal. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Records a status of the server; a result of the task counts as terminal. */
  recordStatus(isOver: boolean): void {
    this.#isOver ||= isOver;
  }

  onProgress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { client, token } = this.origin;
    if (this.#isOver || token === undefined) return;
    client.notify(this.server, replaceRanges(notification, tokens, token));
  }

  /** Passes on `notifications/tasks/status` of the server. */
  onStatus(notification: Notification): void {
    const { bytes, params } = notification;
    this.recordStatus(readTaskStatus(bytes, membersAt(bytes, params)).isOver);
    this.origin.client.notify(this.server, bytesOf(notification));
  }

  /** The server has ended: reports the task as failed. */
  onServerLost(cause: HubError): void {
    this.lostCause = cause;
    this.origin.onLost(this, cause);
    if (this.#isOver) return;
    this.#isOver = true;
    const { client } = this.origin;
    client.notify(this.server, buildNotification(TaskMethod.status, this.toTaskJson()));
  }

  /** A lost task as `tasks/get` shows it. */
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

/** How many cancelled calls are remembered, because a task may still be created of them. */
const MAX_CANCELLED_CALLS = 256;

/** The legacy tasks of one session. */
export class ServerTasks extends TaskAliases<ServerTask> {
  readonly #server: string;
  readonly #pending: PendingRequests;
  readonly #completeParams: (params: object) => object | undefined;
  /** By the ids of the calls that they were created of, which are their progress tokens. */
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

  /** Whether some task has not ended. */
  get hasRunning(): boolean {
    return !this.isEmpty && this.all.some(({ isOver }) => !isOver);
  }

  /** Records the task that a response says a call has created. @returns undefined if it has created none */
  addCreated(response: Response, origin: TaskOrigin): CreatedTask | undefined {
    const created = readTaskCreation(response);
    if (created === undefined || response.id === undefined) return undefined;
    const { mention, members } = created;
    const { bytes } = response;
    const serverTask = new ServerTask(
      this.#server,
      mention.id,
      readTaskStatus(bytes, members),
      origin,
    );
    this.add(serverTask);
    this.#byCall.set(response.id, serverTask);
    const edits = serverTask.toOwnId(mention, readRelatedTask(bytes, members));
    return { task: serverTask, response: applyMessageEdits(response, edits) };
  }

  /** The task that a progress token belongs to. */
  byCall(id: number): ServerTask | undefined {
    return this.#byCall.get(id);
  }

  /** The call was cancelled: a task that it still creates is to be cancelled. */
  onCallCancelled(id: number): void {
    this.#cancelledCalls.add(id);
    const [oldest] = this.#cancelledCalls;
    if (this.#cancelledCalls.size > MAX_CANCELLED_CALLS && oldest !== undefined)
      this.#cancelledCalls.delete(oldest);
  }

  /** A response came to a call that is not in flight: cancels the task that it has created. */
  onLateResponse(response: Response, era: Era): void {
    if (response.id === undefined || !this.#cancelledCalls.delete(response.id)) return;
    if (era === "legacy") this.cancelCreated(response);
    else if (isModernTask(response)) this.#cancel(readCreatedModernTask(response)?.task.id);
  }

  /** Cancels the task that a response says it has created. @returns whether there is one */
  cancelCreated(response: Response): boolean {
    const created = readTaskCreation(response);
    if (created !== undefined) this.#cancel(created.mention.id);
    return created !== undefined;
  }

  /** Cancels a task that has not ended. */
  cancel(task: ServerTask): void {
    if (!task.isOver) this.#cancel(task.remoteId);
  }

  /** Forgets and cancels a task whose client has left or has forgotten it. */
  drop(task: ServerTask): void {
    this.delete(task);
    for (const [id, each] of this.#byCall) if (each === task) this.#byCall.delete(id);
    this.cancel(task);
  }

  /** The session has ended. */
  fail(cause: HubError): void {
    const tasks = this.all;
    this.clear();
    this.#byCall.clear();
    for (const task of tasks) task.onServerLost(cause);
  }

  #cancel(taskId: string | undefined): void {
    if (taskId !== undefined)
      this.#pending.post(TaskMethod.cancel, this.#completeParams({ taskId }));
  }
}

/** A created task, and the response with the hub's task id. */
export interface CreatedTask {
  readonly task: ServerTask;
  readonly response: Response;
}

/** Whether the result of a modern server is a task. */
function isModernTask({ outcome, bytes, body }: Response): boolean {
  return outcome === "result" && readResultType(bytes, membersAt(bytes, body)) === "task";
}

function readTaskCreation({
  outcome,
  bytes,
  body,
}: Response):
  { readonly mention: TaskMention; readonly members: ReturnType<typeof membersAt> } | undefined {
  if (outcome === "error") return undefined;
  const members = membersAt(bytes, body);
  const mention = readCreatedTask(bytes, members);
  return mention && { mention, members };
}
