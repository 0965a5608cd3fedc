import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { applyEdits, joinPieces } from "../../src/base/bytes.ts";
import { Chaos } from "../../src/bench/chaos.ts";
import { chooseTool } from "../../src/bench/run.ts";
import { failureOfLoss, failureOf, LatencyHistogram, LevelStats } from "../../src/bench/stats.ts";
import {
  CALL_MARK,
  type LevelLength,
  LoadGenerator,
  type Loop,
  CallMix,
  makeCallTemplate,
  type RequestChannel,
  Schedule,
} from "../../src/bench/load.ts";
import type { ListedItem } from "../../src/catalog/listing.ts";
import { type BenchCommandOptions, readBenchOptions } from "../../src/cli/bench-options.ts";
import type { BenchOptions } from "../../src/host/bench-targets.ts";
import { parseCommand } from "../fixtures/command-line.ts";
import { HubError } from "../../src/base/errors.ts";
import type { PendingRequest } from "../../src/upstream/pending.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import type { Response } from "../../src/jsonrpc/message.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

const OPEN: Loop = { kind: "open", rate: 100 };
const CLOSED: Loop = { kind: "closed" };

function toolOf(tool: { readonly name: string; readonly [key: string]: unknown }): ListedItem {
  const bytes = Buffer.from(JSON.stringify(tool));
  return { key: tool.name, bytes, keys: [], meta: undefined };
}

const ECHO = toolOf({ name: "echo", annotations: { readOnlyHint: true } });

function responseOf(body: object): Response {
  const frame = parseMessage(Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, ...body })));
  assert.ok(frame.kind === "response");
  return frame;
}

const RESULT = responseOf({ result: { content: [] } });

interface Stall {
  readonly from: number;
  readonly to: number;
}

/** A server that takes one call at a time, each for a millisecond, and stands still once. */
class OneAtATime implements RequestChannel {
  readonly #clock: VirtualClock;
  readonly #stall: Stall;
  readonly #dropped = new Set<number>();
  #freeAt = 0;
  calls = 0;

  constructor(clock: VirtualClock, stall: Stall) {
    this.#clock = clock;
    this.#stall = stall;
  }

