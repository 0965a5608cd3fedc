import { usageError } from "../base/errors.ts";
import { formatMetric, type Metric, METRICS } from "./metrics.ts";
import { isWithinNoise } from "./noise.ts";
import type { BenchResult, LevelResult, LoadSettingsResult, SubjectResult } from "./result.ts";

/** Kinds of differences between two results that make their figures say nothing about each other. */
export const DIFFERENCES = ["machine", "version", "load", "subject"] as const;
export type DifferenceKind = (typeof DIFFERENCES)[number];

/** A difference between the circumstances of two results, each as text. */
export interface Difference {
  readonly kind: DifferenceKind;
  readonly before: string;
  readonly now: string;
}

/** A result beside an earlier one. Part of what `toolmux bench --json --against FILE` prints. */
export interface ComparisonResult {
  /** When the earlier result was measured, ISO 8601. */
  readonly started: string;
  /** The differences that were accepted. */
  readonly despite: readonly Difference[];
  readonly levels: readonly LevelComparison[];
  /** The levels that only one of the two results has, as numbers of calls in flight. */
  readonly unmatched: readonly number[];
}

export interface LevelComparison {
  readonly kind: SubjectResult["kind"];
  readonly concurrency: number;
  readonly metrics: readonly MetricComparison[];
}

export interface MetricComparison {
  readonly metric: string;
  readonly before: number;
  readonly now: number;
  /** `now` divided by `before`; null if `before` is 0. */
  readonly ratio: number | null;
  /** Whether the difference is noise; null if that is not known. See `isWithinNoise`. */
  readonly withinNoise: boolean | null;
}

/** Part by which the memory of one machine may differ, as systems reserve some of it. */
const MEMORY_TOLERANCE = 0.05;

/** The circumstances of a result. Absent: not known before something is measured. */
export interface Circumstances extends Pick<BenchResult, "machine"> {
  readonly load: Pick<LoadSettingsResult, "loop" | "extent" | "chaos"> &
    Partial<Pick<LoadSettingsResult, "tools" | "era">>;
  readonly subjects?: readonly Pick<SubjectResult, "kind" | "name">[] | undefined;
}

/** The differences between the circumstances of an earlier result and of this one, as far as those are known. */
export function findDifferences(
  earlier: BenchResult,
  current: Circumstances,
): readonly Difference[] {
  const differences: Difference[] = [];
  const compare = (kind: DifferenceKind, before: string, now: string): void => {
    if (before !== now) differences.push({ kind, before, now });
  };
  const [old, own] = [earlier.machine, current.machine];
  compare("machine", `${old.cpu}, ${old.cores} cores`, `${own.cpu}, ${own.cores} cores`);
  if (Math.abs(old.memory / own.memory - 1) > MEMORY_TOLERANCE)
    compare("machine", `${old.memory} bytes of memory`, `${own.memory} bytes of memory`);
  compare("machine", old.system, own.system);
  compare("version", old.program, own.program);
  const { load } = earlier;
  compare("load", describeLoop(load), describeLoop(current.load));
  compare("load", describeExtent(load), describeExtent(current.load));
  compare("load", describeChaos(load), describeChaos(current.load));
  const { era } = current.load;
  if (era !== undefined) compare("load", `${load.era} era`, `${era} era`);
  if (current.load.tools !== undefined)
    compare("load", describeTools(load.tools), describeTools(current.load.tools));
  if (current.subjects !== undefined)
    compare("subject", describeSubjects(earlier.subjects), describeSubjects(current.subjects));
  return differences;
}

function describeLoop({ loop }: Pick<LoadSettingsResult, "loop">): string {
  return loop.kind === "closed" ? "closed loop" : `${loop.rate} calls per second`;
}

function describeExtent({ extent }: Pick<LoadSettingsResult, "extent">): string {
  return "calls" in extent ? `${extent.calls} calls per level` : `${extent.duration} ms per level`;
}

