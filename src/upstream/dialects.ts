import type { Edit } from "../base/bytes.ts";
import type { Era } from "../protocol/era.ts";
import type { Notification, Request } from "../jsonrpc/message.ts";
import type { PendingRequest } from "./pending.ts";
import type { ClientDeclaration } from "./sender.ts";

/** What is listened for beside resources. */
export type ListenTopic = "task";

/** What differs between the eras in speaking with one server, from the handshake on. */
export interface Dialect {
  readonly era: Era;
  /** Whether several messages may come in one array. */
  readonly hasBatches: boolean;
  /** What it is asked for as a sign of life. */
  readonly pulse: string;
  /** The server has been met: says what it has to be told first. */
  begin(): void;
  /** The params of a request of the hub's own. */
  complete(params: object | undefined): object | undefined;
  /** Adds to a client's request what the server has to be told of its sender, and takes out what it has not. */
  dress(request: Request, sender: ClientDeclaration, edits: Edit[]): void;
  /** Whether the answer to a request may be that it has become a task. */
  mayMakeTask(request: Pick<PendingRequest, "method" | "isTask">): boolean;
  /** Begins to hear of a resource, or of a task. @throws {HubError} if the server does not agree, or does not answer */
  subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void>;
  /** Does not want to hear of it any more; whether the server can do that is its own affair. */
  unsubscribe(id: string, topic?: ListenTopic): void;
  /** A notification as it may go on to clients of any era. */
  strip(notification: Notification): Notification;
  /**
   * Takes a notification that only this era has, or that means something else in it.
   * @param record the request on whose stream it came, where the link can tell
   * @returns whether it was one
   */
  hear(notification: Notification, record: PendingRequest | undefined): boolean;
  close(): void;
}
