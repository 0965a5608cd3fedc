import type { Entrant } from "./contest.ts";
import type { Stage } from "./contestants.ts";
import type { Plan } from "./plan.ts";
import { POLICIES, policyOf } from "./policies.ts";
import { hubOf, middle, type Pace, race, ratio } from "./race.ts";

/** What small calls cost in one setting, 64 in flight. */
export interface Setting {
  readonly name: string;
  readonly rate: number;
  /** µs of the hub's own process for a call; NaN where that cannot be known. */
  readonly cpu: number;
  /** Medians of the ratios to the first setting within each round. */
  readonly rateToFirst: number;
  readonly cpuToFirst: number;
}

/** How many servers calls are spread over; no more than twenty if each is a program in JavaScript. */
const COUNTS = { C: [1, 10, 100], JavaScript: [1, 10, 20] } as const;

/** Calls that are spread over servers. @throws if something fails */
export function measureSpread(stage: Stage, { pace }: Plan): Promise<readonly Setting[]> {
  const counts = COUNTS[stage.programs.language];
  const entrants = counts.map((count) => [`${count} servers`, hubOf(stage, count)] as const);
  return compare(entrants, pace);
}

/** Calls under each policy. @throws if something fails */
export function measurePolicies(stage: Stage, { pace }: Plan): Promise<readonly Setting[]> {
  const entrants = POLICIES.map((policy) => [policy, policyOf(stage, policy)] as const);
  return compare(entrants, pace);
}

async function compare(
  entrants: readonly (readonly [name: string, entrant: Entrant | undefined])[],
  pace: Pace,
): Promise<readonly Setting[]> {
  const own = await race(Object.fromEntries(entrants), {}, pace);
  const [[first] = [""]] = entrants;
  return entrants.map(([name]) => ({
    name,
    rate: middle(own, ({ rate }) => rate, name),
    cpu: middle(own, ({ cpu }) => cpu, name),
    rateToFirst: ratio(own, ({ rate }) => rate, name, first),
    cpuToFirst: ratio(own, ({ cpu }) => cpu, name, first),
  }));
}
