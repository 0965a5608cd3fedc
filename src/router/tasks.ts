import { HubError } from "../base/errors.ts";
import {
  isTaskMethod,
  membersAt,
  readRelatedTask,
  readTask,
  type TaskMethodName,
} from "../protocol/tasks.ts";
import type { ClientChannel } from "../upstream/audience.ts";
import type { CreatedTask, TaskOrigin } from "../upstream/tasks.ts";
import { readProgressTokens } from "../protocol/notifications.ts";
import type { Session } from "../upstream/session.ts";
import { readId } from "../jsonrpc/id.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { RunningRequest } from "./call.ts";
import type { TaskResultPluginCall } from "./plugin-task-result.ts";
import { type ClientRequestContext, type TaskEntry, TaskRequest } from "./inquiry.ts";
import { TaskListRequest } from "./muster.ts";

/** Maximum number of remembered tasks per client; ended ones are dropped first. */
const MAX_TASKS = 256;

/**
 * The tasks at legacy servers that one client has begun, whichever the server. Clients cannot use each other's tasks.
 */
export class LegacyClientTasks {
  readonly #clientChannel: () => ClientChannel;
  /** By the hub's task ids, oldest first. */
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
   * Registers the task that a response says was created for a call.
   * @returns undefined if it created none
   */
  addCreated(
    session: Session,
    response: Response,
    call: Pick<TaskOrigin, "route" | "token">,
    taskResultCall?: TaskResultPluginCall,
  ): CreatedTask | undefined {
    const created = session.jobs.addCreated(response, {
      client: this.#clientChannel(),
      route: call.route,
      token: call.token,
      sequence: ++this.#taskCount,
      onLost: (job, cause) => {
        // An ended task of a closed session cannot be asked for any more: it is treated as expired.
        if (job.isOver) this.#entries.delete(job.id);
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
    return isTaskMethod(method) ? this.#taskRequest(context, method) : this.#listRequest(context);
  }

  /** The client has disconnected: drops its tasks and cancels those that are open. */
  close(): void {
    for (const entry of this.#entries.values()) this.#remove(entry);
  }

  #taskRequest(context: ClientRequestContext, method: TaskMethodName): TaskRequest {
    const { request } = context;
    const { bytes, params } = request;
    const members = membersAt(bytes, params);
    const task = readTask(bytes, members);
    const entry = task && this.#entries.get(task.id);
    if (entry === undefined) {
      throw new HubError("invalidParams", `${method} needs the id of a task of this client.`);
    }
    const tokens = readProgressTokens(bytes, members);
    const last = tokens.at(-1);
    const token = last && readId(bytes, last);
    const edits = entry.task.toRemoteId(task, readRelatedTask(bytes, members));
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
    session.jobs.drop(task);
  }
}
