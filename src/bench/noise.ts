import type { LevelResult, NoiseResult, OverheadResult } from "./result.ts";

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

function halvesOf({ timeline, seconds }: LevelResult): readonly HalfLevel[] | undefined {
  const answered = timeline.filter(({ calls }) => calls > 0);
  const middle = answered.find(({ at }) => at >= seconds / 2)?.at ?? seconds;
  const halves = [
    { spans: answered.filter(({ at }) => at < middle), length: middle },
    { spans: answered.filter(({ at }) => at >= middle), length: seconds - middle },
  ];
  if (halves.some(({ spans, length }) => spans.length === 0 || length <= 0)) return undefined;
  return halves.map(({ spans, length }) => {
    const calls = spans.reduce((sum, span) => sum + span.calls, 0);
    const mean = (key: "p50" | "p99"): number =>
      spans.reduce((sum, span) => sum + span[key] * span.calls, 0) / calls;
    return { rate: calls / length, p50: mean("p50"), p99: mean("p99") };
  });
}
