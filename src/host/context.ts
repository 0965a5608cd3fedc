import type { OperationContext } from "../operations/context.ts";

/**
 * host/: opens a hub and serves it. `open-hub.ts` opens a hub in this process, `serve-hub.ts` serves it until it ends:
 * on stdio and HTTP, with its control API (`control.ts`, `hub-setup.ts`), dashboard, recording and reloads. `agents.ts`
 * opens agents for a person at a terminal, for clients and for the control API. `nesting.ts` keeps hubs from starting
 * each other. Nothing here reads the command line or prints: a command passes typed options and gets notices.
 *
 * The system that a hub runs on, and the events of the process that concern a hub.
 */
export interface HostContext extends OperationContext {
  /** Handlers of uncaught errors. Each returns true if a plugin caused the error and it has been handled. */
  readonly uncaughtErrorHandlers: Set<(error: unknown) => boolean>;
  /** Handlers of SIGHUP; while there are none, SIGHUP ends the process. */
  readonly hangupHandlers: Set<() => void>;
}
