import type { Clock } from "../base/clock.ts";

/** A burst of changes ends after this time without a change, in ms. */
const QUIET = 100;
/** The longest wait for the end of a burst, in ms. */
const PATIENCE = 1000;

type Phase =
  | { readonly at: "rest" }
  /** `since`: ms of the clock. */
  | { readonly at: "burst"; readonly since: number; readonly undo: () => void }
  /** `changedAt`: ms of the clock at the first change during the run; undefined if there was none. */
  | { readonly at: "work"; again: number | undefined }
  | { readonly at: "closed" };

/** Debounces changes: runs an action after each burst. Runs never overlap, and a change during a run causes another. */
export class Burst {
  readonly #clock: Clock;
  readonly #work: () => Promise<void>;
  #phase: Phase = { at: "rest" };

  /** @param action must handle its own errors: a rejection is not caught */
  constructor(clock: Clock, work: () => Promise<void>) {
    this.#clock = clock;
    this.#work = work;
  }

  /** Reports a change. */
  touch(): void {
    const phase = this.#phase;
    const now = this.#clock.now();
    if (phase.at === "rest") this.#wait(now);
    if (phase.at === "work") phase.again ??= now;
    if (phase.at !== "burst") return;
    phase.undo();
    this.#wait(phase.since);
  }

  /** Cancels a pending run; a run in progress finishes. */
  close(): void {
    if (this.#phase.at === "burst") this.#phase.undo();
    this.#phase = { at: "closed" };
  }

  #wait(since: number): void {
    const left = since + PATIENCE - this.#clock.now();
    const undo = this.#clock.after(Math.max(0, Math.min(QUIET, left)), () => void this.#run());
    this.#phase = { at: "burst", since, undo };
  }

  async #run(): Promise<void> {
    const phase: Phase = { at: "work", again: undefined };
    this.#phase = phase;
    await this.#work();
    // Closed during the run.
    if (this.#phase !== phase) return;
    this.#phase = { at: "rest" };
    if (phase.again !== undefined) this.#wait(phase.again);
  }
}
