import type { Piece, ByteRange } from "../base/bytes.ts";
import type { HubError } from "../base/errors.ts";
import type { ServerRequestMethod } from "../protocol/legacy.ts";
import type { TaskMethodName } from "../protocol/tasks.ts";
import type { Notification, Response } from "../jsonrpc/message.ts";
import type { ClientTask } from "../protocol/errand.ts";
import type { CancelReason } from "../protocol/withdrawal.ts";

/**
 * A request of a server's to a client (sampling, elicitation, roots, or about a task), which waits for one response.
 */
export interface ServerRequest {
  readonly server: string;
  readonly method: ServerRequestMethod | TaskMethodName;
  /** The params as the server wrote them. @param token replaces the progress token, if the server gave one */
  params(token: Piece): readonly Piece[] | undefined;
  /**
   * The client has responded.
   * @param body the bare result or error
   * @returns the task that the client has created instead of a result, if any
   */
  answer(outcome: Response["outcome"], body: Uint8Array): ClientTask | undefined;
  /** No response will come. */
  fail(error: HubError): void;
  /** The client reports progress. @param tokens ranges of the progress token in the notification's bytes */
  progress(notification: Notification, tokens: readonly ByteRange[]): void;
}

/** Takes requests of servers of either era for a client of either era. */
export interface ServerRequestTarget {
  /**
   * Sends a request. Calls either its `answer` or its `fail`, once, unless it is cancelled.
   * @returns a function that cancels it
   */
  sendServerRequest(request: ServerRequest): (reason: CancelReason) => void;
}
