import type { CancelledBy } from "../../events.ts";
import type { Withdrawal } from "../../upstream/withdrawal.ts";
import type { Inbound } from "../../wire/link.ts";

/** The responder of one request of the modern era. */
export interface WayBack extends Inbound {
  /** Whether all requests of the client share one channel. */
  readonly isPipe: boolean;
  /** Calls back when the client cancels the request or disconnects before the answer. */
  whenGone(callback: (why: Withdrawal, by: CancelledBy) => void): void;
}
