import type { ByteRange } from "../base/bytes.ts";
import { readModernTask } from "../protocol/extension.ts";
import { membersAt, type TaskMention } from "../protocol/tasks.ts";
import type { SessionWaiter } from "../upstream/visitors.ts";
import type { Session } from "../upstream/session.ts";
import type { ModernServerTasks, TaskWatcher } from "../upstream/ticket.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import { type EncodedMessage, type Notification, bytesOf } from "../jsonrpc/message.ts";
import { prefixInputNames, readInputs } from "./input-required.ts";
import { type ModernClientTasks, type ModernTaskEntry, resultOfTask } from "./modern-tasks.ts";
import type { ResourceLinks } from "./links.ts";

/** Callbacks of the subscriber. */
export interface TaskSubscriptionEvents {
  /** Whether the server sends notifications of the task. Called at most once. */
  onSubscribeAnswer(isAccepted: boolean): void;
  /** The task's status has changed. */
  onNotification(message: EncodedMessage): void;
}

/** A modern client's subscription to the notifications of one task. */
export class TaskSubscription implements SessionWaiter, TaskWatcher {
  readonly #entry: ModernTaskEntry;
  readonly #tasks: ModernClientTasks;
  readonly #events: TaskSubscriptionEvents;
  readonly #abort = new AbortController();
  readonly #links: ResourceLinks;
  #serverTasks: ModernServerTasks | undefined;

  constructor(
    entry: ModernTaskEntry,
    tasks: ModernClientTasks,
    links: ResourceLinks,
    events: TaskSubscriptionEvents,
  ) {
    this.#entry = entry;
    this.#tasks = tasks;
    this.#links = links;
    this.#events = events;
  }

  start(): void {
    this.#entry.connection.withSession(this);
  }

  onSession(session: Session): void {
    const { remoteId } = this.#entry.task;
    this.#serverTasks = session.subscriptions?.tickets;
    if (this.#serverTasks === undefined) {
      this.fail();
      return;
    }
    this.#serverTasks.watch(remoteId, this);
    session.subscribe(remoteId, this.#abort.signal, "task").then(
      () => this.#events.onSubscribeAnswer(true),
      () => this.fail(),
    );
  }

  fail(): void {
    if (this.#abort.signal.aborted) return;
    this.stop();
    this.#events.onSubscribeAnswer(false);
  }

  onNotification(notification: Notification, task: TaskMention): void {
    const { task: ticket, route } = this.#entry;
    const { bytes, params } = notification;
    const members = membersAt(bytes, params);
    this.#tasks.recordStatus(this.#entry, readModernTask(bytes, members));
    const result = resultOfTask(bytes, members);
    if (result !== undefined) this.#links.record(route.server, result);
    const names = prefixInputNames(route.server, this.#readInputs(bytes, params));
    this.#events.onNotification(
      bytesOf(applyMessageEdits(notification, [...ticket.toOwnId(task), ...names])),
    );
  }

  /** Ends the subscription. */
  stop(): void {
    this.#abort.abort();
    this.#entry.connection.cancelWait(this);
    this.#serverTasks?.unwatch(this.#entry.task.remoteId, this);
    this.#serverTasks = undefined;
  }

  #readInputs(
    bytes: Buffer,
    params: ByteRange | undefined,
  ): Parameters<typeof prefixInputNames>[1] {
    return (params && readInputs({ bytes, body: params })) ?? { bytes, inputs: [] };
  }
}
