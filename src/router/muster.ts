import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { TaskMethod } from "../protocol/tasks.ts";
import { exposeTask, readTaskPage, type TaskPage, isUnknownTaskError } from "../upstream/roll.ts";
import { buildResult } from "../jsonrpc/message.ts";
import type { RunningRequest } from "./call.ts";
import type { DeadlineTarget } from "./deadlines.ts";
import type { ClientRequestContext, TaskEntry } from "./inquiry.ts";

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
    this.#page = readTaskPage(entries, ({ task: job }) => job.sequence, context.request);
    this.#removeTask = removeTask;
    const timeouts = this.#page.entries.map(({ task: job }) => job.origin.route.limits.timeout);
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

  /** Tasks whose server has not answered yet are left out. */
  expire(): void {
    this.#abort.abort(new HubError("callTimeout", "It took too long."));
  }

  async #fetchStatus(entry: TaskEntry, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const { task, session } = entry;
    if (task.lostCause !== undefined) return utf8(JSON.stringify(task.toTaskJson()));
    try {
      const params = { taskId: task.remoteId };
      const { outcome, bytes, body } = await session.ask(TaskMethod.get, params, signal);
      const taskBytes = bytes.subarray(body.start, body.end);
      if (outcome === "result") return exposeTask(task, taskBytes);
      if (isUnknownTaskError(taskBytes)) this.#removeTask(entry);
    } catch {
      // A server that does not answer only costs its own tasks.
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
