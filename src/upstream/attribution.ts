import { membersAt, readRelated } from "../protocol/tasks.ts";
import type { Notification, Request } from "../wire/jsonrpc.ts";
import type { Attendee, Audience } from "./audience.ts";
import type { Jobs } from "./job.ts";
import type { PendingTable } from "./pending.ts";

/**
 * Finds the client to which a server's request or log line belongs that does not say so itself. It is known if every request
 * of the other clients on the connection has been answered; a client without open requests does not count.
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

  /** Whether more than one client uses the connection now. */
  get isShared(): boolean {
    return this.#audience.clients().length > 1;
  }

  /** The client to which such a message can only belong. One that names a task which is not known may be about any client's. */
  of({ bytes, params }: Notification | Request): Attendee | undefined {
    const isLost = this.isShared && readRelated(bytes, membersAt(bytes, params)) !== undefined;
    return isLost ? undefined : this.client;
  }

  /** The one client to which it can belong; undefined if it can belong to several, or to none. */
  get client(): Attendee | undefined {
    const present = this.#audience.clients();
    const open = this.#pending.clients;
    if (!this.#jobs.isEmpty) {
      for (const { isOver, origin } of this.#jobs.all) if (!isOver) open.add(origin.client);
    }
    // A plugin works for whoever is there.
    if (present.length === 1) open.delete(undefined);
    const [client, ...others] = open.size > 0 ? open : present;
    if (client === undefined || others.length > 0) return undefined;
    return this.#pending.isOpenForOthers(client.id) ? undefined : client;
  }
}
