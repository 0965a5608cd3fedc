import type { CancelledBy } from "../../events.ts";
import type { Withdrawal } from "../../upstream/withdrawal.ts";
import type { Inbound } from "../../wire/link.ts";

/** The way back of one request of the modern era. */
export interface WayBack extends Inbound {
  /** It comes out where those of the client's other requests do. */
  readonly isPipe: boolean;
  /** Calls back when nobody waits at its end any more, unless it has got its answer. */
  whenGone(callback: (why: Withdrawal, by: CancelledBy) => void): void;
}
