/** The median of numbers in any order; NaN if there are none. Numbers that are unknown (NaN) are left out. */
export function median(values: readonly number[]): number {
  return quantile(Float64Array.from(values.filter((value) => !Number.isNaN(value))).sort(), 0.5);
}

/** The quantile `part` (0 to 1) of ascending numbers, interpolated between neighbors; NaN if there are none. */
export function quantile(sorted: Float64Array, part: number): number {
  const at = (sorted.length - 1) * part;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  const above = sorted[Math.ceil(at)] ?? Number.NaN;
  return below + (above - below) * (at % 1);
}

/** The ratios of numbers to others at the same place; NaN if one of both is unknown. */
export function ratiosOf(
  values: readonly (number | null)[],
  others: readonly (number | null)[],
): readonly number[] {
  return values.map((value, at) => (value ?? Number.NaN) / (others[at] ?? Number.NaN));
}

/** A median, its quartiles, and the interval that contains the true median with a probability of 95 %. */
export interface Spread {
  readonly median: number;
  readonly lower: number;
  readonly upper: number;
  readonly low: number;
  readonly high: number;
}

/** The spread of numbers in any order. The interval comes from the ranks, so it assumes nothing of their distribution. */
export function spreadOf(values: readonly number[]): Spread {
  const sorted = Float64Array.from(values.filter((value) => !Number.isNaN(value))).sort();
  const reach = 0.98 * Math.sqrt(sorted.length);
  const at = (rank: number): number =>
    sorted[Math.min(sorted.length - 1, Math.max(0, rank))] ?? Number.NaN;
  return {
    median: quantile(sorted, 0.5),
    lower: quantile(sorted, 0.25),
    upper: quantile(sorted, 0.75),
    low: at(Math.floor(sorted.length / 2 - reach)),
    high: at(Math.ceil(sorted.length / 2 + reach) - 1),
  };
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/**
 * The exponent `b` of the power law `y = a · x^b` through points: 0 without growth, 1 for linear growth. It is fitted
 * by least squares on the logarithms; NaN if there are fewer than two different values of `x`.
 */
export function powerOf(points: readonly (readonly [x: number, y: number])[]): number {
  const logs = points.map(([x, y]) => [Math.log(x), Math.log(y)] as const);
  const [x, y] = [mean(logs.map(([u]) => u)), mean(logs.map(([, v]) => v))];
  const covariance = mean(logs.map(([u, v]) => (u - x) * (v - y)));
  return covariance / mean(logs.map(([u]) => (u - x) ** 2));
}
