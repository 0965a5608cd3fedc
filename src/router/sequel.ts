import type { Edit } from "../base/bytes.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { Unfinished } from "./input-required.ts";
import { Pursuit, type PursuitParts } from "./task-polling.ts";
import { Rounds, type RoundsParts } from "./rounds.ts";

/** What continuing an unfinished call needs. */
export type SequelParts = RoundsParts & Omit<PursuitParts, "sender">;

/**
 * Continues a call whose modern server has not completed it yet: the server requires input, has created a task, or
 * requires a client with the tasks extension.
 */
export class Sequel {
  /** What is declared to the server about the client in further requests. */
  sender: ClientDeclaration;
  readonly #parts: SequelParts;
  #rounds: Rounds | undefined;
  #pursuit: Pursuit | undefined;

  constructor(parts: SequelParts) {
    this.#parts = parts;
    this.sender = parts.caller.sender;
  }

  /** Edits of the request since the client sent it. */
  get edits(): readonly Edit[] {
    return this.#rounds?.edits ?? NONE;
  }

  begin(session: Session, unfinished: Unfinished): void {
    switch (unfinished.kind) {
      case "inputs":
        this.#rounds ??= new Rounds(this.#parts);
        this.#rounds.begin(unfinished);
        return;
      case "insistence":
        this.sender = { ...this.sender, isDriven: true };
        this.#parts.again();
        return;
      case "task":
        this.#pursue(session, unfinished.response);
    }
  }

  /** The server has completed the call. */
  finish(): void {
    this.#rounds?.finish();
  }

  /** The call is over. */
  withdraw(): void {
    this.#rounds?.withdraw();
    this.#pursuit?.withdraw();
  }

  #pursue(session: Session, made: Response): void {
    this.#pursuit = new Pursuit(session, { ...this.#parts, sender: this.sender });
    this.#pursuit.begin(made);
  }
}

const NONE: readonly Edit[] = [];
