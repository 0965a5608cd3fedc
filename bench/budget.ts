import { formatNumber, formatTable } from "./report.ts";
import { median } from "./stats.ts";

/** What a figure may come to. */
export interface Limit {
  /** The name of a figure; what stands before its first blank is the trial that yields it. */
  readonly name: string;
  readonly atMost: number;
  /** In one line. */
  readonly why: string;
}

/** Figures of one trial, by their names. */
export type Trial = Readonly<Record<string, number>>;

/** Does a trial anew. */
export type Attempt = () => Promise<Trial>;

/** A limit, all that was measured of it, and the least of that, which counts. */
export interface Verdict extends Limit {
  readonly figures: readonly number[];
  readonly least: number;
  readonly isKept: boolean;
}

/** How often a trial that exceeds a limit is done, in all. */
const ATTEMPTS = 3;

/**
 * Holds a trial to its limits. A machine that is busy makes figures worse more often than better: what exceeds a limit is
 * measured again, and the least of all figures counts.
 * @param repeats whether a trial is done again that exceeds nothing
 * @throws if limits and figures are not the same ones
 */
export async function hold(
  limits: readonly Limit[],
  attempt: Attempt,
  repeats: "ifExceeded" | "always" = "ifExceeded",
): Promise<Verdict[]> {
  const trials: Trial[] = [];
  let verdicts: Verdict[] = [];
  while (trials.length < ATTEMPTS) {
    const trial = await attempt();
    refuseStrangers(limits, trial);
    trials.push(trial);
    verdicts = limits.map((limit) => judge(limit, trials));
    if (repeats === "ifExceeded" && verdicts.every(({ isKept }) => isKept)) break;
  }
  return verdicts;
}

function judge(limit: Limit, trials: readonly Trial[]): Verdict {
  const figures = trials.map((trial) => trial[limit.name] ?? Number.NaN);
  const known = figures.filter((figure) => !Number.isNaN(figure));
  // What no system says here, like processor time without /proc, exceeds nothing.
  if (known.length === 0) return { ...limit, figures, least: Number.NaN, isKept: true };
  const least = Math.min(...known);
  return { ...limit, figures, least, isKept: least <= limit.atMost };
}

function refuseStrangers(limits: readonly Limit[], trial: Trial): void {
  const [wanted, found] = [limits.map(({ name }) => name), Object.keys(trial)];
  const odd = [
    ...wanted.filter((name) => !found.includes(name)).map((name) => `"${name}" is not measured`),
    ...found.filter((name) => !wanted.includes(name)).map((name) => `"${name}" has no limit`),
  ];
  if (odd.length > 0) throw new Error(`bench/budget.json: ${odd.join(", ")}`);
}

/** The limits of each trial, in their order. */
export function groupLimits(limits: readonly Limit[]): Map<string, Limit[]> {
  return Map.groupBy(limits, ({ name }) => name.split(" ")[0] ?? "");
}

/** Limits that leave as much room above what was measured as the word says: 1.3 is 30 %. */
export function resetLimits(verdicts: readonly Verdict[], room: number): Limit[] {
  return verdicts.map(({ name, atMost, figures, why }) => {
    const usual = median(figures.filter((figure) => !Number.isNaN(figure)));
    if (Number.isNaN(usual)) return { name, atMost, why };
    return { name, atMost: Number((usual * room).toPrecision(2)), why };
  });
}

export function formatVerdicts(verdicts: readonly Verdict[]): string {
  const rows = verdicts.map(({ name, atMost, least, figures, isKept, why }) => {
    const all = figures.map(formatNumber).join(" ");
    const numbers = [formatNumber(least), `≤ ${formatNumber(atMost)}`];
    const remark = Number.isNaN(least) ? "not measured here" : isKept ? "" : `EXCEEDED: ${why}`;
    return [name, ...numbers, figures.length > 1 ? all : "", remark];
  });
  return formatTable([["", "figure", "limit", "measured", ""], ...rows]);
}
