import type { BenchResult, LevelResult, OverheadResult } from "../result.ts";
import {
  countErrors,
  formatChange,
  formatCount,
  formatPercentage,
  formatRate,
  formatTime,
  WITHIN_NOISE,
} from "./tables.ts";

export interface SummaryFigure {
  readonly label: string;
  readonly value: string;
  readonly note: string;
}

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
      label: `Best throughput, ${describeLevel(best)}`,
      value: formatRate(best.rate),
      note: `${through}calls answered per second`,
    },
    {
      label: `p50 latency, ${describeLevel(lowest)}`,
      value: formatTime(lowest.latency.p50),
      note: `${through}half of the calls are faster`,
    },
    {
      label: `p99 latency, ${describeLevel(highest)}`,
      value: formatTime(highest.latency.p99),
      note: `${through}99 of 100 calls are faster`,
    },
    ...summarizeOverhead(overhead),
  ];
  const all = subjects.flatMap((subject) => subject.levels);
  const failed = all.reduce((sum, level) => sum + countErrors(level), 0);
  const answered = all.reduce((sum, { calls }) => sum + calls, 0);
  figures.push({
    label: "Errors, all levels",
    value: formatCount(failed),
    note: `${formatCount(answered)} calls were answered`,
  });
  return figures;
}

function summarizeOverhead(overhead: readonly OverheadResult[]): SummaryFigure[] {
  const [lowest] = overhead;
  const highest = overhead.at(-1);
  if (!lowest || !highest) return [];
  return [
    {
      label: `The hub adds, ${describeLevel(lowest)}`,
      ...summarizeEffect(formatChange(lowest.p50), "to p50 latency", lowest.withinNoise?.p50),
    },
    {
      label: `The hub keeps, ${describeLevel(highest)}`,
      ...summarizeEffect(
        formatPercentage(highest.rate),
        "of the direct rate",
        highest.withinNoise?.rate,
      ),
    },
  ];
}

function summarizeEffect(
  measured: string,
  note: string,
  isNoise = false,
): Pick<SummaryFigure, "value" | "note"> {
  if (!isNoise) return { value: measured, note };
  return { value: WITHIN_NOISE, note: `measured: ${measured} ${note}` };
}

function describeLevel({ concurrency }: Pick<LevelResult, "concurrency">): string {
  return `${concurrency} in flight`;
}
