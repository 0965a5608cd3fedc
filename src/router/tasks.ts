import { JsonObject } from "../base/json.ts";
import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { bodyOf, buildResult, paramsOf, readId, type Response } from "../jsonrpc/message.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { type CancelReason, readProgressTokens } from "../protocol/notifications.ts";
import {
  isTaskIdMethod,
  readRelatedTaskReference,
  readTaskReference,
  readTaskStatus,
  LegacyTaskMethod,
  type TaskIdMethod,
} from "../protocol/tasks.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { ClientChannel, ClientDeclaration } from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import {
  type CreatedTask,
  exposeTask,
  isUnknownTaskError,
  readTaskPage,
  type ServerTask,
  type TaskOrigin,
  type TaskPage,
} from "../upstream/tasks.ts";
import { type CallContext, Call, type RunningRequest, silentCallLog } from "./call.ts";
import type { DeadlineTarget } from "./deadlines.ts";
import type { TaskResultPluginCall } from "./plugin-task-result.ts";
import { deadlineError } from "./timeouts.ts";

/** The context that all requests of a client have. */
export type ClientRequestContext = Pick<
  CallContext,
  "request" | "caller" | "startedAt" | "deadlines" | "links" | "view"
> & {
  readonly callLog: Pick<CallContext["callLog"], "nextNumber">;
};

/** A legacy task, the session that runs it, and the plugin call that waits for its result, if there is one. */
export interface TaskEntry {
  readonly task: ServerTask;
  readonly session: Session;
  readonly taskResultCall: TaskResultPluginCall | undefined;
}

/** The input of a task request. */
export type TaskRequestContext = ClientRequestContext &
  Pick<CallContext, "token"> & { readonly rewrite: RequestRewrite };

/** `tasks/result` is answered when the task has ended: it has no timeout. */
const NO_TIMEOUT = { timeout: Infinity, maxTimeout: Infinity };

/** A legacy client's request about one of its tasks, sent over the session that has the task. */
export class TaskRequest extends Call implements PendingRequest {
  readonly method: TaskIdMethod;
  readonly isClientRequest = true;
  readonly #entry: TaskEntry;
  readonly #rewrite: RequestRewrite;
  #requestId: number | undefined;

  constructor(context: TaskRequestContext, entry: TaskEntry, method: TaskIdMethod) {
    const { route } = entry.task.origin;
    const limits = method === LegacyTaskMethod.result ? NO_TIMEOUT : route.limits;
    const { callLog } = context;
    super({ ...context, route: { ...route, limits }, callLog: silentCallLog(callLog) });
    this.method = method;
    this.#entry = entry;
    this.#rewrite = context.rewrite;
  }

  get sender(): ClientDeclaration {
    return this.context.caller.sender;
  }

  onResponse(response: Response): void {
    const { task, session, taskResultCall } = this.#entry;
    const { bytes, outcome } = response;
    this.#requestId = undefined;
    const result = outcome === "error" ? new JsonObject(bytes, []) : bodyOf(response);
    const related = readRelatedTaskReference(result);
    if (this.method !== LegacyTaskMethod.result) {
      task.recordStatus(readTaskStatus(result).isOver);
      const edits = task.toOwnId(readTaskReference(result), related);
      this.#answer(applyMessageEdits(response, edits));
      return;
    }
    task.recordStatus(outcome === "result");
    const exposed = applyMessageEdits(response, task.toOwnId(related));
    this.recordLinks(session, exposed);
    if (taskResultCall === undefined) this.#answer(exposed);
    else taskResultCall.deliver(exposed, (final) => this.#answer(final));
  }

  override expire(): void {
    this.cancelUpstream("It took too long.");
    this.fail(deadlineError(this.context));
  }

  protected start(): void {
    const { task, session, taskResultCall } = this.#entry;
    if (this.method === LegacyTaskMethod.result && taskResultCall?.isDecided === true) {
      taskResultCall.onFinalResponse((final) => this.#answer(final));
    } else if (task.lostCause === undefined) {
      this.#requestId = session.relay(this, this.context.request, this.#rewrite);
    } else {
      this.#answerLost(task.lostCause);
    }
  }

  protected cancelUpstream(reason: CancelReason): void {
    if (this.#requestId !== undefined) this.#entry.session.cancel(this.#requestId, reason);
  }

  protected waitReason(): undefined {
    return undefined;
  }

  /** Answers from the last known status of the task, because its session is closed. */
  #answerLost(cause: HubError): void {
    switch (this.method) {
      case LegacyTaskMethod.get: {
        const task = utf8(JSON.stringify(this.#entry.task.toTaskJson()));
        this.finish(buildResult(this.context.request.id, task), "answered");
        return;
      }
      case LegacyTaskMethod.result:
        this.fail(cause);
        return;
      case LegacyTaskMethod.cancel:
        this.fail(new HubError("invalidParams", "The task has ended, so it cannot be cancelled."));
    }
  }

  #answer(response: Response): void {
    this.finish(
      this.context.caller.toClientMessage(this.renameUris(response), "legacy"),
      "answered",
    );
  }
}

/** A `tasks/list` request: asks each task's server for the task's status. */
export class TaskListRequest implements RunningRequest, DeadlineTarget {
  readonly deadline: number;
  slot: number | undefined;
  readonly call = undefined;
  readonly #context: ClientRequestContext;
  readonly #page: TaskPage<TaskEntry>;
  readonly #removeTask: (entry: TaskEntry) => void;
  readonly #abort = new AbortController();
  #isOver = false;

  /**
   * @param removeTask drops a task that its server does not know any more
   * @throws {HubError} invalidParams
   */
  constructor(
    context: ClientRequestContext,
    entries: readonly TaskEntry[],
    removeTask: (entry: TaskEntry) => void,
  ) {
    this.#context = context;
    this.#page = readTaskPage(
      entries,
      ({ task: serverTask }) => serverTask.sequence,
      context.request,
    );
    this.#removeTask = removeTask;
    const timeouts = this.#page.entries.map(
      ({ task: serverTask }) => serverTask.origin.route.limits.timeout,
    );
    this.deadline = context.startedAt + Math.max(0, ...timeouts);
  }

  run(): void {
    this.#context.deadlines.add(this);
    const { signal } = this.#abort;
    void Promise.all(this.#page.entries.map((entry) => this.#fetchStatus(entry, signal))).then(
      (tasks) => {
        const { request } = this.#context;
        this.#respond(() => buildResult(request.id, this.#page.write(tasks)));
      },
    );
  }

  cancel(): void {
    this.#respond(() => undefined);
    this.#abort.abort(new HubError("cancelled", "Nobody waits for it."));
  }

  /** Answers without the tasks whose server has not answered yet. */
  expire(): void {
    this.#abort.abort(new HubError("callTimeout", "It took too long."));
  }

  async #fetchStatus(entry: TaskEntry, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const { task, session } = entry;
    if (task.lostCause !== undefined) return utf8(JSON.stringify(task.toTaskJson()));
    try {
      const params = { taskId: task.remoteId };
      const { outcome, bytes, body } = await session.sendRequest(
        LegacyTaskMethod.get,
        params,
        signal,
      );
      const taskBytes = bytes.subarray(body.start, body.end);
      if (outcome === "result") return exposeTask(task, taskBytes);
      if (isUnknownTaskError(taskBytes)) this.#removeTask(entry);
    } catch {
      // If a server does not answer, only its own tasks are missing.
    }
    return undefined;
  }

