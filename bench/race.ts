import type { ContestLoad, ContestResult, Entrant, EntrantResult, Turn } from "./contest.ts";
import type { Contestant, EchoOptions, HubSetup, Scene, Stage } from "./contestants.ts";
import { runJob } from "./runner.ts";
import { median, quantile } from "./stats.ts";

/** The number of rounds in which entrants take turns, and the times of the warm-up and of each turn, in ms. */
export interface Pace {
  readonly rounds: number;
  readonly warmUp: number;
  readonly duration: number;
}

/** The results of entrants that took turns under one load, by the entrants' names. */
export type Race = Readonly<Record<string, EntrantResult>>;

/** Lets entrants take turns. @throws if one of them has not been built, or gives a wrong answer */
export async function race(
  entrants: Readonly<Record<string, Entrant | undefined>>,
  load: Partial<ContestLoad>,
  pace: Pace,
): Promise<Race> {
  const names = Object.keys(entrants);
  const racers = names.map((name) => {
    const entrant = entrants[name];
    if (entrant === undefined) throw new Error(`${name} has not been built`);
    return entrant;
  });
  const whole = { flight: 64, lines: 1, pad: 0, ...load };
  const results: ContestResult = await runJob({
    kind: "contest",
    entrants: racers,
    load: whole,
    ...pace,
  });
  return Object.fromEntries(names.map((name, at) => [name, results[at] ?? EMPTY]));
}

const EMPTY: EntrantResult = { turns: [], base: null, peak: null, rss: null };

/** The median of the ratios of `name` to `other` within each round; NaN if unknown. */
export function ratio(
  run: Race,
  of: (turn: Turn) => number | null,
  name: string,
  other: string,
): number {
  return medianOfRounds(run, of, name, other, (own, others) => own / others);
}

/** The median of the differences of `name` from `other` within each round; NaN if unknown. */
export function difference(
  run: Race,
  of: (turn: Turn) => number | null,
  name: string,
  other: string,
): number {
  return medianOfRounds(run, of, name, other, (own, others) => own - others);
}

function medianOfRounds(
  run: Race,
  of: (turn: Turn) => number | null,
  name: string,
  other: string,
  compare: (own: number, other: number) => number,
): number {
  const others = run[other]?.turns ?? [];
  const values = (run[name]?.turns ?? []).map((turn, round) => {
    const twin = others[round];
    return twin === undefined ? Number.NaN : compare(known(of(turn)), known(of(twin)));
  });
  return median(values.filter((each) => !Number.isNaN(each)));
}

/**
 * The ratio of `name` to `other`, each at the 25th percentile of its rounds. Other load on the machine makes most
 * rounds slower and none faster, so the better rounds are more reliable. NaN if unknown.
 */
export function ratioAtBest(
  run: Race,
  of: (turn: Turn) => number | null,
  name: string,
  other: string,
): number {
  return best(run, of, name) / best(run, of, other);
}

function best(run: Race, of: (turn: Turn) => number | null, name: string): number {
  const values = (run[name]?.turns ?? []).flatMap((turn) => of(turn) ?? []);
  return quantile(Float64Array.from(values).sort(), 0.25);
}

/** The median of a figure over all rounds; NaN if unknown. */
export function middle(run: Race, of: (turn: Turn) => number | null, name: string): number {
  return median((run[name]?.turns ?? []).flatMap((turn) => of(turn) ?? []));
}

function known(value: number | null): number {
  return value ?? Number.NaN;
}

export const ECHO: EchoOptions = { shape: "head", tools: 1, delay: 0 };

export function entrantOf(scene: Scene | undefined, more: Partial<Entrant> = {}) {
  return scene && { peer: scene.peer, tools: [scene.tool] as const, ...more };
}

/** One echo server behind a contestant, called over stdio. */
export function relayOf(stage: Stage, contestant: Contestant): Entrant | undefined {
  return entrantOf(stage.relay(contestant, ECHO));
}

/** Echo servers behind a hub, called in turn. */
export function hubOf(stage: Stage, count: number, setup: HubSetup = {}): Entrant | undefined {
  const hub = stage.hub(count, ECHO, setup);
  const [first, ...others] = (hub?.servers ?? []).map((server) => `${server}__echo`);
  return hub && first !== undefined ? { peer: hub.peer, tools: [first, ...others] } : undefined;
}
