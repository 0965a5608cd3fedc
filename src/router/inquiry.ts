import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import {
  membersAt,
  readRelatedTask,
  readTaskStatus,
  readTask,
  TaskMethod,
  type TaskMethodName,
} from "../protocol/tasks.ts";
import type { ServerTask } from "../upstream/tasks.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { buildResult, type Response } from "../jsonrpc/message.ts";
import { Call, type CallContext } from "./call.ts";
import type { TaskResultPluginCall } from "./plugin-task-result.ts";
import { deadlineError } from "./timeouts.ts";
import { silentCallLog } from "./ledger.ts";

/** What all requests of a client have. */
export type ClientRequestContext = Pick<
  CallContext,
  "request" | "caller" | "startedAt" | "deadlines" | "links" | "view"
> & {
  readonly callLog: Pick<CallContext["callLog"], "nextNumber">;
};

/** A legacy task, the session that has it, and the plugin call that waits for its result, if there is one. */
export interface TaskEntry {
  readonly task: ServerTask;
  readonly session: Session;
  readonly taskResultCall: TaskResultPluginCall | undefined;
}

/** What a task request is made from. */
export type TaskRequestContext = ClientRequestContext &
  Pick<CallContext, "token"> & { readonly rewrite: RequestRewrite };

/** `tasks/result` is answered when the task has ended: it has no timeout. */
const NO_TIMEOUT = { timeout: Infinity, maxTimeout: Infinity };

/** A legacy client's request about one of its tasks, sent over the session that has the task. */
export class TaskRequest extends Call implements PendingRequest {
  readonly method: TaskMethodName;
  readonly isRelayed = true;
  readonly #entry: TaskEntry;
  readonly #rewrite: RequestRewrite;
  #requestId: number | undefined;

  constructor(context: TaskRequestContext, entry: TaskEntry, method: TaskMethodName) {
    const { route } = entry.task.origin;
    const limits = method === TaskMethod.result ? NO_TIMEOUT : route.limits;
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
    const { bytes, body, outcome } = response;
    this.#requestId = undefined;
    const members = outcome === "error" ? [] : membersAt(bytes, body);
    const related = readRelatedTask(bytes, members);
    if (this.method !== TaskMethod.result) {
      task.recordStatus(readTaskStatus(bytes, members).isOver);
      const edits = task.toOwnId(readTask(bytes, members), related);
      this.#answer(applyMessageEdits(response, edits));
      return;
    }
    task.recordStatus(outcome === "result");
    const result = applyMessageEdits(response, task.toOwnId(related));
    this.recordLinks(session, result);
    if (taskResultCall === undefined) this.#answer(result);
    else taskResultCall.deliver(result, (final) => this.#answer(final));
  }

  override expire(): void {
    this.cancelUpstream("It took too long.");
    this.fail(deadlineError(this.context));
  }

  protected start(): void {
    const { task, session, taskResultCall } = this.#entry;
    if (this.method === TaskMethod.result && taskResultCall?.isDecided === true) {
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

  /** The session is closed, but the last status of the task is known. */
  #answerLost(cause: HubError): void {
    switch (this.method) {
      case TaskMethod.get: {
        const task = utf8(JSON.stringify(this.#entry.task.toTaskJson()));
        this.finish(buildResult(this.context.request.id, task), "answered");
        return;
      }
      case TaskMethod.result:
        this.fail(cause);
        return;
      case TaskMethod.cancel:
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
