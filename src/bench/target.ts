import { formatDuration } from "../base/format.ts";
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
import { Subscriptions } from "../upstream/subscriptions.ts";
import { ServerTasks } from "../upstream/tasks.ts";
import { NO_CLIENTS } from "../upstream/profile.ts";
import { type SessionEvents, Session } from "../upstream/session.ts";

/** Name and version of the client, sent in `initialize` or, with protocol 2026-07-28 (modern), with each request. */
export const BENCH_CLIENT: Implementation = { name: "toolmux-bench", version: VERSION };

/** How long a server may take to answer the `server/discover` probe, in ms. */
const PROBE_TIMEOUT = 3000;
/** Timeout of connecting, and of listing tools, in ms. */
const CONNECT_TIMEOUT = 30_000;
/** After the connection is lost: how many attempts to reconnect, and the pause between two, in ms. */
const RECONNECT = { attempts: 50, pause: 100 };
/** Interval between two `tools/list` requests while servers are still starting, in ms. */
const RELIST_INTERVAL = 200;

export interface BenchConnectionEvents {
  /** The connection is open again after it was lost. */
  reconnected(): void;
  /** The connection was lost, and all attempts to reconnect failed. */
  failed(cause: HubError): void;
}

/** A connection to the measured hub or server: one session at a time, replaced when it is lost. */
export class BenchConnection {
  readonly subject: BenchSubject;
  readonly #era: Era;
  readonly #signal: AbortSignal;
  readonly #startTime = performance.now();
  #session: CountingSession | undefined;
  readonly #closing = new AbortController();
  #reconnecting: Promise<void> | undefined;
  /** The last error of reconnecting, once all attempts have failed. */
  failure: HubError | undefined;
  #redact: (text: string) => string = (text) => text;
  /** Number of responses received in previous sessions, whether or not a call waited for them. */
  #earlierResponses = 0;
  events: BenchConnectionEvents | undefined;
  /** Time from the start of connecting until the handshake was complete, and until the tools were listed, in ms. */
  readonly ready = { handshake: 0, listed: 0 };
  tools: readonly ListedItem[] = [];

  private constructor(subject: BenchSubject, era: Era, signal: AbortSignal) {
    this.subject = subject;
    this.#era = era;
    this.#signal = AbortSignal.any([signal, this.#closing.signal]);
  }

  /**
   * Connects to a hub or server and lists its tools.
   * @param era the protocol era to use if the subject supports both: legacy (up to 2025-11-25) or modern (2026-07-28)
   * @throws {HubError} if the hub or server cannot be started or connected, or the signal's reason; the connection is
   * closed in both cases
   */
  static async open(
    subject: BenchSubject,
    era: Era,
    signal: AbortSignal,
  ): Promise<BenchConnection> {
    const target = new BenchConnection(subject, era, signal);
    const session = await target.#connect();
    target.#session = session;
    target.ready.handshake = performance.now() - target.#startTime;
    try {
      target.tools = await withTimeout(subject, signal, (limited) =>
        session.list("tools", limited),
      );
    } catch (error) {
      await target.close();
      throw error;
    }
    target.ready.listed = performance.now() - target.#startTime;
    return target;
  }

  /**
   * Calls `find` with the listed tools. If the first list may be incomplete, because servers of a hub are still
   * starting, lists again until `find` succeeds or the time limit has passed.
   * @throws {HubError} what `find` throws for the last list, or the signal's reason
   */
  async find<T>(find: (tools: readonly ListedItem[]) => T): Promise<T> {
    const { listWait = Number.POSITIVE_INFINITY } = this.subject;
    const isPartial = this.ready.listed >= listWait;
    const end = performance.now() + CONNECT_TIMEOUT;
    for (;;) {
      try {
        return find(this.tools);
      } catch (error) {
        if (!isPartial || performance.now() > end) throw error;
      }
      await sleep(RELIST_INTERVAL);
      this.#signal.throwIfAborted();
      const { session } = this;
      if (session === undefined) continue;
      this.tools = await withTimeout(this.subject, this.#signal, (limited) =>
        session.list("tools", limited),
      );
      this.ready.listed = performance.now() - this.#startTime;
    }
  }

  /** The session for calls; undefined while the connection is lost. */
  get session(): Session | undefined {
    return this.#session;
  }

  get era(): Era {
    return this.#session?.era ?? this.#era;
  }

  /** All responses received so far, including those that no call waits for. */
  get responses(): number {
    return this.#earlierResponses + (this.#session?.responses ?? 0);
  }

  redact(text: string): string {
    return this.#redact(text);
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#session?.processStats() ?? Promise.resolve(undefined);
  }