  relay(record: PendingRequest): number {
    const id = ++this.calls;
    const now = this.#clock.now();
    let begin = Math.max(now, this.#freeAt);
    if (begin >= this.#stall.from && begin < this.#stall.to) begin = this.#stall.to;
    this.#freeAt = begin + 1;
    if (Number.isFinite(begin)) {
      this.#clock.after(begin + 1 - now, () => {
        if (!this.#dropped.has(id)) record.onResponse(RESULT);
      });
    }
    return id;
  }

  cancel(id: number): void {
    this.#dropped.add(id);
  }
}

interface Run {
  readonly loop: Loop;
  readonly extent: LevelLength;
  readonly concurrency: number;
  readonly stall?: Stall;
  readonly timeout?: number;
}

const newStats = (span: number, hasService = false): LevelStats =>
  new LevelStats(
    hasService,
    span,
    (text) => text.replaceAll("hunter2", "•••"),
    () => {},
  );

/** Drives a load against that server in virtual time. */
async function drive({ loop, extent, concurrency, ...more }: Run) {
  const { stall = { from: Infinity, to: Infinity }, timeout = 60_000 } = more;
  const clock = new VirtualClock();
  const server = new OneAtATime(clock, stall);
  const tally = newStats(1000, true);
  const load = new LoadGenerator({
    target: { session: server, failure: undefined, events: undefined },
    calls: new CallMix([makeCallTemplate(ECHO, "{}", "legacy", false)], [1]),
    concurrency,
    schedule: new Schedule(loop, extent, 0),
    stats: tally,
    clock,
    preciseClock: clock,
    timeout,
  });
  let isOver = false;
  const done = load.run(new AbortController().signal).then(() => (isOver = true));
  for (let i = 0; i < 200 && !isOver; i++) await clock.advanceAsync(100);
  assert.ok(isOver, "the load has an end");
  await done;
  return { server, found: tally.result() };
}

describe("an open loop", () => {
  it("makes calls due at a constant rate that does not drift, also if it is asked late", () => {
    const schedule = new Schedule({ kind: "open", rate: 3 }, { calls: 1000 }, 50);
    const dues: number[] = [];
    for (let now = 50; schedule.wait(now) !== undefined; now += 40_000) {
      for (let due = schedule.take(now); due !== undefined; due = schedule.take(now)) {
        dues.push(due);
      }
    }
    assert.equal(dues.length, 1000);
    dues.forEach((due, k) => assert.ok(Math.abs(due - (50 + (k * 1000) / 3)) < 1e-6));
  });

  it("charges a stall to every call that was due meanwhile, though few were in flight", async () => {
    const stall = { from: 200, to: 1200 };
    const { server, found } = await drive({
      loop: OPEN,
      extent: { duration: 2000 },
      concurrency: 2,
      stall,
    });
    assert.equal(server.calls, 200);
    assert.equal(found.calls, 200);
    const { latency, service } = found;
    assert.ok(service !== undefined);
    // A hundred calls were due within the second, and waited for half of it on average.
    assert.ok(latency.p90 > 800_000, `p90 ${latency.p90}`);
    assert.ok(latency.max > 999_000 && latency.max < 1_010_000, `max ${latency.max}`);
    // Of those that were really sent, two were slow.
    assert.ok(service.p90 < 3_000, `p90 of service ${service.p90}`);
    assert.ok(service.max > 990_000, `max of service ${service.max}`);
  });

  it("counts what was due and never made, if the server does not keep up", async () => {
    const loop: Loop = { kind: "open", rate: 5000 };
    const { server, found } = await drive({ loop, extent: { duration: 1000 }, concurrency: 4 });
    const never = found.errors["never made"]?.count ?? 0;
    assert.ok(never > 1000);
    assert.equal(server.calls + never, 5000);
    assert.equal(found.calls, server.calls);
  });
});

describe("a closed loop", () => {
  it("keeps as many calls in flight as there are callers, and shows a stall in these alone", async () => {
    const stall = { from: 200, to: 1200 };
    const { found } = await drive({ loop: CLOSED, extent: { calls: 500 }, concurrency: 2, stall });
    assert.equal(found.calls, 500);
    assert.ok(found.latency.p99 < 3_000, `p99 ${found.latency.p99}`);
    assert.ok(found.latency.max > 990_000);
  });

  it("ends with its time, and waits for what is in flight", async () => {
    const extent = { duration: 300 };
    const { server, found } = await drive({ loop: CLOSED, extent, concurrency: 3 });
    assert.equal(found.calls, server.calls);
    assert.ok(server.calls >= 300 && server.calls <= 304, `${server.calls} calls`);
  });

  it("gives up calls that take too long, and goes on with others", async () => {
    const rest = { stall: { from: 0, to: Infinity }, timeout: 500 };
    const run = { loop: CLOSED, extent: { calls: 6 }, concurrency: 2, ...rest };
    const { found } = await drive(run);
    assert.equal(found.calls, 0);
    const timeout = { count: 6, example: "No answer within 500 ms." };
    assert.deepEqual(found.errors, { timeout });
  });
});

describe("an answer", () => {
  it("is a failure if it is an error, or a result that says so, by kinds", () => {
    const long = "x".repeat(500);
    const content: object[] = [];
    const text = (said: string): object[] => [{ type: "text", text: said }];
    for (const [body, kind, example] of [
      [{ result: { content } }, undefined],
      [{ result: { content, isError: false } }, undefined],
      [{ result: { structuredContent: { isError: true }, content } }, undefined],
      [{ result: { content: text('"isError":true') } }, undefined],
      [{ result: { structuredContent: { isError: false }, isError: true } }, "tool error", ""],
      [{ result: { content: text("no"), isError: true } }, "tool error", "no"],
      [{ result: { resultType: "input_required" } }, "not complete: input_required"],
      [{ error: { code: -32602, message: "bad" } }, "error -32602 invalid params", "bad"],
      [
        { error: { code: -31003, message: "late", data: { code: "callTimeout" } } },
        "error -31003 callTimeout",
        "late",
      ],
      [{ error: { code: 7, message: long } }, "error 7", `${long.slice(0, 300)}…`],
    ] as const) {
      const found = failureOf(responseOf(body));
      assert.equal(found?.kind, kind);
      if (example !== undefined) assert.equal(found?.example, example);
    }
  });

  it("that never comes is a failure by its cause", () => {
    const lost = failureOfLoss(new HubError("connectionLost", "It has ended."));
    assert.deepEqual(lost, { kind: "connection lost", example: "It has ended." });
    assert.equal(failureOfLoss(new HubError("answerLost", "?")).kind, "answerLost");
  });
});

describe("a tally", () => {
  it("tells kinds of errors apart up to a bound, and shows no secret", () => {
    const tally = newStats(1000);
    tally.beginRound(0);
    for (let i = 0; i < 100; i++) tally.fail({ kind: `kind ${i}`, example: "hunter2" });
    tally.fail({ kind: "kind 0", example: "another" });
    tally.endRound(1000);
    const { errors } = tally.result();
    assert.equal(Object.keys(errors).length, 51);
    assert.deepEqual(errors["kind 0"], { count: 2, example: "•••" });
    assert.equal(errors["others"]?.count, 50);
  });

  it("has its calls in spans, and time stands still between rounds", () => {
    const tally = newStats(100);
    tally.beginRound(0);
    for (let now = 10; now <= 200; now += 10) {
      tally.answered(now - 5, now - 5, now);
      tally.roll(now);
    }
    tally.endRound(200);
    tally.beginRound(5000);
    tally.answered(5000, 5000, 5050);
    tally.endRound(5100);
    const { timeline, seconds, rate } = tally.result();
    assert.equal(seconds, 0.3);
    assert.equal(rate, 70);
    assert.deepEqual(
      timeline.map(({ at }) => at),
      [0, 0.1, 0.2],
    );
    assert.deepEqual(
      timeline.map(({ calls }) => calls),
      [10, 10, 1],
    );
  });
});

describe("latencies", () => {
  it("have percentiles that are exact to three digits, in µs", () => {
    const latencies = new LatencyHistogram();
    for (let ms = 1; ms <= 1000; ms++) latencies.record(ms);
    const { count, mean, p50, p99, p999, max, curve } = latencies.result();
    assert.equal(count, 1000);
    const wanted = [500_500, 500_000, 990_000, 999_000, 1_000_000];
    for (const [i, found] of [mean, p50, p99, p999, max].entries()) {
      const expected = wanted[i] ?? 0;
      assert.ok(Math.abs(found / expected - 1) < 0.001, `${found} for ${expected}`);
    }
    const values = curve.map(({ value }) => value);
    assert.deepEqual(
      values,
      values.toSorted((a, b) => a - b),
    );
  });
});

describe("the tool that is called", () => {
  const tools = [
    toolOf({ name: "write", annotations: { readOnlyHint: false } }),
    toolOf({ name: "read", annotations: { readOnlyHint: true }, inputSchema: { required: ["a"] } }),
    toolOf({ name: "list", annotations: { readOnlyHint: true }, inputSchema: { required: [] } }),
  ];

  it("is the one that was named, or one that changes nothing and wants nothing", () => {
    assert.equal(chooseTool(tools, "write").key, "write");
    assert.equal(chooseTool(tools, undefined).key, "list");
  });

  it("has to be named if there is no such tool; what there is is told", () => {
    const refuses = (named: string | undefined, message: RegExp, some = tools) =>
      assert.throws(() => chooseTool(some, named), { code: "usage", message });
    refuses("lisd", /no tool "lisd"\. Did you mean "list"\?/);
    refuses("quite different", /write, read, list\./);
    refuses(undefined, /--tool and --args\. .*write, read\./, tools.slice(0, 2));
    refuses(undefined, /has no tools/, []);
  });
});

it("a call is written once, its arguments as they were spelled; copies differ by marks", () => {
  const args = '{"n": 1.0, "big":1234567890123456789}';
  for (const era of ["legacy", "modern"] as const) {
    const { request, rewrite } = makeCallTemplate(ECHO, args, era, true);
    const { edits } = rewrite(4711);
    const text = joinPieces(applyEdits(request.bytes, edits)).toString();
    assert.ok(text.includes(`"arguments":${args}`));
    const { params } = JSON.parse(text) as { params: { _meta: Record<string, unknown> } };
    assert.equal(params._meta[CALL_MARK], 4711);
    assert.equal(Object.keys(params._meta).length, era === "modern" ? 4 : 1);
  }
  const plain = makeCallTemplate(ECHO, "{}", "legacy", false);
  assert.ok(!plain.request.bytes.includes("_meta"));
});

it("kills come amid rounds that are as long as the time between two, not as they end", async () => {
  const clock = new VirtualClock();
  const kills: number[] = [];
  const processStats = async (): Promise<undefined> => void kills.push(clock.now());
  const subject = { kind: "server", name: "x", makeTransport: () => assert.fail() } as const;
  const chaos = new Chaos({
    chaos: { killEvery: 500, delay: null, cancelRate: 0 },
    target: { subject, responses: 0, processStats },
    stats: newStats(1000),
    clock,
  });
  for (let round = 0; round < 4; round++) {
    chaos.beginRound();
    await clock.advanceAsync(500);
    chaos.endRound();
    // Another has its turn.
    await clock.advanceAsync(500);
  }
  assert.deepEqual(kills, [150, 1150, 2150, 3150]);
});

describe("calls of several tools", () => {
  const template = makeCallTemplate(ECHO, "{}", "legacy", false);

  it("are made by their weights, spread evenly", () => {
    const mix = new CallMix([template, template, template], [5, 1, 2]);
    const made = Array.from({ length: 80 }, () => mix.next());
    assert.deepEqual(
      [0, 1, 2].map((tool) => made.filter((one) => one === tool).length),
      [50, 10, 20],
    );
    for (let from = 0; from < 80; from += 8)
      assert.equal(made.slice(from, from + 8).filter((one) => one === 1).length, 1);
  });

  it("keep shares that are no whole numbers", () => {
    const mix = new CallMix([template, template], [0.3, 0.1]);
    const made = Array.from({ length: 400 }, () => mix.next());
    assert.ok(Math.abs(made.filter((tool) => tool === 0).length - 300) <= 1);
  });

  it("are counted for each tool, also those that fail", () => {
    const stats = new LevelStats(false, 1000, String, () => {}, 2);
    stats.answered(0, 0, 2, 0);
    stats.answered(0, 0, 4, 1);
    stats.fail({ kind: "timeout", example: "" }, 1, 1);
    stats.fail({ kind: "never made", example: "" }, 3);
    const counts = stats.tools.map(({ calls, errors, p50 }) => [calls, errors, Math.round(p50)]);
    assert.deepEqual(
      counts.map(([calls, errors]) => [calls, errors]),
      [
        [1, 0],
        [1, 1],
      ],
    );
    assert.ok((counts[1]?.[2] ?? 0) > 3900);
    assert.equal(stats.failed, 4);
  });

  it("with more kinds of errors than are kept are counted once each", () => {
    const stats = newStats(1000);
    for (let kind = 0; kind < 60; kind++) stats.fail({ kind: `kind ${kind}`, example: "" });
    const { errors } = stats.result();
    assert.equal(stats.failed, 60);
    assert.equal(
      Object.values(errors).reduce((sum, { count }) => sum + count, 0),
      60,
    );
  });
});

describe("the command line", () => {
  const read = (...argv: string[]): BenchOptions => {
    const { invocation } = parseCommand<BenchCommandOptions>(["bench", ...argv]);
    return readBenchOptions(invocation.options);
  };

  it("says how to measure", () => {
    const { levels, loop, extent, warmUp, timeout, chaos, isCompared } = read();
    assert.deepEqual(levels, [1, 4, 16, 64]);
    assert.deepEqual({ loop, extent }, { loop: CLOSED, extent: { duration: 10_000 } });
    assert.deepEqual({ warmUp, timeout }, { warmUp: { duration: 1000 }, timeout: 30_000 });
    assert.deepEqual(chaos, { killEvery: null, delay: null, cancelRate: 0 });
    assert.equal(isCompared, false);
    const line =
      "--concurrency 2,8 --rate 100 --calls=50 --warm-up 0 --kill-every 5s --delay 50ms " +
      "--cancel-rate 0.1 --compare direct --tool t --era modern --timeout 2s";
    const said = read(...line.split(" "), "--args", '{"a": 1.0}', "--", "x");
    assert.deepEqual(said, {
      levels: [2, 8],
      loop: OPEN,
      extent: { calls: 50 },
      warmUp: undefined,
      chaos: { killEvery: 5000, delay: 50, cancelRate: 0.1 },
      tools: [{ name: "t", weight: 1, args: '{"a": 1.0}' }],
      timeout: 2000,
      era: "modern",
      isCompared: true,
      rules: [],
      accepted: [],
    });
  });

  it("names several tools, each with its weight and arguments", () => {
    assert.deepEqual(read().tools, [{ name: undefined, weight: 1, args: "{}" }]);
    const mixed = ["--tool", "a=3", "--tool", "b", "--tool", "c=d=0.5"];
    assert.deepEqual(
      read(...mixed).tools.map(({ name, weight }) => [name, weight]),
      [
        ["a", 3],
        ["b", 1],
        ["c=d", 0.5],
      ],
    );
    const argumentsOf = (...argv: string[]) =>
      read(...mixed, ...argv).tools.map(({ args }) => args);
    const [one, two, three] = ['{"n":1}', '{"n":2}', '{"n":3}'] as const;
    assert.deepEqual(argumentsOf("--args", one), [one, one, one]);
    const each = ["--args", one, "--args", two, "--args", three];
    assert.deepEqual(argumentsOf(...each), [one, two, three]);
    assert.throws(() => argumentsOf("--args", one, "--args", two), /3 --tool and 2 --args/);
  });

  it("is refused with what is wrong with it", () => {
    const list = /--concurrency must be a list/;
    for (const [line, message] of [
      ["--concurrency 0", list],
      ["--concurrency 1,,2", list],
      ["--concurrency 1.5", list],
      ["--duration 10", /--duration .*10s.*"10"/],
      ["--duration 1s --calls 5", /Choose one of --duration and --calls/],
      ["--calls 1e400", /--calls must be a number/],
      ["--rate 0", /--rate must be a number .*"0"/],
      ["--cancel-rate 1.1", /--cancel-rate must be a number from 0 to 1/],
      ["--kill-every 0s", /--kill-every must be a time/],
      ["--args {", /--args is not valid JSON/],
      ["--args []", /--args must be a JSON object/],
      ["--compare hub", /--compare must be one of direct/],
      ["--era old", /--era must be one of legacy, modern/],
      ["--timeout soon", /--timeout must be a time/],
      ["--tool a=0", /--tool must be NAME or NAME=WEIGHT/],
      ["--tool a=x", /--tool must be NAME or NAME=WEIGHT/],
      ["--tool =1", /--tool must be NAME or NAME=WEIGHT/],
      ["--tool a --tool a=2", /"a" twice/],
      ["--despite machine", /--despite needs --against/],
      ["--against x --despite weather", /machine, version, load, subject/],
      ["--fail-if p98>1ms", /no metric "p98".* p90/],
    ] as const) {
      assert.throws(() => read(...line.split(" ")), { name: "HubError", message }, line);
    }
  });
});
