import { accessSync, constants } from "node:fs";
import type { Turn } from "./contest.ts";
import { type EchoOptions, Stage } from "./contestants.ts";
import { ECHO, entrantOf, middle, type Pace, type Race, race, ratio } from "./race.ts";
import { formatNumber, formatTable } from "./report.ts";
import { mean, median } from "./stats.ts";

/** One kind of load under which two builds are compared. */
interface BuildLoad {
  readonly name: string;
  /** How the hub is called: over stdio, or over HTTP with a session and a connection for each call in flight. */
  readonly transport: "stdio" | "http";
  /** Calls in flight. */
  readonly flight: number;
  /** Lines of text in a result. */
  readonly lines: number;
  /** Padding in a call's arguments, in bytes. */
  readonly pad?: number;
  readonly echo?: Partial<EchoOptions>;
}

/** The comparison of two builds under one load. */
export interface BuildComparison {
  readonly load: string;
  /** Medians over the rounds, in µs: the latency (`p50`) and the CPU time (`cpu`; NaN if unknown) of a call. */
  readonly current: BuildFigures;
  readonly other: BuildFigures;
  /**
   * Medians of the ratios within each round. `toOther`: the mean of this build's two processes divided by the other
   * build. `toItself`: one of this build's two processes divided by the other one, which shows the noise.
   */
  readonly toOther: BuildRatios;
  readonly toItself: BuildRatios;
}

interface BuildFigures {
  readonly p50: number;
  readonly cpu: number;
}
type BuildRatios = BuildFigures;

const LOADS: readonly BuildLoad[] = [
  { name: "stdio-small-1", transport: "stdio", flight: 1, lines: 1 },
  { name: "stdio-small-64", transport: "stdio", flight: 64, lines: 1 },
  { name: "stdio-parsed-64", transport: "stdio", flight: 64, lines: 1, echo: { shape: "spaced" } },
  { name: "stdio-medium-16", transport: "stdio", flight: 16, lines: 312 },
  { name: "stdio-large-4", transport: "stdio", flight: 4, lines: 31_250 },
  { name: "stdio-arguments-4", transport: "stdio", flight: 4, lines: 1, pad: 1_000_000 },
  { name: "http-small-1", transport: "http", flight: 1, lines: 1 },
  { name: "http-small-16", transport: "http", flight: 16, lines: 1 },
];

export const BUILD_LOADS: readonly string[] = LOADS.map(({ name }) => name);

/** A ratio of CPU time or p50 above this value counts as a loss. */
export const MAX_BUILD_RATIO = 1.05;

/**
 * The factor by which the warm-up is longer over HTTP, because the code for HTTP requests takes longer to be
 * JIT-compiled.
 */
const HTTP_WARM_UP = 3;

/**
 * Compares this build with another executable. Two processes of this build and one of the other run side by side, and
 * take turns in every round. The ratio of this build to itself shows how much of a difference is noise.
 * @param other path of the other executable
 * @param only loads whose names contain one of these texts; all loads if empty
 * @param report receives the table of each load as soon as it is measured
 * @throws if an executable is missing or gives a wrong answer
 */
export async function compareBuilds(
  stage: Stage,
  other: string,
  only: readonly string[],
  pace: Pace,
  report: (text: string) => void,
): Promise<readonly BuildComparison[]> {
  accessSync(other, constants.X_OK);
  const otherStage = new Stage(
    { ...stage.programs, toolmux: other, stale: false },
    stage.makeFolder("other"),
  );
  const loads = LOADS.filter(
    ({ name }) => only.length === 0 || only.some((part) => name.includes(part)),
  );
  const comparisons: BuildComparison[] = [];
  for (const load of loads) {
    const comparison = await compareUnder(load, stage, otherStage, pace);
    report(formatComparison(comparison));
    comparisons.push(comparison);
  }
  return comparisons;
}

async function compareUnder(
  { name, transport, echo, ...load }: BuildLoad,
  stage: Stage,
  otherStage: Stage,
  pace: Pace,
): Promise<BuildComparison> {
  const options = { ...ECHO, ...echo };
  const isHttp = transport === "http";
  const entrantAt = (at: Stage) =>
    isHttp
      ? entrantOf(at.overHttp("toolmux", options), { transport: "http" })
      : entrantOf(at.relay("toolmux", options));
  const entrants = {
    current: entrantAt(stage),
    other: entrantAt(otherStage),
    again: entrantAt(stage),
  };
  const warmUp = (isHttp ? HTTP_WARM_UP : 1) * pace.warmUp;
  const results = await race(entrants, load, { ...pace, warmUp });
  const figuresOf = (build: "current" | "other"): BuildFigures => ({
    p50: middle(results, p50, build),
    cpu: middle(results, cpu, build),
  });
  return {
    load: name,
    current: figuresOf("current"),
    other: figuresOf("other"),
    toOther: { p50: ratioToOther(results, p50), cpu: ratioToOther(results, cpu) },
    toItself: {
      p50: ratio(results, p50, "current", "again"),
      cpu: ratio(results, cpu, "current", "again"),
    },
  };
}

/** The median over the rounds of the ratio of this build (the mean of its two processes) to the other build. */
function ratioToOther(results: Race, of: (turn: Turn) => number | null): number {
  const valuesOf = (name: string) =>
    (results[name]?.turns ?? []).map((turn) => of(turn) ?? Number.NaN);
  const [current, again, other] = [valuesOf("current"), valuesOf("again"), valuesOf("other")];
  const ratios = other.map(
    (value, round) => mean([current[round] ?? Number.NaN, again[round] ?? Number.NaN]) / value,
  );
  return median(ratios.filter((each) => !Number.isNaN(each)));
}

const p50 = (turn: Turn) => turn.p50;
const cpu = (turn: Turn) => turn.cpu;

function formatComparison({ load, current, other, toOther, toItself }: BuildComparison): string {
  const rows = (["p50", "cpu"] as const).map((measure) => [
    measure === "p50" ? "p50 µs" : "CPU µs",
    formatNumber(current[measure]),
    formatNumber(other[measure]),
    formatNumber(toOther[measure]),
    formatNumber(toItself[measure]),
    toOther[measure] > MAX_BUILD_RATIO ? `above ${MAX_BUILD_RATIO}` : "",
  ]);
  return `${load}\n${formatTable([["", "this", "other", "this:other", "this:itself", ""], ...rows])}`;
}

/** The loads under which this build is slower than the other, as text. */
export function slowerLoads(comparisons: readonly BuildComparison[]): readonly string[] {
  return comparisons.flatMap(({ load, toOther }) =>
    (["p50", "cpu"] as const)
      .filter((measure) => toOther[measure] > MAX_BUILD_RATIO)
      .map((measure) => `${load}: ${measure} ${formatNumber(toOther[measure])} times the other's`),
  );
}
