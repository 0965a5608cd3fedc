import type { Edit } from "../bytes.ts";
import type { Sender } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { Response } from "../wire/jsonrpc.ts";
import type { Unfinished } from "./inputs.ts";
import { Pursuit, type PursuitParts } from "./pursuit.ts";
import { Rounds, type RoundsParts } from "./rounds.ts";

/** What a call is that may not be answered at once. */
export type SequelParts = RoundsParts & Omit<PursuitParts, "sender">;

/**
 * What follows when a server of the modern era has answered a call, but not yet with what was asked for: it wants to know
 * more, has made a task of it, or wants a client that knows tasks.
 */
export class Sequel {
  /** Who makes the call, as the server is told from now on. */
  sender: Sender;
  readonly #parts: SequelParts;
  #rounds: Rounds | undefined;
  #pursuit: Pursuit | undefined;

  constructor(parts: SequelParts) {
    this.#parts = parts;
    this.sender = parts.caller.sender;
  }

  /** What the request says now beside what the client has written. */
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

  /** The server has answered with what was asked for. */
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
