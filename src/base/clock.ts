import { clearTimeout, setTimeout } from "node:timers";

/** A source of time and timers; tests pass a virtual one. */
export interface Clock {
  /** Monotonic time, in ms. */
  now(): number;
  /** Calls `callback` after `ms`. @returns a function that cancels the timer */
  after(ms: number, callback: () => void): () => void;
}

/** The system's clock. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
};
