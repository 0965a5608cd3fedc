import type { HubError } from "../base/errors.ts";
import type { AuthorizationProgress } from "../transport/http/credentials.ts";

/** What moves the state of a connection. */
export type Signal<S> =
  /** Somebody wants it up: the hub at its start, or a call. */
  | { readonly kind: "start" }
  /** It shall be down until somebody starts it. */
  | { readonly kind: "stop" }
  /** It shall be up anew, whatever it is now; an attempt that runs is what is wanted. */
  | { readonly kind: "reconnect" }
  /** The present attempt, or the wait for the next one, is given up. */
  | { readonly kind: "cancel" }
  /** The attempt succeeded. */
  | { readonly kind: "opened"; readonly session: S }
  /**
   * The attempt has taken longer than `connectTimeout`, and goes on: nobody waits for it any more.
   * `since`: when it began, in ms of the clock. `reason`: what those who have waited fail with.
   */
  | { readonly kind: "late"; readonly since: number; readonly reason: HubError }
  /** The server wants authorization. */
  | { readonly kind: "challenged" }
  | { readonly kind: "progressed"; readonly progress: AuthorizationProgress }
  | { readonly kind: "authorized" }
  /** There is none; what the server did without it goes on. */
  | { readonly kind: "denied"; readonly cause: HubError }
  /** The attempt failed, or the open connection ended; whether a retry can cure it stands in the error table. */
  | { readonly kind: "lost"; readonly cause: HubError }
  | { readonly kind: "unresponsive" }
  | { readonly kind: "responsive" }
  /** It has been connected for so long that its next loss begins a new series. */
  | { readonly kind: "stable" }
  /** Nothing of the old server is left. */
  | { readonly kind: "drained" }
  /** The next attempt's time has come. */
  | { readonly kind: "due" }
  /** Nobody has used it for long enough. */
  | { readonly kind: "idleTimeout" };

/** What the owner has to do after a step. A timer ends with the state in which it was armed. */
export type Effect =
  | { readonly kind: "open" }
  /** End the attempt or the connection, and signal `drained` when nothing of it is left. */
  | { readonly kind: "close" }
  /** End the attempt, if it is one that was challenged; get an authorization, and signal `authorized`, `denied` or `lost`. */
  | { readonly kind: "authorize" }
  /** Signal at that time of the clock, in ms. */
  | { readonly kind: "arm"; readonly signal: "due" | "stable"; readonly at: number };
