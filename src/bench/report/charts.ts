import { count } from "../../base/format.ts";
import type { BenchResult, CostResult, LatencyResult, LevelResult } from "../result.ts";
import { type ReportTable, routeName } from "./tables.ts";

/** A chart as data, drawn by `page.ts` in a browser. */
export interface Chart {
  readonly title: string;
  readonly note: string;
  readonly x: Axis;
  readonly y: Axis;
  readonly curves: readonly Curve[];
}

export interface Axis {
  readonly label: string;
  readonly unit: Unit;
  /** A log2 axis has ticks only at the x values that occur. */
  readonly scale: "linear" | "log2" | "log10";
}

export type Unit = "time" | "rate" | "count" | "bytes" | "moment" | "nines";

export interface Curve {
  readonly name: string;
  /** Whether the curve is about the hub or the server; decides its colour. */
  readonly role: "hub" | "server";
  /** Position among the curves of its colour, 0 (pale) to 1 (strong). */
  readonly shade: number;
  readonly isDashed: boolean;
  /** The points, in ascending order of x. */
  readonly points: readonly (readonly [x: number, y: number])[];
}

const LEVEL_AXIS: Axis = { label: "calls in flight", unit: "count", scale: "log2" };

export function drawCharts(result: BenchResult): Chart[] {
  const charts = [
    drawPercentiles(result),
    drawRates(result),
    drawLatencies(result),
    drawRatesOverTime(result),
    drawLatenciesOverTime(result),
    drawCpu(result),
    drawMemory(result),
  ];
  return charts
    .map((chart) => ({ ...chart, curves: chart.curves.filter((it) => it.points.length > 1) }))
    .filter(({ curves }) => curves.length > 0);
}

function drawPercentiles(result: BenchResult): Chart {
  return {
    title: "Latency by percentile",
    note: "How long the slowest calls take: from each mark of the lower axis to the next, the share of slower calls is ten times smaller. A flat curve means that all calls take about the same time.",
    x: { label: "percentile", unit: "nines", scale: "linear" },
    y: { label: "latency", unit: "time", scale: "log10" },
    curves: drawLevels(result, ({ latency }) => ninesCurve(latency)),
  };
}

/**
 * A latency curve over the number of nines: x = 2 is the 99th percentile, x = 3 the 99.9th. With n calls, the curve
 * ends with the slowest one, at x = log10(n).
 */
export function ninesCurve({ count: total, curve }: LatencyResult): [number, number][] {
  const end = Math.log10(Math.max(total, 1));
  return curve
    .filter(({ value }) => value > 0)
    .map(({ percentile, value }): [number, number] => [
      Math.min(end, percentile < 100 ? -Math.log10(1 - percentile / 100) : end),
      value,
    ])
    .filter(([x], at, all) => x !== all[at + 1]?.[0]);
}

function drawRates(result: BenchResult): Chart {
  return {
    title: "Throughput",
    note: "Calls answered per second, by the number of calls in flight.",
    x: LEVEL_AXIS,
    y: { label: "calls per second", unit: "rate", scale: "linear" },
    curves: drawRoutes(result, { rate: ({ rate }) => rate }),
  };
}

function drawLatencies(result: BenchResult): Chart {
  return {
    title: "Latency",
    note: "Half of the calls are faster than p50, 99 of 100 calls are faster than p99 (dashed), by the number of calls in flight.",
    x: LEVEL_AXIS,
    y: { label: "latency", unit: "time", scale: "log10" },
    curves: drawRoutes(result, {
      p50: ({ latency }) => latency.p50 || undefined,
      p99: ({ latency }) => latency.p99 || undefined,
    }),
  };
}

const TIME_AXIS: Axis = {
  label: "time since the start of the level",
  unit: "moment",
  scale: "linear",
};

function drawRatesOverTime(result: BenchResult): Chart {
  return {
    title: "Throughput over time",
    note: "Each level from its start to its end. A dip is a pause of all calls.",
    x: TIME_AXIS,
    y: { label: "calls per second", unit: "rate", scale: "linear" },
    curves: drawLevels(result, (level) =>
      readSpans(level).map(({ at, length, calls }) => [at, calls / length]),
    ),
  };
}

function drawLatenciesOverTime(result: BenchResult): Chart {
  return {
    title: "p99 over time",
    note: "The p99 latency of each level from its start to its end.",
    x: TIME_AXIS,
    y: { label: "p99 latency", unit: "time", scale: "log10" },
    curves: drawLevels(result, (level) =>
      readSpans(level)
        .filter(({ p99 }) => p99 > 0)
        .map(({ at, p99 }) => [at, p99]),
    ),
  };
}

interface Span {
  readonly at: number;
  /** Length of the interval, in s. */
  readonly length: number;
  readonly calls: number;
  readonly p99: number;
}

/**
 * The intervals of a level's timeline. An interval that was cut short by the end of a round is merged into the previous
 * one.
 */
function readSpans({ timeline, seconds }: LevelResult): Span[] {
  const spans = timeline.map(({ at, calls, p99 }, i): Span => {
    const end = timeline[i + 1]?.at ?? seconds;
    return { at, length: Math.max(0, end - at), calls, p99 };
  });
  const whole = Math.max(0, ...spans.map(({ length }) => length));
  const merged: Span[] = [];
  for (const span of spans) {
    const before = merged.at(-1);
    if (span.length > whole / 2) merged.push(span);
    else if (before) merged[merged.length - 1] = joinSpans(before, span);
  }
  return merged;
}

