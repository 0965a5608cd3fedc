import type { Piece, Range } from "../bytes.ts";
import type { HubError } from "../errors.ts";
import type { AskMethod } from "../protocol/legacy.ts";
import type { TaskQuery } from "../protocol/tasks.ts";
import type { Notification, Response } from "../wire/jsonrpc.ts";
import type { Errand } from "./errand.ts";
import type { Withdrawal } from "./withdrawal.ts";

/** One thing that a server asks of a client, and the server that waits for the answer. */
export interface Question {
  readonly server: string;
  readonly method: AskMethod | TaskQuery;
  /** What is asked, as the server wrote it; its progress token, if it gave one, is this. */
  params(token: Piece): readonly Piece[] | undefined;
  /** The client answered; `body` is the bare result or error. @returns the task that the client has begun instead, if it has */
  answer(outcome: Response["outcome"], body: Uint8Array): Errand | undefined;
  /** No answer will come. */
  fail(error: HubError): void;
  /** The client reports progress; `tokens` are the ranges of the token in the notification's bytes. */
  progress(notification: Notification, tokens: readonly Range[]): void;
}

/** The one way in which servers of any era ask clients of any era. */
export interface Ask {
  /** Either `answer` or `fail` of the question is called, once, unless it is withdrawn. @returns what withdraws it */
  ask(question: Question): (why: Withdrawal) => void;
}
