import { type Notification, paramsOf, type Request } from "../jsonrpc/message.ts";
import type { Era } from "../protocol/modern.ts";
import type { LogLine } from "../protocol/notifications.ts";
import { readRelatedTaskReference } from "../protocol/tasks.ts";
import type { PendingRequest, PendingRequests } from "./pending.ts";
import type { ClientChannel, ConnectionClients } from "./profile.ts";
import type { ServerTasks, Task } from "./tasks.ts";

/** The facts about a server's message that help to find the client that it belongs to. */
export interface MessageOrigin {
  /** The task that the message names. */
  readonly task: Task | undefined;
  /** The request on whose response stream the message arrived; undefined if it arrived on no such stream. */
  readonly record: PendingRequest | undefined;
}

/**
 * Decides which client a server's message belongs to: the owner of the task that the message names; else the sender of
 * the request on whose response stream the message arrived; else the only possible client. If several clients are
 * possible, none gets the message.
 */
export class MessageAttribution {
  readonly #server: string;
  readonly #clients: ConnectionClients;
  readonly #pending: PendingRequests;
  readonly #tasks: ServerTasks;

  constructor(
    server: string,
    clients: ConnectionClients,
    pending: PendingRequests,
    tasks: ServerTasks,
  ) {
    this.#server = server;
    this.#clients = clients;
    this.#pending = pending;
    this.#tasks = tasks;
  }

  /**
   * Returns the client that a message belongs to; undefined if that is uncertain, there is no client, or the client
   * sees nothing of the server.
   */
  clientOf(
    message: Notification | Request,
    { task, record }: MessageOrigin,
  ): ClientChannel | undefined {
    const client =
      task?.origin.client ?? record?.clientRequest?.channel ?? this.#onlyClientFor(message);
    return client !== undefined && this.isSeenBy(client) ? client : undefined;
  }

  /** Whether a client sees anything of the server. If not, the server's messages do not reach it. */
  isSeenBy(client: ClientChannel): boolean {
    return client.sees(this.#server) === true;
  }

  /** Whether it depends on the server's listing, which is not known yet, if a client sees anything of the server. */
  get isUndecided(): boolean {
    return this.#clients.current().some((client) => client.sees(this.#server) === undefined);
  }

  /** Number of the connection's clients that see anything of the server. */
  get clientCount(): number {
    return this.#clients.current().filter((client) => this.isSeenBy(client)).length;
  }

  /**
   * Sends a log message to the client that it belongs to. If several clients share a legacy server's connection, a
   * message that names no task and belongs to no known request is sent only to clients that have set a log level. Over
   * stdio, a modern server's message is sent only if it can belong to a single client.
   */
  forwardLog(
    notification: Notification,
    { severity, message }: LogLine,
    { task, record }: MessageOrigin,
    era: Era,
  ): void {
    if (era === "modern") {
      (record ?? this.#pending.logRecipient)?.log?.(severity, message);
      return;
    }
    if (task === undefined && record?.log !== undefined) {
      record.log(severity, message);
      return;
    }
    const client = task?.origin.client ?? this.#onlyClientFor(notification);
    if (client === undefined || !this.isSeenBy(client)) return;
    if (task === undefined && client.level === undefined && this.#isShared) return;
    client.sendLogMessage(this.#server, severity, message);
  }

  get #isShared(): boolean {
    return this.#clients.current().length > 1;
  }

  /**
   * Returns the only client that a message can belong to; undefined if several clients are possible, or none. The
   * possible clients are those with a request in flight or an unfinished task; if there are none, all present clients
   * that see anything of the server.
   * On a shared connection, a message that names an unknown task may belong to any client.
   */
  #onlyClientFor(message: Notification | Request): ClientChannel | undefined {
    if (this.#isShared && readRelatedTaskReference(paramsOf(message)) !== undefined)
      return undefined;
    const present = this.#clients.current();
    const candidates = this.#pending.clients;
    for (const client of this.#tasks.clients) candidates.add(client);
    // In `candidates`, `undefined` stands for plugins. If only one client is present, the plugins' requests count as
    // that client's.
    if (present.length === 1) candidates.delete(undefined);
    const [client, ...others] =
      candidates.size > 0 ? candidates : present.filter((each) => this.isSeenBy(each));
    if (client === undefined || others.length > 0) return undefined;
    return this.#pending.isUnansweredForOthers(client.id) ? undefined : client;
  }
}
