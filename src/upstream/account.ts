import type { Alerts } from "../base/alerts.ts";
import type { Clock } from "../base/clock.ts";
import type { HubError } from "../base/errors.ts";
import type { AlertKind, StateEvent } from "../base/events.ts";
import type { AuthorizationProgress } from "../transport/http/credentials.ts";
import type { Session } from "./session.ts";
import type { StoppedState, State } from "./state.ts";

/** A transition of a connection from one state to another. */
export interface StateMove {
  readonly server: string;
  readonly client: string | undefined;
  /** The key of the connection among those of its server. */
  readonly connection: string;
  readonly before: State<Session>;
  readonly state: State<Session>;
  /** The error that caused the transition, if one did. */
  readonly cause: HubError | undefined;
}

/** The state event of a transition. */
export function eventOfMove(move: StateMove, clock: Clock): StateEvent {
  const { server, client, connection, before, state, cause } = move;
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
  };
}

/** Raises the alert that a transition calls for, or clears the alerts that it ends. */
export function updateAlerts(move: StateMove, alerts: Alerts): void {
  const { server, connection, before, state, cause } = move;
  if (state.at === "connected") {
    // Also with a cause: a refused step-up authorization (403) leaves the connection as it was.
    alerts.clear(server, CONNECTION_ALERTS, connection);
    return;
  }
  if (cause !== undefined) {
    // A server whose goal is "down" raises no alert.
    if (stateAfterStop(state).at === "disconnected") return;
    const wasOpen = sessionOf(before) !== undefined;
    const kind = wasOpen ? "disconnected" : "connectionFailed";
    alerts.raise({ kind, server, text: cause.message }, connection);
    return;
  }
  if (state.at === "authenticating") {
    const kind = state.session === undefined ? "authRequired" : "authExpired";
    alerts.raise(
      { kind, server, text: describeAuthorizationNeed(server, state.progress) },
      connection,
    );
    return;
  }
  const isOver = state.at === "disconnected" || state.at === "idle";
  // A server with goal "onDemand" goes to idle after a failure, too: its alert stays.
  const isStopCompleted = before.at === "stopping" && state.at === "idle";
  if (isOver && !isStopCompleted) alerts.clear(server, CONNECTION_ALERTS, connection);
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

/** The session of a state that has one. */
export function sessionOf(state: State<Session>): Session | undefined {
  return "session" in state ? state.session : undefined;
}

/** The state that follows once a stop has ended; any other state is returned as it is. */
export function stateAfterStop(state: State<Session>): State<Session> | StoppedState {
  return state.at === "stopping" ? state.next : state;
}

/** When the running attempt began, in ms of the clock, if it has taken longer than `connectTimeout`; else undefined. */
export function lateSince(state: State<Session>): number | undefined {
  return state.at === "connecting" ? state.lateSince : undefined;
}

/** Failed until a user acts. Missing authorization does not count: the next call may still obtain it. */
export function hasFailed(state: State<Session>): boolean {
  return state.at === "failed" && state.cause.code !== "unauthorized";
}

export function causeOfState(state: State<Session>): HubError | undefined {
  return "cause" in state ? state.cause : undefined;
}

/** When the next attempt is due, in ms since the epoch; undefined unless reconnecting. */
export function retryTimeOf(state: State<Session>, clock: Clock): number | undefined {
  if (state.at !== "reconnecting") return undefined;
  return Math.round(Date.now() + state.retryAt - clock.now());
}
