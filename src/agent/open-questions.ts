import type { RunOptions } from "./agent.ts";

/** The questions that a person is asked for runs of agents. While there are any, the time of the runs stands still. */
export class OpenQuestions {
  #count = 0;
  readonly #listeners = new Set<(isPaused: boolean) => void>();

  /** A question begins. @returns a function to call once, when it is over */
  add(): () => void {
    this.#change(1);
    return () => this.#change(-1);
  }

  readonly watchPauses: NonNullable<RunOptions["watchPauses"]> = (listener) => {
    this.#listeners.add(listener);
    if (this.#count > 0) listener(true);
    return () => void this.#listeners.delete(listener);
  };

  #change(by: 1 | -1): void {
    this.#count += by;
    for (const listener of this.#listeners) listener(this.#count > 0);
  }
}
