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

/** Who asks. */
export const BENCH_CLIENT: Implementation = { name: "toolmux-bench", version: VERSION };

/** How long a server may take to answer the first question of the modern era, in ms. */
const PATIENCE = 3000;
/** How long it may take to be met, and to list its tools, in ms. */
const LIMIT = 30_000;
/** How often one that was lost is looked for, and after which pause, in ms. */
const RETURN = { tries: 50, pause: 100 };
/** How long is between two looks for tools of servers that are still starting, in ms. */
const PAUSE = 200;

/** What is told of a subject that is spoken to. */
export interface BenchTargetEvents {
  /** It is there again after it was lost. */
  returned(): void;
  /** It was lost and does not come back. */
  failed(cause: HubError): void;
}

/** A subject that is spoken to: by one session at a time, and by the next when that is lost. */
export class BenchTarget {
  readonly subject: BenchSubject;
  readonly #era: Era;
  readonly #signal: AbortSignal;
  readonly #began = performance.now();
  /** undefined while it is lost. */
  #session: HeardSession | undefined;
  readonly #over = new AbortController();
  /** While it is looked for again. */
  #returning: Promise<void> | undefined;
  /** Why it does not come back any more, if it does not. */
  failure: HubError | undefined;
  #redact: (text: string) => string = (text) => text;
  /** Answers that came, to whatever, over sessions that are gone. */
  #heardBefore = 0;
  /** Who is to be told. */
  events: BenchTargetEvents | undefined;
  /** From the start to the end of the handshake, and to the list of tools, in ms. */
  readonly ready = { handshake: 0, listed: 0 };
  tools: readonly ListedItem[] = [];

  private constructor(subject: BenchSubject, era: Era, signal: AbortSignal) {
    this.subject = subject;
    this.#era = era;
    this.#signal = AbortSignal.any([signal, this.#over.signal]);
  }

  /**
   * Meets a subject and asks for its tools.
   * @param era which it is spoken to in, if it speaks that
   * @throws {HubError} what its start fails with, or the signal's reason; then nothing of it is left
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
   * Finds something among its tools; if its first list did not wait for all of them, among those that come as well.
   * @throws {HubError} what `find` throws of the last list, or the signal's reason
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

  /** The session to call over; undefined while there is none. */
  get session(): Session | undefined {
    return this.#session;
  }

  /** The one that it is spoken to in. */
  get era(): Era {
    return this.#session?.era ?? this.#era;
  }

  /** Answers that came so far, whoever waited for them. */
  get heard(): number {
    return this.#heardBefore + (this.#session?.responses ?? 0);
  }

  redact(text: string): string {
    return this.#redact(text);
  }

  vitals(): Promise<ProcessStats | undefined> {
    return this.#session?.vitals() ?? Promise.resolve(undefined);
  }

  /** Ends it, bounded in time; repeated calls are harmless. */
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
      // Only answers to calls are of interest.
      session.responses = 0;
      if (departure === undefined) return session;
    } catch (error) {
      await session.close();
      throw error;
    }
    // It did not survive a question of the modern era: only those of old may do that.
    await session.close();
    return this.#meet("legacy");
  }

  #lose(session: HeardSession, cause: HubError): void {
    if (session !== this.#session || this.#signal.aborted) return;
    this.#heardBefore += session.responses;
    this.#session = undefined;
    this.#returning = this.#return(cause);
  }

  /** Looks for it again and again. Never rejects. */
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

/** @throws {HubError} connectTimeout, or what the work throws */
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

/** A session that counts the answers: those that nobody waits for it drops without a word. */
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

/** What is measured: a hub, or a server. */
export interface BenchSubject {
  readonly kind: "hub" | "server";
  /** For people; holds no secret. */
  readonly name: string;
  /** How a call may show that it has arrived; absent: nothing of ours stands at the server's end. */
  readonly taps?: ProxyFolder | undefined;
  /** Of a hub: a first list that came so long after its start, in ms, may lack what servers have that are still starting. */
  readonly listWait?: number | undefined;
  /** A link to it that is not open yet; of what is started, to a process of its own. @throws {HubError} valueMissing */
  makeLink(): Promise<ServerTransport>;
}

/** The relays that stand in front of a server, and tell what arrives there. */
export interface ProxyFolder {
  /** The processes that they are. */
  pids(): Promise<ReadonlySet<number>>;
  /** Which marked calls it has heard the cancel of, and when: ms since the epoch and parts of them. */
  cancels(): Promise<ReadonlyMap<number, number>>;
}
