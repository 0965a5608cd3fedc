import type { Clock } from "../../base/clock.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import type { ServerSubset } from "../../upstream/scope.ts";
import type { Request as RpcRequest } from "../../jsonrpc/message.ts";
import type { Transport } from "../../transport/transport.ts";
import { type Answer, withHeaders } from "./http1/answer.ts";
import { refuse } from "./errors.ts";
import type { Wants } from "./post-response.ts";
import { SessionLink } from "./session.ts";

/** How long a session may be unused, and how often that is checked, in ms. */
export const IDLE = { limit: 30 * 60_000, interval: 60_000 };

/** Maximum number of sessions. */
export const MOST_SESSIONS = 10_000;

export interface SessionsParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly most: number;
  /** Serves a client on a transport, with a subset of the servers. */
  accept(link: Transport, scope: ServerSubset): Promise<void>;
}

/** All sessions, by id. */
export class Sessions {
  readonly #parts: SessionsParts;
  readonly #sessions = new Map<string, SessionLink>();
  /** Resolved when no request is in flight. */
  readonly #waiting = new Set<() => void>();
  #disarm: () => void;

  constructor(parts: SessionsParts) {
    this.#parts = parts;
    this.#disarm = this.#watch();
  }

  get size(): number {
    return this.#sessions.size;
  }

  get isFull(): boolean {
    return this.#sessions.size >= this.#parts.most;
  }

  find(id: string): SessionLink | undefined {
    return this.#sessions.get(id);
  }

  /** Opens a session for an `initialize`; it is closed again if that fails. */
  async begin(frame: RpcRequest, wants: Wants, scope: ServerSubset): Promise<Answer> {
    if (this.isFull) {
      const text = "There are as many sessions as there can be.";
      const headers = { "Retry-After": "60" };
      return refuse(503, text, { code: "notReading", id: frame.id, headers });
    }
    const session: SessionLink = new SessionLink({
      clock: this.#parts.clock,
      deadlines: this.#parts.deadlines,
      scope,
      answered: () => this.#settle(),
      ended: () => {
        this.#sessions.delete(session.id);
        this.#settle();
      },
    });
    this.#sessions.set(session.id, session);
    // Settles when the session ends, or rejects before it has begun.
    void this.#parts.accept(session, scope).catch(() => session.close());
    const answer = await session.receive(frame, wants);
    const isLost = session.version === undefined && session.running === 0;
    if (!isLost) return withHeaders(answer, [["Mcp-Session-Id", session.id]]);
    await session.close();
    return answer;
  }

  /** Settles when no request of any session is in flight. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.add(resolve);
      this.#settle();
    });
  }

  /** Ends all sessions. */
  async close(): Promise<void> {
    this.#disarm();
    await Promise.all([...this.#sessions.values()].map((session) => session.close()));
  }

  #settle(): void {
    if (this.#waiting.size === 0) return;
    for (const { running } of this.#sessions.values()) if (running > 0) return;
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  #watch(): () => void {
    return this.#parts.clock.after(IDLE.interval, () => {
      const end = this.#parts.clock.now() - IDLE.limit;
      for (const session of this.#sessions.values()) {
        session.tidy();
        if ((session.idleSince ?? Infinity) <= end) void session.close();
      }
      this.#disarm = this.#watch();
    });
  }
}
