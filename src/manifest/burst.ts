import type { Clock } from "../clock.ts";

/** How long it has to be quiet until a burst counts as over, in ms. */
const QUIET = 100;
/** How long a burst that does not end is waited for, in ms. */
const PATIENCE = 1000;

type Phase =
  | { readonly at: "rest" }
  /** `since` is in ms of the clock. */
  | { readonly at: "burst"; readonly since: number; readonly undo: () => void }
  /** `again`: when the first change came that the work may have missed. */
  | { readonly at: "work"; again: number | undefined }
  | { readonly at: "closed" };

/** Makes of each burst of changes one piece of work, which never overlaps with another and misses none of them. */
export class Burst {
  readonly #clock: Clock;
  readonly #work: () => Promise<void>;
  #phase: Phase = { at: "rest" };

  /** A rejection of `work` is nobody's: it has to deal with its failures. */
  constructor(clock: Clock, work: () => Promise<void>) {
    this.#clock = clock;
    this.#work = work;
  }

  /** Something changed. */
  touch(): void {
    const phase = this.#phase;
    const now = this.#clock.now();
    if (phase.at === "rest") this.#wait(now);
    if (phase.at === "work") phase.again ??= now;
    if (phase.at !== "burst") return;
    phase.undo();
    this.#wait(phase.since);
  }

  /** Nothing is begun any more. */
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
    // Closed meanwhile.
    if (this.#phase !== phase) return;
    this.#phase = { at: "rest" };
    if (phase.again !== undefined) this.#wait(phase.again);
  }
}
