import { readRelatedTaskReference } from "../protocol/tasks.ts";
import { type Notification, paramsOf, type Request } from "../jsonrpc/message.ts";
import type { ClientChannel, ConnectionClients } from "./profile.ts";
import type { ServerTasks } from "./tasks.ts";
import type { PendingRequests } from "./pending.ts";

/**
 * Finds the client that a server's request or log message belongs to, where the message itself does not name a request
 * or task. The answer is certain only if no other client has a request in flight on the connection.
 */
export class MessageAttribution {
  readonly #clients: ConnectionClients;
  readonly #pending: PendingRequests;
  readonly #tasks: ServerTasks;

  constructor(clients: ConnectionClients, pending: PendingRequests, tasks: ServerTasks) {
    this.#clients = clients;
    this.#pending = pending;
    this.#tasks = tasks;
  }

  /** Whether the connection has more than one client now. */
  get isShared(): boolean {
    return this.#clients.current().length > 1;
  }

  /**
   * The only client that the message can belong to; undefined if there are several, or none. If several clients share
   * the connection, a message that names an unknown task may belong to any of them.
   */
  clientOf(message: Notification | Request): ClientChannel | undefined {
    const isOfUnknownTask =
      this.isShared && readRelatedTaskReference(paramsOf(message)) !== undefined;
    return isOfUnknownTask ? undefined : this.onlyClient;
  }

  /** The only client that a message can belong to now; undefined if there are several, or none. */
  get onlyClient(): ClientChannel | undefined {
    const present = this.#clients.current();
    const candidates = this.#pending.clients;
    if (!this.#tasks.isEmpty) {
      for (const { isOver, origin } of this.#tasks.all) if (!isOver) candidates.add(origin.client);
    }
    // If only one client is present, a plugin's request counts as that client's.
    if (present.length === 1) candidates.delete(undefined);
    const [client, ...others] = candidates.size > 0 ? candidates : present;
    if (client === undefined || others.length > 0) return undefined;
    return this.#pending.isUnansweredForOthers(client.id) ? undefined : client;
  }
}
