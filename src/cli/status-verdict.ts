import type { ConnectPhase } from "../base/errors.ts";
import type { Verdict } from "../upstream/verdict.ts";

export const EXIT_CODES = {
  healthy: 0,
  partial: 1,
  failed: 3,
  none: 2,
} as const satisfies Record<Verdict, number>;

export const VERDICT_COLORS = {
  healthy: "green",
  partial: "yellow",
  failed: "red",
  none: "yellow",
} as const satisfies Record<Verdict, string>;

/** The end of "failed to …", for each step of connecting to a server. */
export const STEP_TEXTS: Readonly<Record<ConnectPhase, string>> = {
  resolve: "fill in its settings",
  spawn: "start",
  dial: "connect",
  authorize: "authorize",
  handshake: "initialize",
  list: "list its tools",
};
