import type { LevelResult, NoiseResult, OverheadResult } from "./result.ts";

/** Number of parts of a level whose spread tells noise from a difference of two runs. */
export const QUARTERS = 4;

/**
 * Figures of one half of a level (a measurement with one number of calls in flight): calls per second, latencies in µs.
 */
interface HalfLevel {
  readonly rate: number;
  readonly p50: number;
  readonly p99: number;
}

/**
 * Decides which differences between hub and server are noise. Each difference is also computed for each half of the
 * level. A difference is noise if its values in the two halves differ by more than its value for the whole level.
 * @returns undefined if the level is too short to have two halves
 */
export function findNoise(
  hub: LevelResult,
  server: LevelResult,
  { p50, p99, rate }: Pick<OverheadResult, "p50" | "p99" | "rate">,
): NoiseResult | undefined {
  const [hubHalves, serverHalves] = [halvesOf(hub), halvesOf(server)];
  if (hubHalves === undefined || serverHalves === undefined) return undefined;
  const isNoise = (
    effect: number,
    compare: (through: HalfLevel, direct: HalfLevel) => number,
  ): boolean => {
    const [first, second] = hubHalves.map((half, at) => compare(half, serverHalves[at] ?? half));
    return Math.abs((first ?? 0) - (second ?? 0)) > Math.abs(effect);
  };
  return {
    p50: isNoise(p50, (through, direct) => through.p50 - direct.p50),
    p99: isNoise(p99, (through, direct) => through.p99 - direct.p99),
    rate: isNoise(rate - 1, (through, direct) => through.rate / direct.rate),
  };
}

/** A part of a level: its number of calls, and the figures of it. */
interface LevelPart extends HalfLevel {
  readonly calls: number;
}

function halvesOf(level: LevelResult): readonly LevelPart[] | undefined {
  return partsOf(level, 2);
}

/** The figures of the four quarters of a level; undefined if it is too short, or nothing was answered in one. */
export function quartersOf(level: LevelResult): readonly LevelPart[] | undefined {
  return partsOf(level, QUARTERS);
}

/**
 * Divides a level into parts of about equal length, each of whole intervals of the timeline: an interval belongs to the
 * part that its middle lies in.
 */
function partsOf(
  { timeline, seconds }: LevelResult,
  count: number,
): readonly LevelPart[] | undefined {
  const parts: { calls: number; length: number; p50: number; p99: number }[] = Array.from(
    { length: count },
    () => ({ calls: 0, length: 0, p50: 0, p99: 0 }),
  );
  for (const [index, { at, calls, p50, p99 }] of timeline.entries()) {
    const end = timeline[index + 1]?.at ?? seconds;
    const part = parts[Math.min(count - 1, Math.floor(((at + end) / 2 / seconds) * count))];
    if (part === undefined) return undefined;
    part.calls += calls;
    part.length += end - at;
    part.p50 += p50 * calls;
    part.p99 += p99 * calls;
  }
  if (parts.some(({ calls, length }) => calls === 0 || length <= 0)) return undefined;
  return parts.map(({ calls, length, p50, p99 }) => {
    return { calls, rate: calls / length, p50: p50 / calls, p99: p99 / calls };
  });
}

/**
 * Decides whether the difference between two runs is noise: by the figure in each of the four quarters of either run.
 * It is no noise if all quarters of one run lie above all quarters of the other. Without a difference, that happens in
 * 3 of 100 comparisons.
 * @returns undefined if the quarters of a run are not known
 */
export function isWithinNoise(
  before: readonly number[] | undefined,
  after: readonly number[] | undefined,
): boolean | undefined {
  if (before?.length !== QUARTERS || after?.length !== QUARTERS) return undefined;
  const isApart =
    Math.min(...after) > Math.max(...before) || Math.max(...after) < Math.min(...before);
  return !isApart;
}
