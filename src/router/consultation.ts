import type { HubError } from "../base/errors.ts";
import { lastMember, scanObject } from "../base/json.ts";
import { readTicket, TicketMethod } from "../protocol/extension.ts";
import { membersAt, readTask } from "../protocol/tasks.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import { readTokens } from "../protocol/notifications.ts";
import type { PendingRequest } from "../upstream/pending.ts";
import type { Withdrawal } from "../protocol/withdrawal.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { readId } from "../jsonrpc/id.ts";
import type { EncodedMessage, Response } from "../jsonrpc/message.ts";
import { Call, type CallParts } from "./call.ts";
import { nameInputs, readInputs } from "./input-required.ts";
import type { Common } from "./inquiry.ts";
import { type Keeping, type Kept, resultIn } from "./modern-tasks.ts";
import { explainUnready, lateError } from "./timeouts.ts";
import { type CallEnd, silence } from "./ledger.ts";
import { isUnanswered, Replay } from "./retry.ts";
import { repeat } from "./rounds.ts";

/** A modern client's request about a task, sent over the connection that has the task. */
export class Consultation extends Call<CallParts> implements PendingRequest, SessionWaiter {
  readonly method: string;
  readonly isRelayed = true;
  /** The server's id of the task. */
  readonly name: string;
  readonly #kept: Kept;
  readonly #keeping: Keeping;
  #sent: { readonly session: Session; readonly id: number } | undefined;
  /** Created at the first retry; stdio transports never retry. */
  #replay: Replay | undefined;

  /** @throws {HubError} invalidParams if the client has no such task */
  constructor(common: Common, keeping: Keeping) {
    const { request, view, ledger } = common;
    const { bytes } = request;
    const members = membersAt(bytes, request.params);
    const task = readTask(bytes, members);
    const kept = keeping.find(task?.id, view);
    const tokens = readTokens(bytes, members);
    const last = tokens.at(-1);
    super({
      ...common,
      route: kept.route,
      connection: kept.connection,
      ledger: silence(ledger),
      token: last && readId(bytes, last),
      rewrite: { edits: kept.ticket.toRemoteId(task), tokens },
    });
    this.method = request.method;
    this.name = kept.ticket.remoteId;
    this.#kept = kept;
    this.#keeping = keeping;
  }

  get sender(): ClientDeclaration {
    return this.parts.caller.sender;
  }

  enter(session: Session): void {
    if (this.isOver) return;
    const { request, rewrite } = this.parts;
    const own = session.mayRepeat ? repeat(rewrite, undefined) : rewrite;
    this.#sent = { session, id: session.relay(this, request, own) };
  }

  override fail(error: HubError): void {
    const cause =
      this.#sent !== undefined && isUnanswered(error) ? this.#again.refuse(error) : error;
    if (cause === undefined) this.#sent = undefined;
    else super.fail(cause);
  }

  settle(response: Response): void {
    const { session } = this.#sent ?? {};
    if (session === undefined || this.isOver) return;
    const { caller } = this.parts;
    const isSeen = response.outcome === "result" && this.method === TicketMethod.get;
    const answer = isSeen ? this.#read(session, response) : response;
    const members = isSeen ? scanObject(answer.bytes, answer.body.start)?.items : undefined;
    const result = lastMember(members ?? [], "result");
    const named = result === undefined ? answer : this.renameUris(answer, result);
    this.finish(caller.address(named, session.era), "answered");
  }

  override expire(): void {
    this.withdraw("It took too long.");
    this.fail(lateError(this.parts));
  }

  protected override finish(message: EncodedMessage | undefined, end: CallEnd): void {
    this.#replay?.end();
    super.finish(message, end);
  }

  protected begin(): void {
    this.parts.connection.withSession(this);
  }

  protected withdraw(why: Withdrawal): void {
    if (this.#sent === undefined) this.parts.connection.cancelWait(this);
    else this.#sent.session.cancel(this.#sent.id, why);
  }

  protected explainWait(seconds: number): string | undefined {
    return this.#sent === undefined ? explainUnready(seconds, this.parts.connection) : undefined;
  }

  get #again(): Replay {
    const { deadlines, connection, route } = this.parts;
    const { method } = this;
    const again = (): void => connection.withSession(this);
    this.#replay ??= new Replay({ deadlines, connection, route, method, again });
    return this.#replay;
  }

  /** The task's status as the client gets it: with the hub's ids and URIs. */
  #read(session: Session, response: Response): Response {
    const { ticket, route } = this.#kept;
    const { bytes, body } = response;
    const members = membersAt(bytes, body);
    this.#keeping.note(this.#kept, readTicket(bytes, members));
    const result = resultIn(bytes, members);
    if (result !== undefined) this.learn(session, result);
    const required = readInputs({ bytes, body });
    const names = required === undefined ? [] : nameInputs(route.server, required);
    return applyMessageEdits(response, [...ticket.toOwnId(readTask(bytes, members)), ...names]);
  }
}
