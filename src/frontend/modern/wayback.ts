import type { CancelledBy } from "../../base/events.ts";
import type { CancelReason } from "../../protocol/withdrawal.ts";
import type { Responder } from "../../transport/transport.ts";

/** The responder of one request of the modern era. */
export interface ModernResponder extends Responder {
  /** Whether all requests of the client share one channel. */
  readonly isPipe: boolean;
  /** Calls back when the client cancels the request or disconnects before the answer. */
  onCancel(callback: (reason: CancelReason, by: CancelledBy) => void): void;
}
