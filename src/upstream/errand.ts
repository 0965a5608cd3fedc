import type { Piece, Range } from "../bytes.ts";
import { membersAt, readStanding } from "../protocol/tasks.ts";
import { type Message, type Notification, bytesOf, substitute } from "../wire/jsonrpc.ts";
import { Alias } from "./alias.ts";

/** A task of a client's, made of what a server asked: it is that server's alone, and lives as long as the session. */
export class Errand extends Alias {
  readonly #token: Piece | undefined;
  readonly #send: (message: Message) => void;
  isOver: boolean;
  /** Who has to know that nobody asks for it any more. */
  readonly dropped: (() => void)[] = [];

  constructor(created: Created, number: number, send: (message: Message) => void) {
    super(created.id, number);
    this.isOver = created.isOver;
    this.#token = created.token;
    this.#send = send;
  }

  /** Its client tells of it of its own accord. */
  tell(notification: Notification): void {
    const { bytes, params } = notification;
    this.isOver ||= readStanding(bytes, membersAt(bytes, params)).isOver;
    this.#send(bytesOf(notification));
  }

  progress(notification: Notification, tokens: readonly Range[]): void {
    if (this.isOver || this.#token === undefined) return;
    this.#send(substitute(notification, tokens, this.#token));
  }

  drop(): void {
    for (const tell of this.dropped.splice(0)) tell();
  }
}

/** What is known of one when it begins. */
export interface Created {
  readonly id: string;
  readonly isOver: boolean;
  /** The server's progress token as it spelled it, if it gave one. */
  readonly token: Piece | undefined;
}
