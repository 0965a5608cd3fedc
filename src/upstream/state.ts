import type { HubError } from "../errors.ts";

/**
 * What a connection is, as a union moved by one pure function. `S` is what an open connection gives access to.
 * `stopping` lasts until nothing of the old server is left, so that two copies never run at a time.
 */
export type State<S> =
  | { readonly at: "idle" }
  | { readonly at: "connecting" }
  | { readonly at: "connected"; readonly session: S }
  | { readonly at: "stopping"; readonly next: AfterStop }
  | { readonly at: "failed"; readonly cause: HubError }
  | { readonly at: "disconnected" };

export type AfterStop =
  | { readonly at: "connecting" }
  | { readonly at: "disconnected" }
  | { readonly at: "failed"; readonly cause: HubError };

export type Signal<S> =
  /** Somebody wants it up: the hub at its start, or a call. */
  | { readonly kind: "start" }
  /** It shall be down until somebody starts it. */
  | { readonly kind: "stop" }
  /** The attempt succeeded. */
  | { readonly kind: "opened"; readonly session: S }
  /** The attempt failed, or the open connection ended. */
  | { readonly kind: "lost"; readonly cause: HubError }
  /** Nothing of the old server is left. */
  | { readonly kind: "drained" };

/** What the owner has to do after a step. */
export type Effect = "open" | "close";

export interface Step<S> {
  readonly state: State<S>;
  readonly effects: readonly Effect[];
}

/** The next state, and the effects of going there. A signal that means nothing in a state returns that very state. */
export function step<S>(state: State<S>, signal: Signal<S>): Step<S> {
  switch (state.at) {
    case "idle":
    case "failed":
    case "disconnected":
      if (signal.kind === "start") return to({ at: "connecting" }, "open");
      if (signal.kind === "stop" && state.at !== "disconnected") return to({ at: "disconnected" });
      return to(state);
    case "connecting":
      if (signal.kind === "opened") return to({ at: "connected", session: signal.session });
      return leave(state, signal);
    case "connected":
      return leave(state, signal);
    case "stopping":
      return to(whileStopping(state, signal), ...reopen(state, signal));
  }
}

function leave<S>(state: State<S>, signal: Signal<S>): Step<S> {
  if (signal.kind === "stop") return to({ at: "stopping", next: { at: "disconnected" } }, "close");
  if (signal.kind === "lost") {
    return to({ at: "stopping", next: { at: "failed", cause: signal.cause } }, "close");
  }
  return to(state);
}

function whileStopping<S>(state: State<S> & { at: "stopping" }, signal: Signal<S>): State<S> {
  switch (signal.kind) {
    case "start":
      return state.next.at === "connecting"
        ? state
        : { at: "stopping", next: { at: "connecting" } };
    case "stop":
      return state.next.at === "disconnected"
        ? state
        : { at: "stopping", next: { at: "disconnected" } };
    case "drained":
      return state.next;
    case "opened":
    case "lost":
      return state;
  }
}

function reopen<S>(state: State<S> & { at: "stopping" }, signal: Signal<S>): Effect[] {
  return signal.kind === "drained" && state.next.at === "connecting" ? ["open"] : [];
}

function to<S>(state: State<S>, ...effects: Effect[]): Step<S> {
  return { state, effects };
}
