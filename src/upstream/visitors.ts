import { type HubError, toHubError } from "../base/errors.ts";
import type { ClientRequest } from "./audience.ts";
import type { Session } from "./session.ts";

/** Somebody who needs the session: gets it when it is there, or the reason why it will not be. */
export interface SessionWaiter {
  /** The client's request that it is about. */
  readonly occasion?: ClientRequest;
  onSession(session: Session): void;
  fail(error: HubError): void;
}

/** Those who wait for a session. Each is told once, and may come again at once. One that throws fails alone. */
export class SessionWaiters {
  readonly #waiting = new Set<SessionWaiter>();
  /** Takes what a visitor has thrown. */
  readonly #broke: (error: HubError) => void;

  constructor(broke: (error: HubError) => void) {
    this.#broke = broke;
  }

  add(visitor: SessionWaiter): void {
    this.#waiting.add(visitor);
  }

  /** @returns whether it has waited */
  delete(visitor: SessionWaiter): boolean {
    return this.#waiting.delete(visitor);
  }

  /** The one client's request that waits; undefined if there are several clients, or none. */
  get occasion(): ClientRequest | undefined {
    const occasions = [...this.#waiting].flatMap(({ occasion }) => occasion ?? []);
    const [first, ...others] = occasions;
    return others.every(({ channel: attendee }) => attendee === first?.channel) ? first : undefined;
  }

  enter(session: Session): void {
    this.#tell((visitor) => visitor.onSession(session));
  }

  /** Brings one that need not wait to the session. */
  admit(visitor: SessionWaiter, session: Session): void {
    try {
      visitor.onSession(session);
    } catch (thrown) {
      this.#end(visitor, toHubError(thrown));
    }
  }

  fail(error: HubError): void {
    this.#tell((visitor) => visitor.fail(error));
  }

  /** Sends all elsewhere. */
  send(to: (visitor: SessionWaiter) => void): void {
    this.#tell(to);
  }

  #tell(how: (visitor: SessionWaiter) => void): void {
    const visitors = [...this.#waiting];
    this.#waiting.clear();
    for (const visitor of visitors) {
      try {
        how(visitor);
      } catch (thrown) {
        this.#end(visitor, toHubError(thrown));
      }
    }
  }

  #end(visitor: SessionWaiter, error: HubError): void {
    this.#broke(error);
    try {
      visitor.fail(error);
    } catch (thrown) {
      this.#broke(toHubError(thrown));
    }
  }
}
