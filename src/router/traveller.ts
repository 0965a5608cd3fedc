import type { Range } from "../bytes.ts";
import type { Route } from "../catalog/section.ts";
import type { HubError } from "../errors.ts";
import type { Occasion } from "../upstream/audience.ts";
import type { Connection } from "../upstream/connection.ts";
import type { Sender } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { Notification, Request, Response } from "../wire/jsonrpc.ts";
import type { Caller } from "./call.ts";
import type { Deadlines } from "./deadline.ts";
import type { Detour } from "./detour.ts";

/** Whose trip it is. */
export interface Traveller extends Occasion {
  readonly request: Request;
  readonly route: Route;
  readonly connection: Connection;
  readonly sender: Sender;
  readonly caller: Caller;
  readonly deadlines: Deadlines;
  /** Takes what becomes a task. */
  readonly detour: Detour | undefined;
  progress(notification: Notification, tokens: readonly Range[]): void;
  touch(): void;
  /** An answer of the server, before anybody changes it. */
  learn(session: Session, response: Response): void;
  halt(halted: boolean): void;
  /** It has come to an end. */
  arrived(trip: { readonly isSent: boolean }): void;
  /** The answer, or the failure, of a trip that is all there is to the call. */
  settle(response: Response): void;
  fail(error: HubError): void;
}