  #respond(message: () => ReturnType<typeof buildResult> | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#context.deadlines.remove(this);
    this.#context.caller.respond(message());
  }
}

/** Maximum number of remembered tasks per client; ended ones are dropped first. */
const MAX_TASKS = 256;

/** The tasks at legacy servers that one client has created, for all servers. Clients cannot use each other's tasks. */
export class LegacyClientTasks {
  readonly #clientChannel: () => ClientChannel;
  /** Tasks by the hub's task id, oldest first. */
  readonly #entries = new Map<string, TaskEntry>();
  #taskCount = 0;

  constructor(clientChannel: () => ClientChannel) {
    this.#clientChannel = clientChannel;
  }

  /**
   * Makes room for one more task.
   * @throws {HubError} invalidRequest if there are too many open tasks
   */
  makeRoom(): void {
    if (this.#entries.size < MAX_TASKS) return;
    const ended = [...this.#entries.values()].find(({ task }) => task.isOver);
    if (ended === undefined) {
      throw new HubError("invalidRequest", `${MAX_TASKS} tasks of this client have not ended.`);
    }
    this.#remove(ended);
  }

  /**
   * Registers the task that a response announces for a call.
   * @returns undefined if the response announces none
   */
  addCreated(
    session: Session,
    response: Response,
    call: Pick<TaskOrigin, "route" | "token">,
    taskResultCall?: TaskResultPluginCall,
  ): CreatedTask | undefined {
    const created = session.serverTasks.addCreated(response, {
      client: this.#clientChannel(),
      route: call.route,
      token: call.token,
      sequence: ++this.#taskCount,
      onLost: (serverTask, cause) => {
        // An ended task of a closed session can no longer be requested: it is treated as expired.
        if (serverTask.isOver) this.#entries.delete(serverTask.id);
        taskResultCall?.fail(cause);
      },
    });
    if (created === undefined) return undefined;
    const { task } = created;
    this.#entries.set(task.id, { task, session, taskResultCall });
    return created;
  }

  /**
   * Handles a `tasks/*` request.
   * @throws {HubError} invalidParams if the client has no such task
   */
  route(context: ClientRequestContext): RunningRequest {
    const { method } = context.request;
    return isTaskIdMethod(method) ? this.#taskRequest(context, method) : this.#listRequest(context);
  }

  /** The client has disconnected: drops its tasks and cancels those that are open. */
  close(): void {
    for (const entry of this.#entries.values()) this.#remove(entry);
  }

  #taskRequest(context: ClientRequestContext, method: TaskIdMethod): TaskRequest {
    const { request } = context;
    const { bytes } = request;
    const params = paramsOf(request);
    const task = readTaskReference(params);
    const entry = task && this.#entries.get(task.id);
    if (entry === undefined) {
      throw new HubError("invalidParams", `${method} needs the id of a task of this client.`);
    }
    const tokens = readProgressTokens(params);
    const last = tokens.at(-1);
    const token = last && readId(bytes, last);
    const edits = entry.task.toRemoteId(task, readRelatedTaskReference(params));
    return new TaskRequest({ ...context, token, rewrite: { edits, tokens } }, entry, method);
  }

  #listRequest(context: ClientRequestContext): TaskListRequest {
    return new TaskListRequest(context, [...this.#entries.values()], (entry) =>
      this.#remove(entry),
    );
  }

  #remove({ task, session, taskResultCall }: TaskEntry): void {
    this.#entries.delete(task.id);
    taskResultCall?.cancel();
    session.serverTasks.drop(task);
  }
}
