import type { Alerts } from "../base/alerts.ts";
import type { Clock } from "../base/clock.ts";
import type { HubError } from "../base/errors.ts";
import type { AlertKind, StateEvent } from "../base/hub-events.ts";
import type { Reconnect, RunnableServer } from "../manifest/manifest.ts";
import { maskCommandLine, maskSecretParts } from "../manifest/plaintext-secrets.ts";
import type { AuthorizationProgress } from "../transport/http/target.ts";
import type { Session } from "./session.ts";
import type { Goal } from "./status.ts";

/** Whether no further attempt follows attempt number `attempt`. */
export function isExhausted({ policy, maxAttempts }: Reconnect, attempt: number): boolean {
  return policy === "none" || (maxAttempts > 0 && attempt >= maxAttempts);
}

/** From attempt number `attempts` on, the delay is at least `pause` ms, so that no server restarts in a tight loop. */
const MIN_PAUSE = { attempts: 10, pause: 1000 };

/** Returns the delay after an attempt, in ms. @param random the share of the jitter that is subtracted, from 0 to 1 */
export function delayAfter(attempt: number, reconnect: Reconnect, random: number): number {
  const minDelay = attempt < MIN_PAUSE.attempts ? 0 : MIN_PAUSE.pause;
  if (reconnect.policy !== "exponential") return minDelay;
  const { base, max, jitter } = reconnect;
  const fullDelay = Math.min(max, base * 2 ** Math.max(0, attempt - 1));
  return Math.max(minDelay, fullDelay * (1 - jitter * random));
}

/**
 * The state of a connection, which only the pure function `step` changes. `S` is the type of the session. `attempt`
 * counts the attempts since the connection was last stable, from 1; it is 0 while the connection is stable.
 */
export type State<S> = StoppedState | Authenticating<S> | Connected<S> | Stopping;

/** The states without a process or session. They may follow `Stopping`. */
export type StoppedState =
  | Idle
  | Connecting
  | Reconnecting
  | { readonly at: "failed"; readonly attempt: number; readonly cause: HubError }
  | { readonly at: "disconnected" };

/** The next call starts the server. `cause`: why the last attempt to connect failed; absent if it did not fail. */
export interface Idle {
  readonly at: "idle";
  readonly cause?: HubError;
}

/**
 * An attempt to connect is running. `lateSince`: the time at which the attempt began, in ms of the clock; set only if
 * the attempt has taken longer than `connectTimeout`.
 */
export interface Connecting {
  readonly at: "connecting";
  readonly attempt: number;
  readonly lateSince?: number;
}

/** Waiting for the next attempt. `retryAt` is in ms of the clock; `maxAttempts` is 0 for no limit. */
export interface Reconnecting {
  readonly at: "reconnecting";
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly retryAt: number;
  readonly cause: HubError;
}

/**
 * An authorization is running. `session` is set if the authorization of an open connection has expired: the connection
 * stays open, so that running calls are not dropped.
 */
export interface Authenticating<S> {
  readonly at: "authenticating";
  readonly attempt: number;
  readonly progress: AuthorizationProgress;
  readonly session: S | undefined;
}

/** The session is open. `since` is in ms of the clock. */
export interface Connected<S> {
  readonly at: "connected";
  readonly session: S;
  readonly since: number;
  readonly attempt: number;
  /**
   * Whether the server responds to health checks. A server that does not, but has calls in flight, may only be busy.
   */
  readonly responsive: boolean;
}

/**
 * The old process is ending. No new process is started until it has ended, so that two processes of a server never run
 * at the same time. `next`: the state that follows.
 */
export interface Stopping {
  readonly at: "stopping";
  readonly next: StoppedState;
}

/** The inputs of `step` besides state and signal. `now` is in ms of the clock; `random` is from 0 to 1. */
export interface StepEnvironment {
  readonly now: number;
  readonly random: number;
  readonly policy: Reconnect;
  readonly goal: Goal;
  /**
   * Whether the server is remote. If a connection of at least `MIN_UPTIME` ms to a remote server is lost, the first
   * retry has no delay, because the server may be back at once.
   */
  readonly isRemote: boolean;
}

export interface StepResult<S> {
  readonly state: State<S>;
  readonly effects: readonly Effect[];
}

/**
 * Time after which a connection is stable, in ms. When a stable connection is lost, attempts are counted from 1 again.
 */
const STABLE_AFTER = 30_000;
/** Minimum duration of a remote connection, in ms, after which the first retry has no delay. */
const MIN_UPTIME = 1000;

const OPEN: Effect = { kind: "open" };
const CLOSE: Effect = { kind: "close" };
const AUTHORIZE: Effect = { kind: "authorize" };

const IDLE: StoppedState = { at: "idle" };
const DISCONNECTED: StoppedState = { at: "disconnected" };
const FIRST: StoppedState = { at: "connecting", attempt: 1 };

