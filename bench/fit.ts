/** A power law `y = a · x^b` that is fitted to points. */
export interface Fit {
  readonly a: number;
  /** The exponent. 0: no growth; 1: linear growth. */
  readonly b: number;
}

/**
 * Fits a power law by least squares on the logarithms. Points with a coordinate that has no logarithm are left out. If
 * fewer than two different values of `x` remain, the result is NaN.
 */
export function fitPower(points: readonly (readonly [x: number, y: number])[]): Fit {
  const logs = points
    .filter(([x, y]) => x > 0 && y > 0)
    .map(([x, y]) => [Math.log(x), Math.log(y)]);
  const mean = (of: number) => logs.reduce((sum, point) => sum + (point[of] ?? 0), 0) / logs.length;
  const [x, y] = [mean(0), mean(1)];
  let [covariance, variance] = [0, 0];
  for (const [u = 0, v = 0] of logs) {
    covariance += (u - x) * (v - y);
    variance += (u - x) ** 2;
  }
  const b = covariance / variance;
  return { a: Math.exp(y - b * x), b };
}
