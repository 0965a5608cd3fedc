import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  bucketOf,
  Counter,
  DURATION_BUCKETS,
  Durations,
  type HistogramPoint,
  MAX_LABEL_SETS,
  METRICS,
  OTHER,
} from "../../src/telemetry/metrics.ts";

function points(durations: Durations): readonly HistogramPoint[] {
  const { metric } = durations;
  assert.ok("histograms" in metric);
  return metric.histograms;
}

/** Observes a call of a tool. */
function observe(durations: Durations, tool: string, error: string, ms: number): void {
  durations.observeOperation("tools/call", tool, "files", "editor", error, ms);
}

describe("the buckets of durations", () => {
  it("are the 14 of the conventions, and one for what is longer", () => {
    assert.equal(DURATION_BUCKETS.length, 14);
    assert.deepEqual(DURATION_BUCKETS.map(bucketOf), [...DURATION_BUCKETS.keys()]);
    assert.equal(bucketOf(0), 0);
    assert.equal(bucketOf(300.001), 14);
    assert.equal(bucketOf(0.010_001), 1);
  });

  it("count every duration once, and a negative one as 0", () => {
    const durations = new Durations(METRICS.serverOperations);
    for (const ms of [-5, 0, 5, 10, 11, 400_000]) observe(durations, "read", "", ms);
    const [point, ...others] = points(durations);
    assert.ok(point);
    assert.deepEqual(others, []);
    assert.equal(point.count, 6);
    assert.deepEqual([point.counts[0], point.counts[1], point.counts[14]], [4, 1, 1]);
    assert.ok(Math.abs(point.sum - 400.026) < 1e-9);
  });
});

describe("label sets", () => {
  it("are counted apart by each of their labels", () => {
    const durations = new Durations(METRICS.clientOperations);
    const all = [
      ["tools/call", "read", "files", "editor", ""],
      ["tools/call", "read", "files", "editor", "tool_error"],
      ["tools/call", "read", "files", "chat", ""],
      ["tools/call", "read", "mail", "editor", ""],
      ["tools/call", "write", "files", "editor", ""],
      ["prompts/get", "read", "files", "editor", ""],
    ] as const;
    for (let round = 0; round < 2; round++)
      for (const [method, tool, server, client, error] of all)
        durations.observeOperation(method, tool, server, client, error, 1);
    assert.deepEqual(
      points(durations).map(({ labels, count }) => [labels, count]),
      all.map((labels) => [[...labels], 2]),
    );
  });

  it("are at most 2,000, and what lies beyond them is counted under `other`, errors apart", () => {
    const durations = new Durations(METRICS.serverOperations);
    for (let tool = 0; tool < 3000; tool++) observe(durations, `tool${tool}`, "", 1);
    for (let tool = 0; tool < 3000; tool++) observe(durations, `tool${tool}`, "tool_error", 1);
    observe(durations, "tool0", "", 1);
    const all = points(durations);
    assert.equal(all.length, MAX_LABEL_SETS);
    assert.equal(
      all.reduce((sum, { count }) => sum + count, 0),
      6001,
    );
    const others = all.filter(({ labels }) => labels.includes(OTHER));
    assert.deepEqual(
      others.map(({ labels, count }) => [labels, count]),
      [
        [[OTHER, OTHER, OTHER, OTHER, ""], 1002],
        [[OTHER, OTHER, OTHER, OTHER, OTHER], 3000],
      ],
    );
    assert.equal(all.find(({ labels }) => labels[1] === "tool0")?.count, 2);
  });

  it("that are shown alike are one, and still count for the limit", () => {
    const durations = new Durations(METRICS.serverOperations);
    const long = "x".repeat(5000);
    for (let at = 0; at < 5000; at++) observe(durations, `${long}${at}`, "", 1);
    const all = points(durations);
    assert.deepEqual(
      all.map(({ labels: [, tool], count }) => [tool?.length, count]),
      [
        [128, 1998],
        [OTHER.length, 3002],
      ],
    );
  });

  it("have no secrets and no halves of characters", () => {
    const durations = new Durations(METRICS.serverOperations, (text) =>
      text.replaceAll("hunter2", "[redacted]"),
    );
    observe(durations, "a-hunter2", "", 1);
    observe(durations, "\uD83D", "", 1);
    assert.deepEqual(
      points(durations).map(({ labels }) => labels[1]),
      ["a-[redacted]", "\uFFFD"],
    );
  });

  it("of a counter add up, and appear with 0 if they are added so", () => {
    const counter = new Counter(METRICS.alerts);
    counter.add(["quota"], 0);
    counter.add(["disconnected"]);
    counter.add(["disconnected"], 2);
    const { metric } = counter;
    assert.ok("numbers" in metric);
    assert.deepEqual(metric.numbers, [
      { labels: ["quota"], value: 0 },
      { labels: ["disconnected"], value: 3 },
    ]);
  });
});

describe("exemplars", () => {
  it("are the last traced call of each bucket", () => {
    const durations = new Durations(METRICS.serverOperations);
    const traced = (ms: number, id: string): void =>
      durations.observeOperation("tools/call", "read", "files", "", "", ms, {
        traceId: id,
        spanId: "b",
      });
    traced(5, "first");
    traced(6, "second");
    observe(durations, "read", "", 7);
    traced(15, "third");
    const [exemplars] = points(durations).map((point) => point.exemplars);
    assert.deepEqual(
      exemplars?.map((exemplar) => [exemplar?.traceId, exemplar?.value]),
      [
        ["second", 0.006],
        ["third", 0.015],
      ],
    );
  });
});
