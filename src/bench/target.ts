import { sleep, systemClock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { VERSION } from "../base/version.ts";
import type { ListedItem } from "../catalog/listing.ts";
import type { Message } from "../jsonrpc/message.ts";
import type { ProcessStats } from "../process/child-process.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { Era } from "../protocol/modern.ts";
import type { SentRequest, ServerTransport } from "../transport/transport.ts";
import type { NegotiationPlan } from "../upstream/negotiate.ts";
import { NO_CLIENTS } from "../upstream/profile.ts";
import { type SessionEvents, Session } from "../upstream/session.ts";

/** Client implementation sent in `initialize` and in modern envelopes. */
export const BENCH_CLIENT: Implementation = { name: "toolmux-bench", version: VERSION };

/** How long a server may take to answer the `server/discover` probe, in ms. */
const PATIENCE = 3000;
/** Timeout of connecting, and of listing tools, in ms. */
const LIMIT = 30_000;
/** Reconnecting after a lost connection: number of attempts, and the pause between two, in ms. */
const RETURN = { tries: 50, pause: 100 };
/** Interval between two `tools/list` requests while servers are still starting, in ms. */
const PAUSE = 200;

/** Events of the connection to a subject. */
export interface BenchTargetEvents {
  /** The connection is open again after it was lost. */
  returned(): void;
  /** The connection was lost, and all attempts to reconnect failed. */
  failed(cause: HubError): void;
}

/** A connection to the measured subject: one session at a time, replaced when it is lost. */
export class BenchTarget {
  readonly subject: BenchSubject;
  readonly #era: Era;
  readonly #signal: AbortSignal;
  readonly #began = performance.now();
  /** undefined while the connection is lost. */
  #session: HeardSession | undefined;
  readonly #over = new AbortController();
  /** Pending while reconnecting. */
  #returning: Promise<void> | undefined;
  /** Why reconnecting was given up; undefined: it was not. */
  failure: HubError | undefined;
  #redact: (text: string) => string = (text) => text;
  /** Responses received over previous sessions, whether or not they were awaited. */
  #heardBefore = 0;
  /** Receives events during a load run. */
  events: BenchTargetEvents | undefined;
  /** Time from the start until the handshake was done, and until tools were listed, in ms. */
  readonly ready = { handshake: 0, listed: 0 };
  tools: readonly ListedItem[] = [];

  private constructor(subject: BenchSubject, era: Era, signal: AbortSignal) {
    this.subject = subject;
    this.#era = era;
    this.#signal = AbortSignal.any([signal, this.#over.signal]);
  }

  /**
   * Connects to a subject and lists its tools.
   * @param era preferred era if the subject supports both
   * @throws {HubError} the error of its start, or the signal's reason; nothing is left running then
   */
  static async open(subject: BenchSubject, era: Era, signal: AbortSignal): Promise<BenchTarget> {
    const contact = new BenchTarget(subject, era, signal);
    const session = await contact.#meet();
    contact.#session = session;
    contact.ready.handshake = performance.now() - contact.#began;
    try {
      contact.tools = await inTime(subject, signal, (until) => session.list("tools", until));
    } catch (error) {
      await contact.close();
      throw error;
    }
    contact.ready.listed = performance.now() - contact.#began;
    return contact;
  }

  /**
   * Calls `find` with the listed tools. If the first list may be incomplete (servers still starting), lists
   * again until `find` succeeds or the time limit has passed.
   * @throws {HubError} what `find` throws for the last list, or the signal's reason
   */
  async find<T>(find: (tools: readonly ListedItem[]) => T): Promise<T> {
    const { listWait = Number.POSITIVE_INFINITY } = this.subject;
    const isPartial = this.ready.listed >= listWait;
    const end = performance.now() + LIMIT;
    for (;;) {
      try {
        return find(this.tools);
      } catch (error) {
        if (!isPartial || performance.now() > end) throw error;
      }
      await sleep(PAUSE);
      this.#signal.throwIfAborted();
      const { session } = this;
      if (session === undefined) continue;
      this.tools = await inTime(this.subject, this.#signal, (until) =>
        session.list("tools", until),
      );
      this.ready.listed = performance.now() - this.#began;
    }
  }

  /** The session for calls; undefined while the connection is lost. */
  get session(): Session | undefined {
    return this.#session;
  }

  /** The negotiated era. */
  get era(): Era {
    return this.#session?.era ?? this.#era;
  }

  /** All responses received so far, including those that no call waits for. */
  get heard(): number {
    return this.#heardBefore + (this.#session?.responses ?? 0);
  }

  redact(text: string): string {
    return this.#redact(text);
  }

  vitals(): Promise<ProcessStats | undefined> {
    return this.#session?.vitals() ?? Promise.resolve(undefined);
  }

  /** Closes the connection within bounded time. Idempotent. */
  async close(): Promise<void> {
    this.#over.abort(new HubError("cancelled", `"${this.subject.name}" is not measured any more.`));
    await this.#returning;
    await this.#session?.close();
  }

  async #meet(known?: Era): Promise<HeardSession> {
    const link = await this.subject.makeLink();
    this.#redact = (text) => link.redact(text);
    const session = new HeardSession({
      server: this.subject.name,
      link,
      audience: NO_CLIENTS,
      clock: systemClock,
      events: {
        listChanged: () => {},
        log: () => {},
        challenged: () => {},
        closed: (cause) => this.#lose(session, cause),
      } satisfies SessionEvents,
    });
    const approach: NegotiationPlan = {
      era: "auto",
      clientEra: this.#era,
      knownEra: known,
      probeTimeout: PATIENCE,
    };
    try {
      const departure = await inTime(this.subject, this.#signal, (until) =>
        session.open(BENCH_CLIENT, approach, until, () => {}),
      );
      // Count responses to calls only, not those of the handshake.
      session.responses = 0;
      if (departure === undefined) return session;
    } catch (error) {
      await session.close();
      throw error;
    }
    // The server exited on the modern probe, so it is reconnected with the legacy handshake.
    await session.close();
    return this.#meet("legacy");
  }

  #lose(session: HeardSession, cause: HubError): void {
    if (session !== this.#session || this.#signal.aborted) return;
    this.#heardBefore += session.responses;
    this.#session = undefined;
    this.#returning = this.#return(cause);
  }

  /** Reconnects in a loop. Never rejects. */
  async #return(cause: HubError): Promise<void> {
    let last = cause;
    for (let left = RETURN.tries; left > 0; left--) {
      try {
        this.#session = await this.#meet();
        this.events?.returned();
        return;
      } catch (error) {
        last = toHubError(error);
      }
      if (this.#signal.aborted) return;
      await sleep(RETURN.pause);
    }
    this.failure = last;
    this.events?.failed(last);
  }
}

