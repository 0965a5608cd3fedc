import type { Kind } from "../catalog/listing.ts";
import type { Clock } from "../base/clock.ts";
import { type ConnectPhase, type ErrorCode, HubError, toHubError } from "../base/errors.ts";
import type { LogLevel, LogSource } from "../base/events.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Implementation } from "../protocol/legacy.ts";
import { untilAborted } from "../base/grace.ts";
import type { Challenge } from "../transport/http/credentials.ts";
import type { MalformedOutput, Transport } from "../transport/transport.ts";
import type { Passage } from "./authorization.ts";
import type { Audience } from "./audience.ts";
import type { Gate } from "./start-limiter.ts";
import type { Dialects } from "./dialects-part.ts";
import type { Approach, Departure } from "./negotiate.ts";
import { type Harvest, harvest } from "./harvest.ts";
import { Session } from "./session.ts";
import type { Voice } from "./notifications.ts";

/** What connection attempts need from the hub. */
export interface Surroundings {
  clientInfo(): Implementation;
  readonly clock: Clock;
  readonly gate: Gate;
  /** Resolves the `${…}` in the server's specification and creates the transport. @throws {HubError} valueMissing */
  makeLink(spec: RunnableServer): Promise<Transport>;
  /**
   * Obtains authorization for a server; absent: it cannot be obtained.
   * @throws {HubError} unauthorized, or the signal's reason
   */
  readonly authorize?: (
    spec: RunnableServer,
    challenge: Challenge,
    passage: Passage,
  ) => Promise<void>;
}

/** What an attempt, and the session that it opens, reports to the connection. */
export interface AttemptEvents {
  /** @param changedKinds kinds for which `list_changed` came while they were listed @param duration in ms */
  opened(session: Session, found: Harvest, stale: readonly Kind[], duration: number): void;
  /** The attempt has failed, or its session has ended. */
  lost(cause: HubError): void;
  /** The attempt has taken longer than `connectTimeout` and goes on. @param since when it began, in ms of the clock */
  late(since: number, reason: HubError): void;
  listChanged(kinds: readonly Kind[]): void;
  /** The server has answered 401 or 403, to one request or to any. */
  challenged(challenge: Challenge): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  flaw(flaw: MalformedOutput): void;
}

const TAIL_LINES = 10;
/**
 * How long a server may take to answer `server/discover`, in ms, and at most which share of `connectTimeout`. After
 * that it is taken for a legacy server.
 */
const PROBE_WAIT = 3000;
const PROBE_SHARE = 0.4;
/**
 * A remote server that was connected until just now may be restarting: it is tried again every `pause` ms for up to
 * `limit` ms.
 */
const RETURN = { pause: 200, limit: 10_000 };
/** The errors of a server that is not reachable, or not yet. */
const ABSENT: ReadonlySet<ErrorCode> = new Set([
  "unreachable",
  "serverFailed",
  "notDelivered",
  "answerLost",
  "connectionLost",
]);
/** Which share of `connectTimeout` listing the optional kinds (all but tools) may take. */
const PATIENCE = 0.5;

/**
 * One attempt to connect: wait for a slot of the start limiter, create the transport, open it, negotiate the protocol,
 * list. Also owns the session that it has opened.
 */
export class Attempt {
  readonly #spec: RunnableServer;
  readonly #audience: Audience;
  readonly #surroundings: Surroundings;
  readonly #dialects: Dialects;
  /** A remote server that was connected until just now. */
  readonly #isMissed: boolean;
  readonly #events: AttemptEvents;
  readonly #abort = new AbortController();
  #at: ConnectPhase = "resolve";
  #session: Session | undefined;
  #link: Transport | undefined;
  #phase: "opening" | "open" | "over" = "opening";
  readonly #stale = new Set<Kind>();
  readonly #tail: string[] = [];
  /** Returns the slot of the start limiter. */
  #leave: () => void = () => {};
  /** Why the first process exited during negotiation, if a second one had to be started. */
  #departure: Departure | undefined;

