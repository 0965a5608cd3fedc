import type { HubError } from "../errors.ts";
import type { Occasion } from "./audience.ts";
import type { Session } from "./session.ts";

/** Somebody who needs the session: gets it when it is there, or the reason why it will not be. */
export interface Visitor {
  /** The client's request that it is about. */
  readonly occasion?: Occasion;
  enter(session: Session): void;
  fail(error: HubError): void;
}

/** Those who wait for a session. Each is told once, and may come again at once. */
export class Visitors {
  readonly #waiting = new Set<Visitor>();

  add(visitor: Visitor): void {
    this.#waiting.add(visitor);
  }

  /** @returns whether it has waited */
  delete(visitor: Visitor): boolean {
    return this.#waiting.delete(visitor);
  }

  /** The one client's request that waits; undefined if there are several clients, or none. */
  get occasion(): Occasion | undefined {
    const occasions = [...this.#waiting].flatMap(({ occasion }) => occasion ?? []);
    const [first, ...others] = occasions;
    return others.every(({ attendee }) => attendee === first?.attendee) ? first : undefined;
  }

  enter(session: Session): void {
    for (const visitor of this.#take()) visitor.enter(session);
  }

  fail(error: HubError): void {
    for (const visitor of this.#take()) visitor.fail(error);
  }

  /** Sends all elsewhere. */
  send(to: (visitor: Visitor) => void): void {
    for (const visitor of this.#take()) to(visitor);
  }

  #take(): readonly Visitor[] {
    const visitors = [...this.#waiting];
    this.#waiting.clear();
    return visitors;
  }
}
