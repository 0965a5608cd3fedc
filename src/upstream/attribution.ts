import { membersAt, readRelated } from "../protocol/tasks.ts";
import type { Notification, Request } from "../jsonrpc/message.ts";
import type { Attendee, Audience } from "./audience.ts";
import type { Jobs } from "./tasks.ts";
import type { PendingTable } from "./pending.ts";

/**
 * Finds the client that a server's request or log message belongs to, where the message itself does not say. Only
 * certain if every other client's requests on the connection have been answered; clients without requests in flight do
 * not count.
 */
export class Attribution {
  readonly #audience: Audience;
  readonly #pending: PendingTable;
  readonly #jobs: Jobs;

  constructor(audience: Audience, pending: PendingTable, jobs: Jobs) {
    this.#audience = audience;
    this.#pending = pending;
    this.#jobs = jobs;
  }

  /** Whether the connection has more than one client now. */
  get isShared(): boolean {
    return this.#audience.clients().length > 1;
  }

  /**
   * The only client that the message can belong to. A message that names an unknown task may belong to any of several.
   */
  of({ bytes, params }: Notification | Request): Attendee | undefined {
    const isLost = this.isShared && readRelated(bytes, membersAt(bytes, params)) !== undefined;
    return isLost ? undefined : this.client;
  }

  /** The only client that a message can belong to now; undefined if there are several, or none. */
  get client(): Attendee | undefined {
    const present = this.#audience.clients();
    const open = this.#pending.clients;
    if (!this.#jobs.isEmpty) {
      for (const { isOver, origin } of this.#jobs.all) if (!isOver) open.add(origin.client);
    }
    // A plugin's request counts as the only client's.
    if (present.length === 1) open.delete(undefined);
    const [client, ...others] = open.size > 0 ? open : present;
    if (client === undefined || others.length > 0) return undefined;
    return this.#pending.isOpenForOthers(client.id) ? undefined : client;
  }
}
