import type { Session } from "../upstream/session.ts";
import type { Response } from "../wire/jsonrpc.ts";
import { type CallParts, RelayedCall } from "./call.ts";
import type { Tasks } from "./tasks.ts";

/** A call that its client would have made a task; the server may as well answer it at once. */
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
    const begun = this.#session && this.#tasks.begin(this.#session, response, this.parts);
    super.settle(begun?.response ?? response);
  }
}
