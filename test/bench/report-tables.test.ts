import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { makeColors } from "../../src/terminal/terminal.ts";
import type { BenchResult, LevelResult } from "../../src/bench/result.ts";
import { formatReportText, tabulateResult } from "../../src/bench/report/tables.ts";
import { BenchProgressLine } from "../../src/bench/report/progress.ts";
import { summarize } from "../../src/bench/report/summary.ts";
import {
  CLOSED_LOOP,
  comparisonResult,
  COST,
  latencyOf,
  levelResultOf,
  benchResultOf,
  subjectResultOf,
} from "../fixtures/bench-results.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

const PAPER = { isTerminal: false, width: Infinity, colors: makeColors(false) };

function print(result: BenchResult, width = Infinity): string {
  return formatReportText(tabulateResult(result), { ...PAPER, width });
}

/** One server under one load. */
function alone(level: Partial<LevelResult>, more: Partial<BenchResult> = {}): BenchResult {
  return benchResultOf([subjectResultOf("server", [levelResultOf(16, 100, level)])], more);
}

describe("what a measurement found, as text", () => {
  it("has a line for each level under aligned titles", () => {
    const levels = [levelResultOf(1, 66, { hub: COST, server: COST }), levelResultOf(64, 1180)];
    const text = `toolmux, 1 server
tool echo__echo with {"text":"hello"}; closed loop; 10.0 s per level
toolmux 0.2.0, bun 1.4.5 on linux 6.1 x64, Example 9000 (2 cores), 8.20 GB of memory

Calls
Ready in 12.4 ms, 3 tools listed in 14.1 ms.
IN FLIGHT      RATE      P50      P90      P99    P99.9      MAX    CALLS  ERRORS
        1  15,152/s  66.0 µs  82.1 µs   161 µs   306 µs   795 µs  151,515       0
       64  54,237/s  1.18 ms  1.47 ms  2.88 ms  5.48 ms  14.2 ms  542,373       0

CPU and memory
IN FLIGHT  OF      PROCESSES  CPU PER CALL            CPU   MEMORY     PEAK
        1  hub             1       2.31 µs  82% of a core  43.2 MB  51.8 MB
        1  server          1       2.31 µs  82% of a core  43.2 MB  51.8 MB`;
    assert.equal(print(benchResultOf([subjectResultOf("hub", levels)])), text);
  });

  it("sets the hub beside the server alone, and says what it adds", () => {
    const text = print(comparisonResult());
    assert.match(text, /^bun echo\.ts, with and without the hub\n/);
    assert.match(text, /^Calls, through the hub$/m);
    assert.match(text, /^Calls, direct$/m);
    const costs = text.slice(text.indexOf("What the hub costs"));
    assert.match(costs, /^ +1 +58\.0 µs +66\.0 µs +\+8\.00 µs +142 µs +161 µs +\+19\.5 µs +88%$/m);
  });

  it("has the calls of each tool, and the part of each in the load, if there are several", () => {
    const tools = [
      { name: "read", calls: 900, errors: 0, p50: 100, p90: 110, p99: 200 },
      { name: "write", calls: 90, errors: 10, p50: 1200, p90: 1300, p99: 2000 },
    ];
    const loads = [9, 1].map((weight, at) => {
      return { name: tools[at]?.name ?? "", weight, arguments: "{}" };
    });
    const text = print(alone({ tools }, { load: { ...CLOSED_LOOP, tools: loads } }));
    assert.match(text, /^90% tool read with \{\}; 10% tool write with \{\}; closed loop/m);
    const rows = text.slice(text.indexOf("Calls per tool"));
    assert.match(rows, /^ +16 +read +90% +100 µs +110 µs +200 µs +900 +0$/m);
    assert.match(rows, /^ +16 +write +10% +1\.20 ms +1\.30 ms +2\.00 ms +90 +10$/m);
    assert.ok(!print(alone({})).includes("Calls per tool"));
  });

  it("marks a difference within noise, and explains the mark only where there is one", () => {
    const { overhead = [], ...rest } = comparisonResult();
    const noisy = overhead.map((level, at) =>
      at === 0 ? { ...level, withinNoise: { p50: true, p99: false, rate: true } } : level,
    );
    const costsOf = (result: BenchResult): string[] => {
      const lines = print(result).split("\n");
      return lines.slice(lines.indexOf("What the hub costs"));
    };
    const text = costsOf({ ...rest, overhead: noisy }).join("\n");
    assert.match(text, /^\* within noise: /m);
    assert.match(text, /^ +1 .* \* \+8\.00 µs .* \+19\.5 µs +\* 88%$/m);
    const marked = costsOf({ ...rest, overhead: noisy }).filter((line) => line.includes("* "));
    assert.equal(marked.length, 2);
    assert.ok(!costsOf(comparisonResult()).join("\n").includes("*"));
  });

  it("has headline figures that name their level, and claims no difference within noise", () => {
    const { overhead = [], ...rest } = comparisonResult();
    for (const [noise, claims] of [
      [false, ["+8.00 µs", "95%"]],
      [true, ["within noise", "within noise"]],
    ] as const) {
      const withinNoise = { p50: noise, p99: noise, rate: noise };
      const levels = overhead.map((level) => ({ ...level, withinNoise }));
      const figures = summarize({ ...rest, overhead: levels });
      for (const { label } of figures) assert.match(label, /, (?:\d+ in flight|all levels)$/);
      const effects = figures.filter(({ label }) => label.startsWith("The hub "));
      const values = effects.map(({ value }) => value);
      assert.deepEqual(values, claims);
    }
  });

  it("says what a comparison took away with its sign", () => {
    const faster = { concurrency: 1, p50: -4, p99: 0, rate: 1.04 };
    const text = print({ ...comparisonResult(), overhead: [faster] });
    assert.match(text, /−4\.00 µs .*\+0 µs +104%/);
  });

  it("fits 100 columns, whatever is in it", () => {
    const level = levelResultOf(256, 1_234_567, {
      rate: 123_456.7,
      calls: 12_345_678,
      errors: { timeout: { count: 123_456, example: "no answer ".repeat(30) } },
      service: latencyOf(345_678),
      cancels: { count: 123_456, seen: 123_455, latency: latencyOf(345_678), late: 12_345 },
      kills: { count: 123, lost: 123_456, strays: 12_345, recovery: latencyOf(345_678) },
      hub: COST,
      server: COST,
    });
    const subjects = [subjectResultOf("hub", [level]), subjectResultOf("server", [level])];
    const result = benchResultOf(subjects, {
      load: { ...CLOSED_LOOP, loop: { kind: "open", rate: 1000 } },
      overhead: [{ concurrency: 256, p50: -345_678, p99: 345_678, rate: 0.123 }],
    });
    const long = print(result, 100)
      .split("\n")
      .filter((line) => line.length > 100);
    assert.deepEqual(long, []);
  });

  it("counts errors by their kind, with what the first of each said", () => {
    const errors = {
      "rpc -32602": { count: 3, example: "no such\ntool \u001b[31m" },
      timeout: { count: 1200, example: "no answer within 60 s" },
    };
    const text = print(alone({ errors }));
    assert.match(text, /^ +16 +1,200 {2}timeout +no answer within 60 s$/m);
    assert.match(text, /^ +16 +3 {2}rpc -32602 +no such tool {2}\[31m$/m);
    assert.match(text, / 1,203$/m);
  });

  it("shows of an open loop both when calls were due and when they were sent", () => {
    const loop = { kind: "open", rate: 1234 } as const;
    const load = { ...CLOSED_LOOP, loop, extent: { calls: 5000 } };
    const text = print(alone({ service: latencyOf(50) }, { load }));
    assert.match(text, /open loop, calls due at 1,234\/s; 5,000 calls per level/);
    assert.match(text, /^Latency counts .*was due/m);
    assert.match(text, /^Service time\n.*\n.*\n +16 +50\.0 µs/m);
  });

  it("tells of cancelled calls and killed servers only where there were any", () => {
    const load = { ...CLOSED_LOOP, chaos: { killEvery: 5000, delay: 50, cancelRate: 0.1 } };
    const cancels = { count: 90, seen: 0, latency: null, late: 2 };
    const kills = { count: 3, lost: 31, strays: 1, recovery: latencyOf(120_000, 2) };
    const text = print(alone({ cancels, kills }, { load }));
    const delayed = "server killed every 5.00 s; answers delayed by 50.0 ms";
    assert.ok(text.includes(`${delayed}; 10% of the calls cancelled`));
    assert.match(text, /^ +16 +90 +0 +– +– +– +– +2$/m);
    assert.match(text, /^ +16 +3 +31 +1 +2 +120 ms/m);
    assert.doesNotMatch(print(alone({})), /ancel|kill/i);
    const blind = print(alone({ cancels: { ...cancels, seen: null } }, { load }));
    assert.match(blind, /^ +16 +90 +– +– +– +– +– +2$/m);
  });

  it("does not claim what a call costs where none was answered, or systems count too roughly", () => {
    const text = print(alone({ server: COST }));
    assert.match(text, /^ +16 {2}server +1 +2\.31 µs +82% of a core/m);
    const failed = print(alone({ server: COST, calls: 0 }));
    assert.match(failed, /^ +16 {2}server +1 +– +82% of a core/m);
    const short = print(alone({ server: COST, seconds: 0.05 }));
    assert.match(short, /^ +16 {2}server +1 +– +– /m);
  });

  it("does not claim a latency where nothing was answered", () => {
    const latency = { ...latencyOf(0), count: 0 };
    const text = print(alone({ calls: 0, rate: 0, latency }));
    assert.match(text, /^ +16 +0\/s +– +– +– +– +– +0 +0$/m);
    assert.deepEqual(summarize(alone({ calls: 0, rate: 0, latency })), []);
  });
});

describe("a measurement that goes on", () => {
  const at = { subject: "toolmux, 1 server", concurrency: 16 };
  const span = (since: number, calls: number, errors = 0) => {
    return { at: since, calls, errors, p50: 320, p99: 1230 };
  };

  it("is told with its rate, its latencies, its errors and the time that is left", () => {
    const clock = new VirtualClock();
    const live = new BenchProgressLine(clock);
    live.format({ kind: "span", ...at, done: 0.1, span: span(0, 500) });
    clock.advanceTo(1000);
    const told = live.format({ kind: "span", ...at, done: 0.3, span: span(0.5, 1000, 2) });
    const figures = "1,000/s  p50 320 µs  p99 1.23 ms  2 errors  3.5 s left  ▅█";
    assert.equal(told, `toolmux, 1 serv…, 16 in flight ━━──────  ${figures}`);
  });

  it("begins anew with each level, and leaves nothing behind", () => {
    const live = new BenchProgressLine(new VirtualClock());
    const { subject } = at;
    assert.equal(live.format({ kind: "starting", subject }), "starting toolmux, 1 server …");
    assert.match(live.format({ kind: "warmUp", ...at }) ?? "", /16 in flight: warming up/);
    live.format({ kind: "span", ...at, done: 0.5, span: span(0, 9, 7) });
    assert.equal(live.format({ kind: "level", subject, level: levelResultOf(16, 100) }), undefined);
    const next = { kind: "span", subject, concurrency: 64, done: 0.1, span: span(0, 5) } as const;
    assert.match(live.format(next) ?? "", /64 in flight .* 0 errors {2}█$/);
  });
});
