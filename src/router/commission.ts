import type { Session } from "../upstream/session.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { SessionCallContext } from "./call.ts";
import { UpstreamRequest } from "./upstream-request.ts";
import type { LegacyClientTasks } from "./tasks.ts";

/** A legacy task-augmented call. The server may create a task or answer at once, as modern servers do. */
export class TaskAugmentedCall extends UpstreamRequest {
  readonly isTask = true;
  readonly #tasks: LegacyClientTasks;
  #session: Session | undefined;

  constructor(context: SessionCallContext, tasks: LegacyClientTasks) {
    super(context);
    this.#tasks = tasks;
  }

  override onSession(session: Session): void {
    this.#session = session;
    super.onSession(session);
  }

  override onResponse(response: Response): void {
    const session = this.#session;
    const created =
      session?.era === "legacy"
        ? this.#tasks.addCreated(session, response, this.context)
        : undefined;
    super.onResponse(created?.response ?? response);
  }
}
