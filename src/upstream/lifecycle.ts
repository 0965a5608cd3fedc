import type { Alerts } from "../base/alerts.ts";
import type { Kind } from "../catalog/listing.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { EventBus, LogLevel, LogSource } from "../base/events.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { AuthChallenge, AuthorizationProgress } from "../transport/http/target.ts";
import type { MalformedOutput } from "../transport/transport.ts";
import {
  type Effect,
  eventOfMove,
  sessionOf,
  type Signal,
  type State,
  step,
  updateAlerts,
} from "./state.ts";
import { AuthorizationRunner } from "./authorization.ts";
import {
  ConnectAttempt,
  type ConnectEnvironment,
  type EraMemory,
  type PartialListing,
} from "./connect.ts";
import type { ConnectionClients } from "./profile.ts";
import type { Session } from "./session.ts";
import type { Goal } from "./status.ts";
import { HealthMonitor } from "./health.ts";

export interface LifecycleOptions {
  /** The client's id if the server has a connection per client; undefined if it is shared. */
  readonly client: string | undefined;
  /** The connection's key: identifies it among the connections to the same server. */
  readonly key: string;
  /** The clients that the connection serves. */
  readonly clients: ConnectionClients;
  readonly environment: ConnectEnvironment;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  /** Settles when the processes that must end before the first connection attempt have ended. */
  readonly ready: Promise<unknown>;
  goal(): Goal;
  /** Remembers which era the server speaks. */
  readonly eraMemory: EraMemory;
  /** Returns a random number from 0 to 1, for the jitter of retry delays. */
  random(): number;
}

/** What a lifecycle reports to its connection. */
export interface LifecycleEvents {
  /** The state has changed, and its effects have been started. @param cause the error that changed it, if one did */
  moved(before: State<Session>, state: State<Session>, cause: HubError | undefined): void;
  /** The server was listed: the attempt is about to succeed. @param duration of the start, in ms */
  listed(session: Session, listing: PartialListing, duration: number): void;
  /** The attempt continues after `connectTimeout` has passed. @param reason the error for calls that wait for it */
  late(reason: HubError): void;
  /** The server's lists have changed. */
  listChanged(kinds: readonly Kind[]): void;
  /** The server was not used for `idleStop` ms and is about to be stopped. */
  idle(): void;
  /** The progress of an authorization; undefined: it is over. */
  authorizationProgress(progress: AuthorizationProgress | undefined): void;
  log(level: LogLevel, source: LogSource, text: string): void;
  /** An error was thrown while a signal was handled; the state is nevertheless the one after the signal. */
  signalFailed(error: HubError): void;
  malformedOutput(output: MalformedOutput): void;
}

/** Owner of a connection's state: applies signals one after the other by `step` and runs the effects. */
export class ConnectionLifecycle {
  spec: RunnableServer;
  readonly #options: LifecycleOptions;
  readonly #events: LifecycleEvents;
  #state: State<Session> = { at: "idle" };
  /** The queue of signals; the first one is being applied. */
  readonly #signals: Signal<Session>[] = [];
  /** The current attempt, which also owns its session. Events of earlier attempts are ignored. */
  #attempt: ConnectAttempt | undefined;
  #cancelTimer: () => void = () => {};
  #healthMonitor: HealthMonitor | undefined;
  #isPaused = false;
  readonly #authorizations: AuthorizationRunner;
  /** The server's last 401 or 403. */
  #challenge: AuthChallenge = { status: 401, header: undefined };
  /** Whether the last attempt's session was lost while connected: a remote server may be only restarting. */
  #wasConnected = false;
  /** Resolvers of the promises that settle when the server has stopped. */
  readonly #stopWaiters: (() => void)[] = [];

