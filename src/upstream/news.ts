import type { Kind } from "../catalog/listing.ts";
import { ModernTaskMethod } from "../protocol/extension.ts";
import { Method } from "../protocol/legacy.ts";
import type { Notification, Request } from "../jsonrpc/message.ts";
import type { Dialect } from "./dialects.ts";
import type { ServerTask, ServerTasks } from "./tasks.ts";
import { readProgress } from "../protocol/notifications.ts";
import type { SentRequest } from "../transport/transport.ts";
import type { PendingRequest, PendingRequests } from "./pending.ts";
import type { Subscriptions } from "./subscriptions.ts";
import type { ServerNotifications } from "./notifications.ts";

/** Whom a server's news may concern. */
export interface IncomingNotificationsOptions {
  readonly pending: PendingRequests;
  readonly jobs: ServerTasks;
  readonly voice: ServerNotifications;
  dialect(): Dialect | undefined;
  subscriptions(): Subscriptions | undefined;
  /** What it lists of these kinds may be another. */
  listChanged(kinds: readonly Kind[]): void;
}

/** What one server sends without having been asked, on its way to those whom it concerns. */
export class IncomingNotifications {
  readonly #parts: IncomingNotificationsOptions;

  constructor(parts: IncomingNotificationsOptions) {
    this.#parts = parts;
  }

  /** @param exchange the request on whose stream it came, where the link can tell */
  asked(request: Request, exchange: SentRequest | undefined): void {
    const { jobs, voice, pending } = this.#parts;
    const job = jobs.isEmpty ? undefined : jobs.taskOfMessage(request);
    const record = exchange && pending.at(exchange);
    voice.asked(job === undefined ? request : job.withOwnId(request), job, record);
  }

  notified(raw: Notification, exchange: SentRequest | undefined): void {
    const { pending, jobs } = this.#parts;
    const job = jobs.isEmpty ? undefined : jobs.taskOfMessage(raw);
    const notification = job === undefined ? raw : job.withOwnId(raw);
    switch (notification.method) {
      case Method.progress: {
        const progress = readProgress(notification);
        if (progress === undefined) return;
        const { id, tokens } = progress;
        // The token of a call that became a task is good for as long as the task.
        (pending.get(id) ?? jobs.byCall(id))?.onProgress(notification, tokens);
        return;
      }
      case Method.toolsListChanged:
        this.#parts.listChanged(["tools"]);
        return;
      case Method.promptsListChanged:
        this.#parts.listChanged(["prompts"]);
        return;
      case Method.resourcesListChanged:
        this.#parts.listChanged(["resources", "resourceTemplates", "skills"]);
        return;
      case Method.resourceUpdated:
        this.#parts.subscriptions()?.updated(this.#strip(notification));
        return;
      case ModernTaskMethod.changed:
        this.#parts.subscriptions()?.tickets.told(this.#strip(notification));
        return;
      default:
        this.#say(notification, job, exchange && pending.at(exchange));
    }
  }

  /** For a while nothing was heard of changes of these kinds, nor of those of resources. */
  missed(kinds: readonly Kind[]): void {
    this.#parts.listChanged(kinds);
    this.#parts.subscriptions()?.missed();
  }

  #say(
    notification: Notification,
    job: ServerTask | undefined,
    record: PendingRequest | undefined,
  ): void {
    if (this.#parts.dialect()?.hear(notification, record) === true) return;
    this.#parts.voice.notified(notification, job, record);
  }

  #strip(notification: Notification): Notification {
    return this.#parts.dialect()?.strip(notification) ?? notification;
  }
}
