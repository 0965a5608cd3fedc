import type { ConnectPhase } from "../base/errors.ts";

/** The overall result for all enabled servers. */
export type StatusVerdict = "healthy" | "partial" | "failed" | "none";

export const EXIT_CODES = {
  healthy: 0,
  partial: 1,
  failed: 3,
  none: 2,
} as const satisfies Record<StatusVerdict, number>;

/** The end of "failed to …", for each step of connecting to a server. */
export const STEP_TEXTS: Readonly<Record<ConnectPhase, string>> = {
  resolve: "fill in its settings",
  spawn: "start",
  dial: "connect",
  authorize: "authorize",
  handshake: "initialize",
  list: "list its tools",
};
