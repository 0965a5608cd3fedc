import { formatNumber, formatTable } from "./report.ts";
import { median } from "./stats.ts";

/** The limit for one figure. */
export interface Limit {
  /** The name of the figure. Its first word is the name of the trial that measures the figure. */
  readonly name: string;
  readonly atMost: number;
  /** The reason for the limit, in one line. */
  readonly why: string;
}

/** The figures of one run of a trial, by name. */
export type Trial = Readonly<Record<string, number>>;

/** A limit and all figures that were measured for it. The lowest figure decides whether the limit is kept. */
export interface Verdict extends Limit {
  readonly figures: readonly number[];
  readonly least: number;
  readonly isKept: boolean;
}

/** Maximum number of runs of a trial. */
const ATTEMPTS = 3;

/**
 * Compares the figures of a trial with its limits. Other load on the machine makes figures worse more often than
 * better, so a trial that exceeds a limit is run again, and the lowest of all figures counts.
 * @param repeats whether to run the trial again even if it exceeds no limit
 * @throws if the limits and the figures do not have the same names
 */
export async function checkLimits(
  limits: readonly Limit[],
  attempt: () => Promise<Trial>,
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
  // A figure that this system does not provide, such as CPU time without /proc, exceeds no limit.
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

/** Groups the limits by trial, in their order. */
export function groupLimits(limits: readonly Limit[]): Map<string, Limit[]> {
  return Map.groupBy(limits, ({ name }) => name.split(" ")[0] ?? "");
}

/** New limits: the median of the measured figures times `room`. If `room` is 1.3, a limit is 30 % above the median. */
export function resetLimits(verdicts: readonly Verdict[], room: number): Limit[] {
  return verdicts.map(({ name, atMost, figures, why }) => {
    const usual = median(figures);
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