/**
 * Returns the next state and the effects of the transition. Returns the same state if the signal has no meaning in that
 * state.
 */
export function step<S>(
  state: State<S>,
  signal: Signal<S>,
  environment: StepEnvironment,
): StepResult<S> {
  switch (state.at) {
    case "idle":
    case "failed":
    case "disconnected":
      return whileStopped(state, signal);
    case "connecting":
      return whileConnecting(state.attempt, state, signal, environment);
    case "authenticating":
      return whileAuthenticating(state, signal, environment);
    case "connected":
      return whileConnected(state, signal, environment);
    case "reconnecting":
      return whileWaiting(state, signal);
    case "stopping":
      return whileStopping(state, signal);
  }
}

function whileStopped<S>(state: StoppedState, { kind }: Signal<S>): StepResult<S> {
  if (kind === "start" || kind === "reconnect") return to(FIRST, OPEN);
  if (kind === "stop" && state.at !== "disconnected") return to(DISCONNECTED);
  return to(state);
}

function whileConnecting<S>(
  attempt: number,
  state: State<S>,
  signal: Signal<S>,
  environment: StepEnvironment,
): StepResult<S> {
  switch (signal.kind) {
    case "opened":
      return connect(signal.session, attempt, environment);
    case "late":
      return to({ at: "connecting", attempt, lateSince: signal.since });
    case "challenged":
      return authenticate<S>(attempt, undefined);
    case "lost":
      return stopThen(afterLoss(attempt, signal.cause, environment));
    case "stop":
      return stopThen(DISCONNECTED);
    case "cancel":
      return stopThen(IDLE);
    default:
      return to(state);
  }
}

function whileAuthenticating<S>(
  state: Authenticating<S>,
  signal: Signal<S>,
  environment: StepEnvironment,
): StepResult<S> {
  const { attempt, session } = state;
  switch (signal.kind) {
    case "progressed":
      return to({ ...state, progress: signal.progress });
    case "authorized":
      if (session !== undefined) return connect(session, attempt, environment);
      return to({ at: "connecting", attempt }, OPEN);
    case "denied":
      if (session !== undefined) return connect(session, attempt, environment);
      return stopThen(afterLoss(attempt, signal.cause, environment));
    case "lost": {
      const wasOpen = session !== undefined;
      return stopThen(afterLoss(attempt, signal.cause, environment, { wasOpen }));
    }
    case "stop":
      return stopThen(DISCONNECTED);
    case "cancel":
      return stopThen(IDLE);
    case "reconnect":
      return stopThen(FIRST);
    default:
      return to(state);
  }
}

function whileConnected<S>(
  state: Connected<S>,
  signal: Signal<S>,
  environment: StepEnvironment,
): StepResult<S> {
  const { attempt, session, responsive, since } = state;
  switch (signal.kind) {
    case "lost": {
      const retriesAtOnce = environment.isRemote && environment.now - since >= MIN_UPTIME;
      return stopThen(
        afterLoss(attempt, signal.cause, environment, { retriesAtOnce, wasOpen: true }),
      );
    }
    case "stop":
      return stopThen(DISCONNECTED);
    case "reconnect":
      return stopThen(FIRST);
    case "idleTimeout":
      return stopThen(IDLE);
    case "challenged":
      return authenticate(attempt, session);
    case "unresponsive":
      return to(responsive ? { ...state, responsive: false } : state);
    case "responsive":
      return to(responsive ? state : { ...state, responsive: true });
    case "stable":
      return to(attempt === 0 ? state : { ...state, attempt: 0 });
    default:
      return to(state);
  }
}

function whileWaiting<S>(state: Reconnecting, { kind }: Signal<S>): StepResult<S> {
  switch (kind) {
    case "due":
    case "start":
      return to({ at: "connecting", attempt: state.attempt + 1 }, OPEN);
    case "reconnect":
      return to(FIRST, OPEN);
    case "cancel":
      return to(IDLE);
    case "stop":
      return to(DISCONNECTED);
    default:
      return to(state);
  }
}

function whileStopping<S>(state: Stopping, { kind }: Signal<S>): StepResult<S> {
  const { next } = state;
  switch (kind) {
    case "processEnded":
      return enter(next);
    case "start":
      return to(next.at === "connecting" ? state : { at: "stopping", next: resume(next) });
    case "reconnect":
      return to(next.at === "connecting" ? state : { at: "stopping", next: FIRST });
    case "stop":
      return to(next.at === "disconnected" ? state : { at: "stopping", next: DISCONNECTED });
    case "cancel": {
      const isAttempt = next.at === "connecting" || next.at === "reconnecting";
      return to(isAttempt ? { at: "stopping", next: IDLE } : state);
    }
    default:
      return to(state);
  }
}

