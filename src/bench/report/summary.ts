import { count } from "../../base/format.ts";
import type { BenchResult, LevelResult, OverheadResult } from "../result.ts";
import {
  countErrors,
  formatChange,
  formatCount,
  formatPercentage,
  formatRate,
  formatTime,
} from "./tables.ts";

/** One of the headline figures. */
export interface SummaryFigure {
  readonly label: string;
  readonly value: string;
  readonly note: string;
}

/** The headline figures of a result. */
export function summarize({ subjects, overhead = [] }: BenchResult): SummaryFigure[] {
  const [first] = subjects;
  const levels = (first?.levels ?? []).filter(({ calls }) => calls > 0);
  const [lowest] = levels;
  const highest = levels.at(-1);
  if (!first || !lowest || !highest) return [];
  const best = levels.reduce((a, b) => (b.rate > a.rate ? b : a));
  const through = subjects.length > 1 ? "through the hub, " : "";
  const figures: SummaryFigure[] = [
    {
      label: "Best throughput",
      value: formatRate(best.rate),
      note: through + describeLevel(best),
    },
    {
      label: "Median latency",
      value: formatTime(lowest.latency.p50),
      note: through + describeLevel(lowest),
    },
    {
      label: "p99 latency",
      value: formatTime(highest.latency.p99),
      note: through + describeLevel(highest),
    },
    ...summarizeOverhead(overhead),
  ];
  const all = subjects.flatMap((subject) => subject.levels);
  const failed = all.reduce((sum, level) => sum + countErrors(level), 0);
  const answered = all.reduce((sum, { calls }) => sum + calls, 0);
  figures.push({
    label: "Errors",
    value: formatCount(failed),
    note: `beside ${formatCount(answered)} answered calls`,
  });
  return figures;
}

function summarizeOverhead(overhead: readonly OverheadResult[]): SummaryFigure[] {
  const [lowest] = overhead;
  const highest = overhead.at(-1);
  if (!lowest || !highest) return [];
  return [
    {
      label: "The hub adds",
      value: formatChange(lowest.p50),
      note: `p50, ${describeLevel(lowest)}`,
    },
    {
      label: "The hub keeps",
      value: formatPercentage(highest.rate),
      note: `of the direct rate, ${describeLevel(highest)}`,
    },
  ];
}

function describeLevel({ concurrency }: Pick<LevelResult, "concurrency">): string {
  return `${count(concurrency, "call")} in flight`;
}
