import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import {
  callRequest,
  initialize,
  isResponseTo,
  ScriptedServer,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";
import { LatencyHistogram } from "../../src/bench/stats.ts";
import { type CallOutcome, CallUsage, type EndedCall } from "../../src/router/call-usage.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

function setUp() {
  const clock = { time: 1_000_000 };
  const usage = new CallUsage(() => clock.time);
  let calls = 0;
  const add = (
    tool: string,
    duration = 1,
    outcome: CallOutcome = "answered",
    about: Partial<EndedCall> = {},
  ): void => {
    const call: EndedCall = {
      call: ++calls,
      client: "c",
      clientName: "t",
      server: "s",
      tool,
      name: `s__${tool}`,
      startedAt: clock.time - duration,
      duration,
      personWait: 0,
      queueWait: 0,
      sent: outcome !== "denied",
      outcome,
      requestSize: 10,
      resultSize: 100,
      ...about,
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

  it("gives quantiles that are right to 5 % from 1 ms to an hour, with the exact minimum, maximum and number, however old the calls are", () => {
    const durations = fc.array(
      fc.double({ min: 0, max: Math.log(3_600_000), noNaN: true }).map(Math.exp),
      { minLength: 1, maxLength: 200 },
    );
    const pauses = fc.constantFrom(0, MINUTE, 11 * MINUTE);
    const windows = fc.constantFrom([HOUR, 5], [24 * HOUR, 30]);
    fc.assert(
      fc.property(durations, pauses, windows, (all, pause, [window = 0, points = 0]) => {
        const { usage, add, clock } = setUp();
        for (const duration of all) add("a", duration);
        clock.time += pause;
        add("b");
        for (const duration of all) add("a", duration);
        const one = usage.usage(window, points).tools.find(({ tool }) => tool === "a");
        const sorted = all.toSorted((a, b) => a - b);
        for (const [share, value] of [
          [0.5, one?.p50],
          [0.95, one?.p95],
        ] as const) {
          // Each duration is there twice.
          const exact = sorted[Math.ceil(Math.ceil(share * 2 * all.length) / 2) - 1] ?? NaN;
          assert.ok(Math.abs((value ?? NaN) / exact - 1) <= 0.05, `${value} instead of ${exact}`);
        }
        assert.equal(one?.n, 2 * all.length);
        assert.ok(Math.abs((one?.min ?? NaN) - (sorted[0] ?? NaN)) <= 0.006);
        assert.ok(Math.abs((one?.max ?? NaN) - (sorted.at(-1) ?? NaN)) <= 0.006);
      }),
      { numRuns: 60 },
    );
  });

  it("shows one sample as it is", () => {
    for (const duration of [0.04, 0.31, 1, 7.77, 1234.5, 3_600_000]) {
      const { usage, add } = setUp();
      add("a", duration);
      const [one] = usage.usage(HOUR, 1).tools;
      assert.deepEqual(
        [one?.n, one?.min, one?.p50, one?.p95, one?.max],
        [1, duration, duration, duration, duration],
      );
    }
  });

  it("keeps the times apart for which calls waited for a person and to be sent", () => {
    const { usage, add } = setUp();
    add("a", 90_025, "answered", { personWait: 60_000, queueWait: 30_000 });
    add("a", 25);
    const [one] = usage.usage(HOUR, 1).tools;
    assert.deepEqual(
      [one?.min, one?.max, one?.personWait, one?.queueWait],
      [25, 25, 60_000, 30_000],
    );
  });

  it("has no duration of a call that was not sent", () => {
    const { usage, add } = setUp();
    add("a", 25);
    add("a", 90_000, "cancelled", { queueWait: 90_000, sent: false });
    const [one] = usage.usage(HOUR, 1).tools;
    assert.deepEqual([one?.calls, one?.n, one?.min, one?.max], [2, 1, 25, 25]);
  });

  it("counts a call that was denied neither as an error nor among the durations", () => {
    const { usage, add } = setUp();
    add("a", 25);
    add("a", 60_000, "denied", { personWait: 59_990 });
    const [one] = usage.usage(HOUR, 1).tools;
    assert.deepEqual(
      [one?.calls, one?.failed, one?.denied, one?.n, one?.max, one?.personWait],
      [2, 0, 1, 1, 25, 59_990],
    );
    assert.deepEqual(usage.totals, { ended: 2, failed: 0, denied: 1, cancelled: 0 });
  });

  it("counts further tools as one when there are 512", () => {
    const { usage, add } = setUp();
    for (let i = 0; i < 600; i++) add(`tool-${i}`);
    const { tools } = usage.usage(HOUR, 1);
    assert.equal(tools.length, 513);
    assert.deepEqual([tools[0]?.tool, tools[0]?.calls], ["other", 88]);
  });

  it("counts the tools beyond a limit together, and loses no call", () => {
    const { usage, add } = setUp();
    for (let tool = 1; tool <= 10; tool++)
      for (let call = 0; call < tool; call++) add(`tool-${tool}`, tool);
    const { tools } = usage.usage(HOUR, 2, 4);
    assert.deepEqual(
      tools.map(({ tool, calls, points, min, max }) => [tool, calls, points[1]?.calls, min, max]),
      [
        ["tool-10", 10, 10, 10, 10],
        ["tool-9", 9, 9, 9, 9],
        ["tool-8", 8, 8, 8, 8],
        ["other", 28, 28, 1, 7],
      ],
    );
    assert.equal(usage.usage(HOUR, 2, 10).tools.length, 10);
  });

  it("counts a whole day of ten tools that are called each minute", () => {
    const { usage, add, clock } = setUp();
    for (let minute = 0; minute < 24 * 60; minute++) {
      for (let tool = 0; tool < 10; tool++) add(`tool-${tool}`);
      clock.time += MINUTE;
    }
    const { tools } = usage.usage(24 * HOUR, 24);
    assert.equal(tools.length, 10);
    // The window ends with the 30 minutes that have just begun.
    for (const { calls, points } of tools) {
      assert.equal(calls, 24 * 60 - 30);
      assert.deepEqual(
        points.slice(0, -1).map((point) => point.calls),
        Array.from({ length: 23 }, () => 60),
      );
    }
  });

  it("takes less than 4 kB for a tool in an hour and in a day, and so loses nothing of 120 busy tools", () => {
    const { usage, add, clock } = setUp();
    const tools = 120;
    let random = 1;
    // Durations from 20 ms to 200 ms, most of them in the middle.
    const duration = (): number => {
      let sum = 0;
      for (let part = 0; part < 4; part++) {
        random = (random * 48_271) % 0x7fff_ffff;
        sum += random / 0x7fff_ffff / 4;
      }
      return 20 * 10 ** sum;
    };
    for (let minute = 0; minute < 24 * 60; minute++) {
      for (let tool = 0; tool < tools; tool++)
        if (minute % 3 === 0) add(`tool-${tool}`, duration());
      clock.time += MINUTE;
    }
    for (const [window, points, calls] of [
      [24 * HOUR, 24, (24 * 60 - 30) / 3],
      [HOUR, 30, 20],
    ] as const) {
      const counted = usage.usage(window, points).tools;
      assert.equal(counted.length, tools);
      for (const tool of counted) assert.ok(Math.abs(tool.calls - calls) <= 1, String(tool.calls));
    }
  });

  it("measures durations as the benchmark does, to 5 %", () => {
    const { usage, add } = setUp();
    const histogram = new LatencyHistogram();
    for (let duration = 1; duration < 3_600_000; duration *= 1.013) {
      add("a", duration);
      histogram.record(duration);
    }
    const [one] = usage.usage(HOUR, 1).tools;
    const { count, p50, max } = histogram.result();
    assert.equal(one?.n, count);
    for (const [ours, theirs] of [
      [one?.p50, p50 / 1000],
      [one?.p95, histogram.percentile(95) / 1000],
      [one?.max, max / 1000],
    ] as const)
      assert.ok(Math.abs((ours ?? NaN) / theirs - 1) <= 0.05, `${ours} instead of ${theirs}`);
  });

  it("loses only the oldest minutes when there is no more room", () => {
    const { usage, add, clock } = setUp();
    for (let minute = 0; minute < 60; minute++) {
      for (let tool = 0; tool < 500; tool++) add(`tool-${tool}`);
      clock.time += MINUTE;
    }
    const { tools } = usage.usage(HOUR, 30);
    assert.equal(tools.length, 500);
    for (const { calls, points } of tools) {
      const first = points.findIndex((point) => point.calls > 0);
      assert.ok(first < 27 && calls >= 2 * (29 - first), `${first} ${calls}`);
      for (const point of points.slice(first + 1, -1)) assert.equal(point.calls, 2);
    }
  });

  it("does not take the start of a server for the time in which its tool ran", async () => {
    const s = new ScriptedServer();
    s.tools = ['{"name":"t","inputSchema":{"type":"object"}}'];
    s.onCall = () => '"result":{"content":[]}';
    const { client, clock, hub } = setUpHubWithClock({ s });
    await initialize(client);
    await hub.settled();
    const opened = Promise.withResolvers<void>();
    s.onOpen = () => opened.promise;
    hub.reconnect("s");
    client.send(callRequest(1, "s__t"));
    await clock.advanceAsync(5000);
    assert.equal(hub.snapshot().calls.length, 1);
    opened.resolve();
    await client.find(isResponseTo(1));
    const [ended] = hub.usage.ended;
    assert.deepEqual([ended?.outcome, ended?.personWait, ended?.sent], ["answered", 0, true]);
    assert.ok((ended?.queueWait ?? 0) >= 5000, String(ended?.queueWait));
    assert.ok((hub.usage.usage(MINUTE, 1).tools[0]?.max ?? Infinity) < 1000);
    await hub.close();
  });
});
