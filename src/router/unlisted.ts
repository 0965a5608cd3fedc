import { count } from "../base/format.ts";
import { KIND_NOUNS, type Kind } from "../catalog/listing.ts";
import { type HubError, toHubError } from "../base/errors.ts";
import type { CancelledBy } from "../base/hub-events.ts";
import { type Connection, serverStoppedError, type SessionWaiter } from "../upstream/connection.ts";
import type { ClientView } from "../views/client-view.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import { buildError, type Request } from "../jsonrpc/message.ts";
import type { Caller, Call } from "./call.ts";
import type { Deadlines, DeadlineTarget } from "./deadlines.ts";
import { deadlineAnswer, isResultFor, lostAnswer } from "./timeouts.ts";

export interface UnlistedRequestOptions {
  readonly request: Request;
  readonly caller: Caller;
  readonly kind: Kind;
  /** The exposed name. */
  readonly name: string;
  /** The servers that may have the item, but whose listings are not known yet. */
  readonly connections: readonly Connection[];
  readonly view: ClientView;
  /**
   * Returns the call if the name has been listed.
   * @param isLast whether no other listing is awaited. If so, resource links, templates or the scheme may locate a
   * resource
   * @throws {HubError} if the name is ambiguous or the request invalid
   */
  find(isLast: boolean): Call | undefined;
  /** Makes the error that is reported if no server has the name. */
  readonly notFoundError: () => HubError;
  /** Time at which the request arrived, in ms of the clock. `timeout`: in ms. */
  readonly startedAt: number;
  readonly timeout: number;
  readonly deadlines: Deadlines;
}

/**
 * A request for a name that is not listed yet. It starts the servers that may have the name, and becomes a call once
 * the name is listed.
 */
export class UnlistedRequest implements DeadlineTarget {
  readonly deadline: number;
  deadlineIndex: number | undefined;
  readonly #options: UnlistedRequestOptions;
  readonly #waiters = new Map<Connection, SessionWaiter>();
  /**
   * The error of a server that may have the name but did not start. If no server has the name, this error is more
   * useful than "unknown name".
   */
  #cause: HubError | undefined;
  #call: Call | undefined;

  constructor(options: UnlistedRequestOptions) {
    this.#options = options;
    this.deadline = options.startedAt + options.timeout;
  }

  run(): void {
    this.#options.deadlines.add(this);
    for (const connection of this.#options.connections)
      this.#waiters.set(connection, this.#waiterOf(connection));
    for (const [connection, waiter] of this.#waiters) connection.withSession(waiter);
  }

  cancel(reason: CancelReason, by: CancelledBy): void {
    if (this.#call !== undefined) {
      this.#call.cancel(reason, by);
      return;
    }
    this.#stopWaiting();
    this.#options.caller.respond(undefined);
  }

  get call(): Call | undefined {
    return this.#call;
  }

  expire(): void {
    this.#stopWaiting();
    const { request, caller, kind, name, timeout } = this.#options;
    const noun = KIND_NOUNS[kind].replace(/^./, (letter) => letter.toUpperCase());
    const text = `${noun} "${name}" was not called: no server that provides it was ready within ${count(timeout / 1000, "second")}. Try again later.`;
    caller.respond(deadlineAnswer(request, text));
  }

  #waiterOf(connection: Connection): SessionWaiter {
    return {
      onSession: () => this.#onSettled(connection),
      fail: (error) => {
        this.#cause ??= error;
        this.#onSettled(connection);
      },
      onRetired: () => {
        const next = this.#options.view.connection(connection.spec.name);
        if (next === undefined) {
          this.#cause ??= serverStoppedError(connection.spec.name);
          this.#onSettled(connection);
          return;
        }
        const waiter = this.#waiterOf(next);
        this.#waiters.delete(connection);
        this.#waiters.set(next, waiter);
        next.withSession(waiter);
      },
    };
  }

  #onSettled(connection: Connection): void {
    if (!this.#waiters.delete(connection)) return;
    const call = this.#find();
    if (call === undefined && this.#waiters.size > 0) return;
    this.#stopWaiting();
    if (call !== undefined) {
      this.#call = call;
      call.run();
      return;
    }
    const { request, caller, notFoundError } = this.#options;
    const error = this.#cause ?? notFoundError();
    const isResult = isResultFor(caller, error);
    caller.span?.setOutcome({ type: error.code, message: error.message });
    caller.respond(isResult ? lostAnswer(request, error) : buildError(request.id, error.toRpc()));
  }

  #find(): Call | undefined {
    try {
      return this.#options.find(this.#waiters.size === 0);
    } catch (error) {
      this.#cause = toHubError(error);
      return undefined;
    }
  }

  #stopWaiting(): void {
    const { caller, deadlines, startedAt } = this.#options;
    deadlines.remove(this);
    caller.span?.addWait("start", deadlines.now() - startedAt);
    for (const [connection, waiter] of this.#waiters) connection.cancelWait(waiter);
    this.#waiters.clear();
  }
}