  constructor(
    spec: RunnableServer,
    audience: Audience,
    surroundings: Surroundings,
    dialects: Dialects,
    isMissed: boolean,
    events: AttemptEvents,
  ) {
    this.#spec = spec;
    this.#audience = audience;
    this.#surroundings = surroundings;
    this.#dialects = dialects;
    this.#isMissed = isMissed && spec.kind === "remote";
    this.#events = events;
  }

  /** The notifications of its session, from the creation of the transport until the attempt or its session is over. */
  get voice(): Voice | undefined {
    return this.#phase === "over" ? undefined : this.#session?.voice;
  }

  /**
   * Tries to connect once `ready` has settled. Time counts from when it has got its slot: after `connectTimeout` it is
   * late, after `startLimit` it is aborted. Never rejects.
   */
  async run(before: Promise<unknown>): Promise<void> {
    const { gate, clock } = this.#surroundings;
    const { signal } = this.#abort;
    let disarm = (): void => {};
    try {
      await before;
      this.#leave = await gate.enter(signal);
      const began = clock.now();
      disarm = this.#limit(began);
      const found = await this.#open(signal);
      this.#opened(found, clock.now() - began);
    } catch (error) {
      this.#lose(toHubError(error));
    } finally {
      this.#leave();
      disarm();
    }
  }

  /** Starts the timers of `connectTimeout` and `startLimit`. @returns a function that cancels them */
  #limit(began: number): () => void {
    const { clock } = this.#surroundings;
    const { connectTimeout, startLimit = connectTimeout } = this.#spec;
    if (startLimit <= connectTimeout) return clock.after(connectTimeout, () => this.#expire());
    let undo = clock.after(connectTimeout, () => {
      undo = clock.after(startLimit - connectTimeout, () => this.#expire());
      this.#overrun(began);
    });
    return () => undo();
  }

  /** Aborts the attempt, or closes its session; bounded in time. Reports nothing more. */
  async close(why: HubError): Promise<void> {
    this.#phase = "over";
    this.#abort.abort(why);
    await this.#session?.close();
  }

  async #open(signal: AbortSignal): Promise<Harvest> {
    const surroundings = this.#surroundings;
    const { era, connectTimeout } = this.#spec;
    const patience = Math.min(PROBE_WAIT, connectTimeout * PROBE_SHARE);
    const approach = (): Approach => ({
      era,
      client: this.#audience.era,
      known: this.#dialects.known,
      patience,
    });
    const first = this.#isMissed
      ? await this.#await(approach, signal)
      : await this.#meet(approach(), signal);
    if (first === undefined) this.#dialects.died();
    const session = first ?? (await this.#meet(approach(), signal));
    if (session === undefined) throw this.#error("connectionLost", "It ended when it was met.");
    this.#at = "list";
    const late = new AbortController();
    const text = `Server "${this.#spec.name}" takes too long to list all that it has.`;
    const undo = surroundings.clock.after(this.#spec.connectTimeout * PATIENCE, () => {
      late.abort(new HubError("connectTimeout", text));
    });
    const warn = (why: string): void => this.#log("warn", "server", why);
    try {
      return await harvest({ session, signal, late: late.signal, warn });
    } finally {
      undo();
    }
  }

