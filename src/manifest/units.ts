/** Milliseconds per unit. */
const DURATION_UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Bytes per unit: KB is 1,000, KiB is 1,024. */
const SIZE_UNITS = {
  b: 1,
  kb: 1000,
  kib: 1024,
  mb: 1000 ** 2,
  mib: 1024 ** 2,
  gb: 1000 ** 3,
  gib: 1024 ** 3,
} as const;

/** The longest delay of a timer, in ms (24.8 days). */
export const MAX_DURATION = 2 ** 31 - 1;

/** The largest configurable message limit, in bytes. */
export const MAX_SIZE = 2 ** 31 - 1;

/** @returns ms for a text such as "30s", "500ms", "1.5h"; undefined if it is not a duration */
export function parseDuration(text: string): number | undefined {
  return parseQuantity(text, DURATION_UNITS);
}

/** @returns bytes for a text such as "64MiB" or "512KB", in any case; undefined if it is not a size */
export function parseSize(text: string): number | undefined {
  return parseQuantity(text.toLowerCase(), SIZE_UNITS);
}

/** The shortest exact form of a duration in ms: 900000 → "15m". */
export function formatDuration(ms: number): string {
  for (const unit of ["d", "h", "m", "s"] as const) {
    if (ms > 0 && ms % DURATION_UNITS[unit] === 0) return `${ms / DURATION_UNITS[unit]}${unit}`;
  }
  return `${ms}ms`;
}

function parseQuantity(text: string, units: Readonly<Record<string, number>>): number | undefined {
  const match = /^(\d+(?:\.\d+)?) ?([a-z]+)$/.exec(text.trim());
  const unit = match?.[2];
  if (unit === undefined || !Object.hasOwn(units, unit)) return undefined;
  const factor = units[unit];
  return factor === undefined ? undefined : Math.round(Number(match?.[1]) * factor);
}
