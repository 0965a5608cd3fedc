import { CONTESTANTS, type Contestant, type Stage } from "./contestants.ts";
import type { LoadResult } from "./job.ts";
import type { Load, Plan } from "./plan.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/** One contestant under one load: medians over the rounds. */
export interface Figures extends LoadResult {
  /** Medians of the ratios within each round, because the speed of the machine changes between rounds. */
  readonly toPump: Ratios;
  readonly toSdk: Ratios;
}

/** The ratios of one contestant to another; NaN if there is nothing to compare with. */
export interface Ratios {
  readonly p50: number;
  readonly rate: number;
  readonly cpu: number;
}

export interface RelayResult {
  readonly load: Load;
  readonly contestants: Partial<Record<Contestant, Figures>>;
}

type Rounds = readonly Partial<Record<Contestant, LoadResult>>[];

/** Runs every load with every contestant, round by round. Failed runs are reported and left out. */
export async function measureRelays(
  stage: Stage,
  plan: Plan,
  report: (text: string) => void,
): Promise<RelayResult[]> {
  const rounds = new Map(plan.loads.map((load) => [load, [] as Partial<Rounds[number]>[]]));
  for (let round = 0; round < plan.rounds; round++) {
    for (const [load, results] of rounds)
      results.push(await runRound(stage, plan, load, round, report));
  }
  return [...rounds].map(([load, results]) => ({ load, contestants: summarize(results) }));
}

/** Runs all contestants one after the other. Each round begins with a different contestant. */
async function runRound(
  stage: Stage,
  { warmUp, duration }: Plan,
  { name, flight, lines, pad, shape, without }: Load,
  round: number,
  report: (text: string) => void,
): Promise<Partial<Record<Contestant, LoadResult>>> {
  const results: Partial<Record<Contestant, LoadResult>> = {};
  for (const [at] of CONTESTANTS.entries()) {
    const contestant = CONTESTANTS[(at + round) % CONTESTANTS.length] ?? "direct";
    if (contestant === without?.contestant) continue;
    const scene = stage.relay(contestant, { shape, tools: 1, delay: 0 });
    if (scene === undefined) continue;
    try {
      results[contestant] = await runJob({
        kind: "load",
        ...scene,
        flight,
        lines,
        pad,
        warmUp,
        duration,
      });
    } catch (error) {
      report(`${name}, ${contestant}: ${String(error)}`);
    }
  }
  return results;
}

/** The medians of the figures over all rounds, and of the ratios within each round. */
export function summarize(rounds: Rounds): Partial<Record<Contestant, Figures>> {
  const figures: Partial<Record<Contestant, Figures>> = {};
  for (const contestant of CONTESTANTS) {
    const own = rounds.flatMap((round) => round[contestant] ?? []);
    if (own.length === 0) continue;
    const middle = (of: (result: LoadResult) => number) => median(own.map(of));
    const known = (of: (result: LoadResult) => number | null) => {
      const values = own.flatMap((result) => of(result) ?? []);
      return values.length > 0 ? median(values) : null;
    };
    figures[contestant] = {
      calls: middle(({ calls }) => calls),
      p50: middle(({ p50 }) => p50),
      p99: middle(({ p99 }) => p99),
      rate: middle(({ rate }) => rate),
      cpu: known(({ cpu }) => cpu),
      base: known(({ base }) => base),
      rss: known(({ rss }) => rss),
      peak: known(({ peak }) => peak),
      toPump: compare(rounds, contestant, "pump"),
      toSdk: compare(rounds, contestant, "sdk"),
    };
  }
  return figures;
}

function compare(rounds: Rounds, contestant: Contestant, other: Contestant): Ratios {
  const ratio = (of: (result: LoadResult) => number) =>
    median(
      rounds.flatMap((round) => {
        const [mine, theirs] = [round[contestant], round[other]];
        return mine && theirs ? of(mine) / of(theirs) : [];
      }),
    );
  return {
    p50: ratio(({ p50 }) => p50),
    rate: ratio(({ rate }) => rate),
    cpu: ratio(({ cpu }) => cpu ?? Number.NaN),
  };
}