/** @throws {HubError} connectTimeout, or what `work` throws */
async function inTime<T>(
  { name }: BenchSubject,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController();
  const text = `"${name}" did not answer within ${LIMIT / 1000} s when it was met.`;
  const timer = setTimeout(() => late.abort(new HubError("connectTimeout", text)), LIMIT);
  try {
    return await work(AbortSignal.any([signal, late.signal]));
  } finally {
    clearTimeout(timer);
  }
}

/** A session that counts all responses; `Session` silently drops those without a pending request. */
class HeardSession extends Session {
  responses = 0;

  override frame(frame: Message, exchange?: SentRequest): void {
    if (frame.kind === "response") this.responses++;
    else if (frame.kind === "batch") {
      for (const item of frame.items) if (item.kind === "response") this.responses++;
    }
    super.frame(frame, exchange);
  }
}

/** What is measured: a hub or a server. */
export interface BenchSubject {
  readonly kind: "hub" | "server";
  /** Display name; contains no secret. */
  readonly name: string;
  /** The stdio proxies in front of its servers, which report received cancellations; absent: there are none. */
  readonly taps?: ProxyFolder | undefined;
  /** Of a hub, in ms: if listing took this long, the list may lack tools of servers that are still starting. */
  readonly listWait?: number | undefined;
  /**
   * Creates an unopened transport to the subject; a started one runs in a process of its own. @throws
   * {HubError} valueMissing
   */
  makeLink(): Promise<ServerTransport>;
}

/** The stdio proxies in front of servers, which report through a shared folder. */
export interface ProxyFolder {
  /** Process ids of the proxies. */
  pids(): Promise<ReadonlySet<number>>;
  /** Marked calls whose cancellation arrived: call mark → time in ms since the epoch. */
  cancels(): Promise<ReadonlyMap<number, number>>;
}
