import { clearTimeout, setTimeout } from "node:timers";

/** Time, as what waits for it needs it; tests pass a virtual one. */
export interface Clock {
  /** ms, monotonic. */
  now(): number;
  /** Calls back after that many ms. @returns the undo. */
  after(ms: number, callback: () => void): () => void;
}

/** Keeps nothing alive by itself: a process ends when all it has left is to wait. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
};
