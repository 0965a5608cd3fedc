import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import {
  type Circumstances,
  compareResults,
  findDifferences,
  refuseDifferences,
} from "../../src/bench/comparison.ts";
import { METRICS } from "../../src/bench/metrics.ts";
import { describeComparison } from "../../src/bench/report/comparison.ts";
import type { BenchResult, LevelResult } from "../../src/bench/result.ts";
import { applyRule, describeBreach, readRule } from "../../src/bench/rules.ts";
import { readSavedResult, writeSavedResult } from "../../src/bench/saved-result.ts";
import {
  benchResultOf,
  COST,
  latencyOf,
  levelResultOf,
  subjectResultOf,
} from "../fixtures/bench-results.ts";

const folder = mkdtempSync(join(tmpdir(), "toolmux-saved-"));
after(() => rmSync(folder, { recursive: true }));

/** A level of 10 s whose quarters have these medians in µs, one call in flight. */
function levelOf(quarters: readonly number[], more: Partial<LevelResult> = {}): LevelResult {
  const timeline = quarters.map((p50, at) => ({
    at: (at * 10) / quarters.length,
    calls: Math.round(1e7 / quarters.length / p50),
    errors: 0,
    p50,
    p99: p50 * 3,
  }));
  const calls = timeline.reduce((sum, span) => sum + span.calls, 0);
  const mean = quarters.reduce((sum, p50) => sum + p50, 0) / quarters.length;
  return levelResultOf(1, mean, { timeline, calls, rate: calls / 10, ...more });
}

function resultOf(...levels: readonly LevelResult[]): BenchResult {
  return benchResultOf([subjectResultOf("server", levels)]);
}

function compare(before: LevelResult, now: LevelResult) {
  const { levels } = compareResults(resultOf(before), resultOf(now), []);
  return new Map(levels[0]?.metrics.map((metric) => [metric.metric, metric]));
}

describe("a result beside an earlier one", () => {
  const steady = levelOf([100, 101, 99, 100]);

  it("has the ratio of each figure, which is no noise if all quarters of one lie beyond the other's", () => {
    const metrics = compare(steady, levelOf([110, 112, 111, 113]));
    assert.deepEqual(
      ["rate", "p50", "p99"].map((name) => metrics.get(name)?.withinNoise),
      [false, false, false],
    );
    assert.equal(metrics.get("p50")?.ratio?.toFixed(3), "1.115");
    assert.ok((metrics.get("rate")?.ratio ?? 1) < 0.9);
  });

  it("is within noise if one quarter overlaps with those of the earlier result", () => {
    const { withinNoise } = compare(steady, levelOf([110, 112, 100, 113])).get("p50") ?? {};
    assert.equal(withinNoise, true);
  });

  it("does not say that it is noise, nor that it is none, without quarters", () => {
    assert.equal(compare(steady, levelOf([110])).get("p50")?.withinNoise, null);
    const costs = (cpu: readonly number[] | undefined) =>
      levelOf([100, 100, 100, 100], {
        server: { ...COST, quarters: cpu },
      });
    const known = compare(costs([10, 11, 10, 11]), costs([14, 14, 15, 14]));
    assert.equal(known.get("cpu")?.withinNoise, false);
    const unknown = compare(costs(undefined), costs([14, 14, 15, 14]));
    assert.equal(unknown.get("cpu")?.withinNoise, null);
    assert.equal(unknown.get("memory")?.withinNoise, null);
  });

  it("compares levels with the same calls in flight, and names the others", () => {
    const before = resultOf(levelResultOf(1, 100), levelResultOf(4, 100));
    const now = resultOf(levelResultOf(4, 100), levelResultOf(16, 100));
    const comparison = compareResults(before, now, []);
    assert.deepEqual(
      comparison.levels.map(({ concurrency }) => concurrency),
      [4],
    );
    assert.deepEqual(comparison.unmatched, [1, 16]);
  });

  it("is shown with a mark at what is noise, and with how that was found", () => {
    const comparison = compareResults(resultOf(steady), resultOf(levelOf([90, 120, 100, 95])), []);
    const { notes, rows } = describeComparison(comparison);
    assert.ok(notes.some((note) => note.includes("four quarters")));
    assert.deepEqual(rows[1]?.slice(1), ["p50", "100 µs", "101 µs", "* 1.01 ×"]);
  });
});

