import type { Alerts } from "../base/alerts.ts";
import type { Kind } from "../catalog/listing.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { EventBus, LogLevel, LogSource } from "../base/events.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Authorization, Challenge } from "../transport/http/credentials.ts";
import type { MalformedOutput } from "../transport/transport.ts";
import { eventOf, sessionOf, tellAlerts } from "./account.ts";
import { Admission } from "./authorization.ts";
import { Attempt, type Surroundings } from "./connect.ts";
import type { Audience } from "./audience.ts";
import type { Dialects } from "./dialects-part.ts";
import type { Harvest } from "./harvest.ts";
import type { Session } from "./session.ts";
import type { Effect, Signal } from "./signal.ts";
import { type State, step } from "./state.ts";
import type { Goal } from "./status.ts";
import { Vigil } from "./health.ts";
import type { Voice } from "./notifications.ts";

export interface LifeParts {
  /** The client's id if the server has a connection per client; undefined if it is shared. */
  readonly client: string | undefined;
  /** The key of the connection among those of its server. */
  readonly key: string;
  /** The clients that it serves. */
  readonly audience: Audience;
  readonly surroundings: Surroundings;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  /** Settles when the processes that must be gone before the first attempt are gone. */
  readonly before: Promise<unknown>;
  goal(): Goal;
  /** The era that the server was found to speak. */
  readonly dialects: Dialects;
  /** A number from 0 to 1. */
  random(): number;
}

/** What a lifecycle reports to its connection. */
export interface LifeEvents {
  /** The state has changed, and its effects have been started. @param cause the error that changed it, if one did */
  moved(before: State<Session>, state: State<Session>, cause: HubError | undefined): void;
  /** An attempt is about to succeed. @param duration of the start, in ms */
  listed(session: Session, found: Harvest, duration: number): void;
  /** The attempt has taken longer than `connectTimeout` and goes on. @param reason the error for calls that wait */
  late(reason: HubError): void;
  /** The server's lists have changed. */
  listChanged(kinds: readonly Kind[]): void;
  /** The server was not used for `idleStop` ms and is about to be stopped. */
  idle(): void;
  /** The progress of an authorization; undefined: it is over. */
  admitting(progress: Authorization | undefined): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  /** Handling a signal has thrown; the state is the one after the signal. */
  broke(error: HubError): void;
  flaw(flaw: MalformedOutput): void;
}

/** Owner of a connection's state: applies signals one after the other by `step` and runs the effects. */
export class Life {
  spec: RunnableServer;
  readonly #parts: LifeParts;
  readonly #events: LifeEvents;
  #state: State<Session> = { at: "idle" };
  /** The first one is being applied. */
  readonly #signals: Signal<Session>[] = [];
  /** The present attempt with its session. Events of earlier attempts are ignored. */
  #attempt: Attempt | undefined;
  #disarm: () => void = () => {};
  #vigil: Vigil | undefined;
  #held = false;
  readonly #admission: Admission;
  /** The server's last 401 or 403. */
  #challenge: Challenge = { status: 401, header: undefined };
  /** The last session was lost while it was connected: a remote server may be back soon. */
  #isMissed = false;
  /** Resolvers of those who wait until the server has stopped. */
  readonly #draining: (() => void)[] = [];

