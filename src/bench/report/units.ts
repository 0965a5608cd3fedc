/*
 * Quantities as people read them. A report's page is given these functions as text, so each uses nothing but what
 * is inside of it.
 */

/** A time in µs, in three digits: `9.40 µs`, `123 µs`, `1.23 ms`, `45.6 s`. */
export function formatTime(us: number): string {
  if (us < 999.5) return `${us === 0 ? "0" : us < 0.01 ? "0.01" : us.toPrecision(3)} µs`;
  if (us < 999_500) return `${(us / 1e3).toPrecision(3)} ms`;
  return `${us < 999.5e6 ? (us / 1e6).toPrecision(3) : Math.round(us / 1e6)} s`;
}

/** So many a second: `0.500/s`, `41.2/s`, `41,234/s`. */
export function formatRate(perSecond: number): string {
  if (perSecond < 99.95) return `${perSecond === 0 ? "0" : perSecond.toPrecision(3)}/s`;
  return `${String(Math.round(perSecond)).replace(/\B(?=(?:\d{3})+$)/g, ",")}/s`;
}

/** `41,234`. */
export function formatCount(some: number): string {
  return String(Math.round(some)).replace(/\B(?=(?:\d{3})+$)/g, ",");
}

/** Bytes, in three digits: `640 B`, `12.3 KB`, `123 MB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 999.5) return `${Math.round(bytes)} B`;
  if (bytes < 999_500) return `${(bytes / 1e3).toPrecision(3)} KB`;
  return bytes < 999.5e6
    ? `${(bytes / 1e6).toPrecision(3)} MB`
    : `${(bytes / 1e9).toPrecision(3)} GB`;
}

/** A moment of a level, in s: `2.5 s`. */
export function formatMoment(seconds: number): string {
  return `${Number(seconds.toFixed(2))} s`;
}

/** The nines of a percentile, as on an axis that spreads its end: 0 is 0 %, 1 is 90 %, 2 is 99 %. */
export function formatNines(nines: number): string {
  const percentile = 100 * (1 - 10 ** -nines);
  return `${Number(percentile.toFixed(Math.max(0, Math.ceil(nines) - 1)))}%`;
}