describe("a comparison", () => {
  const earlier = resultOf(levelResultOf(1, 100));
  const { load, machine } = earlier;
  const others: [kind: string, changed: Partial<Circumstances>][] = [
    ["machine", { machine: { ...machine, cpu: "Example 9001" } }],
    ["machine", { machine: { ...machine, cores: 4 } }],
    ["machine", { machine: { ...machine, memory: machine.memory * 2 } }],
    ["machine", { machine: { ...machine, system: "linux 6.2 x64" } }],
    ["version", { machine: { ...machine, program: "toolmux 0.3.0, bun 1.4.5" } }],
    ["version", { machine: { ...machine, program: "toolmux 0.2.0, node 24.1.0" } }],
    ["load", { load: { ...load, loop: { kind: "open", rate: 5 } } }],
    ["load", { load: { ...load, extent: { calls: 10 } } }],
    ["load", { load: { ...load, chaos: { ...load.chaos, delay: 5 } } }],
    ["load", { load: { ...load, era: "modern" } }],
    ["load", { load: { ...load, tools: [{ name: "other", weight: 1, arguments: "{}" }] } }],
    ["subject", { subjects: [{ kind: "server", name: "node other.js" }] }],
  ];
  for (const [kind, changed] of others) {
    it(`is refused for another ${kind} (${JSON.stringify(changed)}) until that is accepted`, () => {
      const differences = findDifferences(earlier, { ...earlier, ...changed });
      assert.deepEqual(
        differences.map((difference) => difference.kind),
        [kind],
      );
      const refuse = (...accepted: readonly string[]): void =>
        refuseDifferences("a.json", differences, accepted as never);
      assert.throws(() => refuse("x"), { code: "usage", message: new RegExp(`another ${kind}: `) });
      refuse(kind);
    });
  }

  it("is not refused for what is not known yet, nor for weights with the same shares", () => {
    const { era: _, tools: __, ...known } = load;
    assert.deepEqual(findDifferences(earlier, { machine, load: known }), []);
    const weighed = (...weights: readonly [number, number]) => ({
      ...load,
      tools: weights.map((weight, at) => ({ name: `t${at}`, weight, arguments: "{}" })),
    });
    const mixed = { ...earlier, load: weighed(1, 3) };
    assert.deepEqual(findDifferences(mixed, { ...mixed, load: weighed(2, 6) }), []);
    assert.equal(findDifferences(mixed, { ...mixed, load: weighed(3, 1) }).length, 1);
  });
});

