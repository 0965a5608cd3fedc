import type { Edit } from "../base/bytes.ts";
import type { ClientDeclaration } from "../upstream/sender.ts";
import type { Session } from "../upstream/session.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { UnfinishedResult } from "./input-required.ts";
import { TaskPolling, type TaskPollingOptions } from "./task-polling.ts";
import { InputRounds, type InputRoundsOptions } from "./rounds.ts";

/** What continuing an unfinished call needs. */
export type UnfinishedCallOptions = InputRoundsOptions & Omit<TaskPollingOptions, "sender">;

/**
 * Continues a call whose modern server has not completed it yet: the server requires input, has created a task, or
 * requires a client with the tasks extension.
 */
export class UnfinishedCall {
  /** What is declared to the server about the client in further requests. */
  sender: ClientDeclaration;
  readonly #options: UnfinishedCallOptions;
  #inputRounds: InputRounds | undefined;
  #taskPolling: TaskPolling | undefined;

  constructor(options: UnfinishedCallOptions) {
    this.#options = options;
    this.sender = options.caller.sender;
  }

  /** Edits of the request since the client sent it. */
  get edits(): readonly Edit[] {
    return this.#inputRounds?.edits ?? NO_EDITS;
  }

  continueCall(session: Session, unfinished: UnfinishedResult): void {
    switch (unfinished.kind) {
      case "inputs":
        this.#inputRounds ??= new InputRounds(this.#options);
        this.#inputRounds.start(unfinished);
        return;
      case "insistence":
        this.sender = { ...this.sender, isDriven: true };
        this.#options.resend();
        return;
      case "task":
        this.#pollTask(session, unfinished.response);
    }
  }

  /** The server has completed the call. */
  finish(): void {
    this.#inputRounds?.finish();
  }

  /** The call is over. */
  cancel(): void {
    this.#inputRounds?.cancel();
    this.#taskPolling?.cancel();
  }

  #pollTask(session: Session, created: Response): void {
    this.#taskPolling = new TaskPolling(session, { ...this.#options, sender: this.sender });
    this.#taskPolling.start(created);
  }
}

const NO_EDITS: readonly Edit[] = [];
