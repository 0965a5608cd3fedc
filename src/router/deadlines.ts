import { type Clock, systemClock } from "../base/clock.ts";

/** An object with a deadline, in ms of the clock. The deadline may be postponed while the object is scheduled. */
export interface DeadlineTarget {
  deadline: number;
  /** Index in the list of scheduled targets; written by `Deadlines` only. */
  deadlineIndex?: number | undefined;
  expire(): void;
}

/** Maximum delay of a timer (`setTimeout`), in ms. */
const MAX_DELAY = 2 ** 31 - 1;
/**
 * Time after a pause in which nothing expires, in ms, so that responses that arrived during the pause are read first.
 */
const READ_DELAY_AFTER_PAUSE = 100;

/**
 * The deadlines of many calls, with a single timer. The timer is set for the earliest deadline, and all deadlines are
 * checked when it fires. So ending a call or postponing its deadline needs no timer operation.
 *
 * While paused, no time passes: a call must not expire because the hub cannot read or write its response.
 */
export class Deadlines {
  readonly #clock: Clock;
  /** The scheduled targets, unordered; each stores its index. A Set would take about 100 bytes more for each call. */
  readonly #targets: DeadlineTarget[] = [];
  #timer: { at: number; cancel: () => void } | undefined;
  #totalPaused = 0;
  /** The start of the current pause, in ms of the clock; undefined while not paused. */
  #pausedSince: number | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Returns the clock's time minus all pauses, in ms; never goes back. */
  now(): number {
    return (this.#pausedSince ?? this.#clock.now()) - this.#totalPaused;
  }

  /**
   * Calls back after `ms` of the clock, regardless of pauses.
   * @returns a function that cancels the timer
   */
  after(ms: number, callback: () => void): () => void {
    return this.#clock.after(ms, callback);
  }

  setPaused(paused: boolean): void {
    if (paused === (this.#pausedSince !== undefined)) return;
    const now = this.#clock.now();
    if (this.#pausedSince === undefined) {
      this.#pausedSince = now;
      this.#clearTimer();
      return;
    }
    this.#totalPaused += now - this.#pausedSince;
    this.#pausedSince = undefined;
    this.#setTimer(Math.max(this.#earliest, this.now() + READ_DELAY_AFTER_PAUSE));
  }

  add(target: DeadlineTarget): void {
    target.deadlineIndex ??= this.#targets.push(target) - 1;
    this.#setTimer(target.deadline);
  }

  /**
   * Removes a target. The timer stays set even if this was the last target, because clearing it would cost a timer
   * operation for each call.
   */
  remove(target: DeadlineTarget): void {
    const { deadlineIndex: index } = target;
    if (index === undefined) return;
    target.deadlineIndex = undefined;
    const last = this.#targets.pop();
    if (last === undefined || last === target) return;
    this.#targets[index] = last;
    last.deadlineIndex = index;
  }

  clear(): void {
    for (const target of this.#targets.splice(0)) target.deadlineIndex = undefined;
    this.#clearTimer();
  }

  get #earliest(): number {
    return this.#targets.reduce((earliest, { deadline }) => Math.min(earliest, deadline), Infinity);
  }

  #setTimer(time: number): void {
    if (time === Infinity || this.#pausedSince !== undefined) return;
    if (this.#timer !== undefined && this.#timer.at <= time) return;
    this.#clearTimer();
    const delay = Math.min(Math.max(time - this.now(), 0), MAX_DELAY);
    this.#timer = { at: time, cancel: this.#clock.after(delay, this.#onTimer) };
  }

  #clearTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  readonly #onTimer = (): void => {
    this.#timer = undefined;
    const now = this.now();
    const isDue = ({ deadline }: DeadlineTarget): boolean => deadline <= now;
    for (const target of this.#targets.filter(isDue).sort(byDeadline)) {
      // An earlier `expire` may have removed this target or postponed its deadline.
      if (target.deadlineIndex === undefined || !isDue(target)) continue;
      this.remove(target);
      target.expire();
    }
    this.#setTimer(this.#earliest);
  };
}

function byDeadline(a: DeadlineTarget, b: DeadlineTarget): number {
  return a.deadline - b.deadline;
}
