import { count, nounFor } from "../base/format.ts";
import { randomBytes } from "node:crypto";
import type { OpenedAgent } from "../agent/agent.ts";
import type { AgentSession } from "../agent/session.ts";
import type { Toolbox } from "../agent/toolbox.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { ToolCall } from "../plugin/plugin.ts";

/** An agent that is ready for a conversation with a client. */
export interface ClientAgent extends OpenedAgent {
  /** The manifest or the file that the agent is of; see `ConversationHeader`. */
  readonly from: string;
  /** The tools of a run that is a part of a call. @param hub the hub's tools for that call */
  toolboxFor(call: ToolCall, hub: Toolbox): Toolbox;
}

/** A session of a client. */
export interface ClientSession {
  readonly id: string;
  /** Identifies the client that may use the session; equal for all sessions of one client. */
  readonly owner: string;
  /** The client of the token whose session it is, if it is kept. */
  readonly keptOf: string | undefined;
  /** A name for people. */
  readonly name: string | undefined;
  /** Time at which the session was created, in ms since the epoch. */
  readonly created: number;
  readonly session: AgentSession;
  readonly opened: ClientAgent;
  /** Ends the session and all that belongs to it. Never rejects. */
  close(): Promise<void>;
}

export interface SessionLimits {
  readonly maxSessions: number;
  readonly maxSessionsPerClient: number;
  readonly eviction: "refuse" | "lru";
  /** How long a session stays open after its last use, in ms. A conversation that is kept can be opened again. */
  readonly sessionTimeout: number;
}

/** A new id that cannot be guessed: 256 random bits. */
export function newSessionId(): string {
  return randomBytes(32).toString("base64url");
}

/** The error for a session that is unknown, is closed or belongs to another client. */
export function sessionNotFound(): HubError {
  return new HubError("sessionNotFound", "Agent session not found.");
}

/** The sessions of all clients, with their owners, limits and timeouts. */
export class ClientSessions {
  readonly #limits: SessionLimits;
  readonly #clock: Clock;
  readonly #sessions = new Map<string, ClientSession>();
  #cancelTimer: (() => void) | undefined;

  constructor(limits: SessionLimits, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  /** Adds a session. Makes room for it if a limit is reached (`#evict`). @throws {HubError} sessionsFull */
  add(session: ClientSession): void {
    const { maxSessions, maxSessionsPerClient } = this.#limits;
    const own = this.of(session.owner);
    if (own.length >= maxSessionsPerClient)
      this.#evict(own, `You have ${count(own.length, "agent session")}`);
    const all = [...this.#sessions.values()];
    if (all.length >= maxSessions)
      this.#evict(
        all,
        `There ${nounFor(all.length, "is", "are")} ${count(all.length, "agent session")}`,
      );
    this.#sessions.set(session.id, session);
    this.#cancelTimer ??= this.#clock.after(this.#limits.sessionTimeout, this.#onTimer);
  }

  /**
   * The session of this client.
   * @throws {HubError} sessionNotFound, whether the session is unknown, is closed or belongs to another client
   */
  get(owner: string, id: string): ClientSession {
    const session = this.find(owner, id);
    if (session !== undefined) return session;
    throw sessionNotFound();
  }

  /** The open session of this client; undefined if it has none with this id. */
  find(owner: string, id: string): ClientSession | undefined {
    const session = this.#sessions.get(id);
    return session?.owner === owner ? session : undefined;
  }

  /** The sessions of a client, oldest first. */
  of(owner: string): readonly ClientSession[] {
    return [...this.#sessions.values()].filter((session) => session.owner === owner);
  }

  /** Removes a session and ends it. */
  close(session: ClientSession): void {
    this.#sessions.delete(session.id);
    if (this.#sessions.size === 0) this.#stopTimer();
    void session.close();
  }

  /** Closes all sessions of a client that has left. */
  closeAllOf(owner: string): void {
    for (const session of this.of(owner)) this.close(session);
  }

  /** Closes the kept sessions of a client whose token is not valid any more. */
  closeKeptOf(principal: string): void {
    for (const session of this.#sessions.values())
      if (session.keptOf === principal) this.close(session);
  }

  closeAll(): void {
    for (const session of this.#sessions.values()) this.close(session);
  }

  /**
   * Closes the least recently used idle session. @throws {HubError} sessionsFull if `eviction` is not `lru`, or if no
   * session is idle
   */
  #evict(among: readonly ClientSession[], what: string): void {
    const idle = among.filter(({ session }) => session.state === "idle");
    const [oldest] = idle.toSorted((a, b) => a.session.lastUsed - b.session.lastUsed);
    if (this.#limits.eviction === "lru" && oldest !== undefined) {
      this.close(oldest);
      return;
    }
    const text = `${what}, which is the limit. Close one first (close_agent_session).`;
    throw new HubError("sessionsFull", text);
  }

  #stopTimer(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  /** Closes the sessions whose timeout has passed, and sets the timer for the next timeout. */
  readonly #onTimer = (): void => {
    this.#cancelTimer = undefined;
    const { sessionTimeout } = this.#limits;
    const now = this.#clock.now();
    let next = Infinity;
    for (const session of this.#sessions.values()) {
      const isIdle = session.session.state === "idle";
      const due = (isIdle ? session.session.lastUsed : now) + sessionTimeout;
      if (due <= now) this.close(session);
      else next = Math.min(next, due);
    }
    if (next < Infinity) this.#cancelTimer ??= this.#clock.after(next - now, this.#onTimer);
  };
}
