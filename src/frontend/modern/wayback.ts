import type { CancelledBy } from "../../base/events.ts";
import type { CancelReason } from "../../protocol/withdrawal.ts";
import type { Responder } from "../../transport/transport.ts";

/** The responder of one request of the modern era. */
export interface WayBack extends Responder {
  /** Whether all requests of the client share one channel. */
  readonly isPipe: boolean;
  /** Calls back when the client cancels the request or disconnects before the answer. */
  whenGone(callback: (why: CancelReason, by: CancelledBy) => void): void;
}
