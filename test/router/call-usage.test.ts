import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type CallOutcome, CallUsage, type EndedCall } from "../../src/router/call-usage.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

function setUp() {
  const clock = { time: 1_000_000 };
  const usage = new CallUsage(() => clock.time);
  let calls = 0;
  const add = (tool: string, duration = 1, outcome: CallOutcome = "answered"): void => {
    const call: EndedCall = {
      call: ++calls,
      client: "c",
      clientName: "t",
      server: "s",
      tool,
      name: `s__${tool}`,
      startedAt: clock.time - duration,
      duration,
      outcome,
      requestSize: 10,
      resultSize: 100,
    };
    usage.add(Object.assign(usage.next(), call));
  };
  return { clock, usage, add };
}

describe("the usage of a hub", () => {
  it("keeps the last 1,000 calls, newest first", () => {
    const { usage, add } = setUp();
    for (let i = 0; i < 2500; i++) add("a");
    assert.equal(usage.ended.length, 1000);
    assert.deepEqual([usage.ended[0]?.call, usage.ended.at(-1)?.call], [2500, 1501]);
  });

  it("counts calls by tool and outcome, most calls first, in equal parts of the window", () => {
    const { usage, add, clock } = setUp();
    add("a");
    clock.time += 59 * MINUTE;
    for (const outcome of ["answered", "failed", "cancelled"] as const) add("b", 1, outcome);
    const { since, until, step, tools } = usage.usage(HOUR, 2);
    assert.deepEqual([since, until, step], [1_000_000, clock.time, 30 * MINUTE]);
    const counted = tools.map(({ tool, calls, failed, cancelled, resultBytes, points }) => ({
      tool,
      all: [calls, failed, cancelled, resultBytes],
      parts: points.map((point) => point.calls),
    }));
    assert.deepEqual(counted, [
      { tool: "b", all: [3, 1, 1, 300], parts: [0, 3] },
      { tool: "a", all: [1, 0, 0, 100], parts: [1, 0] },
    ]);
  });

  it("forgets what is older than the window, and never looks back further than a day", () => {
    const { usage, add, clock } = setUp();
    add("a");
    clock.time += 2 * HOUR;
    assert.deepEqual(usage.usage(HOUR, 1).tools, []);
    assert.equal(usage.usage(3 * HOUR, 1).tools[0]?.calls, 1);
    clock.time += 25 * HOUR;
    assert.deepEqual(usage.usage(1000 * HOUR, 1).tools, []);
  });

  it("estimates durations within a factor of two", () => {
    const { usage, add } = setUp();
    for (let i = 0; i < 90; i++) add("a", 3);
    for (let i = 0; i < 10; i++) add("a", 1000);
    const [only] = usage.usage(HOUR, 1).tools;
    assert.ok(only?.p50 !== undefined && only.p50 >= 2 && only.p50 <= 4, String(only?.p50));
    assert.ok(only?.p95 !== undefined && only.p95 >= 512 && only.p95 <= 1024, String(only?.p95));
  });

  it("counts further tools as one when there are 512", () => {
    const { usage, add } = setUp();
    for (let i = 0; i < 600; i++) add(`tool-${i}`);
    const { tools } = usage.usage(HOUR, 1);
    assert.equal(tools.length, 513);
    assert.deepEqual([tools[0]?.tool, tools[0]?.calls], ["other", 88]);
  });

  it("counts right after its table was overwritten, and loses only the oldest minutes", () => {
    const { usage, add, clock } = setUp();
    for (let minute = 0; minute < 700; minute++) {
      for (let tool = 0; tool < 10; tool++) add(`tool-${tool}`);
      clock.time += MINUTE;
    }
    const { tools } = usage.usage(24 * HOUR, 1);
    assert.deepEqual(
      tools.map(({ calls }) => calls),
      Array.from({ length: 10 }, () => 600),
    );
  });
});
