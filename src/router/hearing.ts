import type { ByteRange } from "../base/bytes.ts";
import { readTicket } from "../protocol/extension.ts";
import { membersAt, type Mention } from "../protocol/tasks.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import type { Session } from "../upstream/session.ts";
import type { ModernServerTasks, TaskWatcher } from "../upstream/ticket.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { type EncodedMessage, type Notification, bytesOf } from "../jsonrpc/message.ts";
import { nameInputs, readInputs } from "./input-required.ts";
import { type Keeping, type Kept, resultIn } from "./modern-tasks.ts";
import type { Links } from "./links.ts";

/** Callbacks of the subscriber. */
export interface HearingEvents {
  /** Whether the server sends notifications of the task. Called at most once. */
  settled(isAgreed: boolean): void;
  /** The task's status has changed. */
  told(message: EncodedMessage): void;
}

/** A modern client's subscription to the notifications of one task. */
export class Hearing implements SessionWaiter, TaskWatcher {
  readonly #kept: Kept;
  readonly #keeping: Keeping;
  readonly #events: HearingEvents;
  readonly #left = new AbortController();
  readonly #links: Links;
  #tickets: ModernServerTasks | undefined;

  constructor(kept: Kept, keeping: Keeping, links: Links, events: HearingEvents) {
    this.#kept = kept;
    this.#keeping = keeping;
    this.#links = links;
    this.#events = events;
  }

  begin(): void {
    this.#kept.connection.withSession(this);
  }

  enter(session: Session): void {
    const { remoteId } = this.#kept.ticket;
    this.#tickets = session.subscriptions?.tickets;
    if (this.#tickets === undefined) {
      this.fail();
      return;
    }
    this.#tickets.watch(remoteId, this);
    session.subscribe(remoteId, this.#left.signal, "task").then(
      () => this.#events.settled(true),
      () => this.fail(),
    );
  }

  fail(): void {
    if (this.#left.signal.aborted) return;
    this.stop();
    this.#events.settled(false);
  }

  told(notification: Notification, task: Mention): void {
    const { ticket, route } = this.#kept;
    const { bytes, params } = notification;
    const members = membersAt(bytes, params);
    this.#keeping.note(this.#kept, readTicket(bytes, members));
    const result = resultIn(bytes, members);
    if (result !== undefined) this.#links.learn(route.server, result);
    const names = nameInputs(route.server, this.#read(bytes, params));
    this.#events.told(
      bytesOf(applyMessageEdits(notification, [...ticket.toOwnId(task), ...names])),
    );
  }

  /** Ends the subscription. */
  stop(): void {
    this.#left.abort();
    this.#kept.connection.cancelWait(this);
    this.#tickets?.unwatch(this.#kept.ticket.remoteId, this);
    this.#tickets = undefined;
  }

  #read(bytes: Buffer, params: ByteRange | undefined): Parameters<typeof nameInputs>[1] {
    return (params && readInputs({ bytes, body: params })) ?? { bytes, inputs: [] };
  }
}
