import type { Clock } from "../base/clock.ts";

/** A burst of changes ends after this time without a change, in ms. */
const QUIET_TIME = 100;
/** The longest wait for the end of a burst, in ms. */
const MAX_WAIT = 1000;

type DebouncerState =
  | { readonly state: "rest" }
  /** `since`: ms of the clock. */
  | { readonly state: "burst"; readonly since: number; readonly cancelTimer: () => void }
  /** `changedAt`: ms of the clock at the first change during the run; undefined if there was none. */
  | { readonly state: "work"; changedAt: number | undefined }
  | { readonly state: "closed" };

/** Debounces changes: runs an action after each burst. Runs never overlap, and a change during a run causes another. */
export class Debouncer {
  readonly #clock: Clock;
  readonly #action: () => Promise<void>;
  #state: DebouncerState = { state: "rest" };

  /** @param action must handle its own errors: a rejection is not caught */
  constructor(clock: Clock, action: () => Promise<void>) {
    this.#clock = clock;
    this.#action = action;
  }

  /** Reports a change. */
  trigger(): void {
    const state = this.#state;
    const now = this.#clock.now();
    if (state.state === "rest") this.#schedule(now);
    if (state.state === "work") state.changedAt ??= now;
    if (state.state !== "burst") return;
    state.cancelTimer();
    this.#schedule(state.since);
  }

  /** Cancels a pending run; a run in progress finishes. */
  close(): void {
    if (this.#state.state === "burst") this.#state.cancelTimer();
    this.#state = { state: "closed" };
  }

  #schedule(since: number): void {
    const remaining = since + MAX_WAIT - this.#clock.now();
    const cancelTimer = this.#clock.after(
      Math.max(0, Math.min(QUIET_TIME, remaining)),
      () => void this.#runAction(),
    );
    this.#state = { state: "burst", since, cancelTimer };
  }

  async #runAction(): Promise<void> {
    const state: DebouncerState = { state: "work", changedAt: undefined };
    this.#state = state;
    await this.#action();
    // Closed during the run.
    if (this.#state !== state) return;
    this.#state = { state: "rest" };
    if (state.changedAt !== undefined) this.#schedule(state.changedAt);
  }
}
