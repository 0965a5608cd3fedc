import type { Kind } from "../catalog/listing.ts";
import { KIND_NOUNS } from "../catalog/offer.ts";
import { type HubError, toHubError } from "../base/errors.ts";
import type { CancelledBy } from "../base/events.ts";
import type { Connection } from "../upstream/connection.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import { buildError, type Request } from "../jsonrpc/message.ts";
import type { Call, Caller } from "./call.ts";
import type { Deadlines, Timed } from "./deadlines.ts";
import { answerLate } from "./timeouts.ts";

export interface SearchParts {
  readonly request: Request;
  readonly caller: Caller;
  readonly kind: Kind;
  /** The exposed name. */
  readonly name: string;
  /** The servers that may have it and have no listing yet. */
  readonly connections: readonly Connection[];
  /**
   * The call, if the catalog has the name by now.
   * @param isLast no other server is awaited, so a resource may be located by links, templates and scheme
   * @throws {HubError} if the name is ambiguous or the request invalid
   */
  find(isLast: boolean): Call | undefined;
  /** The error if no server has the name. */
  readonly missing: HubError;
  /** When the request arrived, in ms of the clock, and its time limit in ms. */
  readonly began: number;
  readonly timeout: number;
  readonly deadlines: Deadlines;
}

/**
 * A request for a name that is not listed yet: starts the servers that may have it, and becomes a call once the name is
 * listed.
 */
export class Search implements Timed {
  readonly deadline: number;
  slot: number | undefined;
  readonly #parts: SearchParts;
  readonly #visits = new Map<Connection, SessionWaiter>();
  /** Why a server that may have the name did not start: more useful than that the name is unknown. */
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
    for (const [connection, visitor] of this.#visits) connection.withSession(visitor);
  }

  cancel(why: Withdrawal, by: CancelledBy): void {
    if (this.#call !== undefined) {
      this.#call.cancel(why, by);
      return;
    }
    this.#leave();
    this.#parts.caller.respond(undefined);
  }

  /** The call that the request has become. */
  get call(): Call | undefined {
    return this.#call;
  }

  expire(): void {
    this.#leave();
    const { request, caller, kind, name, timeout } = this.#parts;
    const noun = KIND_NOUNS[kind].replace(/^./, (letter) => letter.toUpperCase());
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
    for (const [connection, visitor] of this.#visits) connection.cancelWait(visitor);
    this.#visits.clear();
  }
}
