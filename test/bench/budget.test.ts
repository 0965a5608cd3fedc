import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  formatVerdicts,
  groupLimits,
  checkLimits,
  type Limit,
  resetLimits,
  type Trial,
} from "../../bench/budget.ts";
import { awaitCalm, shareOf } from "../../bench/calm.ts";
import { readBudget } from "../../bench/check.ts";
import type { EntrantResult, Turn } from "../../bench/contest.ts";
import { fitPower } from "../../bench/fit.ts";
import { Order, type OrderedMessage } from "../../bench/order.ts";
import { ratio, ratioAtBest } from "../../bench/race.ts";

const limit = (name: string, atMost: number): Limit => ({ name, atMost, why: `why ${name}` });

/** One trial after the other. */
function inTurn(...trials: readonly Trial[]) {
  let at = 0;
  const attempt = async (): Promise<Trial> => trials[at++] ?? assert.fail("one trial too many");
  return { attempt, done: () => at };
}

describe("the budget", () => {
  it("measures once what keeps its limits, and those are kept that are just reached", async () => {
    const trials = inTurn({ "a x": 1, "a y": 2 });
    const verdicts = await checkLimits([limit("a x", 1), limit("a y", 3)], trials.attempt);
    const found = verdicts.map(({ isKept, least }) => `${isKept} ${least}`);
    assert.deepEqual(found, ["true 1", "true 2"]);
    assert.equal(trials.done(), 1);
  });

  it("measures again what exceeds a limit, and takes the least of each figure", async () => {
    const trials = inTurn({ "a x": 1, "a y": 9 }, { "a x": 5, "a y": 3 });
    const verdicts = await checkLimits([limit("a x", 1), limit("a y", 3)], trials.attempt);
    assert.ok(verdicts.every(({ isKept }) => isKept));
    const figures = verdicts.map((verdict) => verdict.figures.join());
    assert.deepEqual(figures, ["1,5", "9,3"]);
  });

  it("gives up after three times, and says what was exceeded and why that matters", async () => {
    const trials = inTurn({ "a x": 1.6 }, { "a x": 1.5 }, { "a x": 1.7 });
    const [verdict] = await checkLimits([limit("a x", 1.25)], trials.attempt);
    assert.equal(verdict?.isKept, false);
    assert.equal(verdict.least, 1.5);
    const said = /a x +1\.5 +≤ 1\.25 +1\.6 1\.5 1\.7 +EXCEEDED: why a x/;
    assert.match(formatVerdicts([verdict]), said);
  });

  it("holds nothing against what cannot be measured here, and says so", async () => {
    const [verdict] = await checkLimits([limit("a x", 1)], inTurn({ "a x": Number.NaN }).attempt);
    assert.equal(verdict?.isKept, true);
    assert.match(formatVerdicts([verdict]), /not measured here/);
  });

  it("fails if a figure has no limit, or a limit no figure", async () => {
    await assert.rejects(checkLimits([], inTurn({ "a x": 1 }).attempt), /"a x" has no limit/);
    await assert.rejects(
      checkLimits([limit("a x", 1)], inTurn({}).attempt),
      /"a x" is not measured/,
    );
  });

  it("is set anew from the usual of what was measured, with room above it", async () => {
    const trials = inTurn({ "a x": 1 }, { "a x": 2 }, { "a x": 30 });
    const verdicts = await checkLimits([limit("a x", 100)], trials.attempt, "always");
    assert.deepEqual(resetLimits(verdicts, 1.25), [limit("a x", 2.5)]);
  });

  it("as it stands in the file has a limit and a reason for each figure, and none twice", () => {
    const limits = readBudget();
    assert.equal(new Set(limits.map(({ name }) => name)).size, limits.length);
    for (const { name, atMost, why } of limits) {
      assert.ok(name.includes(" ") && atMost >= 0 && why.length > 10, name);
    }
    assert.ok(groupLimits(limits).has("calls"));
  });
});