  /** Closes the connection within a limited time. Idempotent. */
  async close(): Promise<void> {
    this.#closing.abort(
      new HubError("cancelled", `"${this.subject.name}" is not measured any more.`),
    );
    await this.#reconnecting;
    await this.#session?.close();
  }

  async #connect(known?: Era): Promise<CountingSession> {
    const transport = await this.subject.makeTransport();
    this.#redact = (text) => transport.redact(text);
    const session = new CountingSession({
      server: this.subject.name,
      transport,
      clients: NO_CLIENTS,
      clock: systemClock,
      subscriptions: new Subscriptions({ clock: systemClock, timeout: () => 0, warn: () => {} }),
      tasks: new ServerTasks(),
      events: {
        listChanged: () => {},
        log: () => {},
        challenged: () => {},
        closed: (cause) => this.#onLost(session, cause),
      } satisfies SessionEvents,
    });
    const plan: NegotiationPlan = {
      era: "auto",
      clientEra: this.#era,
      knownEra: known,
      probeTimeout: PROBE_TIMEOUT,
    };
    try {
      const earlyExit = await withTimeout(this.subject, this.#signal, (limited) =>
        session.open(BENCH_CLIENT, plan, limited, () => {}),
      );
      // Count responses to calls only, not those of the handshake.
      session.responses = 0;
      if (earlyExit === undefined) return session;
    } catch (error) {
      await session.close();
      throw error;
    }
    // The server exited when it got the first request of protocol 2026-07-28 (`server/discover`), so it is started
    // again and opened with `initialize` of the older protocol versions (legacy).
    await session.close();
    return this.#connect("legacy");
  }

  #onLost(session: CountingSession, cause: HubError): void {
    if (session !== this.#session || this.#signal.aborted) return;
    this.#earlierResponses += session.responses;
    this.#session = undefined;
    this.#reconnecting = this.#reconnect(cause);
  }

  /** Tries to reconnect, up to `RECONNECT.attempts` times. Never rejects. */
  async #reconnect(cause: HubError): Promise<void> {
    let lastError = cause;
    for (let attemptsLeft = RECONNECT.attempts; attemptsLeft > 0; attemptsLeft--) {
      try {
        this.#session = await this.#connect();
        this.events?.reconnected();
        return;
      } catch (error) {
        lastError = toHubError(error);
      }
      if (this.#signal.aborted) return;
      await sleep(RECONNECT.pause);
    }
    this.failure = lastError;
    this.events?.failed(lastError);
  }
}

/**
 * Runs `work` with a signal that is also aborted after CONNECT_TIMEOUT.
 * @throws {HubError} connectTimeout, or what `work` throws
 */
async function withTimeout<T>(
  { name }: BenchSubject,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeout = new AbortController();
  const text = `"${name}" did not complete the handshake or list its tools within ${formatDuration(CONNECT_TIMEOUT)}.`;
  const timer = setTimeout(
    () => timeout.abort(new HubError("connectTimeout", text)),
    CONNECT_TIMEOUT,
  );
  try {
    return await work(AbortSignal.any([signal, timeout.signal]));
  } finally {
    clearTimeout(timer);
  }
}

/** A session that counts all responses; `Session` silently drops those without a pending request. */
class CountingSession extends Session {
  responses = 0;

  override message(message: Message, sentRequest?: SentRequest): void {
    if (message.kind === "response") this.responses++;
    else if (message.kind === "batch") {
      for (const item of message.items) if (item.kind === "response") this.responses++;
    }
    super.message(message, sentRequest);
  }
}

/** The hub or server that is measured. */
export interface BenchSubject {
  readonly kind: "hub" | "server";
  /** Display name; contains no secret. */
  readonly name: string;
  /**
   * The stdio proxies in front of the subject's servers, which report received cancellations; absent if there are none.
   */
  readonly proxies?: ProxyFolder | undefined;
  /**
   * Only for a hub: how long it waits for slow servers before it lists tools, in ms. If listing took this long, tools
   * of servers that are still starting may be missing.
   */
  readonly listWait?: number | undefined;
  /**
   * Creates a transport to the subject without opening it. If the subject must be started, it runs in its own process.
   * @throws {HubError} valueMissing
   */
  makeTransport(): Promise<ServerTransport>;
}

/** The stdio proxies in front of servers, which report through a shared folder. */
export interface ProxyFolder {
  pids(): Promise<ReadonlySet<number>>;
  /** When each cancellation arrived, in ms since the epoch, by the call's `CALL_MARK` value. */
  cancels(): Promise<ReadonlyMap<number, number>>;
}