function joinSpans(one: Span, next: Span): Span {
  return {
    at: one.at,
    length: one.length + next.length,
    calls: one.calls + next.calls,
    p99: Math.max(one.p99, next.p99),
  };
}

function drawCpu(result: BenchResult): Chart {
  return {
    title: "CPU per call",
    note: "CPU time of the hub's process and of the server's processes for one call.",
    x: LEVEL_AXIS,
    y: { label: "CPU per call", unit: "time", scale: "linear" },
    curves: drawCosts(result, ({ cpuPerCall }) => cpuPerCall),
  };
}

function drawMemory(result: BenchResult): Chart {
  return {
    title: "Memory",
    note: "Maximum of resident memory during a level.",
    x: LEVEL_AXIS,
    y: { label: "peak memory", unit: "bytes", scale: "linear" },
    curves: drawCosts(result, ({ peak }) => peak),
  };
}

/** Draws a curve for each level (number of calls in flight) of each subject (hub or server). */
function drawLevels(
  { subjects }: BenchResult,
  plot: (level: LevelResult) => [number, number][],
): Curve[] {
  return subjects.flatMap((subject) =>
    subject.levels.map((level, at, { length }) => ({
      name: `${subjects.length > 1 ? `${routeName(subject)}, ` : ""}${count(level.concurrency, "call")}`,
      role: subject.kind,
      shade: length > 1 ? at / (length - 1) : 1,
      isDashed: false,
      points: plot(level),
    })),
  );
}

/**
 * Draws a curve over the levels for each subject (hub or server) and each entry of `plots`. The curves of the first
 * entry are solid, those of further entries dashed.
 */
function drawRoutes(
  { subjects }: BenchResult,
  plots: Readonly<Record<string, (level: LevelResult) => number | undefined>>,
): Curve[] {
  const entries = Object.entries(plots);
  return subjects.flatMap((subject) =>
    entries.map(([name, plot], at) => ({
      name:
        subjects.length === 1
          ? name
          : [routeName(subject), ...(entries.length > 1 ? [name] : [])].join(" "),
      role: subject.kind,
      shade: 1,
      isDashed: at > 0,
      points: plotLevels(subject.levels, plot),
    })),
  );
}

/**
 * Draws the CPU time or memory of processes over the levels: the hub, the server behind it, and the server measured
 * alone.
 */
function drawCosts({ subjects }: BenchResult, plot: (cost: CostResult) => number): Curve[] {
  return subjects.flatMap(({ kind, levels }) => {
    const isBehind = kind === "hub";
    const hub = plotLevels(levels, (level) => level.hub && plot(level.hub));
    const server = plotLevels(levels, (level) => level.server && plot(level.server));
    return [
      { name: "hub", role: "hub" as const, shade: 1, isDashed: false, points: hub },
      {
        name: isBehind ? "server behind the hub" : "server direct",
        role: "server" as const,
        shade: 1,
        isDashed: isBehind,
        points: server,
      },
    ];
  });
}

function plotLevels(
  levels: readonly LevelResult[],
  plot: (level: LevelResult) => number | undefined,
): [number, number][] {
  return levels
    .map((level): [number, number | undefined] => [level.concurrency, plot(level)])
    .filter((point): point is [number, number] => point[1] !== undefined)
    .toSorted(([a], [b]) => a - b);
}

/** Percentiles shown in the table of a percentile chart. */
const PERCENTILES = [10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999] as const;

/** A chart's data as a table: a row for each x value, a column for each curve. */
export function chartTable(
  { x, y, curves }: Chart,
  formats: Readonly<Record<Unit, (value: number) => string>>,
): Pick<ReportTable, "columns" | "rows"> {
  const columns = [x.label, ...curves.map(({ name }) => name)].map((title) => ({
    title,
    kind: "number" as const,
  }));
  const cell = (value: number | undefined): string =>
    value === undefined ? "–" : formats[y.unit](value);
  if (x.unit === "nines") {
    const rows = PERCENTILES.map((it) => [
      `${it}%`,
      ...curves.map((curve) => cell(valueAt(curve, -Math.log10(1 - it / 100)))),
    ]);
    return { columns, rows: rows.filter((row) => row.slice(1).some((it) => it !== "–")) };
  }
  // x values that are formatted alike share a row, because the intervals of different levels do not start at exactly
  // the same times.
  const xByLabel = new Map(
    curves
      .flatMap(({ points }) => points.map(([at]) => at))
      .toSorted((a, b) => a - b)
      .map((at) => [formats[x.unit](at), at]),
  );
  const valuesByLabel = curves.map(
    ({ points }) => new Map(points.map(([at, value]) => [formats[x.unit](at), value])),
  );
  const rows = [...xByLabel.keys()].map((label) => [
    label,
    ...valuesByLabel.map((values) => cell(values.get(label))),
  ]);
  return { columns, rows };
}

/** The y value of a curve at `x`: that of the first point at or after `x`; undefined if there is none. */
function valueAt({ points }: Curve, x: number): number | undefined {
  return points.find(([at]) => at >= x - 1e-9)?.[1];
}