describe("a race", () => {
  const entrant = (...costs: (number | null)[]): EntrantResult => {
    const turns = costs.map((cost) => ({ calls: 1, p50: 1, p99: 1, rate: 1, cpu: cost }));
    return { turns, base: null, peak: null, rss: null };
  };
  const cpu = (turn: Turn) => turn.cpu;

  it("is judged by the median of its rounds, or by what each takes in its better ones", () => {
    const run = { hub: entrant(2, 2, 2, 90, 90), sdk: entrant(4, 8, 4, 4, 4) };
    assert.equal(ratio(run, cpu, "hub", "sdk"), 0.5);
    assert.equal(ratioAtBest(run, cpu, "hub", "sdk"), 0.5);
    const busy = { hub: entrant(2, 2, 90, 90, 90), sdk: entrant(4, 4, 4, 4, 4) };
    assert.equal(ratio(busy, cpu, "hub", "sdk"), 22.5);
    assert.equal(ratioAtBest(busy, cpu, "hub", "sdk"), 0.5);
  });

  it("has no ratio where nothing is known of one side", () => {
    const run = { hub: entrant(2, 2), sdk: entrant(null, null) };
    assert.ok(Number.isNaN(ratio(run, cpu, "hub", "sdk")));
    assert.ok(Number.isNaN(ratioAtBest(run, cpu, "hub", "sdk")));
    assert.ok(Number.isNaN(ratio(run, cpu, "hub", "nobody")));
  });
});

describe("a calm machine", () => {
  it("is known by the part of its cores that was busy in between", () => {
    assert.equal(shareOf({ busy: 10, all: 100 }, { busy: 60, all: 200 }), 0.5);
    assert.equal(shareOf({ busy: 10, all: 100 }, { busy: 10, all: 100 }), 0);
  });

  it("is not waited for any longer than there is patience", async () => {
    assert.ok((await awaitCalm(0)) < 5000);
  });
});

describe("the fit of a curve", () => {
  const powerOf = (xs: readonly number[], ys: readonly number[]): number =>
    fitPower(xs.map((x, at) => [x, ys[at] ?? Number.NaN])).b;

  it("finds the power and the factor of points that lie on one", () => {
    const { a, b } = fitPower([1, 3, 10, 100].map((x) => [x, 5 * x ** 1.5]));
    assert.ok(Math.abs(a - 5) < 1e-9 && Math.abs(b - 1.5) < 1e-9);
  });

  it("finds no growth in what stays the same, and lies between points that scatter", () => {
    assert.ok(Math.abs(powerOf([1, 10, 100], [7, 7, 7])) < 1e-12);
    const b = powerOf([1, 10, 100], [1, 13, 90]);
    assert.ok(b > 0.95 && b < 1);
  });

  it("says nothing of too few points, and leaves out those that have no logarithm", () => {
    assert.ok(Number.isNaN(powerOf([1], [1])));
    assert.ok(Number.isNaN(powerOf([2, 2], [1, 4])));
    assert.ok(Math.abs(powerOf([1, 2, 3, 4], [2, 4, 0, Number.NaN]) - 1) < 1e-12);
  });
});

describe("the order of progress", () => {
  const note = (progressToken: number, progress: number): OrderedMessage => {
    return { method: "notifications/progress", params: { progressToken, progress } };
  };
  const result = (id: number): OrderedMessage => ({ id, result: {} });
  const watch = (...messages: OrderedMessage[]): Order => {
    const order = new Order([1, 2], 2);
    for (const message of messages) order.accept(message);
    return order;
  };
  const whole = [note(1, 1), note(2, 1), note(1, 2), result(1), note(2, 2), result(2)];

  it("is right when each call gets all of its own before its result, in whatever order calls do", () => {
    const order = watch(...whole, { method: "notifications/tools/list_changed" });
    assert.deepEqual([order.faults, order.isOver, order.examples], [0, true, []]);
  });

  it("is open until the last result", () => {
    assert.equal(watch(...whole.slice(0, -1)).isOver, false);
  });

  const wrong: Record<string, OrderedMessage[]> = {
    "two that changed places": [note(1, 2), note(1, 1), result(1)],
    "one that is missing": [note(1, 1), result(1)],
    "one that came twice": [note(1, 1), note(1, 1), note(1, 2), result(1)],
    "one after the result": [note(1, 1), note(1, 2), result(1), note(1, 3)],
    "one of a call that nobody made": [note(3, 1)],
    "a second result": [note(1, 1), note(1, 2), result(1), result(1)],
    "an error instead of a result": [note(1, 1), note(1, 2), { id: 1 }],
  };
  for (const [name, messages] of Object.entries(wrong)) {
    it(`knows ${name}`, () => {
      const { faults, examples } = watch(...messages);
      assert.ok(faults > 0 && examples.length > 0);
    });
  }
});
