import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import {
  membersAt,
  readRelated,
  readStanding,
  readTask,
  TaskMethod,
  type TaskQuery,
} from "../protocol/tasks.ts";
import type { ServerTask } from "../upstream/tasks.ts";
import type { PendingRequest, RequestRewrite } from "../upstream/pending.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { buildResult, type Response } from "../jsonrpc/message.ts";
import { Call, type CallCore } from "./call.ts";
import type { Detour } from "./plugin-task-result.ts";
import { lateError } from "./timeouts.ts";
import { silence } from "./ledger.ts";

/** What all requests of a client have. */
export type Common = Pick<
  CallCore,
  "request" | "caller" | "began" | "deadlines" | "links" | "view"
> & {
  readonly ledger: Pick<CallCore["ledger"], "next">;
};

/** A legacy task, the session that has it, and the plugin call that waits for its result, if there is one. */
export interface Entry {
  readonly job: ServerTask;
  readonly session: Session;
  readonly detour: Detour | undefined;
}

/** What a task request is made from. */
export type InquiryParts = Common & Pick<CallCore, "token"> & { readonly rewrite: RequestRewrite };

/** `tasks/result` is answered when the task has ended: it has no timeout. */
const NO_LIMITS = { timeout: Infinity, maxTimeout: Infinity };

/** A legacy client's request about one of its tasks, sent over the session that has the task. */
export class Inquiry extends Call implements PendingRequest {
  readonly method: TaskQuery;
  readonly isRelayed = true;
  readonly #entry: Entry;
  readonly #rewrite: RequestRewrite;
  #id: number | undefined;

  constructor(parts: InquiryParts, entry: Entry, method: TaskQuery) {
    const { route } = entry.job.origin;
    const limits = method === TaskMethod.result ? NO_LIMITS : route.limits;
    const { ledger } = parts;
    super({ ...parts, route: { ...route, limits }, ledger: silence(ledger) });
    this.method = method;
    this.#entry = entry;
    this.#rewrite = parts.rewrite;
  }

  get sender(): ClientDeclaration {
    return this.parts.caller.sender;
  }

  settle(response: Response): void {
    const { job, session, detour } = this.#entry;
    const { bytes, body, outcome } = response;
    this.#id = undefined;
    const members = outcome === "error" ? [] : membersAt(bytes, body);
    const related = readRelated(bytes, members);
    if (this.method !== TaskMethod.result) {
      job.recordStatus(readStanding(bytes, members).isOver);
      const edits = job.toOwnId(readTask(bytes, members), related);
      this.#answer(applyMessageEdits(response, edits));
      return;
    }
    job.recordStatus(outcome === "result");
    const result = applyMessageEdits(response, job.toOwnId(related));
    this.learn(session, result);
    if (detour === undefined) this.#answer(result);
    else detour.deliver(result, (final) => this.#answer(final));
  }

  override expire(): void {
    this.withdraw("It took too long.");
    this.fail(lateError(this.parts));
  }

  protected begin(): void {
    const { job, session, detour } = this.#entry;
    if (this.method === TaskMethod.result && detour?.isDecided === true) {
      detour.wait((final) => this.#answer(final));
    } else if (job.lostCause === undefined) {
      this.#id = session.relay(this, this.parts.request, this.#rewrite);
    } else {
      this.#answerLost(job.lostCause);
    }
  }

  protected withdraw(why: Withdrawal): void {
    if (this.#id !== undefined) this.#entry.session.cancel(this.#id, why);
  }

  protected explainWait(): undefined {
    return undefined;
  }

  /** The session is closed, but the last status of the task is known. */
  #answerLost(cause: HubError): void {
    switch (this.method) {
      case TaskMethod.get: {
        const task = utf8(JSON.stringify(this.#entry.job.toTaskJson()));
        this.finish(buildResult(this.parts.request.id, task), "answered");
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
    this.finish(this.parts.caller.address(this.renameUris(response), "legacy"), "answered");
  }
}
