import type { Session } from "../upstream/session.ts";
import type { Response } from "../wire/jsonrpc.ts";
import type { CallParts } from "./call.ts";
import { RelayedCall } from "./relayed.ts";
import type { Tasks } from "./tasks.ts";

/** A call that its client would have made a task; the server may as well answer it at once, as those of the modern era do. */
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
