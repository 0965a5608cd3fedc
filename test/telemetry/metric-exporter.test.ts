import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { utf8, textOf } from "../../src/base/bytes.ts";
import type { PostOutcome } from "../../src/telemetry/collector.ts";
import { MetricExporter } from "../../src/telemetry/metric-exporter.ts";
import { Counter, type Metric, METRICS } from "../../src/telemetry/metrics.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

const TAKEN: PostOutcome = { kind: "taken" };

/** The number of values of metrics. */
const sizeOf = (metrics: readonly Metric[]): number =>
  metrics.reduce((sum, metric) => sum + ("numbers" in metric ? metric.numbers.length : 0), 0);

/** An exporter whose collector gives these answers, and then takes everything. */
function setUp({
  answers = [],
  values = 1,
  valueSize = 10,
}: {
  readonly answers?: readonly (PostOutcome | Promise<PostOutcome>)[];
  readonly values?: number;
  readonly valueSize?: number;
} = {}) {
  const clock = new VirtualClock();
  const posted: { readonly at: number; readonly text: string }[] = [];
  const warnings: string[] = [];
  const counter = new Counter(METRICS.restarts);
  const exporter = new MetricExporter({
    clock,
    interval: 1000,
    collector: {
      post: async (body) => {
        posted.push({ at: clock.now(), text: textOf(body) });
        return answers[posted.length - 1] ?? TAKEN;
      },
    },
    read: () => {
      for (let at = 0; at < values; at++) counter.add([`server${at}`]);
      return [counter.metric];
    },
    encode: async (metrics) => utf8(`${sizeOf(metrics)} `.padEnd(sizeOf(metrics) * valueSize)),
    warn: (text) => void warnings.push(text),
  });
  return { clock, posted, warnings, exporter };
}

describe("metrics for a collector", () => {
  it("are sent in several posts if they are many, so that calls go on meanwhile", async () => {
    const { clock, posted } = setUp({ values: 1800 });
    await clock.advanceAsync(1500);
    const sizes = posted.map(({ text }) => Number.parseInt(text, 10));
    assert.ok(sizes.length >= 4);
    assert.ok(
      sizes.every((size) => size <= 500),
      sizes.join(),
    );
    assert.equal(
      sizes.reduce((sum, size) => sum + size, 0),
      1800,
    );
  });

  it("are sent once in each interval", async () => {
    const { clock, posted } = setUp();
    await clock.advanceAsync(3500);
    assert.deepEqual(
      posted.map(({ at }) => at),
      [1000, 2000, 3000],
    );
  });

  it("are sent later, less and less often, while the collector cannot be reached, with one warning", async () => {
    const down: PostOutcome = { kind: "later", after: undefined, reason: "it is down" };
    const { clock, posted, warnings } = setUp({ answers: [down, down, down, down, TAKEN, down] });
    await clock.advanceAsync(20_000);
    assert.deepEqual(
      posted.slice(0, 6).map(({ at }) => at),
      [1000, 2000, 4000, 8000, 16_000, 17_000],
    );
    assert.equal(warnings.length, 2);
    assert.match(warnings[0] ?? "", /it is down/);
  });

  it("wait as long as the collector asks for", async () => {
    const busy: PostOutcome = { kind: "later", after: 30_000, reason: "busy" };
    const { clock, posted } = setUp({ answers: [busy] });
    await clock.advanceAsync(32_000);
    assert.deepEqual(
      posted.map(({ at }) => at),
      [1000, 31_000, 32_000],
    );
  });

  it("that are refused are warned of once, and tried again after a minute", async () => {
    const refused: PostOutcome = { kind: "refused", reason: "status 404" };
    const { clock, posted, warnings } = setUp({ answers: [refused, refused] });
    await clock.advanceAsync(125_000);
    assert.deepEqual(
      posted.slice(0, 3).map(({ at }) => at),
      [1000, 61_000, 121_000],
    );
    assert.equal(warnings.length, 1);
  });

  it("are sent in parts of at most 1 MiB, with each value once", async () => {
    const { clock, posted } = setUp({ values: 100, valueSize: 30_000 });
    await clock.advanceAsync(1000);
    assert.deepEqual(
      posted.map(({ text }) => Number.parseInt(text, 10)),
      [25, 25, 25, 25],
    );
  });

  it("are sent a last time at the end, and never again", async () => {
    const { clock, posted, exporter } = setUp();
    await clock.advanceAsync(1500);
    await exporter.close(500);
    assert.equal(posted.length, 2);
    await clock.advanceAsync(10_000);
    assert.equal(posted.length, 2);
  });

  it("delay the end by the limit at most", async () => {
    const { clock, posted, exporter } = setUp({ answers: [new Promise<PostOutcome>(() => {})] });
    const closing = exporter.close(500);
    await clock.advanceAsync(500);
    await closing;
    assert.equal(posted.length, 1);
  });
});
