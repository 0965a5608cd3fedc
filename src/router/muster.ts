import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { TaskMethod } from "../protocol/tasks.ts";
import { exposeTask, readTaskPage, type TaskPage, isUnknownTaskError } from "../upstream/roll.ts";
import { buildResult } from "../jsonrpc/message.ts";
import type { Running } from "./call.ts";
import type { Timed } from "./deadlines.ts";
import type { Common, Entry } from "./inquiry.ts";

/** A `tasks/list` request: asks each task's server for the task's status. */
export class Muster implements Running, Timed {
  readonly deadline: number;
  slot: number | undefined;
  readonly call = undefined;
  readonly #common: Common;
  readonly #roll: TaskPage<Entry>;
  readonly #forget: (entry: Entry) => void;
  readonly #abort = new AbortController();
  #isOver = false;

  /**
   * @param removeTask drops a task that its server does not know any more
   * @throws {HubError} invalidParams
   */
  constructor(common: Common, all: readonly Entry[], forget: (entry: Entry) => void) {
    this.#common = common;
    this.#roll = readTaskPage(all, ({ job }) => job.sequence, common.request);
    this.#forget = forget;
    const timeouts = this.#roll.entries.map(({ job }) => job.origin.route.limits.timeout);
    this.deadline = common.began + Math.max(0, ...timeouts);
  }

  run(): void {
    this.#common.deadlines.add(this);
    const { signal } = this.#abort;
    void Promise.all(this.#roll.entries.map((entry) => this.#refresh(entry, signal))).then(
      (tasks) => {
        const { request } = this.#common;
        this.#end(() => buildResult(request.id, this.#roll.write(tasks)));
      },
    );
  }

  cancel(): void {
    this.#end(() => undefined);
    this.#abort.abort(new HubError("cancelled", "Nobody waits for it."));
  }

  /** Tasks whose server has not answered yet are left out. */
  expire(): void {
    this.#abort.abort(new HubError("callTimeout", "It took too long."));
  }

  async #refresh(entry: Entry, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const { job, session } = entry;
    if (job.lostCause !== undefined) return utf8(JSON.stringify(job.toTaskJson()));
    try {
      const params = { taskId: job.remoteId };
      const { outcome, bytes, body } = await session.ask(TaskMethod.get, params, signal);
      const own = bytes.subarray(body.start, body.end);
      if (outcome === "result") return exposeTask(job, own);
      if (isUnknownTaskError(own)) this.#forget(entry);
    } catch {
      // A server that does not answer only costs its own tasks.
    }
    return undefined;
  }

  #end(message: () => ReturnType<typeof buildResult> | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#common.deadlines.remove(this);
    this.#common.caller.respond(message());
  }
}