/** Returns the state that follows `Stopping` if "start" has arrived meanwhile: the delay before a retry is skipped. */
function resume(next: StoppedState): StoppedState {
  return next.at === "reconnecting" ? { at: "connecting", attempt: next.attempt + 1 } : FIRST;
}

function enter<S>(next: StoppedState): StepResult<S> {
  if (next.at === "connecting") return to(next, OPEN);
  if (next.at === "reconnecting") return to(next, { kind: "arm", signal: "due", at: next.retryAt });
  return to(next);
}

function connect<S>(session: S, attempt: number, { now }: StepEnvironment): StepResult<S> {
  const state: State<S> = { at: "connected", session, since: now, attempt, responsive: true };
  return to(state, { kind: "arm", signal: "stable", at: now + STABLE_AFTER });
}

function authenticate<S>(attempt: number, session: S | undefined): StepResult<S> {
  const progress: AuthorizationProgress = { step: "starting" };
  return to({ at: "authenticating", attempt, progress, session }, AUTHORIZE);
}

/** Returns the state after a failed attempt or a lost connection: `failed` if a retry cannot help or is not allowed. */
function afterLoss(
  attempt: number,
  cause: HubError,
  { now, random, policy, goal }: StepEnvironment,
  { retriesAtOnce = false, wasOpen = false } = {},
): StoppedState {
  if (goal === "down") return DISCONNECTED;
  const { maxAttempts } = policy;
  if (!cause.properties.retryable) return { at: "failed", attempt, cause };
  // With goal "onDemand" there is no retry: the next call starts the server. If the server was up, its loss does not say
  // that the next start fails.
  if (goal === "onDemand") return wasOpen ? IDLE : { at: "idle", cause };
  if (isExhausted(policy, attempt)) return { at: "failed", attempt, cause };
  const retryAt = retriesAtOnce ? now : now + delayAfter(attempt, policy, random);
  return { at: "reconnecting", attempt, maxAttempts, retryAt, cause };
}

function stopThen<S>(next: StoppedState): StepResult<S> {
  return to({ at: "stopping", next }, CLOSE);
}

function to<S>(state: State<S>, ...effects: Effect[]): StepResult<S> {
  return { state, effects };
}

/** The signals that change the state of a connection. */
export type Signal<S> =
  /** Start the server, because the hub starts or a call needs the server. */
  | { readonly kind: "start" }
  /** Stop the server. It stays down until another "start" signal. */
  | { readonly kind: "stop" }
  /** Restart the server, or start it if it does not run. An attempt that is already running goes on. */
  | { readonly kind: "reconnect" }
  /** Give up the running attempt, or the delay before the next one. */
  | { readonly kind: "cancel" }
  /** The attempt succeeded. */
  | { readonly kind: "opened"; readonly session: S }
  /**
   * The attempt has taken longer than `connectTimeout`. It goes on, but calls no longer wait for it. `since`: when the
   * attempt started, in ms of the clock. `reason`: the error for the calls that waited.
   */
  | { readonly kind: "late"; readonly since: number; readonly reason: HubError }
  /** The server demands authorization. */
  | { readonly kind: "challenged" }
  | { readonly kind: "progressed"; readonly progress: AuthorizationProgress }
  | { readonly kind: "authorized" }
  /** No authorization was obtained. A session that works without authorization goes on. */
  | { readonly kind: "denied"; readonly cause: HubError }
  /**
   * The attempt failed, the open connection ended, or no authorization was obtained after a 401.
   * `cause.properties.retryable` decides whether there is a retry.
   */
  | { readonly kind: "lost"; readonly cause: HubError }
  | { readonly kind: "unresponsive" }
  | { readonly kind: "responsive" }
  /** The connection has lasted for `STABLE_AFTER`. */
  | { readonly kind: "stable" }
  /** The old process has ended. */
  | { readonly kind: "processEnded" }
  /** The delay before the next attempt is over. */
  | { readonly kind: "due" }
  /** The server was unused for its idle time. */
  | { readonly kind: "idleTimeout" };

/** The effects of a step, which the connection must carry out. A timer is cancelled when `at` of the state changes. */
export type Effect =
  | { readonly kind: "open" }
  /** Close the attempt or its session, and send `processEnded` when the process has ended. */
  | { readonly kind: "close" }
  /**
   * Close the attempt unless its session is open, and obtain authorization. Then send `authorized`, `denied` or `lost`.
   */
  | { readonly kind: "authorize" }
  /** Set a timer that sends `signal` at the time `at`, in ms of the clock. */
  | { readonly kind: "arm"; readonly signal: "due" | "stable"; readonly at: number };

