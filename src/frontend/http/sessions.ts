import type { Clock } from "../../base/clock.ts";
import type { Deadlines } from "../../router/deadlines.ts";
import type { ServerSubset } from "../../upstream/scope.ts";
import type { Request as RpcRequest } from "../../jsonrpc/message.ts";
import type { Transport } from "../../transport/transport.ts";
import { type HttpAnswer, withHeaders } from "./http1/answer.ts";
import { errorAnswer } from "./errors.ts";
import type { AcceptedTypes } from "./post-response.ts";
import { SessionTransport } from "./session.ts";

/** How long a session may be unused, and how often that is checked, in ms. */
export const IDLE_LIMITS = { limit: 30 * 60_000, interval: 60_000 };

/** Maximum number of sessions. */
export const MAX_SESSIONS = 10_000;

export interface HttpSessionsOptions {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly maxSessions: number;
  /** Serves a client on a transport, with a subset of the servers. */
  accept(transport: Transport, subset: ServerSubset): Promise<void>;
}

/** All sessions, by id. */
export class HttpSessions {
  readonly #options: HttpSessionsOptions;
  readonly #sessions = new Map<string, SessionTransport>();
  /** Resolved when no request is in flight. */
  readonly #idleWaiters = new Set<() => void>();
  #cancelTimer: () => void;

  constructor(options: HttpSessionsOptions) {
    this.#options = options;
    this.#cancelTimer = this.#scheduleIdleCheck();
  }

  get size(): number {
    return this.#sessions.size;
  }

  get isFull(): boolean {
    return this.#sessions.size >= this.#options.maxSessions;
  }

  find(id: string): SessionTransport | undefined {
    return this.#sessions.get(id);
  }

  /** Opens a session for an `initialize`; it is closed again if that fails. */
  async create(
    request: RpcRequest,
    accepts: AcceptedTypes,
    subset: ServerSubset,
  ): Promise<HttpAnswer> {
    if (this.isFull) {
      const text = "There are as many sessions as there can be.";
      const headers = { "Retry-After": "60" };
      return errorAnswer(503, text, { code: "notReading", id: request.id, headers });
    }
    const session: SessionTransport = new SessionTransport({
      clock: this.#options.clock,
      deadlines: this.#options.deadlines,
      subset,
      onAnswered: () => this.#resolveIdle(),
      onEnd: () => {
        this.#sessions.delete(session.id);
        this.#resolveIdle();
      },
    });
    this.#sessions.set(session.id, session);
    // Settles when the session ends, or rejects before it has begun.
    void this.#options.accept(session, subset).catch(() => session.close());
    const answer = await session.receive(request, accepts);
    const hasFailed = session.version === undefined && session.inFlight === 0;
    if (!hasFailed) return withHeaders(answer, [["Mcp-Session-Id", session.id]]);
    await session.close();
    return answer;
  }

  /** Settles when no request of any session is in flight. */
  untilIdle(): Promise<void> {
    return new Promise((resolve) => {
      this.#idleWaiters.add(resolve);
      this.#resolveIdle();
    });
  }

  /** Ends all sessions. */
  async close(): Promise<void> {
    this.#cancelTimer();
    await Promise.all([...this.#sessions.values()].map((session) => session.close()));
  }

  #resolveIdle(): void {
    if (this.#idleWaiters.size === 0) return;
    for (const { inFlight } of this.#sessions.values()) if (inFlight > 0) return;
    for (const resolve of this.#idleWaiters) resolve();
    this.#idleWaiters.clear();
  }

  #scheduleIdleCheck(): () => void {
    return this.#options.clock.after(IDLE_LIMITS.interval, () => {
      const threshold = this.#options.clock.now() - IDLE_LIMITS.limit;
      for (const session of this.#sessions.values()) {
        session.prune();
        if ((session.idleSince ?? Infinity) <= threshold) void session.close();
      }
      this.#cancelTimer = this.#scheduleIdleCheck();
    });
  }
}
