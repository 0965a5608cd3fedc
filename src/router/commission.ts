import type { Session } from "../upstream/session.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { CallParts } from "./call.ts";
import { RelayedCall } from "./upstream-request.ts";
import type { Tasks } from "./tasks.ts";

/** A legacy task-augmented call. The server may create a task or answer at once, as modern servers do. */
export class Commission extends RelayedCall {
  readonly isTask = true;
  readonly #tasks: Tasks;
  #session: Session | undefined;

  constructor(parts: CallParts, tasks: Tasks) {
    super(parts);
    this.#tasks = tasks;
  }

  override enter(session: Session): void {
    this.#session = session;
    super.enter(session);
  }

  override settle(response: Response): void {
    const session = this.#session;
    const begun =
      session?.era === "legacy" ? this.#tasks.begin(session, response, this.parts) : undefined;
    super.settle(begun?.response ?? response);
  }
}
