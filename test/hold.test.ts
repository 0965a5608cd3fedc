import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Clock, Deadlines, type Timed } from "../src/router/deadline.ts";

/** A clock that moves only when it is told to. */
class VirtualClock implements Clock {
  #time = 0;
  readonly #timers = new Set<{ at: number; callback: () => void }>();

  now(): number {
    return this.#time;
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { at: this.#time + ms, callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  advance(to: number): void {
    for (;;) {
      const [next] = [...this.#timers].filter(({ at }) => at <= to).sort((a, b) => a.at - b.at);
      if (next === undefined) break;
      this.#timers.delete(next);
      this.#time = Math.max(this.#time, next.at);
      next.callback();
    }
    this.#time = to;
  }
}

interface Probe extends Timed {
  expired: number | undefined;
}

function setTime(): { clock: VirtualClock; deadlines: Deadlines; add: (ms: number) => Probe } {
  const clock = new VirtualClock();
  const deadlines = new Deadlines(clock);
  const add = (ms: number): Probe => {
    const probe: Probe = {
      deadline: deadlines.now() + ms,
      expired: undefined,
      expire: () => (probe.expired = clock.now()),
    };
    deadlines.add(probe);
    return probe;
  };
  return { clock, deadlines, add };
}

describe("the time of deadlines that are held", () => {
  it("stands still: they expire later by as long as the hold was, and not during it", () => {
    const { clock, deadlines, add } = setTime();
    const probe = add(1000);
    clock.advance(400);
    deadlines.hold(true);
    clock.advance(60_400);
    assert.equal(deadlines.now(), 400);
    deadlines.hold(false);
    clock.advance(60_999);
    assert.equal(probe.expired, undefined);
    clock.advance(61_000);
    assert.equal(probe.expired, 61_000);
  });

  it("adds up over several holds, and holding twice is holding once", () => {
    const { clock, deadlines, add } = setTime();
    const probe = add(1000);
    for (const from of [100, 1200, 2300]) {
      clock.advance(from);
      deadlines.hold(true);
      clock.advance(from + 500);
      deadlines.hold(true);
      clock.advance(from + 1000);
      deadlines.hold(false);
      deadlines.hold(false);
    }
    assert.equal(deadlines.now(), 300);
    clock.advance(3999);
    assert.equal(probe.expired, undefined);
    clock.advance(4000);
    assert.equal(probe.expired, 4000);
  });

  it("counts for what is added during the hold from its end on", () => {
    const { clock, deadlines, add } = setTime();
    deadlines.hold(true);
    clock.advance(5000);
    const probe = add(1000);
    clock.advance(10_000);
    assert.equal(probe.expired, undefined);
    deadlines.hold(false);
    clock.advance(11_000);
    assert.equal(probe.expired, 11_000);
  });

  it("leaves what is all but due a moment to be read after the hold", () => {
    const { clock, deadlines, add } = setTime();
    const probe = add(1000);
    clock.advance(999);
    deadlines.hold(true);
    clock.advance(5000);
    deadlines.hold(false);
    clock.advance(5050);
    assert.equal(probe.expired, undefined);
    clock.advance(5200);
    assert.ok(probe.expired !== undefined);
  });
});