describe("a rule", () => {
  const LEVELS = [1, 64];
  const level = (p99: number, more: Partial<LevelResult> = {}): LevelResult => {
    return levelResultOf(1, 100, { latency: { ...latencyOf(100), p99 }, ...more });
  };
  const judge = (text: string, now: BenchResult, before?: BenchResult) =>
    applyRule(readRule(text, LEVELS, before !== undefined), now, before);

  const cases: [rule: string, isBroken: boolean][] = [
    ["p99>50ms", false],
    ["p99 > 49ms", true],
    ["p99>=50ms", true],
    ["p99>49999us", true],
    ["p99>49999.5µs", true],
    ["p99>0.04s", true],
    ["p99@1>40ms", true],
    ["p99@64>40ms", false],
    ["p50>1ms", false],
    ["rate<20000", true],
    ["rate<20000/s", true],
    ["rate<=1000", false],
    ["calls<1", false],
    ["errors>0", true],
    ["errors>5", false],
    ["error-rate>1%", false],
    ["error-rate>0", true],
    ["memory>50MB", true],
    ["memory>1GiB", false],
    ["cpu>1ms", false],
    ["cpu>50us", true],
  ];
  for (const [rule, isBroken] of cases) {
    it(`${rule} ${isBroken ? "fails a measurement" : "holds"}`, () => {
      const errors = { timeout: { count: 5, example: "No answer." } };
      const now = resultOf(level(50_000, { errors, server: COST }));
      assert.equal(judge(rule, now).isBroken, isBroken);
    });
  }

  it("says what was found, at which level", () => {
    const found = judge("p99>49ms", resultOf(level(50_000), levelResultOf(64, 90)));
    assert.deepEqual(found.broken, [{ concurrency: 1, reason: "p99 was 50.0 ms" }]);
    assert.equal(describeBreach(found), '--fail-if "p99>49ms": p99 was 50.0 ms with 1 in flight.');
  });

  it("in percent compares with the earlier result, and counts only what is more than noise", () => {
    const steady = resultOf(levelOf([100, 101, 99, 100]));
    const slower = resultOf(levelOf([130, 131, 132, 130]));
    assert.equal(judge("p50>120%", slower, steady).isBroken, true);
    assert.equal(judge("p50>140%", slower, steady).isBroken, false);
    assert.equal(judge("rate<80%", slower, steady).isBroken, true);
    assert.equal(judge("p50>120%", resultOf(levelOf([180, 180, 99, 180])), steady).isBroken, false);
    assert.equal(judge("p50>120%", slower, resultOf(levelResultOf(4, 100))).isBroken, true);
  });

  it("fails if its figure is not known", () => {
    assert.equal(judge("cpu>1s", resultOf(level(1))).isBroken, true);
    const silent = levelResultOf(1, 100, { latency: latencyOf(0, 0), calls: 0 });
    assert.equal(judge("p99>1s", resultOf(silent)).isBroken, true);
  });

  it("with an unknown metric is refused with all metrics", () => {
    for (const { name } of METRICS) {
      assert.throws(
        () => readRule("p98>1ms", LEVELS, false),
        (error: Error) => error.message.includes(` ${name}`),
      );
    }
  });

  for (const [rule, message] of [
    ["p99", /must be a rule/],
    ["p99>", /must be a rule/],
    [">5ms", /must be a rule/],
    ["p99=5ms", /must be a rule/],
    ["p99>5", /must be a time/],
    ["p99>-5ms", /must be a time/],
    ["memory>5ms", /must be a size/],
    ["rate>5ms", /must be a number of calls/],
    ["errors>5%", /must be a number/],
    ["error-rate>5", /must be a percentage/],
    ["p99>120%", /needs --against/],
    ["p99@3>5ms", /3 calls in flight are not measured/],
  ] as const) {
    it(`${rule} is refused`, () => {
      assert.throws(() => readRule(rule, LEVELS, false), { code: "usage", message });
    });
  }
});

describe("a saved result", () => {
  const path = (name: string): string => join(folder, name);

  it("is read as it was written, by this user only", async () => {
    const result = resultOf(
      levelOf([1, 2, 3, 4], { hub: COST, server: { ...COST, quarters: [1] } }),
    );
    await writeSavedResult(path("a.json"), result);
    assert.deepEqual(await readSavedResult(path("a.json")), result);
    assert.equal(statSync(path("a.json")).mode & 0o777, 0o600);
  });

  const whole = resultOf(levelResultOf(1, 100));
  const broken: [name: string, text: string, message: RegExp][] = [
    ["no JSON", "{", /is not JSON/],
    ["of another format", JSON.stringify({ ...whole, version: 1 }), /format 1/],
    ["without levels", JSON.stringify({ ...whole, subjects: [{}] }), /subjects\.0\./],
    [
      "with a negative figure",
      JSON.stringify(resultOf(levelResultOf(1, 100, { rate: -1 }))),
      /subjects\.0\.levels\.0\.rate/,
    ],
    ["that is something else", "[]", /is not a result of bench/],
  ];
  for (const [name, text, message] of broken) {
    it(`${name} is refused with what is wrong`, async () => {
      writeFileSync(path("broken.json"), text);
      await assert.rejects(readSavedResult(path("broken.json")), { code: "usage", message });
    });
  }

  it("that is missing or a folder is refused", async () => {
    await assert.rejects(readSavedResult(path("nothing.json")), { code: "usage" });
    await assert.rejects(readSavedResult(folder), { code: "usage", message: /folder/ });
  });
});
