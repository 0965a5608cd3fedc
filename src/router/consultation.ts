import type { HubError } from "../base/errors.ts";
import { lastMember, scanObject } from "../base/json.ts";
import { readModernTask, ModernTaskMethod } from "../protocol/extension.ts";
import { membersAt, readTask } from "../protocol/tasks.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import { readProgressTokens } from "../protocol/notifications.ts";
import type { PendingRequest } from "../upstream/pending.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { readId } from "../jsonrpc/id.ts";
import type { EncodedMessage, Response } from "../jsonrpc/message.ts";
import { Call, type SessionCallContext } from "./call.ts";
import { prefixInputNames, readInputs } from "./input-required.ts";
import type { ClientRequestContext } from "./inquiry.ts";
import { type ModernClientTasks, type ModernTaskEntry, resultOfTask } from "./modern-tasks.ts";
import { notReadyReason, deadlineError } from "./timeouts.ts";
import { type CallEnd, silentCallLog } from "./ledger.ts";
import { isRetryable, Retry } from "./retry.ts";
import { retryEditsOf } from "./rounds.ts";

/** A modern client's request about a task, sent over the connection that has the task. */
export class ModernTaskRequest
  extends Call<SessionCallContext>
  implements PendingRequest, SessionWaiter
{
  readonly method: string;
  readonly isRelayed = true;
  /** The server's id of the task. */
  readonly name: string;
  readonly #entry: ModernTaskEntry;
  readonly #tasks: ModernClientTasks;
  #sent: { readonly session: Session; readonly id: number } | undefined;
  /** Created at the first retry; stdio transports never retry. */
  #createdRetry: Retry | undefined;

  /** @throws {HubError} invalidParams if the client has no such task */
  constructor(context: ClientRequestContext, tasks: ModernClientTasks) {
    const { request, view, callLog } = context;
    const { bytes } = request;
    const members = membersAt(bytes, request.params);
    const task = readTask(bytes, members);
    const entry = tasks.find(task?.id, view);
    const tokens = readProgressTokens(bytes, members);
    const last = tokens.at(-1);
    super({
      ...context,
      route: entry.route,
      connection: entry.connection,
      callLog: silentCallLog(callLog),
      token: last && readId(bytes, last),
      rewrite: { edits: entry.task.toRemoteId(task), tokens },
    });
    this.method = request.method;
    this.name = entry.task.remoteId;
    this.#entry = entry;
    this.#tasks = tasks;
  }

  get sender(): ClientDeclaration {
    return this.context.caller.sender;
  }

  onSession(session: Session): void {
    if (this.isOver) return;
    const { request, rewrite } = this.context;
    const ownRewrite = session.mayRepeat ? retryEditsOf(rewrite, undefined) : rewrite;
    this.#sent = { session, id: session.relay(this, request, ownRewrite) };
  }

  override fail(error: HubError): void {
    const cause =
      this.#sent !== undefined && isRetryable(error) ? this.#retry.handleError(error) : error;
    if (cause === undefined) this.#sent = undefined;
    else super.fail(cause);
  }

  onResponse(response: Response): void {
    const { session } = this.#sent ?? {};
    if (session === undefined || this.isOver) return;
    const { caller } = this.context;
    const isStatus = response.outcome === "result" && this.method === ModernTaskMethod.get;
    const answer = isStatus ? this.#readStatus(session, response) : response;
    const members = isStatus ? scanObject(answer.bytes, answer.body.start)?.items : undefined;
    const result = lastMember(members ?? [], "result");
    const renamed = result === undefined ? answer : this.renameUris(answer, result);
    this.finish(caller.toClientMessage(renamed, session.era), "answered");
  }

  override expire(): void {
    this.cancelUpstream("It took too long.");
    this.fail(deadlineError(this.context));
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    this.#createdRetry?.cancel();
    super.finish(message, end);
  }

  protected start(): void {
    this.context.connection.withSession(this);
  }

  protected cancelUpstream(reason: CancelReason): void {
    if (this.#sent === undefined) this.context.connection.cancelWait(this);
    else this.#sent.session.cancel(this.#sent.id, reason);
  }

  protected waitReason(seconds: number): string | undefined {
    return this.#sent === undefined ? notReadyReason(seconds, this.context.connection) : undefined;
  }

  get #retry(): Retry {
    const { deadlines, connection, route } = this.context;
    const { method } = this;
    const resend = (): void => connection.withSession(this);
    this.#createdRetry ??= new Retry({ deadlines, connection, route, method, resend });
    return this.#createdRetry;
  }

  /** The task's status as the client gets it: with the hub's ids and URIs. */
  #readStatus(session: Session, response: Response): Response {
    const { task, route } = this.#entry;
    const { bytes, body } = response;
    const members = membersAt(bytes, body);
    this.#tasks.recordStatus(this.#entry, readModernTask(bytes, members));
    const result = resultOfTask(bytes, members);
    if (result !== undefined) this.recordLinks(session, result);
    const required = readInputs({ bytes, body });
    const names = required === undefined ? [] : prefixInputNames(route.server, required);
    return applyMessageEdits(response, [...task.toOwnId(readTask(bytes, members)), ...names]);
  }
}
