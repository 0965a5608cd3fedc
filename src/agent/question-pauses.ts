import type { RunOptions } from "./agent.ts";

/**
 * Counts the questions of agent runs that wait for a person. While there are any, the runs' time limits are paused.
 */
export class OpenQuestions {
  #count = 0;
  readonly #listeners = new Set<(isPaused: boolean) => void>();

  /** Counts a question. @returns a function to call once, when the question is answered */
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
