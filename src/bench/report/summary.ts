import type { BenchResult, LevelResult, OverheadResult } from "../result.ts";
import { countNoun } from "../../terminal/terminal.ts";
import {
  countErrors,
  formatChange,
  formatCount,
  formatPart,
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
  const [least] = levels;
  const most = levels.at(-1);
  if (!first || !least || !most) return [];
  const best = levels.reduce((a, b) => (b.rate > a.rate ? b : a));
  const through = subjects.length > 1 ? "through the hub, " : "";
  const tiles: SummaryFigure[] = [
    {
      label: "Best throughput",
      value: formatRate(best.rate),
      note: through + describeLevel(best),
    },
    {
      label: "Median latency",
      value: formatTime(least.latency.p50),
      note: through + describeLevel(least),
    },
    {
      label: "p99 latency",
      value: formatTime(most.latency.p99),
      note: through + describeLevel(most),
    },
    ...summarizeOverhead(overhead),
  ];
  const all = subjects.flatMap((subject) => subject.levels);
  const failed = all.reduce((sum, level) => sum + countErrors(level), 0);
  const answered = all.reduce((sum, { calls }) => sum + calls, 0);
  tiles.push({
    label: "Errors",
    value: formatCount(failed),
    note: `beside ${formatCount(answered)} answered calls`,
  });
  return tiles;
}

function summarizeOverhead(overhead: readonly OverheadResult[]): SummaryFigure[] {
  const [least] = overhead;
  const most = overhead.at(-1);
  if (!least || !most) return [];
  return [
    { label: "The hub adds", value: formatChange(least.p50), note: `p50, ${describeLevel(least)}` },
    {
      label: "The hub keeps",
      value: formatPart(most.rate),
      note: `of the direct rate, ${describeLevel(most)}`,
    },
  ];
}

function describeLevel({ concurrency }: Pick<LevelResult, "concurrency">): string {
  return `${countNoun(concurrency, "call")} in flight`;
}
