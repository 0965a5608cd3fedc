import { cpus } from "node:os";

/** What all cores have done since the machine started, in ms. */
export interface Work {
  readonly busy: number;
  readonly all: number;
}

/** A machine is calm when no more of its cores than this is busy. */
const CALM = 0.25;
/** Between two looks, in ms. */
const LOOK = 500;

/** Waits until others have little to do here, or `patience` (ms) is used up. @returns ms that it took */
export async function awaitCalm(patience: number): Promise<number> {
  const began = performance.now();
  for (let before = readWork(); performance.now() < began + patience;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK));
    const after = readWork();
    if (shareOf(before, after) <= CALM) break;
    before = after;
  }
  return performance.now() - began;
}

/** The part of all cores that was busy between two looks; 0 if nothing is known of it. */
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
