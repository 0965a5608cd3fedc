import { usageError } from "../base/errors.ts";
import { findNearest } from "../manifest/problems.ts";
import { parseSize } from "../manifest/fields.ts";
import { compareMetric } from "./comparison.ts";
import { formatMetric, type Metric, METRICS } from "./metrics.ts";
import type { BenchResult, LevelResult } from "./result.ts";

const COMPARISONS = {
  ">": (value: number, limit: number) => value > limit,
  ">=": (value: number, limit: number) => value >= limit,
  "<": (value: number, limit: number) => value < limit,
  "<=": (value: number, limit: number) => value <= limit,
} as const;
type Comparison = keyof typeof COMPARISONS;

/** A condition under which a measurement fails: `p99@64>50ms`. */
export interface FailRule {
  /** The rule as it was given. */
  readonly text: string;
  readonly metric: Metric;
  /** The number of calls in flight of the only level that it applies to; undefined: all levels. */
  readonly concurrency: number | undefined;
  readonly comparison: Comparison;
  /** In the unit of the metric. `relative`: a part of the earlier result's figure (`110%` is 1.1). */
  readonly limit: { readonly kind: "absolute" | "relative"; readonly value: number };
}

/** The result of a rule for a measurement. Part of what `toolmux bench --json --fail-if RULE` prints. */
export interface RuleResult {
  readonly rule: string;
  readonly isBroken: boolean;
  /** The levels that break the rule, each with the reason. */
  readonly broken: readonly { readonly concurrency: number; readonly reason: string }[];
}

const RULE = /^([\w.-]+)(?:\s*@\s*(\d+))?\s*(>=|<=|>|<)\s*(\S.*)$/;
const TIME_UNITS: ReadonlyMap<string, number> = new Map([
  ["µs", 1],
  ["μs", 1],
  ["us", 1],
  ["ms", 1e3],
  ["s", 1e6],
]);
const EXPECTED: Readonly<Record<Metric["unit"], string>> = {
  time: "a time such as 500us, 50ms or 2s",
  rate: "a number of calls per second",
  size: "a size such as 200MB",
  count: "a number",
  part: "a percentage such as 1%",
};

/**
 * Reads a rule: a metric, an optional `@LEVEL`, a comparison and a limit.
 * @param levels the numbers of calls in flight that will be measured
 * @param isCompared whether there is an earlier result, which a limit in percent refers to
 * @throws {HubError} usage; if the metric is unknown, with the list of all metrics
 */
export function readRule(text: string, levels: readonly number[], isCompared: boolean): FailRule {
  const [, name = "", at, sign = "", limitText = ""] = RULE.exec(text.trim()) ?? [];
  if (name === "")
    throw usageError(
      `--fail-if must be a rule such as "p99>50ms" or "rate@16<1000", not "${text}".`,
    );
  const metric = METRICS.find((one) => one.name === name);
  if (metric === undefined) {
    const names = METRICS.map((one) => one.name);
    const nearest = findNearest(name, names);
    const hint = nearest === undefined ? "" : ` Did you mean "${nearest}"?`;
    throw usageError(
      `--fail-if "${text}": there is no metric "${name}".${hint} The metrics are ${names.join(", ")}.`,
    );
  }
  const concurrency = at === undefined ? undefined : Number(at);
  if (concurrency !== undefined && !levels.includes(concurrency))
    throw usageError(
      `--fail-if "${text}": ${concurrency} calls in flight are not measured; --concurrency is ${levels.join(",")}.`,
    );
  const limit = readLimit(metric, limitText);
  if (limit === undefined) {
    const relative =
      metric.isCompared || metric.unit === "time"
        ? ", or with --against a percentage such as 110%"
        : "";
    throw usageError(
      `--fail-if "${text}": the limit of ${name} must be ${EXPECTED[metric.unit]}${relative}, not "${limitText}".`,
    );
  }
  if (limit.kind === "relative" && !isCompared)
    throw usageError(`--fail-if "${text}": a limit in percent needs --against FILE.`);
  return { text, metric, concurrency, comparison: sign as Comparison, limit };
}

function readLimit({ unit }: Metric, text: string): FailRule["limit"] | undefined {
  const [, digits, suffix = ""] = /^(\d+(?:\.\d+)?)\s*(\S*)$/.exec(text) ?? [];
  if (digits === undefined) return undefined;
  const number = Number(digits);
  if (suffix === "%" && unit !== "count")
    return { kind: unit === "part" ? "absolute" : "relative", value: number / 100 };
  const value = ((): number | undefined => {
    switch (unit) {
      case "time": {
        const factor = TIME_UNITS.get(suffix);
        return factor && number * factor;
      }
      case "rate":
        return suffix === "" || suffix === "/s" ? number : undefined;
      case "size":
        return parseSize(text);
      case "count":
      case "part":
        return suffix === "" && (unit === "count" || number === 0) ? number : undefined;
    }
  })();
  return value === undefined ? undefined : { kind: "absolute", value };
}

/**
 * Applies a rule to the levels of the first subject: the hub, or the server if no hub is measured. A level whose figure
 * is not known breaks the rule, because nothing else would tell that the rule guards nothing.
 */
export function applyRule(
  rule: FailRule,
  { subjects: [subject] }: BenchResult,
  earlier: BenchResult | undefined,
): RuleResult {
  const levels = (subject?.levels ?? []).filter(
    ({ concurrency }) => rule.concurrency === undefined || concurrency === rule.concurrency,
  );
  const old = earlier?.subjects.find(({ kind }) => kind === subject?.kind)?.levels ?? [];
  const broken = levels.flatMap((level) => {
    const before = old.find(({ concurrency }) => concurrency === level.concurrency);
    const reason = breach(rule, level, before);
    return reason === undefined ? [] : [{ concurrency: level.concurrency, reason }];
  });
  return { rule: rule.text, isBroken: broken.length > 0, broken };
}

/** Returns the reason for which a level breaks a rule; undefined if it does not. */
function breach(
  { metric, comparison, limit }: FailRule,
  level: LevelResult,
  before: LevelResult | undefined,
): string | undefined {
  const value = metric.of(level);
  if (value === undefined) return `${metric.name} is not known`;
  const isBeyond = COMPARISONS[comparison];
  const shown = `${metric.name} was ${formatMetric(metric, value)}`;
  if (limit.kind === "absolute") return isBeyond(value, limit.value) ? shown : undefined;
  const compared = before && compareMetric(metric, before, level);
  if (compared?.ratio === undefined || compared.ratio === null)
    return `${metric.name} is not known of the earlier result`;
  // A limit is only a limit if what lies beyond it is more than noise.
  if (!isBeyond(compared.ratio, limit.value) || compared.withinNoise === true) return undefined;
  const part = formatMetric({ unit: "part" }, compared.ratio);
  return `${shown}, ${part} of ${formatMetric(metric, compared.before)}`;
}

/** Says what broke a rule, for people. */
export function describeBreach({ rule, broken }: RuleResult): string {
  const reasons = broken.map(
    ({ concurrency, reason }) => `${reason} with ${concurrency} in flight`,
  );
  return `--fail-if "${rule}": ${reasons.join("; ")}.`;
}