function describeChaos({ chaos }: Pick<LoadSettingsResult, "chaos">): string {
  const { killEvery, delay, cancelRate } = chaos;
  const parts = [
    ...(killEvery === null ? [] : [`a kill every ${killEvery} ms`]),
    ...(delay === null ? [] : [`a delay of ${delay} ms`]),
    ...(cancelRate === 0 ? [] : [`cancel rate ${cancelRate}`]),
  ];
  return parts.length > 0 ? parts.join(", ") : "no trouble";
}

function describeTools(tools: LoadSettingsResult["tools"]): string {
  const total = tools.reduce((sum, { weight }) => sum + weight, 0);
  return tools
    .map(({ name, weight, arguments: args }) => {
      const share = `${formatMetric({ unit: "part" }, weight / total)} `;
      return `${tools.length > 1 ? share : ""}${name} with ${args}`;
    })
    .sort()
    .join(", ");
}

function describeSubjects(subjects: readonly Pick<SubjectResult, "kind" | "name">[]): string {
  return subjects.map(({ name }) => name).join(" and ");
}

/** Compares the figures of two results, level by level. */
export function compareResults(
  earlier: BenchResult,
  current: BenchResult,
  despite: readonly Difference[],
): ComparisonResult {
  const unmatched = new Set<number>();
  const levels = current.subjects.flatMap(({ kind, levels: own }) => {
    const old = earlier.subjects.find((subject) => subject.kind === kind)?.levels ?? [];
    for (const { concurrency } of old)
      if (!own.some((level) => level.concurrency === concurrency)) unmatched.add(concurrency);
    return own.flatMap((now) => {
      const before = old.find(({ concurrency }) => concurrency === now.concurrency);
      if (before === undefined) unmatched.add(now.concurrency);
      return before === undefined ? [] : [compareLevels(kind, before, now)];
    });
  });
  const { started } = earlier;
  return { started, despite, levels, unmatched: [...unmatched].sort((a, b) => a - b) };
}

function compareLevels(
  kind: SubjectResult["kind"],
  before: LevelResult,
  now: LevelResult,
): LevelComparison {
  const hasBoth = now.hub !== undefined || before.hub !== undefined;
  const metrics = METRICS.flatMap((metric): MetricComparison[] => {
    // Without a hub, the figures of the server are those of `cpu` and `memory`.
    if (!metric.isCompared || (metric.name.startsWith("server-") && !hasBoth)) return [];
    const compared = compareMetric(metric, before, now);
    return compared === undefined ? [] : [compared];
  });
  return { kind, concurrency: now.concurrency, metrics };
}

/** Compares one figure of two levels; undefined if one of them does not have it. */
export function compareMetric(
  metric: Metric,
  earlier: LevelResult,
  current: LevelResult,
): MetricComparison | undefined {
  const [before, now] = [metric.of(earlier), metric.of(current)];
  if (before === undefined || now === undefined) return undefined;
  const noise = isWithinNoise(metric.quarters(earlier), metric.quarters(current));
  const ratio = before === 0 ? null : now / before;
  return { metric: metric.name, before, now, ratio, withinNoise: noise ?? null };
}

/**
 * Refuses a comparison whose circumstances differ in a way that is not accepted.
 * @param file the path of the earlier result
 * @throws {HubError} usage with all such differences
 */
export function refuseDifferences(
  file: string,
  differences: readonly Difference[],
  accepted: readonly DifferenceKind[],
): void {
  const refused = differences.filter(({ kind }) => !accepted.includes(kind));
  if (refused.length === 0) return;
  const lines = refused.map(
    ({ kind, before, now }) => `  another ${kind}: ${now}; it was ${before}`,
  );
  const kinds = [...new Set([...accepted, ...refused.map(({ kind }) => kind)])].join(",");
  throw usageError(
    `${file} cannot be compared with, because it was measured under other circumstances:\n${lines.join("\n")}`,
    `To compare all the same: --despite ${kinds}`,
  );
}
