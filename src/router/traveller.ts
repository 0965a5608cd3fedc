import type { ByteRange } from "../base/bytes.ts";
import type { Route } from "../catalog/section.ts";
import type { HubError } from "../base/errors.ts";
import type { ClientRequest } from "../upstream/audience.ts";
import type { Connection } from "../upstream/connection.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { Notification, Request, Response } from "../jsonrpc/message.ts";
import type { Caller } from "./call.ts";
import type { Deadlines } from "./deadlines.ts";
import type { TaskResultPluginCall } from "./plugin-task-result.ts";

/** The plugin call as its requests to the server see it. */
export interface UpstreamRequestOwner extends ClientRequest {
  readonly request: Request;
  readonly route: Route;
  readonly connection: Connection;
  readonly sender: ClientDeclaration;
  readonly caller: Caller;
  readonly deadlines: Deadlines;
  /** Takes a created task; undefined unless the call is task-augmented. */
  readonly taskResultCall: TaskResultPluginCall | undefined;
  onProgress(notification: Notification, tokens: readonly ByteRange[]): void;
  restartTimeout(): void;
  /** Records the links of a server's response, before plugins change it. */
  recordLinks(session: Session, response: Response): void;
  setDeadlinePaused(paused: boolean): void;
  /** A request of the call has ended. */
  onRequestEnd(upstreamRequest: { readonly isSent: boolean }): void;
  /** The outcome of the call's only request, if no plugin looks at it. */
  onResponse(response: Response): void;
  fail(error: HubError): void;
}
