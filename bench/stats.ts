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
