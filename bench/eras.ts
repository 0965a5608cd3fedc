import type { Era } from "../src/protocol/modern.ts";
import type { EchoOptions, Stage } from "./contestants.ts";
import type { LoadResult } from "./job.ts";
import type { Plan } from "./plan.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/**
 * Combinations of protocol eras: the first letter is the era of the client, the second that of the server (L: legacy,
 * M: modern).
 */
export const ERA_PAIRS = ["LL", "LM", "ML", "MM"] as const;
export type EraPair = (typeof ERA_PAIRS)[number];

export interface EraFigures {
  readonly rate: number;
  readonly p50: number;
  /** CPU time of the hub's own process per call, in µs; NaN if unknown. */
  readonly cpu: number;
  /** Median of the ratios of this CPU time to that of `LL` within each round. */
  readonly cpuToLegacy: number;
}

export type ErasResult = Readonly<Record<EraPair, EraFigures>>;

const FLIGHT = 64;
const ECHO: Omit<EchoOptions, "era"> = { shape: "head", tools: 1, delay: 0 };
const ERAS: Readonly<Record<EraPair, readonly [client: Era, server: Era]>> = {
  LL: ["legacy", "legacy"],
  LM: ["legacy", "modern"],
  ML: ["modern", "legacy"],
  MM: ["modern", "modern"],
};

/**
 * Measures a hub under each combination of eras.
 * @returns undefined if the executable has not been built
 * @throws if something fails
 */
export async function measureEras(
  stage: Stage,
  { rounds, warmUp, duration }: Plan,
): Promise<ErasResult | undefined> {
  const results: Record<EraPair, LoadResult>[] = [];
  for (let round = 0; round < rounds; round++) {
    const own: Partial<Record<EraPair, LoadResult>> = {};
    for (const [at] of ERA_PAIRS.entries()) {
      const pair = ERA_PAIRS[(at + round) % ERA_PAIRS.length] ?? "LL";
      const [client, server] = ERAS[pair];
      const hub = stage.hub(1, { ...ECHO, era: server });
      if (hub === undefined) return undefined;
      const load = { lines: 1, flight: FLIGHT, warmUp, duration };
      own[pair] = await runJob({ kind: "load", ...hub, ...load, era: client });
    }
    results.push(own as Record<EraPair, LoadResult>);
  }
  return Object.fromEntries(ERA_PAIRS.map((pair) => [pair, figuresOf(results, pair)])) as Record<
    EraPair,
    EraFigures
  >;
}

function figuresOf(rounds: readonly Record<EraPair, LoadResult>[], pair: EraPair): EraFigures {
  const own = rounds.map((round) => round[pair]);
  const cpu = (result: LoadResult) => result.cpu ?? Number.NaN;
  return {
    rate: median(own.map(({ rate }) => rate)),
    p50: median(own.map(({ p50 }) => p50)),
    cpu: median(own.map(cpu)),
    cpuToLegacy: median(rounds.map((round) => cpu(round[pair]) / cpu(round.LL))),
  };
}
