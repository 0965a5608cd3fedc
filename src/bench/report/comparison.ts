import type { ComparisonResult } from "../comparison.ts";
import { formatMetric, METRICS } from "../metrics.ts";
import type { RuleResult } from "../rules.ts";
import { type ReportTable, routeName, WITHIN_NOISE } from "./tables.ts";

const NOISE_NOTE = `* ${WITHIN_NOISE}: the figures of the four quarters of a level overlap with those of the earlier result.`;
const UNKNOWN_NOTE =
  "? noise unknown: the figure has no quarters, or the level was too short for them.";

/** The figures of a result beside those of an earlier one. */
export function describeComparison({
  started,
  despite,
  levels,
  unmatched,
}: ComparisonResult): ReportTable {
  const hasSeveral = new Set(levels.map(({ kind }) => kind)).size > 1;
  const all = levels.flatMap(({ metrics }) => metrics);
  return {
    title: "Against the earlier result",
    notes: [
      `Measured at ${started}. Ratios are of this result to the earlier one.`,
      ...despite.map(({ kind, before, now }) => `Another ${kind}: ${now}; it was ${before}.`),
      ...(unmatched.length > 0
        ? [`Only one of the two results has ${unmatched.join(", ")} in flight.`]
        : []),
      ...(all.some(({ withinNoise }) => withinNoise === true) ? [NOISE_NOTE] : []),
      ...(all.some(({ withinNoise }) => withinNoise === null) ? [UNKNOWN_NOTE] : []),
    ],
    columns: [
      { title: "in flight", kind: "number" },
      ...(hasSeveral ? [{ title: "of", kind: "text" } as const] : []),
      { title: "figure", kind: "text" },
      { title: "before", kind: "number" },
      { title: "now", kind: "number" },
      { title: "ratio", kind: "number" },
    ],
    rows: levels.flatMap(({ kind, concurrency, metrics }) =>
      metrics.flatMap(({ metric: name, before, now, ratio, withinNoise }) => {
        const metric = METRICS.find((one) => one.name === name);
        if (metric === undefined) return [];
        const mark = withinNoise === null ? "? " : withinNoise ? "* " : "";
        return [
          [
            String(concurrency),
            ...(hasSeveral ? [routeName({ kind })] : []),
            metric.title,
            formatMetric(metric, before),
            formatMetric(metric, now),
            ratio === null ? "–" : `${mark}${ratio.toFixed(2)} ×`,
          ],
        ];
      }),
    ),
  };
}

/** The rules of `--fail-if`, with what breaks them. */
export function describeRules(rules: readonly RuleResult[]): ReportTable {
  return {
    title: "Rules",
    notes: [],
    columns: [
      { title: "fail if", kind: "text" },
      { title: "verdict", kind: "text" },
    ],
    rows: rules.map(({ rule, isBroken }) => [rule, isBroken ? "FAILED" : "held"]),
  };
}
