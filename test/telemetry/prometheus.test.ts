import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { describe, it } from "node:test";
import {
  Durations,
  type Metric,
  type MetricDeclaration,
  METRICS,
} from "../../src/telemetry/metrics.ts";
import {
  chooseFormat,
  CONTENT_TYPES,
  type ExpositionFormat,
  exposition,
  expositionFor,
  familyNameOf,
  sampleNamesOf,
} from "../../src/telemetry/prometheus.ts";

const RESOURCE = { "service.name": "toolmux", "service.version": "1.2.3" };

/** A metric of two calls, one of them in a trace, and one of each other kind. */
function someMetrics(): readonly Metric[] {
  const durations = new Durations(METRICS.serverOperations);
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const spanId = "b7ad6b7169203331";
  durations.observeOperation("tools/call", 'a"b\\c\nd', "files", "", "", 5);
  const span = { traceId, spanId };
  durations.observeOperation("tools/call", "read", "files", "ci", "-32602", 700, span);
  return [
    durations.metric,
    { declaration: METRICS.restarts, numbers: [{ labels: ["files"], value: 3 }] },
    { declaration: METRICS.clients, numbers: [{ labels: [], value: 2 }] },
    { declaration: METRICS.servers, numbers: [{ labels: ["failed"], value: 0 }] },
  ];
}

describe("the names of metrics for Prometheus", () => {
  it("follow the rules of OpenTelemetry", () => {
    const samples = Object.values<MetricDeclaration>(METRICS).flatMap(sampleNamesOf);
    assert.deepEqual(samples, [
      "mcp_server_operation_duration_seconds_bucket",
      "mcp_server_operation_duration_seconds_sum",
      "mcp_server_operation_duration_seconds_count",
      "mcp_client_operation_duration_seconds_bucket",
      "mcp_client_operation_duration_seconds_sum",
      "mcp_client_operation_duration_seconds_count",
      "mcp_server_session_duration_seconds_bucket",
      "mcp_server_session_duration_seconds_sum",
      "mcp_server_session_duration_seconds_count",
      "mcp_client_session_duration_seconds_bucket",
      "mcp_client_session_duration_seconds_sum",
      "mcp_client_session_duration_seconds_count",
      "toolmux_servers",
      "toolmux_clients",
      "toolmux_calls_active",
      "toolmux_queue_length",
      "toolmux_server_restarts_total",
      "toolmux_limits_refused_total",
      "toolmux_alerts_total",
    ]);
    assert.equal(familyNameOf({ name: "a-b..c.seconds", unit: "s" }), "a_b_c_seconds");
  });
});

