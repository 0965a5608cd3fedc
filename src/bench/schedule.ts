import type { LoadSettingsResult } from "./result.ts";

/** How calls follow each other, and how long or how many of them there are: ms, or calls. */
export type Loop = LoadSettingsResult["loop"];
export type Extent = LoadSettingsResult["extent"];

/** Beyond this a test of arithmetic is not worth it: a call that is due by less than a rounding error is due. */
const EPSILON = 1e-6;

/**
 * When calls are to be made. In a closed loop one is due whenever somebody is free to make it. In an open loop they are due at
 * a constant rate from the beginning, whatever becomes of those before: the k-th at `start + k / rate`, so that nothing drifts,
 * and one that has to wait keeps the time at which it was due.
 */
export class Schedule {
  readonly #loop: Loop;
  readonly #start: number;
  /** ms. Infinity: only their number ends it. */
  readonly #end: number;
  readonly #most: number;
  #taken = 0;

  /** @param start ms, of the clock that `take` is told of */
  constructor(loop: Loop, extent: Extent, start: number) {
    this.#loop = loop;
    this.#start = start;
    const isCounted = "calls" in extent;
    const isOpen = loop.kind === "open";
    this.#end = isCounted
      ? isOpen
        ? start + (extent.calls * 1000) / loop.rate
        : Number.POSITIVE_INFINITY
      : start + extent.duration;
    if (isCounted) this.#most = extent.calls;
    else this.#most = isOpen ? Math.ceil((extent.duration * loop.rate) / 1000) : Infinity;
  }

  /** Takes the next call, if there is one that may be made now. @returns when it was due, in ms */
  take(now: number): number | undefined {
    if (this.wait(now) !== 0) return undefined;
    const due = this.#next(now);
    this.#taken++;
    return due;
  }

  /** How long it is until one more may be made, in ms; undefined: there will be none. */
  wait(now: number): number | undefined {
    if (this.#taken >= this.#most) return undefined;
    if (this.#loop.kind === "closed") return now < this.#end ? 0 : undefined;
    const left = this.#next(now) - now;
    return left <= EPSILON ? 0 : left;
  }

  /** Calls that are due and were not taken; none in a closed loop. */
  backlog(now: number): number {
    if (this.#loop.kind === "closed") return 0;
    const due = Math.floor(((now - this.#start) * this.#loop.rate) / 1000 + EPSILON) + 1;
    return Math.min(due, this.#most) - this.#taken;
  }

  /** When the last call is due, at the latest, in ms. Infinity: that is not known. */
  get end(): number {
    return this.#end;
  }

  /** The part of it that is over, 0 to 1. */
  progress(now: number): number {
    const byTime = (now - this.#start) / (this.#end - this.#start);
    const byCount = this.#taken / this.#most;
    return Math.min(1, Math.max(0, byTime || 0, byCount || 0));
  }

  #next(now: number): number {
    if (this.#loop.kind === "closed") return now;
    return this.#start + (this.#taken * 1000) / this.#loop.rate;
  }
}