/** A transition of a connection from one state to another. */
export interface StateMove {
  readonly server: string;
  readonly client: string | undefined;
  /** Identifies the connection among the connections to the same server. */
  readonly connection: string;
  readonly before: State<Session>;
  readonly state: State<Session>;
  readonly cause: HubError | undefined;
  /** How the server is reached, for people. */
  readonly endpoint: string;
  /** Number of tools that the server lists; undefined if its listing is not known. */
  readonly tools?: number | undefined;
}

/** How a server is reached, as its entry says, with what looks like a secret masked. */
export function endpointOf(spec: RunnableServer): string {
  switch (spec.kind) {
    case "remote":
      return maskSecretParts(spec.url);
    case "stdio":
      return maskCommandLine(spec.command);
    case "plugin":
      return `plugin ${spec.plugin}`;
    case "fleet":
      return `fleet ${spec.machine === undefined ? "" : `${spec.machine}/`}${spec.fleet}`;
  }
}

export function eventOfMove(move: StateMove, clock: Clock): StateEvent {
  const { server, client, connection, before, state, cause, endpoint, tools } = move;
  const hasEndpoint = state.at === "connecting" || state.at === "connected";
  const next = stateAfterStop(state);
  const error = cause ?? causeOfState(next);
  const attempt = "attempt" in next ? next.attempt : undefined;
  const retryAt = retryTimeOf(next, clock);
  return {
    kind: "state",
    server,
    from: before.at,
    to: state.at,
    ...(client !== undefined && { client }),
    ...(connection !== "" && { connection }),
    ...(error !== undefined && { cause: error }),
    ...(attempt !== undefined && { attempt }),
    ...(retryAt !== undefined && { retryAt }),
    ...(state.at === "authenticating" && { progress: state.progress }),
    ...(hasEndpoint && { endpoint }),
    ...(state.at === "connected" && tools !== undefined && { tools }),
  };
}

/** Number of failed attempts in succession from which on there is an alert, although another attempt follows. */
const ALERT_AFTER = 3;

/**
 * After a transition, raises the alert about its cause, or clears the alerts that no longer apply. A failure that the
 * next attempt may cure raises none before `ALERT_AFTER` attempts.
 */
export function updateAlerts(move: StateMove, alerts: Alerts): void {
  const { server, connection, before, state, cause } = move;
  const next = stateAfterStop(state);
  const clear = (): void => alerts.clear(server, CONNECTION_ALERTS, connection);
  switch (next.at) {
    // A connection that is open works, even if there is a cause: for example, the server has asked for more scopes
    // (403) and did not get them.
    case "connected":
    case "disconnected":
      clear();
      return;
    case "idle":
      if (next.cause === undefined) {
        clear();
        return;
      }
      break;
    case "reconnecting":
      if (next.attempt < ALERT_AFTER) return;
      break;
    case "authenticating": {
      const kind = next.session === undefined ? "authRequired" : "authExpired";
      const text = describeAuthorizationNeed(server, next.progress);
      alerts.raise({ kind, server, text }, connection);
      return;
    }
    case "connecting":
    case "stopping":
      return;
    case "failed":
      break;
  }
  if (cause === undefined) return;
  const kind = sessionOf(before) === undefined ? "connectionFailed" : "disconnected";
  alerts.raise({ kind, server, text: cause.message }, connection);
}

function describeAuthorizationNeed(server: string, progress: AuthorizationProgress): string {
  const text = `Server "${server}" wants an authorization`;
  return progress.step === "openingBrowser" ? `${text}: open ${progress.url}` : `${text}.`;
}

const CONNECTION_ALERTS: readonly AlertKind[] = [
  "connectionFailed",
  "disconnected",
  "authRequired",
  "authExpired",
];

export function sessionOf(state: State<Session>): Session | undefined {
  return "session" in state ? state.session : undefined;
}

/** Returns the state that follows `Stopping` if the connection is stopping; otherwise the state itself. */
export function stateAfterStop(state: State<Session>): State<Session> | StoppedState {
  return state.at === "stopping" ? state.next : state;
}

/**
 * Returns the time at which the running attempt began, in ms of the clock, if the attempt has taken longer than
 * `connectTimeout`; else undefined.
 */
export function lateSince(state: State<Session>): number | undefined {
  return state.at === "connecting" ? state.lateSince : undefined;
}

/**
 * Whether the connection has failed and stays so until a user acts. A missing authorization does not count, because the
 * next call may still obtain it.
 */
export function hasFailed(state: State<Session>): boolean {
  return state.at === "failed" && state.cause.code !== "unauthorized";
}

export function causeOfState(state: State<Session>): HubError | undefined {
  return "cause" in state ? state.cause : undefined;
}

/** Returns the time of the next attempt, in ms since the epoch; undefined unless the state is `reconnecting`. */
export function retryTimeOf(state: State<Session>, clock: Clock): number | undefined {
  if (state.at !== "reconnecting") return undefined;
  return Math.round(Date.now() + state.retryAt - clock.now());
}
