import { countErrors, formatBytes, formatCount, formatRate, formatTime } from "./report/tables.ts";
import type { CostResult, LevelResult } from "./result.ts";
import { quartersOf } from "./noise.ts";

/** A figure of a level, as rules name it (`--fail-if`) and as results are compared by it (`--against`). */
export interface Metric {
  readonly name: string;
  /** For people: `CPU of a call`. */
  readonly title: string;
  /** `time`: µs; `rate`: calls per second; `size`: bytes; `count`: calls; `part`: 0 to 1. */
  readonly unit: "time" | "rate" | "size" | "count" | "part";
  /** Whether two results are compared by it. */
  readonly isCompared: boolean;
  /** The figure; undefined if it is unknown, or no call was answered that it could come from. */
  of(level: LevelResult): number | undefined;
  /**
   * The figure in each quarter of the level; undefined if the level was too short for it, or the figure of a part is
   * not known.
   */
  quarters(level: LevelResult): readonly number[] | undefined;
}

type LatencyName = "mean" | "p50" | "p90" | "p99" | "p999" | "max";

export const METRICS: readonly Metric[] = [
  {
    name: "rate",
    title: "rate",
    unit: "rate",
    isCompared: true,
    of: ({ rate }) => rate,
    quarters: (level) => quartersOf(level)?.map(({ rate }) => rate),
  },
  latency("mean", "mean", "mean"),
  { ...latency("p50", "p50", "p50"), isCompared: true, quarters: latencyQuarters("p50") },
  latency("p90", "p90", "p90"),
  { ...latency("p99", "p99", "p99"), isCompared: true, quarters: latencyQuarters("p99") },
  latency("p99.9", "p99.9", "p999"),
  latency("max", "slowest call", "max"),
  {
    name: "calls",
    title: "calls",
    unit: "count",
    isCompared: false,
    of: ({ calls }) => calls,
    quarters: () => undefined,
  },
  {
    name: "errors",
    title: "errors",
    unit: "count",
    isCompared: false,
    of: countErrors,
    quarters: () => undefined,
  },
  {
    name: "error-rate",
    title: "part of the calls with an error",
    unit: "part",
    isCompared: false,
    of: (level) => {
      const errors = countErrors(level);
      return errors + level.calls === 0 ? undefined : errors / (errors + level.calls);
    },
    quarters: () => undefined,
  },
  cpu("cpu", "CPU of a call", ({ hub, server }) => hub ?? server),
  cpu("server-cpu", "CPU of a call, server", ({ server }) => server),
  memory("memory", "peak of memory", ({ hub, server }) => hub ?? server),
  memory("server-memory", "peak of memory, server", ({ server }) => server),
];

function latency(name: string, title: string, key: LatencyName): Metric {
  return {
    name,
    title,
    unit: "time",
    isCompared: false,
    of: ({ latency: found }) => (found.count > 0 ? found[key] : undefined),
    quarters: () => undefined,
  };
}

function latencyQuarters(key: "p50" | "p99"): Metric["quarters"] {
  return (level) => quartersOf(level)?.map((quarter) => quarter[key]);
}

type CostOf = (level: LevelResult) => CostResult | undefined;

function cpu(name: string, title: string, costOf: CostOf): Metric {
  return {
    name,
    title,
    unit: "time",
    isCompared: true,
    of: (level) => {
      const cost = costOf(level);
      return cost === undefined || level.calls === 0 ? undefined : (cost.cpu * 1000) / level.calls;
    },
    quarters: (level) => {
      const times = costOf(level)?.quarters;
      return quartersOf(level)?.flatMap(({ calls }, at) => {
        const time = times?.[at];
        return time === undefined ? [] : [(time * 1000) / calls];
      });
    },
  };
}

function memory(name: string, title: string, costOf: CostOf): Metric {
  return {
    name,
    title,
    unit: "size",
    isCompared: true,
    of: (level) => costOf(level)?.peak,
    quarters: () => undefined,
  };
}

/** Formats a figure with its unit. */
export function formatMetric({ unit }: Pick<Metric, "unit">, value: number): string {
  switch (unit) {
    case "time":
      return formatTime(value);
    case "rate":
      return formatRate(value);
    case "size":
      return formatBytes(value);
    case "count":
      return formatCount(value);
    case "part":
      return `${Number((value * 100).toPrecision(3))}%`;
  }
}