  /** Tries repeatedly to open a session with a remote server that was connected until just now. */
  async #await(approach: () => Approach, signal: AbortSignal): Promise<Session | undefined> {
    const { clock } = this.#surroundings;
    const limit = clock.now() + RETURN.limit;
    for (;;) {
      try {
        return await this.#meet(approach(), signal);
      } catch (error) {
        const isOut = signal.aborted || clock.now() >= limit;
        if (isOut || !(error instanceof HubError && ABSENT.has(error.code))) throw error;
      }
      // The wait must not occupy a slot of the start limiter.
      this.#leave();
      await this.#session?.close();
      const pause = new Promise<void>((resolve) => clock.after(RETURN.pause, resolve));
      await untilAborted(pause, signal);
    }
  }

  /**
   * Creates a transport and opens a session over it.
   * @returns undefined if the server exited when it was sent `server/discover`; it is cleaned up by then
   */
  async #meet(approach: Approach, signal: AbortSignal): Promise<Session | undefined> {
    const surroundings = this.#surroundings;
    this.#at = "resolve";
    this.#tail.length = 0;
    const link = await untilAborted(surroundings.makeLink(this.#spec), signal);
    this.#link = link;
    this.#at = this.#spec.kind === "remote" ? "dial" : "spawn";
    const session = new Session({
      server: this.#spec.name,
      link,
      audience: this.#audience,
      clock: surroundings.clock,
      events: {
        listChanged: (kinds) => this.#listChanged(kinds),
        log: (level, source, text) => this.#log(level, source, text),
        flaw: (flaw) => this.#events.flaw(flaw),
        challenged: (challenge) => this.#challenge(challenge),
        closed: (cause) => this.#lose(cause),
      },
    });
    this.#session = session;
    const departure = await session.open(surroundings.clientInfo(), approach, signal, () => {
      this.#at = "handshake";
    });
    if (departure === undefined) return session;
    this.#departure = departure;
    await session.close();
    return undefined;
  }

  #opened(found: Harvest, duration: number): void {
    if (this.#phase !== "opening" || this.#session === undefined) return;
    this.#phase = "open";
    this.#events.opened(this.#session, found, [...this.#stale], duration);
  }

  #challenge(challenge: Challenge): void {
    if (this.#phase !== "over") this.#events.challenged(challenge);
  }

  /**
   * Reports the first cause only. Before the session is open it adds the connect phase and the last lines of stderr.
   */
  #lose(cause: HubError): void {
    if (this.#phase === "over") return;
    if (this.#phase === "opening" && cause.code === "unauthorized") {
      // Credentials that are known to be missing or expired fail before a request is sent: same as a 401.
      this.#events.challenged({ status: 401, header: undefined });
      return;
    }
    const isEarly = this.#phase === "opening" && cause.step === undefined;
    this.#phase = "over";
    const whole = isEarly ? this.#error(cause.code, cause.message) : cause;
    // The message may repeat the server's words, and these a secret.
    this.#events.lost(whole.mapTexts((text) => this.#redact(text)));
  }

  /** Returns the slot and reports the delay, so that neither other starts nor waiting calls are held up. */
  #overrun(began: number): void {
    if (this.#phase !== "opening") return;
    this.#leave();
    const text = `${this.#describeDelay(this.#spec.connectTimeout)} (connectTimeout). It goes on starting, and is there when it is ready.`;
    this.#events.late(began, this.#error("connectTimeout", text));
  }

  #expire(): void {
    const { connectTimeout, startLimit } = this.#spec;
    // The exit of the first process explains more than the timeout of the second.
    const cause = this.#departure?.cause;
    if (cause !== undefined) {
      this.#abort.abort(this.#error(cause.code, cause.message));
      return;
    }
    const text =
      startLimit === undefined
        ? `${this.#describeDelay(connectTimeout)} (connectTimeout).`
        : `${this.#describeDelay(startLimit)}.`;
    this.#abort.abort(this.#error("connectTimeout", text));
  }

  #describeDelay(limit: number): string {
    return `Server "${this.#spec.name}" did not get beyond step "${this.#at}" within ${limit} ms`;
  }

  #error(code: ErrorCode, text: string): HubError {
    const details = { server: this.#spec.name, step: this.#at, stderr: [...this.#tail] };
    return new HubError(code, text, details);
  }

  #listChanged(kinds: readonly Kind[]): void {
    if (this.#phase === "opening") for (const kind of kinds) this.#stale.add(kind);
    else if (this.#phase === "open") this.#events.listChanged(kinds);
  }

  #redact(text: string): string {
    return this.#link?.redact?.(text) ?? text;
  }

  #log(level: LogLevel, source: LogSource, text: string): void {
    if (source === "stderr" && this.#phase === "opening") {
      if (this.#tail.push(text) > TAIL_LINES) this.#tail.shift();
    }
    this.#events.log(level, source, this.#redact(text));
  }
}
