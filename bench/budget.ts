import { formatNumber, formatTable } from "./report.ts";
import { type Spread, spreadOf } from "./stats.ts";

/** The limit for one figure. */
export interface Limit {
  /** The name of the figure. Its first word is the name of the trial that measures the figure. */
  readonly name: string;
  readonly atMost: number;
  /** The reason for the limit, in one line. */
  readonly why: string;
}

/** The figures of one run of a trial, by name: one of each pair of measurements, or a single one. */
export type Trial = Readonly<Record<string, readonly number[]>>;

/** A limit and the spread of all figures that were measured for it. */
export interface Verdict extends Limit, Spread {
  /** The medians of the figures, by run of the trial. */
  readonly medians: readonly number[];
  readonly isKept: boolean;
}

/** Maximum number of runs of a trial. */
const ATTEMPTS = 3;

/**
 * Compares the figures of a trial with its limits. A limit is exceeded only if the whole 95 % interval of the median of
 * all figures lies above it. Other load on the machine makes figures worse more often than better, so a trial that
 * exceeds a limit is run again, and the run with the lowest interval counts.
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
  const spreads = trials.map((trial) => spreadOf(trial[limit.name] ?? []));
  const medians = spreads.map((spread) => spread.median);
  const [least = spreadOf([])] = spreads
    .filter(({ low }) => !Number.isNaN(low))
    .sort((one, other) => one.low - other.low);
  // A figure that this system does not provide, such as CPU time without /proc, exceeds no limit.
  return { ...limit, ...least, medians, isKept: !(least.low > limit.atMost) };
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
  return verdicts.map(({ name, atMost, medians, why }) => {
    const usual = spreadOf(medians).median;
    if (Number.isNaN(usual)) return { name, atMost, why };
    return { name, atMost: Number((usual * room).toPrecision(2)), why };
  });
}

export function formatVerdicts(verdicts: readonly Verdict[]): string {
  const rows = verdicts.map(({ name, atMost, median, low, high, medians, isKept, why }) => {
    const all = medians.map(formatNumber).join(" ");
    const interval = low < high ? `${formatNumber(low)} to ${formatNumber(high)}` : "";
    const numbers = [formatNumber(median), interval, `≤ ${formatNumber(atMost)}`];
    const remark = Number.isNaN(median) ? "not measured here" : isKept ? "" : `EXCEEDED: ${why}`;
    return [name, ...numbers, medians.length > 1 ? all : "", remark];
  });
  return formatTable([["", "figure", "95 %", "limit", "measured", ""], ...rows]);
}
