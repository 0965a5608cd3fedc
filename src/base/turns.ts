/**
 * Long work in turns of the event loop: `if (isTurnOver()) await nextTurn()` between its steps lets calls go on. All
 * long work of the process shares the time of a turn, so that many short tasks at once do not make a long turn either.
 */
import { setImmediate } from "node:timers";

/** For how long such work goes on in one turn, in ms; its last step takes a few ms more. */
const TURN = 3;

/** When such work has begun in this turn, in ms of `performance.now()`; undefined: it has not. */
let began: number | undefined;
let isNextPlanned = false;
/** Those who wait for a turn. Each turn belongs to one of them, first come, first served. */
const waiting: (() => void)[] = [];

/** Whether long work has had its time in this turn. */
export function isTurnOver(): boolean {
  began ??= performance.now();
  planNext();
  return performance.now() - began >= TURN;
}

/** Waits for a turn of the event loop in which no other long work has begun. */
export function nextTurn(): Promise<void> {
  planNext();
  return new Promise((resolve) => waiting.push(resolve));
}

function planNext(): void {
  if (isNextPlanned) return;
  isNextPlanned = true;
  setImmediate(beginTurn);
}

function beginTurn(): void {
  isNextPlanned = false;
  const resume = waiting.shift();
  began = resume === undefined ? undefined : performance.now();
  if (resume === undefined) return;
  planNext();
  resume();
}
