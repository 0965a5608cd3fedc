import { cpus } from "node:os";

/** The time that all cores together have spent since the machine started, in ms: busy, and in total. */
export interface Work {
  readonly busy: number;
  readonly all: number;
}

/** The machine counts as calm if at most this fraction of its cores is busy. */
const MAX_BUSY = 0.25;
/** Interval between two readings, in ms. */
const POLL_INTERVAL = 500;

/** Waits until the machine is calm, for at most `patience` ms. @returns the time that it waited, in ms */
export async function awaitCalm(patience: number): Promise<number> {
  const began = performance.now();
  for (let before = readWork(); performance.now() < began + patience;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL));
    const after = readWork();
    if (shareOf(before, after) <= MAX_BUSY) break;
    before = after;
  }
  return performance.now() - began;
}

/** The fraction of all cores that was busy between two readings; 0 if unknown. */
export function shareOf(before: Work, after: Work): number {
  const all = after.all - before.all;
  return all > 0 ? (after.busy - before.busy) / all : 0;
}

function readWork(): Work {
  const times = cpus().map(({ times: { user, nice, sys, irq, idle } }) => ({
    busy: user + nice + sys + irq,
    idle,
  }));
  const sum = (of: (time: (typeof times)[number]) => number) =>
    times.reduce((total, time) => total + of(time), 0);
  return { busy: sum(({ busy }) => busy), all: sum(({ busy, idle }) => busy + idle) };
}
