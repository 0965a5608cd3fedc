import type { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { lastMember, type JsonMember } from "../base/json.ts";
import { sessionOf } from "../upstream/account.ts";
import {
  cancelServerTask,
  readCreatedModernTask,
  ModernServerTask,
  type ModernServerTasks,
} from "../upstream/ticket.ts";
import type { ClientView } from "../upstream/view.ts";
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { TicketStanding } from "../protocol/extension.ts";
import type { Place } from "./call.ts";

/** Maximum number of remembered tasks per client; ended ones are dropped first. */
const MOST = 1024;
/** How often expired tasks are dropped, in ms. */
const INTERVAL = 60_000;

/** A task and the connection that has it. */
export interface Kept extends Pick<Place, "connection" | "route"> {
  readonly ticket: ModernServerTask;
  /** The open tasks of the server's session; undefined if it has none. */
  readonly open: ModernServerTasks | undefined;
  /** The client that began the task. */
  readonly owner: object;
}

/** The result embedded in a task's status, as a response of its own. */
export function resultIn(bytes: Buffer, members: readonly JsonMember[]): Response | undefined {
  const body = lastMember(members, "result");
  if (body === undefined) return undefined;
  const { start, end } = body;
  const shape = { kind: "scanned", ids: [] } as const;
  return { kind: "response", bytes, start, end, id: undefined, outcome: "result", body, shape };
}

/** The tasks at modern servers that one client has begun. Only that client can use their ids. */
export class Keeping {
  readonly #clock: Clock;
  /** By the hub's task ids, oldest first. */
  readonly #kept = new Map<string, Kept>();
  #count = 0;
  #disarm: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Registers the task that a result announces.
   * @returns the result with the hub's task id
   * @throws {HubError} invalidRequest if there are too many open tasks
   */
  add(answer: Response, { session, connection, route }: Place, owner: object): Response {
    const { server } = route;
    const made = readCreatedModernTask(answer);
    if (made === undefined) {
      const text = `Server "${server}" has made a task of the call, but does not say which.`;
      throw new HubError("internal", text, { server });
    }
    const { task, standing } = made;
    if (!this.#hasRoom()) {
      cancelServerTask(session, task.id);
      throw new HubError("invalidRequest", `${MOST} tasks of this client have not ended.`);
    }
    const ticket = new ModernServerTask(task.id, ++this.#count, standing, this.#clock.now());
    const open = session.subscriptions?.tickets;
    if (!ticket.isOver) open?.open(ticket);
    this.#kept.set(ticket.id, { ticket, connection, route, open, owner });
    this.#watch();
    return applyMessageEdits(answer, ticket.toOwnId(task));
  }

  /** @throws {HubError} invalidParams if the client has no task of that id, or the server is not visible to it */
  find(id: string | undefined, view: ClientView): Kept {
    const kept = id === undefined ? undefined : this.#kept.get(id);
    const now = kept && view.connection(kept.route.server);
    if (kept === undefined || now === undefined) {
      throw new HubError("invalidParams", "There is no task of that id.");
    }
    // If its connection was stopped, the task may live on at the server's current connection.
    return kept.connection.canStart ? kept : { ...kept, connection: now };
  }

  /** Stores the status that the server has reported. */
  note({ ticket, open }: Kept, standing: TicketStanding): void {
    ticket.note(standing, this.#clock.now());
    if (ticket.isOver) open?.close(ticket);
  }

  /** Whether that owner has a task that has not ended. */
  isBusy(owner: object): boolean {
    for (const kept of this.#kept.values()) {
      if (kept.owner === owner && !kept.ticket.isOver) return true;
    }
    return false;
  }

  /** The client is gone: cancels its open tasks. */
  close(): void {
    this.#disarm?.();
    for (const kept of this.#kept.values()) {
      const session = sessionOf(kept.connection.state);
      if (!kept.ticket.isOver && session !== undefined)
        cancelServerTask(session, kept.ticket.remoteId);
      this.#forget(kept);
    }
  }

  #hasRoom(): boolean {
    if (this.#kept.size < MOST) return true;
    const ended = [...this.#kept.values()].find(({ ticket }) => ticket.isOver);
    if (ended !== undefined) this.#forget(ended);
    return ended !== undefined;
  }

  #forget({ ticket, open }: Kept): void {
    this.#kept.delete(ticket.id);
    open?.close(ticket);
  }

  #watch(): void {
    this.#disarm ??= this.#clock.after(INTERVAL, () => {
      this.#disarm = undefined;
      const now = this.#clock.now();
      for (const kept of this.#kept.values()) if (kept.ticket.expiry <= now) this.#forget(kept);
      if (this.#kept.size > 0) this.#watch();
    });
  }
}
