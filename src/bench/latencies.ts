import { build, type Histogram } from "hdr-histogram-js";
import type { LatencyResult } from "./result.ts";

/** What is counted in, per ms: tenths of a µs, well below what a call over a pipe takes. */
const UNITS = 10_000;
/** An hour; what takes longer counts as that. */
const MAX_LATENCY = 3_600_000 * UNITS;

/** The percentiles of curves: ever closer to 100. */
const CURVE = [
  0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92.5, 95, 96, 97, 98, 98.5, 99, 99.25, 99.5, 99.75,
  99.9, 99.95, 99.975, 99.99, 99.995, 99.999, 100,
];

/** How long calls took: constant memory however many there were, three digits of each exact. */
export class LatencyHistogram {
  readonly #histogram: Histogram;

  /** @param digits how many of a value are kept; memory and time to read it out grow tenfold with each */
  constructor(digits: 2 | 3 = 3) {
    this.#histogram = build({
      lowestDiscernibleValue: 1,
      highestTrackableValue: MAX_LATENCY,
      numberOfSignificantValueDigits: digits,
      bitBucketSize: 32,
    });
  }

  /** @param ms what is below zero, by clocks that differ a little, counts as zero */
  record(ms: number): void {
    const value = Math.round(ms * UNITS);
    this.#histogram.recordValue(value < 0 ? 0 : value > MAX_LATENCY ? MAX_LATENCY : value);
  }

  get count(): number {
    return this.#histogram.totalCount;
  }

  /** In ms; undefined without any. */
  get median(): number | undefined {
    return this.count === 0 ? undefined : this.#at(50) / UNITS;
  }

  /** In µs; 0 without any. */
  percentile(percentile: number): number {
    return this.count === 0 ? 0 : toMicros(this.#at(percentile));
  }

  reset(): void {
    this.#histogram.reset();
  }

  result(): LatencyResult {
    const histogram = this.#histogram;
    const max = toMicros(histogram.maxValue);
    const at = (percentile: number): number => Math.min(this.percentile(percentile), max);
    return {
      count: this.count,
      mean: this.count === 0 ? 0 : toMicros(histogram.mean),
      p50: at(50),
      p90: at(90),
      p99: at(99),
      p999: at(99.9),
      max,
      curve:
        this.count === 0 ? [] : CURVE.map((percentile) => ({ percentile, value: at(percentile) })),
    };
  }

  #at(percentile: number): number {
    return this.#histogram.getValueAtPercentile(percentile);
  }
}

/** To a tenth, which is all that was counted. */
function toMicros(units: number): number {
  return Math.round(units) / 10;
}
