import type { Buffer } from "node:buffer";
import type { Clock } from "../clock.ts";
import { HubError } from "../errors.ts";
import { lastMember, type Member } from "../json.ts";
import { sessionOf } from "../upstream/account.ts";
import { cancelTicket, readMade, Ticket, type Tickets } from "../upstream/ticket.ts";
import type { View } from "../upstream/view.ts";
import { revise } from "../wire/frame.ts";
import type { Response } from "../wire/jsonrpc.ts";
import type { TicketStanding } from "../protocol/extension.ts";
import type { Place } from "./call.ts";

/** So many tasks of a client are remembered: those that have ended make place for new ones. */
const MOST = 1024;
/** How often those are forgotten that nobody need know any more, in ms. */
const INTERVAL = 60_000;

/** One of them, and the connection that has it. */
export interface Kept extends Pick<Place, "connection" | "route"> {
  readonly ticket: Ticket;
  /** Those of its server that have not ended. */
  readonly open: Tickets | undefined;
  /** Who has begun it. */
  readonly owner: object;
}

/** The result that an object says a task to have, as if it had come by itself. */
export function resultIn(bytes: Buffer, members: readonly Member[]): Response | undefined {
  const body = lastMember(members, "result");
  if (body === undefined) return undefined;
  const { start, end } = body;
  const shape = { at: "scanned", ids: [] } as const;
  return { kind: "response", bytes, start, end, id: undefined, outcome: "result", body, shape };
}

/** The tasks at servers of the modern era that one client has begun: whoever knows the id of one may ask for it, and nobody else. */
export class Keeping {
  readonly #clock: Clock;
  /** By the hub's ids, the oldest first. */
  readonly #kept = new Map<string, Kept>();
  #count = 0;
  #disarm: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Takes note of the task that an answer is. @returns the answer as the client is to know it @throws {HubError} invalidRequest */
  add(answer: Response, { session, connection, route }: Place, owner: object): Response {
    const { server } = route;
    const made = readMade(answer);
    if (made === undefined) {
      const text = `Server "${server}" has made a task of the call, but does not say which.`;
      throw new HubError("internal", text, { server });
    }
    const { task, standing } = made;
    if (!this.#hasRoom()) {
      cancelTicket(session, task.id);
      throw new HubError("invalidRequest", `${MOST} tasks of this client have not ended.`);
    }
    const ticket = new Ticket(task.id, ++this.#count, standing, this.#clock.now());
    const open = session.subscriptions?.tickets;
    if (!ticket.isOver) open?.open(ticket);
    this.#kept.set(ticket.id, { ticket, connection, route, open, owner });
    this.#watch();
    return revise(answer, ticket.expose(task));
  }

  /** @throws {HubError} invalidParams if there is none of that id among what the client has to do with */
  find(id: string | undefined, view: View): Kept {
    const kept = id === undefined ? undefined : this.#kept.get(id);
    const now = kept && view.connection(kept.route.server);
    if (kept === undefined || now === undefined) {
      throw new HubError("invalidParams", "There is no task of that id.");
    }
    // One that was stopped may have left the task to another process of its server.
    return kept.connection.mayRun ? kept : { ...kept, connection: now };
  }

  /** Its server has said how it stands. */
  note({ ticket, open }: Kept, standing: TicketStanding): void {
    ticket.note(standing, this.#clock.now());
    if (ticket.isOver) open?.close(ticket);
  }

  /** Whether something that was begun for it has not ended. */
  isBusy(owner: object): boolean {
    for (const kept of this.#kept.values()) {
      if (kept.owner === owner && !kept.ticket.isOver) return true;
    }
    return false;
  }

  /** The client is gone: nobody else can ask for what has not ended. */
  close(): void {
    this.#disarm?.();
    for (const kept of this.#kept.values()) {
      const session = sessionOf(kept.connection.state);
      if (!kept.ticket.isOver && session !== undefined) cancelTicket(session, kept.ticket.remoteId);
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
