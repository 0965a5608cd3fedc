import type { Load, Pace, Turn } from "./contest.ts";
import { middle, type Race, race, ratio, valuesOf } from "./race.ts";
import { formatFigures, formatNumber, type Table } from "./report.ts";
import type { EchoOptions, Stage } from "./stage.ts";
import { mean, median } from "./stats.ts";

/** The loads under which two builds are compared; those whose name begins with `http` are over HTTP. */
const LOADS: Readonly<Record<string, Partial<Load> & Pick<EchoOptions, "shape">>> = {
  "stdio-small-1": { flight: 1 },
  "stdio-small-64": { flight: 64 },
  "stdio-parsed-64": { flight: 64, shape: "spaced" },
  "stdio-medium-16": { flight: 16, lines: 312 },
  "stdio-large-4": { flight: 4, lines: 31_250 },
  "stdio-arguments-4": { flight: 4, pad: 1_000_000 },
  "http-small-1": { flight: 1 },
  "http-small-16": { flight: 16 },
};
export const BUILD_LOADS: readonly string[] = Object.keys(LOADS);

/** A ratio of CPU time or p50 above this value counts as a loss. */
export const MAX_BUILD_RATIO = 1.05;

const MEASURES = { "p50 µs": "p50", "CPU µs": "cpu" } as const;

/**
 * Compares this build with another executable. Two processes of this build and one of the other run side by side, and
 * take turns in every round. The ratio of this build to itself shows how much of a difference is noise.
 * @param other path of the other executable
 * @param asked whether a load is measured
 * @returns the table of each load, and the loads under which this build is slower than the other, as texts
 * @throws if an executable is missing or gives a wrong answer
 */
export async function compareBuilds(
  stage: Stage,
  other: string,
  asked: (load: string) => boolean,
  pace: Pace,
): Promise<{ tables: Readonly<Record<string, Table>>; slower: readonly string[] }> {
  const otherStage = stage.with(other);
  const tables: Record<string, Table> = {};
  const slower: string[] = [];
  for (const [name, { shape = "head", ...load }] of Object.entries(LOADS)) {
    if (!asked(name)) continue;
    const entrantAt = (at: Stage) =>
      name.startsWith("http") ? at.overHttp("toolmux", { shape }) : at.relay("toolmux", { shape });
    const [current, again] = [entrantAt(stage), entrantAt(stage)];
    const run = await race({ current, other: entrantAt(otherStage), again }, load, pace);
    const rows = Object.entries(MEASURES).map(([title, of]) => {
      const toOther = ratioToOther(run, of);
      if (toOther > MAX_BUILD_RATIO)
        slower.push(`${name}: ${title} ${formatNumber(toOther)} times the other's`);
      const row = {
        this: middle(run, of, "current"),
        other: middle(run, of, "other"),
        "this:other": toOther,
        "this:itself": ratio(run, of, "current", "again"),
      };
      return [title, row] as const;
    });
    const table = Object.fromEntries(rows);
    tables[name] = table;
    console.log(`\n${name}\n${formatFigures(table)}`);
  }
  return { tables, slower };
}

/** The median over the rounds of the ratio of this build (the mean of its two processes) to the other build. */
function ratioToOther(run: Race, of: keyof Turn): number {
  const names = ["current", "again", "other"];
  const [current = [], again = [], other = []] = names.map((name) => valuesOf(run, of, name));
  return median(
    other.map((value, round) => mean([current[round] ?? NaN, again[round] ?? NaN]) / value),
  );
}
