import type { Kind } from "../catalog/item.ts";
import { NOUNS } from "../catalog/offer.ts";
import { type HubError, toHubError } from "../errors.ts";
import type { CancelledBy } from "../events.ts";
import type { Connection } from "../upstream/connection.ts";
import type { Visitor } from "../upstream/visitors.ts";
import type { Withdrawal } from "../upstream/withdrawal.ts";
import { buildError, type Request } from "../wire/jsonrpc.ts";
import type { Call, Caller } from "./call.ts";
import type { Deadlines, Timed } from "./deadline.ts";
import { answerLate } from "./late.ts";

export interface SearchParts {
  readonly request: Request;
  readonly caller: Caller;
  readonly kind: Kind;
  /** The exposed name that is looked for. */
  readonly name: string;
  /** The servers that may have it, none of which has given a listing yet. */
  readonly connections: readonly Connection[];
  /**
   * The call, if the catalog has the name by now.
   * @param isLast nobody else is waited for, so that what is likely will have to do
   * @throws {HubError} if it cannot be told which one it is
   */
  find(isLast: boolean): Call | undefined;
  /** What is answered if nobody has it. */
  readonly missing: HubError;
  /** When it began, in ms of the clock, and how many ms it may take. */
  readonly began: number;
  readonly timeout: number;
  readonly deadlines: Deadlines;
}

/** A request for something that nobody has listed yet: starts whoever may have it, and becomes the call once it is listed. */
export class Search implements Timed {
  readonly deadline: number;
  slot: number | undefined;
  readonly #parts: SearchParts;
  readonly #visits = new Map<Connection, Visitor>();
  /** Why a server that may have it did not come up: a better answer than that nobody has it. */
  #cause: HubError | undefined;
  #call: Call | undefined;

  constructor(parts: SearchParts) {
    this.#parts = parts;
    this.deadline = parts.began + parts.timeout;
  }

  run(): void {
    this.#parts.deadlines.add(this);
    for (const connection of this.#parts.connections) {
      this.#visits.set(connection, {
        enter: () => this.#visited(connection),
        fail: (error) => {
          this.#cause ??= error;
          this.#visited(connection);
        },
      });
    }
    for (const [connection, visitor] of this.#visits) connection.visit(visitor);
  }

  cancel(why: Withdrawal, by: CancelledBy): void {
    if (this.#call !== undefined) {
      this.#call.cancel(why, by);
      return;
    }
    this.#leave();
    this.#parts.caller.respond(undefined);
  }

  /** The call that it has become. */
  get call(): Call | undefined {
    return this.#call;
  }

  expire(): void {
    this.#leave();
    const { request, caller, kind, name, timeout } = this.#parts;
    const noun = NOUNS[kind].replace(/^./, (letter) => letter.toUpperCase());
    const text = `${noun} "${name}" was not called: no server that has it was ready within ${timeout / 1000} seconds. Try again later.`;
    caller.respond(answerLate(request, text));
  }

  #visited(connection: Connection): void {
    if (!this.#visits.delete(connection)) return;
    const call = this.#find();
    if (call === undefined && this.#visits.size > 0) return;
    this.#leave();
    if (call !== undefined) {
      this.#call = call;
      call.run();
      return;
    }
    const { request, caller, missing } = this.#parts;
    caller.respond(buildError(request.id, (this.#cause ?? missing).toRpc()));
  }

  #find(): Call | undefined {
    try {
      return this.#parts.find(this.#visits.size === 0);
    } catch (error) {
      this.#cause = toHubError(error);
      return undefined;
    }
  }

  #leave(): void {
    this.#parts.deadlines.remove(this);
    for (const [connection, visitor] of this.#visits) connection.leave(visitor);
    this.#visits.clear();
  }
}
