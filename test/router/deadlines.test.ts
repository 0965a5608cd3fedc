import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Deadlines, type DeadlineTarget } from "../../src/router/deadlines.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

function setUp(): { clock: VirtualClock; deadlines: Deadlines; at: (deadline: number) => Probe } {
  const clock = new VirtualClock();
  const deadlines = new Deadlines(clock);
  const at = (deadline: number): Probe => {
    const probe: Probe = {
      deadline,
      expired: undefined,
      expire: () => (probe.expired = clock.now()),
    };
    deadlines.add(probe);
    return probe;
  };
  return { clock, deadlines, at };
}
interface Probe extends DeadlineTarget {
  expired: number | undefined;
}

describe("deadlines", () => {
  it("expire each at its own time, whatever the order they were added in", () => {
    const { clock, at } = setUp();
    const probes = [at(300), at(100), at(200)];
    clock.advanceTo(1000);
    assert.deepEqual(
      probes.map((probe) => probe.expired),
      [300, 100, 200],
    );
  });

  it("do not expire after they were removed", () => {
    const { clock, deadlines, at } = setUp();
    const probe = at(100);
    deadlines.remove(probe);
    clock.advanceTo(1000);
    assert.equal(probe.expired, undefined);
  });

  it("expire later when they are moved back while they wait", () => {
    const { clock, at } = setUp();
    const probe = at(100);
    clock.advanceTo(50);
    probe.deadline = 150;
    clock.advanceTo(140);
    assert.equal(probe.expired, undefined);
    clock.advanceTo(150);
    assert.equal(probe.expired, 150);
  });

  it("keep their own times when others are removed, or come back", () => {
    const { clock, deadlines, at } = setUp();
    const probes = [at(100), at(200), at(300), at(400)];
    const [first, second] = probes;
    if (first === undefined || second === undefined) throw new Error("There are four.");
    for (const probe of [first, second, second]) deadlines.remove(probe);
    for (let time = 0; time < 2; time++) deadlines.add(second);
    clock.advanceTo(1000);
    assert.deepEqual(
      probes.map((probe) => probe.expired),
      [undefined, 200, 300, 400],
    );
  });

  it("do not expire if the end of another one, due at the same time, has ended them or moved them back", () => {
    const { clock, deadlines, at } = setUp();
    const ended = at(100);
    const moved = at(100);
    const expire = (): void => {
      deadlines.remove(ended);
      moved.deadline = 500;
    };
    deadlines.add({ deadline: 50, expire });
    deadlines.setPaused(true);
    clock.advanceTo(200);
    deadlines.setPaused(false);
    for (const probe of [ended, moved]) probe.deadline = 60;
    clock.advanceTo(499);
    assert.deepEqual([ended.expired, moved.expired], [undefined, undefined]);
    clock.advanceTo(1000);
    assert.deepEqual([ended.expired, moved.expired !== undefined], [undefined, true]);
  });

  it("expire once", () => {
    const { clock, deadlines } = setUp();
    let count = 0;
    deadlines.add({ deadline: 10, expire: () => count++ });
    clock.advanceTo(1000);
    assert.equal(count, 1);
  });

  it("never expire at infinity", () => {
    const { clock, at } = setUp();
    const probe = at(Infinity);
    clock.advanceTo(1e12);
    assert.equal(probe.expired, undefined);
  });

  it("cost one timer for a thousand calls that end in time", () => {
    const { clock, deadlines } = setUp();
    for (let i = 0; i < 1000; i++) {
      const probe = { deadline: 60_000 + i, expire: () => assert.fail("it ended in time") };
      deadlines.add(probe);
      deadlines.remove(probe);
    }
    assert.equal(clock.timerCount, 1);
  });
});
