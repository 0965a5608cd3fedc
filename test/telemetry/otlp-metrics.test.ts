import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { textOf } from "../../src/base/bytes.ts";
import { DURATION_BUCKETS, Durations, type Metric, METRICS } from "../../src/telemetry/metrics.ts";
import { encodeMetrics } from "../../src/telemetry/otlp-metrics.ts";

const TIMES = { startedAt: 1_700_000_000_500, now: 1_700_000_060_250 };

function someMetrics(): readonly Metric[] {
  const durations = new Durations(METRICS.serverOperations);
  durations.observeOperation("tools/call", "read", "files", "ci", "tool_error", 700);
  durations.observeOperation("resources/read", "", "files", "", "", 5);
  return [
    durations.metric,
    new Durations(METRICS.clientSessions).metric,
    { declaration: METRICS.restarts, numbers: [{ labels: ["files"], value: 3 }] },
    { declaration: METRICS.servers, numbers: [{ labels: ["failed"], value: 0 }] },
  ];
}

/** The attributes of a point of OTLP by name. */
const attributesOf = (attributes: readonly { key: string; value: { stringValue: string } }[]) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue]));

describe("metrics in OTLP", () => {
  const resource = { "service.name": "hub", "service.version": "1" };
  const text = textOf(encodeMetrics(someMetrics(), resource, TIMES, "http/json"));
  const { resourceMetrics } = JSON.parse(text);
  const [{ resource: own, scopeMetrics }] = resourceMetrics;
  const [{ metrics, scope }] = scopeMetrics;

  it("have the resource, and the names and units of the conventions; those without values are left out", () => {
    assert.deepEqual(attributesOf(own.attributes), resource);
    assert.equal(scope.name, "toolmux");
    assert.deepEqual(
      metrics.map(({ name, unit }: Record<string, string>) => [name, unit]),
      [
        ["mcp.server.operation.duration", "s"],
        ["toolmux.server.restarts", "{restart}"],
        ["toolmux.servers", "{server}"],
      ],
    );
  });

  it("have histograms from the start of counting, with the buckets and attributes of the conventions", () => {
    const { histogram } = metrics[0];
    const [point, other] = histogram.dataPoints;
    assert.equal(histogram.aggregationTemporality, 2);
    assert.deepEqual(attributesOf(point.attributes), {
      "mcp.method.name": "tools/call",
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "read",
      "toolmux.server": "files",
      "toolmux.client": "ci",
      "error.type": "tool_error",
    });
    assert.deepEqual(attributesOf(other.attributes), {
      "mcp.method.name": "resources/read",
      "toolmux.server": "files",
    });
    assert.deepEqual(point.explicitBounds, [...DURATION_BUCKETS]);
    assert.deepEqual(
      point.bucketCounts.map(Number),
      Array.from({ length: 15 }, (_, at) => (at === 6 ? 1 : 0)),
    );
    assert.deepEqual([point.count, point.sum], [1, 0.7]);
    assert.equal(String(point.startTimeUnixNano), "1700000000500000000");
    assert.equal(String(point.timeUnixNano), "1700000060250000000");
  });

  it("have counters as monotonic sums, and gauges", () => {
    const [, { sum }, { gauge }] = metrics;
    assert.deepEqual([sum.isMonotonic, sum.aggregationTemporality], [true, 2]);
    assert.equal(Number(sum.dataPoints[0].asInt), 3);
    assert.deepEqual(attributesOf(gauge.dataPoints[0].attributes), { state: "failed" });
    assert.equal(Number(gauge.dataPoints[0].asInt), 0);
  });

  it("are shorter in protobuf than in JSON, with the same names", () => {
    const bytes = encodeMetrics(someMetrics(), resource, TIMES, "http/protobuf");
    assert.ok(bytes.length > 300 && bytes.length < text.length);
    assert.ok(textOf(bytes).includes("mcp.server.operation.duration"));
  });
});