describe("the text format 0.0.4", () => {
  const text = exposition(someMetrics(), RESOURCE, "text");

  it("has cumulative buckets, sum and count of each label set", () => {
    const own = 'method="tools/call",tool="read",server="files",client="ci",error_type="-32602"';
    const lines = text.split("\n").filter((line) => line.includes('"read"'));
    assert.equal(lines.length, 17);
    const bucket = (le: string): string =>
      `mcp_server_operation_duration_seconds_bucket{${own},le="${le}"}`;
    for (const line of [
      `${bucket("0.5")} 0`,
      `${bucket("1")} 1`,
      `${bucket("+Inf")} 1`,
      `mcp_server_operation_duration_seconds_sum{${own}} 0.7`,
      `mcp_server_operation_duration_seconds_count{${own}} 1`,
    ])
      assert.ok(lines.includes(line), line);
  });

  it("escapes values, and leaves out empty labels", () => {
    const line = `mcp_server_operation_duration_seconds_count{method="tools/call",tool="a\\"b\\\\c\\nd",server="files"} 1`;
    assert.ok(text.split("\n").includes(line), text);
  });

  it("has each attribute of the resource under a valid name, and no name twice", () => {
    const resource = { a_b: "2", "a.b": "1", "1st": "x", "": "y", ü: "z" };
    const [line = ""] = exposition([], resource, "text").split("\n").slice(2);
    assert.equal(line, 'target_info{key_="y",key_1st="x",a_b="1;2",_="z"} 1');
  });

  it("has type and help of every metric, and nothing of OpenMetrics", () => {
    for (const line of [
      "# TYPE target_info gauge",
      'target_info{service_name="toolmux",service_version="1.2.3"} 1',
      "# TYPE mcp_server_operation_duration_seconds histogram",
      "# TYPE toolmux_server_restarts_total counter",
      'toolmux_server_restarts_total{server="files"} 3',
      "# TYPE toolmux_clients gauge",
      "toolmux_clients 2",
      'toolmux_servers{state="failed"} 0',
    ])
      assert.ok(text.split("\n").includes(line), line);
    assert.ok(text.endsWith("\n"));
    assert.doesNotMatch(text, /# EOF|# UNIT|trace_id/);
  });
});

describe("OpenMetrics", () => {
  const lines = exposition(someMetrics(), RESOURCE, "openMetrics").split("\n");

  it("has the unit, the family of counters without `_total`, and its end", () => {
    for (const line of [
      "# TYPE target info",
      "# UNIT mcp_server_operation_duration_seconds seconds",
      "# TYPE toolmux_server_restarts counter",
      'toolmux_server_restarts_total{server="files"} 3',
    ])
      assert.ok(lines.includes(line), line);
    assert.deepEqual(lines.slice(-2), ["# EOF", ""]);
  });

  it("has the trace of a call as an exemplar of its bucket alone", () => {
    const traced = lines.filter((line) => line.includes("trace_id"));
    assert.equal(traced.length, 1);
    assert.match(
      traced[0] ?? "",
      /le="1\.0"\} 1 # \{trace_id="0af7651916cd43dd8448eb211c80319c",span_id="b7ad6b7169203331"\} 0\.7 \d{10}(\.\d+)?$/,
    );
  });
});

describe("the choice of a format", () => {
  const cases: readonly (readonly [string | null, ExpositionFormat])[] = [
    [null, "text"],
    ["", "text"],
    ["*/*", "text"],
    ["text/html", "text"],
    ["text/plain", "text"],
    ["application/openmetrics-text", "openMetrics"],
    ["application/openmetrics-text; version=1.0.0; charset=utf-8", "openMetrics"],
    ['application/openmetrics-text; version="1.0.0"', "openMetrics"],
    ["application/openmetrics-text;version=2.0.0", "text"],
    ["text/plain;q=0.5, application/openmetrics-text;q=0.4", "text"],
    ["text/plain;q=0.4, application/openmetrics-text;q=0.5", "openMetrics"],
    ["Application/OpenMetrics-Text;Q=0.5,*/*;q=0.1", "openMetrics"],
    ["application/openmetrics-text;q=0", "text"],
    ["application/openmetrics-text;q=x", "text"],
    // What Prometheus 2 and 3 send.
    [
      "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
      "openMetrics",
    ],
    [
      "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
      "openMetrics",
    ],
  ];
  for (const [accept, format] of cases)
    it(`is ${format} for ${accept ?? "no Accept"}`, () => {
      assert.equal(chooseFormat(accept), format);
    });
});

describe("many metrics", () => {
  it("are written in turns, between which other work is done", async () => {
    const durations = new Durations(METRICS.serverOperations);
    for (let at = 0; at < 1500; at++)
      durations.observeOperation("tools/call", `tool${at}`, "a", "c", "", 5);
    for (const format of ["text", "openMetrics"] as const) {
      let turns = 0;
      let isOver = false;
      const work = (): void => {
        turns++;
        if (!isOver) setImmediate(work);
      };
      setImmediate(work);
      const { text } = await expositionFor(CONTENT_TYPES[format], [durations.metric], RESOURCE);
      isOver = true;
      assert.equal(text, exposition([durations.metric], RESOURCE, format));
      assert.ok(turns >= 10, String(turns));
    }
  });
});
