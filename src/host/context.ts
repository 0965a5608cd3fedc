import type { OperationContext } from "../operations/context.ts";

/**
 * The system that a hub runs on, and the events of the process that concern a hub.
 */
export interface HostContext extends OperationContext {
  /** Handlers of uncaught errors. Each returns true if a plugin caused the error and it has been handled. */
  readonly uncaughtErrorHandlers: Set<(error: unknown) => boolean>;
  /** Handlers of SIGHUP; while there are none, SIGHUP ends the process. */
  readonly hangupHandlers: Set<() => void>;
}
