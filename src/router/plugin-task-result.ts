import type { Edit } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import type { Era } from "../protocol/era.ts";
import type { ServerRequest } from "../upstream/ask.ts";
import type { CreatedTask, ServerTask } from "../upstream/tasks.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { buildError, type EncodedMessage, type Response, joinMessage } from "../jsonrpc/message.ts";
import type { Call, CallCore, Caller } from "./call.ts";

/** What delivers the server's response to the plugins. */
interface Journey {
  settle(response: Response): void;
  fail(error: HubError): void;
}

/** Registers the task that a response says was created; undefined if it created none. */
type Begin = (session: Session, response: Response) => CreatedTask | undefined;

/**
 * A task-augmented call that plugins see. The client is answered as soon as the task is created, but for the plugins
 * the call goes on: their answer is what the client gets from `tasks/result`.
 */
export class Detour implements Caller {
  readonly #parts: CallCore;
  readonly #begin: Begin;
  #call: Call | undefined;
  /** The task and the request that waits for its result; undefined until the task is created. */
  #begun:
    { readonly trip: Journey; readonly job: ServerTask; readonly session: Session } | undefined;
  #isDelivered = false;
  #final: Response | undefined;
  readonly #waiting: ((final: Response) => void)[] = [];

  constructor(parts: CallCore, begin: Begin) {
    this.#parts = parts;
    this.#begin = begin;
  }

  /** The call log, until the task is created: the call's end is logged then, not when the plugins answer. */
  get ledger(): CallCore["ledger"] {
    const { ledger } = this.#parts;
    const hasBegun = (): boolean => this.#begun !== undefined;
    return {
      next: () => ledger.next(),
      started: (call, route) => ledger.started(call, route),
      ended: (call, end) => {
        if (!hasBegun()) ledger.ended(call, end);
      },
      get isRead() {
        return ledger.isRead;
      },
    };
  }

  /** Whether the plugins have been given the result, or have answered. */
  get isDecided(): boolean {
    return this.#isDelivered || this.#final !== undefined;
  }

  attach(call: Call): void {
    this.#call = call;
  }

  /**
   * Looks for a created task in the response of a request.
   * @returns whether there is one, so that the request is not finished yet
   */
  takes(trip: Journey, session: Session, response: Response): boolean {
    if (this.#begun !== undefined)
      return trip !== this.#begun.trip && refuse(trip, session, response);
    const { ledger, caller } = this.#parts;
    const begun = this.#begin(session, response);
    if (begun === undefined || this.#call === undefined) return false;
    this.#call.suspend();
    if (ledger.isRead) ledger.ended(this.#call.describe(), "answered");
    this.#begun = { trip, session, job: begun.task };
    caller.respond(caller.address(begun.response, session.era));
    return true;
  }

  /** Gives the task's result to the plugins; `callback` is called with their answer. */
  deliver(result: Response, take: (final: Response) => void): void {
    this.wait(take);
    this.#decide((trip) => trip.settle(result));
  }

  /** Calls back with the plugins' answer. */
  wait(take: (final: Response) => void): void {
    if (this.#final === undefined) this.#waiting.push(take);
    else take(this.#final);
  }

  /** The task will have no result. */
  fail(cause: HubError): void {
    this.#decide((trip) => trip.fail(cause));
  }

  /** Nobody can request the result any more. */
  abandon(): void {
    if (this.#call?.isOver === false) this.#call.cancel("Nobody waits for it.", "disconnect");
  }

  get sender(): ClientDeclaration {
    return this.#parts.caller.sender;
  }

  address(response: Response, from: Era, edits?: readonly Edit[]): EncodedMessage {
    return this.#parts.caller.address(response, from, edits);
  }

  sendServerRequest(question: ServerRequest): (why: Withdrawal) => void {
    return this.#parts.caller.sendServerRequest(question);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#begun === undefined) {
      this.#parts.caller.respond(message);
      return;
    }
    const { session, job } = this.#begun;
    // An answer that plugins give without waiting for the result cancels the task.
    if (!this.#isDelivered && message !== undefined) session.jobs.cancel(job);
    const final = parseMessage(joinMessage(message ?? this.#explainEnd()));
    if (final.kind !== "response") return;
    this.#final = final;
    for (const take of this.#waiting.splice(0)) take(final);
  }

  notify(message: EncodedMessage): void {
    this.#parts.caller.notify(message);
  }

  /** From here on, the call's deadline applies to the plugins. */
  #decide(bring: (trip: Journey) => void): void {
    if (this.isDecided || this.#begun === undefined) return;
    this.#isDelivered = true;
    this.#call?.resume();
    bring(this.#begun.trip);
  }

  #explainEnd(): EncodedMessage {
    const error = new HubError("cancelled", "The task was forgotten.");
    return buildError(this.#parts.request.id, error.toRpc());
  }
}

/** A call has at most one task: the first. Any other is cancelled. */
function refuse(trip: Journey, session: Session, response: Response): boolean {
  if (!session.jobs.cancelCreated(response)) return false;
  trip.fail(new HubError("notSupported", "A call that has become a task is not sent again."));
  return true;
}
