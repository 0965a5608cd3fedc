import type { Piece, ByteRange } from "../base/bytes.ts";
import { membersAt, readTaskStatus } from "./tasks.ts";
import {
  type EncodedMessage,
  type Notification,
  bytesOf,
  replaceRanges,
} from "../jsonrpc/message.ts";
import { TaskAlias } from "./alias.ts";

/** A task that a client has created of a server's request. It belongs to that server's session and ends with it. */
export class ClientTask extends TaskAlias {
  readonly #token: Piece | undefined;
  readonly #send: (message: EncodedMessage) => void;
  isOver: boolean;
  /** Called when the task is forgotten. */
  readonly onDropped: (() => void)[] = [];

  constructor(created: ClientTaskInfo, sequence: number, send: (message: EncodedMessage) => void) {
    super(created.id, sequence);
    this.isOver = created.isOver;
    this.#token = created.token;
    this.#send = send;
  }

  /** Passes on `notifications/tasks/status` of the client. */
  onStatus(notification: Notification): void {
    const { bytes, params } = notification;
    this.isOver ||= readTaskStatus(bytes, membersAt(bytes, params)).isOver;
    this.#send(bytesOf(notification));
  }

  progress(notification: Notification, tokens: readonly ByteRange[]): void {
    if (this.isOver || this.#token === undefined) return;
    this.#send(replaceRanges(notification, tokens, this.#token));
  }

  drop(): void {
    for (const callback of this.onDropped.splice(0)) callback();
  }
}

/** What is known of a client task when it is created. */
export interface ClientTaskInfo {
  readonly id: string;
  readonly isOver: boolean;
  /** The progress token of the server's request as it was spelled, if it has one. */
  readonly token: Piece | undefined;
}
