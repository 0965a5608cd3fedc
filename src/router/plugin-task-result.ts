import type { Edit } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import type { Era } from "../protocol/modern.ts";
import type { ClientDeclaration, ServerRequest } from "../upstream/profile.ts";
import type { CreatedTask, ServerTask } from "../upstream/tasks.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { Session } from "../upstream/session.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { buildError, type EncodedMessage, joinMessage, type Response } from "../jsonrpc/message.ts";
import type { CallContext, Caller, Call } from "./call.ts";

/** The object that passes the server's response to the plugins. */
interface ResultReceiver {
  onResponse(response: Response): void;
  fail(error: HubError): void;
}

/** Registers the task that a response announces; returns undefined if the response announces none. */
type RegisterTask = (session: Session, response: Response) => CreatedTask | undefined;

/**
 * A task-augmented call that plugins see. The client is answered when the task is created; for the plugins the call
 * goes on until the task's result is there, and their answer is what the client gets from `tasks/result`.
 */
export class TaskResultPluginCall implements Caller {
  readonly #context: CallContext;
  readonly #registerTask: RegisterTask;
  #call: Call | undefined;
  /** The task and the request that waits for its result; undefined until the task is created. */
  #created:
    | { readonly request: ResultReceiver; readonly task: ServerTask; readonly session: Session }
    | undefined;
  #isDelivered = false;
  #finalResponse: Response | undefined;
  readonly #callbacks: ((final: Response) => void)[] = [];

  constructor(context: CallContext, registerTask: RegisterTask) {
    this.#context = context;
    this.#registerTask = registerTask;
  }

  /** A call log that ignores what comes after the task's creation: the call's end is logged then, not at the answer. */
  get callLog(): CallContext["callLog"] {
    const { callLog } = this.#context;
    const isTaskCreated = (): boolean => this.#created !== undefined;
    return {
      nextNumber: () => callLog.nextNumber(),
      logStart: (call, route) => callLog.logStart(call, route),
      logEnd: (call, end) => {
        if (!isTaskCreated()) callLog.logEnd(call, end);
      },
      get hasSubscribers() {
        return callLog.hasSubscribers;
      },
    };
  }

  /** Whether the plugins have received the result, or have answered. */
  get isDecided(): boolean {
    return this.#isDelivered || this.#finalResponse !== undefined;
  }

  setCall(call: Call): void {
    this.#call = call;
  }

  /**
   * Looks for a created task in the response of a request.
   * @returns whether there is one, so that the request is not finished yet
   */
  detectTask(request: ResultReceiver, session: Session, response: Response): boolean {
    if (this.#created !== undefined)
      return request !== this.#created.request && rejectSecondTask(request, session, response);
    const { callLog, caller } = this.#context;
    const created = this.#registerTask(session, response);
    if (created === undefined || this.#call === undefined) return false;
    this.#call.removeDeadline();
    if (callLog.hasSubscribers) callLog.logEnd(this.#call.describe(), "answered");
    this.#created = { request, session, task: created.task };
    caller.respond(caller.toClientMessage(created.response, session.era));
    return true;
  }

  /** Gives the task's result to the plugins; `callback` is called with their answer. */
  deliver(result: Response, callback: (final: Response) => void): void {
    this.onFinalResponse(callback);
    this.#deliverOnce((trip) => trip.onResponse(result));
  }

  /** Calls back with the plugins' answer. */
  onFinalResponse(callback: (final: Response) => void): void {
    if (this.#finalResponse === undefined) this.#callbacks.push(callback);
    else callback(this.#finalResponse);
  }

  /** The task will have no result: the plugins get the error `cause`. */
  fail(cause: HubError): void {
    this.#deliverOnce((trip) => trip.fail(cause));
  }

  /** The result cannot be requested any more. */
  cancel(): void {
    if (this.#call?.isOver === false) this.#call.cancel("Nobody waits for it.", "disconnect");
  }

  get sender(): ClientDeclaration {
    return this.#context.caller.sender;
  }

  toClientMessage(response: Response, from: Era, edits?: readonly Edit[]): EncodedMessage {
    return this.#context.caller.toClientMessage(response, from, edits);
  }

  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void {
    return this.#context.caller.sendServerRequest(request);
  }

  respond(message: EncodedMessage | undefined): void {
    if (this.#created === undefined) {
      this.#context.caller.respond(message);
      return;
    }
    const { session, task } = this.#created;
    // If plugins answer without waiting for the result, the task is cancelled.
    if (!this.#isDelivered && message !== undefined) session.serverTasks.cancel(task);
    const final = parseMessage(joinMessage(message ?? this.#buildEndError()));
    if (final.kind !== "response") return;
    this.#finalResponse = final;
    for (const callback of this.#callbacks.splice(0)) callback(final);
  }

  notify(message: EncodedMessage): void {
    this.#context.caller.notify(message);
  }

  /** Passes the task's outcome to the plugins, once; a new deadline limits how long they take. */
  #deliverOnce(deliver: (trip: ResultReceiver) => void): void {
    if (this.isDecided || this.#created === undefined) return;
    this.#isDelivered = true;
    this.#call?.resetDeadline();
    deliver(this.#created.request);
  }

  #buildEndError(): EncodedMessage {
    const error = new HubError("cancelled", "The task was forgotten.");
    return buildError(this.#context.request.id, error.toRpc());
  }
}

/** A call has at most one task, the first; any further task is cancelled. */
function rejectSecondTask(request: ResultReceiver, session: Session, response: Response): boolean {
  if (!session.serverTasks.cancelCreated(response)) return false;
  request.fail(new HubError("notSupported", "A call that has become a task is not sent again."));
  return true;
}
