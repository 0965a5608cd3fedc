import { setImmediate } from "node:timers";
import { type Clock, systemClock } from "../base/clock.ts";

/** Timers are late by as much, in ms. */
const LATENESS = 2;

/**
 * Time to the microsecond: what is left after a timer of the system has rung is waited for by turns of the event loop, in each
 * of which whatever came in is read. It costs a processor while it waits, and only what is due within 2 ms waits so.
 */
export const preciseClock: Clock = {
  now: () => systemClock.now(),
  after(ms, callback) {
    const due = performance.now() + ms;
    let isOver = false;
    let undo = (): void => {};
    const look = (): void => {
      if (isOver) return;
      if (performance.now() < due) setImmediate(look);
      else callback();
    };
    if (ms > LATENESS) undo = systemClock.after(ms - LATENESS, look);
    else setImmediate(look);
    return () => {
      isOver = true;
      undo();
    };
  },
};

/** Now, in ms since the epoch and parts of them: the same for all processes of a machine, which `performance.now` is not. */
export function wallTime(): number {
  return performance.timeOrigin + performance.now();
}
