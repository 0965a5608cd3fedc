import { median } from "../stats.ts";
import type { Entrant } from "./entrants.ts";
import type { Figures, Lap, Tell } from "./job.ts";
import { runJob } from "./run.ts";

/** What everybody is asked, one after the other. */
export const LAPS = [
  { name: "one", flight: 1, lines: 1 },
  { name: "many", flight: 64, lines: 1 },
  { name: "medium", flight: 16, lines: 312 },
  { name: "large", flight: 4, lines: 31_250 },
] as const satisfies readonly Lap[];
export type LapName = (typeof LAPS)[number]["name"];

/** How long a race is; times in ms. */
export interface Course {
  readonly rounds: number;
  /** Of each lap. */
  readonly warmUp: number;
  readonly duration: number;
}

/** What came of one who took part. */
export interface Standing {
  readonly name: string;
  readonly version: string;
  /** Medians over the rounds; a lap that failed is missing. */
  readonly laps: Partial<Record<LapName, Result>>;
  /** Why laps are missing; undefined if none is. */
  readonly fault: string | undefined;
}

export interface Result extends Figures {
  /** How often toolmux's rate is this one's: the median of the ratios within each round; NaN without it. */
  readonly toolmuxRate: number;
}

type Results = Partial<Record<LapName, Figures>>;

/** One in a race, with what it has still to run and what it has failed at. */
interface Runner {
  readonly entrant: Entrant;
  readonly rounds: Results[];
  left: readonly (typeof LAPS)[number][];
  fault: string | undefined;
}

/** Lets all run round by round, each round beginning with another one. Who fails at a lap is not asked for it again. */
export async function race(
  entrants: readonly Entrant[],
  course: Course,
  report: (text: string) => void,
): Promise<Standing[]> {
  const runners = entrants.map((entrant): Runner => {
    return { entrant, rounds: [], left: LAPS, fault: undefined };
  });
  for (let round = 0; round < course.rounds; round++) {
    for (const at of runners.keys()) {
      const runner = runners[(at + round) % runners.length];
      if (runner === undefined) continue;
      const known = runner.fault;
      runner.rounds.push(await run(runner, course));
      const { fault } = runner;
      if (fault !== known) report(`${runner.entrant.name}: ${fault ?? ""}`);
    }
  }
  const ours = runners.find(({ entrant }) => entrant.name === "toolmux")?.rounds ?? [];
  return runners.map((runner) => summarize(runner, ours));
}

/** Runs all laps that are left, the rest of them from a fresh start if one fails. */
async function run(runner: Runner, course: Course): Promise<Results> {
  const results: Results = {};
  for (let waiting = runner.left; waiting.length > 0;) {
    const heard: Figures[] = [];
    try {
      await attempt(runner.entrant, waiting, course, (figures) => heard.push(figures));
    } catch (error) {
      const failed = waiting[heard.length];
      const why = tidy(error instanceof Error ? error.message : String(error));
      runner.fault ??= failed === LAPS[0] ? why : `${describe(failed)}: ${why}`;
      // Who fails at a single small call has nothing to run for.
      runner.left = failed === LAPS[0] ? [] : runner.left.filter((lap) => lap !== failed);
      if (failed === LAPS[0]) return {};
    }
    for (const [at, figures] of heard.entries()) {
      const lap = waiting[at];
      if (lap !== undefined) results[lap.name] = figures;
    }
    waiting = waiting.slice(heard.length + 1);
  }
  return results;
}

/** @throws if it is not there, does not start, hangs, or gives a wrong answer. */
async function attempt(
  { enter }: Entrant,
  laps: readonly Lap[],
  { warmUp, duration }: Course,
  tell: Tell,
): Promise<void> {
  await runJob({ ...(await enter()), laps, warmUp, duration }, tell);
}

function summarize({ entrant, rounds, fault }: Runner, ours: readonly Results[]): Standing {
  const { name, version } = entrant;
  const laps: Partial<Record<LapName, Result>> = {};
  for (const { name: lap } of LAPS) {
    const own = rounds.flatMap((results) => results[lap] ?? []);
    if (own.length > 0) laps[lap] = { ...condense(own), toolmuxRate: compare(ours, rounds, lap) };
  }
  return { name, version, laps, fault };
}

/** The median of each figure. */
function condense(results: readonly Figures[]): Figures {
  const middle = (of: (figures: Figures) => number) => median(results.map(of));
  const known = (of: (figures: Figures) => number | null) => {
    const values = results.flatMap((figures) => of(figures) ?? []);
    return values.length > 0 ? median(values) : null;
  };
  return {
    calls: middle(({ calls }) => calls),
    p50: middle(({ p50 }) => p50),
    p99: middle(({ p99 }) => p99),
    rate: middle(({ rate }) => rate),
    cpu: known(({ cpu }) => cpu),
    rss: known(({ rss }) => rss),
  };
}

/** How often the rate of these was that of those, in the same round. */
function compare(these: readonly Results[], those: readonly Results[], lap: LapName): number {
  return median(
    those.flatMap((results, round) => {
      const [mine, theirs] = [these[round]?.[lap], results[lap]];
      return mine && theirs ? mine.rate / theirs.rate : [];
    }),
  );
}

/** A lap, or what comes after the last of them. */
function describe(lap: Lap | undefined): string {
  return lap === undefined ? "at its end" : `${lap.flight} in flight, ${lap.lines} lines each`;
}

/** What was said, for a page that others read: the folders of this machine are none of their business. */
function tidy(text: string): string {
  const folders = /(?<![\w:/])\/(?:[\w.@+-]+\/)+/g;
  return text.replaceAll(/\s+/g, " ").replaceAll(folders, "").trim().slice(0, 300);
}