  constructor(spec: RunnableServer, options: LifecycleOptions, events: LifecycleEvents) {
    this.spec = spec;
    this.#options = options;
    this.#events = events;
    const { clock, authorize } = options.environment;
    this.#authorizations = new AuthorizationRunner({
      clock,
      server: spec.name,
      authorize: authorize && ((challenge, run) => authorize(this.spec, challenge, run)),
      onProgress: (progress) => this.signal({ kind: "progressed", progress }),
      onAuthorized: () => this.signal({ kind: "authorized" }),
      onDenied: (cause, isFor401) => this.signal({ kind: isFor401 ? "lost" : "denied", cause }),
    });
  }

  get state(): State<Session> {
    return this.#state;
  }

  /** The present session, also while it is still being opened or listed. */
  get session(): Session | undefined {
    return this.#attempt?.session;
  }

  /** Applies a signal; one that comes while another is being applied is queued. */
  signal(signal: Signal<Session>): void {
    this.#signals.push(signal);
    if (this.#signals.length > 1) return;
    this.#options.bus.atomically(() => {
      for (let next = this.#signals[0]; next !== undefined; next = this.#signals[0]) {
        try {
          this.#applySignal(next);
        } catch (error) {
          this.#events.signalFailed(toHubError(error));
        } finally {
          // Also after an exception: a signal left at the head of the queue would block all later ones.
          this.#signals.shift();
        }
      }
    });
    if (this.#state.at !== "stopping") for (const resolve of this.#stopWaiters.splice(0)) resolve();
  }

  /** Stops the server. @returns a promise that settles when its process or connection has ended */
  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#stopWaiters.push(resolve);
      this.signal({ kind: "stop" });
    });
  }

  /** Forgets earlier authorization failures, because a user has asked for a new attempt. */
  clearAuthorizationFailures(): void {
    this.#authorizations.clearFailures();
  }

  /** The user has declined the login. */
  declineAuthorization(text: string): void {
    this.#authorizations.decline(text);
  }

  /** Starts health checks of the session with the present settings. */
  startHealthMonitor(session: Session): void {
    this.#healthMonitor?.end();
    const { healthInterval, idleStop } = this.spec;
    this.#healthMonitor = new HealthMonitor({
      session,
      clock: this.#options.environment.clock,
      healthInterval,
      idleStop,
      onLost: (cause) => this.signal({ kind: "lost", cause }),
      setResponsive: (isResponsive) =>
        this.signal({ kind: isResponsive ? "responsive" : "unresponsive" }),
      onIdle: () => {
        this.#events.idle();
        this.signal({ kind: "idleTimeout" });
      },
    });
    this.#healthMonitor.setPaused(this.#isPaused);
  }

  /** Pauses health checks while nothing is read from the server. */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.#healthMonitor?.setPaused(isPaused);
  }

  #applySignal(signal: Signal<Session>): void {
    const before = this.#state;
    const options = this.#options;
    const { clock } = options.environment;
    const { state, effects } = step(before, signal, {
      now: clock.now(),
      random: options.random(),
      policy: this.spec.reconnect,
      goal: options.goal(),
      isRemote: this.spec.kind === "remote",
    });
    this.#state = state;
    const cause = "cause" in signal ? signal.cause : undefined;
    if (state.at !== before.at) this.#cancelTimer();
    if (state.at !== before.at || signal.kind === "progressed") {
      const { client, key: connection } = options;
      const move = { server: this.spec.name, client, connection, before, state, cause };
      options.bus.emit(eventOfMove(move, clock));
      updateAlerts(move, options.alerts);
    }
    if (signal.kind === "lost") this.#wasConnected = before.at === "connected";
    for (const effect of effects) this.#runEffect(effect);
    if (state !== before) {
      this.#updateHealthMonitor(sessionOf(before), sessionOf(state));
      this.#trackAuthorization(before, state);
      this.#events.moved(before, state, cause);
      if (signal.kind === "late") this.#events.late(signal.reason);
    }
  }

  /** Reports the progress of an authorization; pauses health checks while an authorization runs. */
  #trackAuthorization(before: State<Session>, state: State<Session>): void {
    const wasAuthenticating = before.at === "authenticating";
    const isAuthenticating = state.at === "authenticating";
    if (state.at === "connected" && !wasAuthenticating) this.#authorizations.onAccepted();
    if (isAuthenticating !== wasAuthenticating)
      this.#healthMonitor?.setPaused(isAuthenticating || this.#isPaused);
    if (wasAuthenticating && !isAuthenticating) this.#authorizations.abort();
    if (isAuthenticating) this.#events.authorizationProgress(state.progress);
    else if (wasAuthenticating) this.#events.authorizationProgress(undefined);
  }

  #updateHealthMonitor(before: Session | undefined, session: Session | undefined): void {
    if (session === before) return;
    this.#healthMonitor?.end();
    this.#healthMonitor = undefined;
    if (session !== undefined) this.startHealthMonitor(session);
  }

  #runEffect(effect: Effect): void {
    switch (effect.kind) {
      case "open":
        this.#open();
        return;
      case "close":
        void this.#close();
        return;
      case "arm": {
        const { clock } = this.#options.environment;
        const delay = Math.max(0, effect.at - clock.now());
        this.#cancelTimer = clock.after(delay, () => this.signal({ kind: effect.signal }));
        return;
      }
      case "authorize":
        // An open session stays open during the authorization; an attempt without a session is closed.
        if (sessionOf(this.#state) === undefined) void this.#closeAttempt();
        this.#authorizations.begin(this.#challenge);
    }
  }

  #open(): void {
    const { environment, clients, eraMemory } = this.#options;
    const wasConnected = this.#wasConnected;
    this.#wasConnected = false;
    const attempt = new ConnectAttempt(this.spec, clients, environment, eraMemory, wasConnected, {
      opened: (session, listing, changedKinds, duration) => {
        this.#events.listed(session, listing, duration);
        this.signal({ kind: "opened", session });
        if (changedKinds.length > 0) this.#events.listChanged(changedKinds);
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
      malformedOutput: (output) => this.#events.malformedOutput(output),
    });
    this.#attempt = attempt;
    void attempt.run(this.#options.ready);
  }

  async #close(): Promise<void> {
    await this.#closeAttempt();
    this.signal({ kind: "drained" });
  }

  /** Closes the attempt or its session. */
  #closeAttempt(): Promise<void> | undefined {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    const { name: server } = this.spec;
    const text = `Server "${server}" was stopped.`;
    return attempt?.close(new HubError("serverStopped", text, { server }));
  }
}
