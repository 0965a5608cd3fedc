import assert from "node:assert/strict";
import { spreadOf } from "../../bench/stats.ts";
import { describe, it } from "node:test";
import {
  formatVerdicts,
  groupLimits,
  checkLimits,
  type Limit,
  type Trial,
} from "../../bench/budget.ts";
import { readBudget } from "../../bench/check.ts";
import type { EntrantResult } from "../../bench/contest.ts";
import { countFaults, type ProgressMessage } from "../../bench/flood.ts";
import { judgeGoals } from "../../bench/goals.ts";
import { ratio } from "../../bench/race.ts";

const limit = (name: string, atMost: number): Limit => ({ name, atMost, why: `why ${name}` });

/** One trial after the other. */
function inTurn(...trials: readonly Trial[]) {
  let at = 0;
  const attempt = async (): Promise<Trial> => trials[at++] ?? assert.fail("one trial too many");
  return { attempt, done: () => at };
}

describe("the budget", () => {
  it("measures again what exceeds a limit, and takes the least of each figure", async () => {
    const trials = inTurn({ "a x": [1], "a y": [9] }, { "a x": [5], "a y": [3] });
    const verdicts = await checkLimits([limit("a x", 1), limit("a y", 3)], trials.attempt);
    assert.ok(verdicts.every(({ isKept }) => isKept));
    assert.deepEqual(
      verdicts.map(({ medians }) => medians.join()),
      ["1,5", "9,3"],
    );
  });

  it("keeps a limit that lies within the 95 % interval of the median, and exceeds one below it", async () => {
    const figures = Array.from({ length: 15 }, (_, at) => 1 + at / 10);
    const [verdict] = await checkLimits([limit("a x", 1.5)], inTurn({ "a x": figures }).attempt);
    assert.ok(verdict?.isKept && verdict.median > 1.5, String(verdict?.median));
    const trials = inTurn(...Array.from({ length: 3 }, () => ({ "a x": figures })));
    const [exceeded] = await checkLimits([limit("a x", 1.2)], trials.attempt);
    assert.equal(exceeded?.isKept, false);
  });

  it("gives up after three times, and says what was exceeded and why that matters", async () => {
    const trials = inTurn({ "a x": [1.6] }, { "a x": [1.5] }, { "a x": [1.7] });
    const [verdict] = await checkLimits([limit("a x", 1.25)], trials.attempt);
    assert.equal(verdict?.isKept, false);
    assert.equal(verdict.median, 1.5);
    const said = /a x +1\.5 +≤ 1\.25 +1\.6 1\.5 1\.7 +EXCEEDED: why a x/;
    assert.match(formatVerdicts([verdict]), said);
  });

  it("fails if a figure has no limit, or a limit no figure", async () => {
    await assert.rejects(checkLimits([], inTurn({ "a x": [1] }).attempt), /"a x" has no limit/);
    await assert.rejects(
      checkLimits([limit("a x", 1)], inTurn({}).attempt),
      /"a x" is not measured/,
    );
  });

  it("as it stands in the file has a limit and a reason for each figure, and none twice", () => {
    const { limits } = readBudget();
    assert.equal(new Set(limits.map(({ name }) => name)).size, limits.length);
    for (const { name, atMost, why } of limits) {
      assert.ok(name.includes(" ") && atMost >= 0 && why.length > 10, name);
    }
    assert.ok(groupLimits(limits).has("calls"));
  });
});

describe("the goals", () => {
  const judge = (columns: Readonly<Record<string, number>>) => {
    const table = { "those to a hub with one server": columns, "open files": { "10": 47 } };
    const goals = judgeGoals(new Map([["servers", table]]));
    return goals.find((goal) => goal.limit === "≤ 1.15 ×")?.verdict;
  };

  it("of a ratio with an interval are missed only if the whole interval lies above them", () => {
    assert.equal(judge({ "1,000": 1.3, "95 % from": 1.1, to: 1.5 }), "reached");
    assert.equal(judge({ "1,000": 1.3, "95 % from": 1.2, to: 1.5 }), "missed");
  });

  it("of a number of servers that was skipped are not measured", () => {
    assert.equal(judge({ "10": 1.3, "95 % from": Number.NaN }), "not measured");
  });
});

describe("a race", () => {
  const entrant = (...costs: (number | null)[]): EntrantResult => {
    const turns = costs.map((cost) => ({ p50: 1, p99: 1, rate: 1, cpu: cost }));
    return { turns, base: null, peak: null, rss: null };
  };

  it("is judged by the median of the ratios within its rounds", () => {
    const run = { hub: entrant(2, 2, 2, 90, 90), sdk: entrant(4, 8, 4, 4, 4) };
    assert.equal(ratio(run, "cpu", "hub", "sdk"), 0.5);
    const busy = { hub: entrant(2, 2, 90, 90, 90), sdk: entrant(4, 4, 4, 4, 4) };
    assert.equal(ratio(busy, "cpu", "hub", "sdk"), 22.5);
  });
});

describe("the order of progress", () => {
  const note = (progressToken: number, progress: number): ProgressMessage => {
    return { method: "notifications/progress", params: { progressToken, progress } };
  };
  const result = (id: number): ProgressMessage => ({ id, result: {} });
  /** The faults of call 1, which gets two notifications, and of call 2 after it. */
  const count = (...messages: ProgressMessage[]): number => {
    const all = [...messages, note(2, 1), note(2, 2), result(2)];
    const next = () => all.shift() ?? assert.fail("there are no more messages");
    return countFaults(1, 2, next) + countFaults(2, 2, next);
  };

  const wrong: Record<string, ProgressMessage[]> = {
    "two that changed places": [note(1, 2), note(1, 1), result(1)],
    "one that is missing": [note(1, 1), result(1)],
    "one that came twice": [note(1, 1), note(1, 1), note(1, 2), result(1)],
    "one after the result": [note(1, 1), note(1, 2), result(1), note(1, 3)],
    "one of a call that nobody made": [note(3, 1), note(1, 1), note(1, 2), result(1)],
    "a second result": [note(1, 1), note(1, 2), result(1), result(1)],
    "an error instead of a result": [note(1, 1), note(1, 2), { id: 1 }],
  };
  for (const [name, messages] of Object.entries(wrong)) {
    it(`knows ${name}`, () => {
      assert.equal(count(...messages) > 0, true);
    });
  }
});

describe("the spread of ratios", () => {
  it("has an interval around the median that single outliers do not move", () => {
    const ratios = [1.01, 0.99, 1, 1.02, 0.98, 1, 1.01, 0.99, 1, 1, 1.01, 0.99, 5, 1, 0.2];
    const { median, lower, upper, low, high } = spreadOf(ratios);
    assert.equal(median, 1);
    assert.deepEqual([lower, upper], [0.99, 1.01]);
    assert.ok(low >= 0.98 && high <= 1.02 && low <= 1 && high >= 1, `${low} ${high}`);
  });

  it("is unknown without ratios", () => {
    assert.deepEqual(spreadOf([Number.NaN]).median, Number.NaN);
  });
});
