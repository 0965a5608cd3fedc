import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CoalescedRefresh } from "../../src/upstream/listing.ts";
import { turn, VirtualClock } from "../fixtures/virtual-clock.ts";
import { Latch } from "../fixtures/memory-hub.ts";

type Outcome = "changed" | "same" | "again";

/** A refresh whose listings end like this, each when the test lets it. */
function begin(...outcomes: Outcome[]) {
  const clock = new VirtualClock();
  const latches = outcomes.map(() => new Latch());
  let count = 0;
  const refresh = new CoalescedRefresh({
    clock,
    ready: () => Promise.resolve(),
    async list() {
      const at = count++;
      await latches[at]?.wait();
      return outcomes[at] ?? "same";
    },
  });
  const reported: string[] = [];
  const announce = (who: string): void =>
    void refresh.request().then(() => void reported.push(who));
  return { refresh, clock, latches, told: reported, announce, count: () => count };
}

describe("listing again", () => {
  it("ends for all who asked for it before it began, and not for those who came later", async () => {
    const { latches, told: reported, announce, clock, count } = begin("same", "same");
    announce("a");
    announce("b");
    await turn();
    announce("late");
    latches[0]?.open();
    await turn();
    assert.deepEqual(reported, ["a", "b"]);
    await clock.advanceAsync(1000);
    latches[1]?.open();
    await turn();
    assert.deepEqual([reported, count()], [["a", "b", "late"], 2]);
  });

  it("that has to be done once more ends for all when that is done", async () => {
    for (const isMore of [true, false]) {
      const { latches, told: reported, announce } = begin("again", "same");
      announce("a");
      await turn();
      if (isMore) announce("b");
      latches[0]?.open();
      await turn();
      assert.deepEqual(reported, []);
      latches[1]?.open();
      await turn();
      assert.deepEqual(reported, isMore ? ["a", "b"] : ["a"]);
    }
  });

  it("ends for all when the connection does", async () => {
    const { refresh, latches, told: reported, announce } = begin("again");
    announce("a");
    await turn();
    announce("b");
    refresh.end();
    latches[0]?.open();
    await turn();
    assert.deepEqual(reported.toSorted(), ["a", "b"]);
  });

  it("of a list that changes all the time is done at growing intervals, however it is announced", async () => {
    for (const afterMs of [0, 1000, 5000]) {
      const clock = new VirtualClock();
      const times: number[] = [];
      const refresh: CoalescedRefresh = new CoalescedRefresh({
        clock,
        ready: () => Promise.resolve(),
        list() {
          times.push(clock.now());
          clock.after(afterMs, () => void refresh.request());
          return Promise.resolve("changed");
        },
      });
      void refresh.request();
      await clock.advanceAsync(30 * 60_000);
      const pauses = times.slice(1).map((time, at) => time - (times[at] ?? 0));
      assert.ok(times.length < 50, `${times.length} listings`);
      assert.ok(pauses.every((pause, at) => pause >= (pauses[at - 1] ?? 0)));
      assert.equal(pauses.at(-1), 60_000);
      refresh.end();
    }
  });

  it("for somebody who waits for it keeps the shortest pause only", async () => {
    const { refresh, clock, latches, announce, count } = begin(
      ...Array<Outcome>(8).fill("changed"),
    );
    for (const latch of latches) latch.open();
    for (let at = 0; at < 6; at++) {
      announce("a");
      await clock.advanceAsync(at === 5 ? 0 : 5000);
    }
    const before = count();
    let isListed = false;
    void refresh.request(true).then(() => (isListed = true));
    await clock.advanceAsync(100);
    assert.deepEqual([isListed, count() > before], [true, true]);
    refresh.end();
  });

  it("is done at once again after a list has been quiet", async () => {
    const outcomes = Array.from({ length: 20 }, (): Outcome => "changed");
    const { latches, announce, clock, count } = begin(...outcomes);
    for (const latch of latches) latch.open();
    for (let at = 0; at < 8; at++) {
      announce("a");
      await clock.advanceAsync(100);
    }
    await clock.advanceAsync(60_000);
    const before = count();
    announce("b");
    await clock.advanceAsync(1);
    announce("c");
    await clock.advanceAsync(150);
    assert.equal(count(), before + 2);
  });
});