  constructor(spec: RunnableServer, parts: LifeParts, events: LifeEvents) {
    this.spec = spec;
    this.#parts = parts;
    this.#events = events;
    const { clock, authorize } = parts.surroundings;
    this.#admission = new Admission({
      clock,
      server: spec.name,
      authorize: authorize && ((challenge, passage) => authorize(this.spec, challenge, passage)),
      progressed: (progress) => this.signal({ kind: "progressed", progress }),
      authorized: () => this.signal({ kind: "authorized" }),
      denied: (cause, isForAll) => this.signal({ kind: isForAll ? "lost" : "denied", cause }),
    });
  }

  get state(): State<Session> {
    return this.#state;
  }

  /** The notifications of the present session, also while it is still being listed. */
  get voice(): Voice | undefined {
    return this.#attempt?.voice;
  }

  /** Applies a signal; one that comes while another is being applied is queued. */
  signal(signal: Signal<Session>): void {
    this.#signals.push(signal);
    if (this.#signals.length > 1) return;
    this.#parts.bus.atomically(() => {
      for (let next = this.#signals[0]; next !== undefined; next = this.#signals[0]) {
        try {
          this.#take(next);
        } catch (error) {
          this.#events.broke(toHubError(error));
        } finally {
          // In any case: a signal left at the head of the queue would block all later ones.
          this.#signals.shift();
        }
      }
    });
    if (this.#state.at !== "stopping") for (const resolve of this.#draining.splice(0)) resolve();
  }

  /** Stops the server. @returns a promise that settles when it is gone */
  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#draining.push(resolve);
      this.signal({ kind: "stop" });
    });
  }

  /** Forgets earlier authorization failures, because a user has asked for a new attempt. */
  insist(): void {
    this.#admission.forgive();
  }

  /** The user has declined the login. */
  refuse(text: string): void {
    this.#admission.refuse(text);
  }

  /** Starts health checks of the session with the present settings. */
  watch(session: Session): void {
    this.#vigil?.end();
    const { healthInterval, idleStop } = this.spec;
    this.#vigil = new Vigil({
      session,
      clock: this.#parts.surroundings.clock,
      healthInterval,
      idleStop,
      lost: (cause) => this.signal({ kind: "lost", cause }),
      responsive: (isResponsive) =>
        this.signal({ kind: isResponsive ? "responsive" : "unresponsive" }),
      idle: () => {
        this.#events.idle();
        this.signal({ kind: "idleTimeout" });
      },
    });
    this.#vigil.hold(this.#held);
  }

  /** Pauses health checks while nothing is read from the server. */
  hold(held: boolean): void {
    this.#held = held;
    this.#vigil?.hold(held);
  }

  #take(signal: Signal<Session>): void {
    const before = this.#state;
    const parts = this.#parts;
    const { clock } = parts.surroundings;
    const { state, effects } = step(before, signal, {
      now: clock.now(),
      random: parts.random(),
      policy: this.spec.reconnect,
      goal: parts.goal(),
      isRemote: this.spec.kind === "remote",
    });
    this.#state = state;
    const cause = "cause" in signal ? signal.cause : undefined;
    if (state.at !== before.at) this.#disarm();
    if (state.at !== before.at || signal.kind === "progressed") {
      const { client, key: connection } = parts;
      const move = { server: this.spec.name, client, connection, before, state, cause };
      parts.bus.emit(eventOf(move, clock));
      tellAlerts(move, parts.alerts);
    }
    if (signal.kind === "lost") this.#isMissed = before.at === "connected";
    for (const effect of effects) this.#perform(effect);
    if (state !== before) {
      this.#watchOver(sessionOf(before), sessionOf(state));
      this.#accompany(before, state);
      this.#events.moved(before, state, cause);
      if (signal.kind === "late") this.#events.late(signal.reason);
    }
  }

  /** Reports the progress of an authorization; health checks pause while one runs. */
  #accompany(before: State<Session>, state: State<Session>): void {
    const was = before.at === "authenticating";
    const is = state.at === "authenticating";
    if (state.at === "connected" && !was) this.#admission.prove();
    if (is !== was) this.#vigil?.hold(is || this.#held);
    if (was && !is) this.#admission.end();
    if (is) this.#events.admitting(state.progress);
    else if (was) this.#events.admitting(undefined);
  }

  #watchOver(before: Session | undefined, session: Session | undefined): void {
    if (session === before) return;
    this.#vigil?.end();
    this.#vigil = undefined;
    if (session !== undefined) this.watch(session);
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "open":
        this.#open();
        return;
      case "close":
        void this.#close();
        return;
      case "arm": {
        const { clock } = this.#parts.surroundings;
        const delay = Math.max(0, effect.at - clock.now());
        this.#disarm = clock.after(delay, () => this.signal({ kind: effect.signal }));
        return;
      }
      case "authorize":
        // An open session goes on during the authorization.
        if (sessionOf(this.#state) === undefined) void this.#end();
        this.#admission.begin(this.#challenge);
    }
  }

  #open(): void {
    const { surroundings, audience, dialects } = this.#parts;
    const isMissed = this.#isMissed;
    this.#isMissed = false;
    const attempt = new Attempt(this.spec, audience, surroundings, dialects, isMissed, {
      opened: (session, found, stale, duration) => {
        this.#events.listed(session, found, duration);
        this.signal({ kind: "opened", session });
        if (stale.length > 0) this.#events.listChanged(stale);
      },
      lost: (cause) => {
        if (attempt === this.#attempt) this.signal({ kind: "lost", cause });
      },
      late: (since, reason) => {
        if (attempt === this.#attempt) this.signal({ kind: "late", since, reason });
      },
      listChanged: (kinds) => this.#events.listChanged(kinds),
      challenged: (challenge) => {
        if (attempt !== this.#attempt) return;
        this.#challenge = challenge;
        this.signal({ kind: "challenged" });
      },
      log: (level, source, text) => this.#events.log(level, source, text),
      flaw: (flaw) => this.#events.flaw(flaw),
    });
    this.#attempt = attempt;
    void attempt.run(this.#parts.before);
  }

  async #close(): Promise<void> {
    await this.#end();
    this.signal({ kind: "drained" });
  }

  /** Closes the attempt or its session. */
  #end(): Promise<void> | undefined {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    const { name: server } = this.spec;
    const text = `Server "${server}" was stopped.`;
    return attempt?.close(new HubError("serverStopped", text, { server }));
  }
}
