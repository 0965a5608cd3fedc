import type { Entrant, EntrantResult, Load, Pace, Turn } from "./contest.ts";
import type { Table } from "./report.ts";
import { runJob } from "./runner.ts";
import { median, ratiosOf } from "./stats.ts";

/** The results of entrants that took turns under one load, by the entrants' names. */
export type Race = Readonly<Record<string, EntrantResult>>;

/** The turns of entrants under one load, by the entrants' names. */
export type Turns = Readonly<Record<string, Pick<EntrantResult, "turns">>>;

/** The code for HTTP requests takes longer to be JIT-compiled, so the warm-up over HTTP is longer by this factor. */
const HTTP_WARM_UP = 3;

/**
 * Lets entrants take turns.
 * @param load 64 calls in flight with one line in each answer, except for what is given
 * @throws if one of them gives a wrong answer
 */
export async function race(
  entrants: Readonly<Record<string, Entrant>>,
  load: Partial<Load>,
  pace: Pace,
): Promise<Race> {
  const all = Object.values(entrants);
  const isHttp = all.some(({ transport }) => transport === "http");
  const warmUp = pace.warmUp * (isHttp ? HTTP_WARM_UP : 1);
  const job = { ...pace, warmUp, entrants: all, load: { flight: 64, lines: 1, pad: 0, ...load } };
  const duration = all.length * (warmUp + pace.rounds * pace.duration);
  const results = await runJob("contest", job, { duration });
  return Object.fromEntries(
    Object.keys(entrants).flatMap((name, at) => {
      const result = results[at];
      return result === undefined ? [] : [[name, result]];
    }),
  );
}

/**
 * Lets entrants take turns as `race` does, with new processes of all of them in every round, because two processes of
 * one program differ by up to a fifth as long as they live.
 */
export async function raceNewProcesses(
  entrants: Readonly<Record<string, Entrant>>,
  load: Partial<Load>,
  { rounds, ...pace }: Pace,
): Promise<Turns> {
  const all = Object.entries(entrants);
  const runs: Race[] = [];
  for (let round = 0; round < rounds; round++) {
    const first = round % all.length;
    const ordered = Object.fromEntries([...all.slice(first), ...all.slice(0, first)]);
    runs.push(await race(ordered, load, { ...pace, rounds: 1 }));
  }
  return Object.fromEntries(
    all.map(([name]) => {
      const results = runs.flatMap((run) => run[name] ?? []);
      return [name, { turns: results.flatMap(({ turns }) => turns) }];
    }),
  );
}

/** The figures of an entrant in all rounds; NaN if unknown. */
export function valuesOf(run: Turns, of: keyof Turn, name: string): readonly number[] {
  return (run[name]?.turns ?? []).map((turn) => turn[of] ?? Number.NaN);
}

/** The median of a figure over all rounds; NaN if unknown. */
export function middle(run: Turns, of: keyof Turn, name: string): number {
  return median(valuesOf(run, of, name));
}

/** The ratios of `name` to `other` within each round; NaN if unknown. */
export function ratios(run: Turns, of: keyof Turn, name: string, other: string): readonly number[] {
  return ratiosOf(valuesOf(run, of, name), valuesOf(run, of, other));
}

/** The median of the ratios of `name` to `other` within each round; NaN if unknown. */
export function ratio(run: Turns, of: keyof Turn, name: string, other: string): number {
  return median(ratios(run, of, name, other));
}

/** The median of the differences of `name` from `other` within each round; NaN if unknown. */
export function difference(run: Turns, of: keyof Turn, name: string, other: string): number {
  const others = valuesOf(run, of, other);
  return median(valuesOf(run, of, name).map((own, round) => own - (others[round] ?? Number.NaN)));
}

/** The figures of all entrants, with the ratios to some of them. */
export function tableOf(run: Race, references: readonly string[]): Table {
  const rows = Object.entries(run).map(([name, { rss, peak }]) => {
    const figures: Record<string, number> = {
      "p50 µs": middle(run, "p50", name),
      "p99 µs": middle(run, "p99", name),
      "calls/s": middle(run, "rate", name),
      "CPU µs": middle(run, "cpu", name),
      "RSS MB": (rss ?? Number.NaN) / 1e6,
      "peak MB": (peak ?? Number.NaN) / 1e6,
    };
    for (const other of references) {
      figures[`p50:${other}`] = ratio(run, "p50", name, other);
      figures[`rate:${other}`] = ratio(run, "rate", name, other);
      figures[`CPU:${other}`] = ratio(run, "cpu", name, other);
    }
    return [name, figures];
  });
  return Object.fromEntries(rows) as Table;
}
