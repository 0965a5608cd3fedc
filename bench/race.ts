import type { ContestLoad, ContestResult, Entrant, EntrantResult, Turn } from "./contest.ts";
import type { Contestant, EchoOptions, HubSetup, Scene, Stage } from "./contestants.ts";
import { runJob } from "./runner.ts";
import { median, quantile } from "./stats.ts";

/** How long entrants take turns; times in ms. */
export interface Pace {
  readonly rounds: number;
  readonly warmUp: number;
  readonly duration: number;
}

/** Entrants that take turns under one load, by their names. */
export type Race = Readonly<Record<string, EntrantResult>>;

/** Lets entrants take turns. @throws if one of them is not there, or gives a wrong answer */
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

/** The median of the ratios within each round; NaN where it cannot be known. */
export function ratio(
  run: Race,
  of: (turn: Turn) => number | null,
  name: string,
  other: string,
): number {
  const others = run[other]?.turns ?? [];
  const ratios = (run[name]?.turns ?? []).map((turn, round) => {
    const twin = others[round];
    return twin === undefined ? Number.NaN : known(of(turn)) / known(of(twin));
  });
  return median(ratios.filter((each) => !Number.isNaN(each)));
}

/**
 * The ratio of what each takes in its better rounds, of which a quarter was better still: a machine that is busy with
 * something else makes most rounds dearer, and none cheaper. NaN where it cannot be known.
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

/** The cost of a call in the better rounds, as for `ratioAtBest`, in µs of CPU; NaN where it cannot be known. */
export function cpuAtBest(run: Race, name: string): number {
  return best(run, ({ cpu }) => cpu, name);
}

/** The median over all rounds; NaN where it cannot be known. */
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

/** One echo server behind a contestant, asked over stdio. */
export function relayOf(stage: Stage, contestant: Contestant): Entrant | undefined {
  return entrantOf(stage.relay(contestant, ECHO));
}

/** Echo servers behind a hub, called in turn. */
export function hubOf(stage: Stage, count: number, setup: HubSetup = {}): Entrant | undefined {
  const hub = stage.hub(count, ECHO, setup);
  const [first, ...others] = (hub?.servers ?? []).map((server) => `${server}__echo`);
  return hub && first !== undefined ? { peer: hub.peer, tools: [first, ...others] } : undefined;
}
