import process from "node:process";
import type { Entrant, Load, Pace, Turn } from "./contest.ts";
import { middle, raceNewProcesses, ratio, type Turns, valuesOf } from "./race.ts";
import { formatFigures, formatNumber, type Table } from "./report.ts";
import { runJob } from "./runner.ts";
import type { EchoOptions, Stage } from "./stage.ts";
import { mean, median, ratiosOf, type Spread, spreadOf } from "./stats.ts";

/**
 * The loads under which two builds are compared. Those whose name begins with `http` are over HTTP, and those with
 * `sockets` over sockets that are stdin and stdout, as with a client of Node.
 */
const LOADS: Readonly<
  Record<string, Partial<Load> & Pick<EchoOptions, "shape"> & Partial<Omit<Pace, "rounds">>>
> = {
  "stdio-small-1": { flight: 1 },
  "stdio-small-64": { flight: 64 },
  // The first calls of a process, whose code is not compiled yet, but for those that wait for the start of the server.
  "stdio-first-64": { flight: 64, warmUp: 1, duration: 20 },
  "stdio-parsed-64": { flight: 64, shape: "spaced" },
  "stdio-medium-16": { flight: 16, lines: 312 },
  "stdio-large-4": { flight: 4, lines: 31_250 },
  "stdio-arguments-4": { flight: 4, pad: 1_000_000 },
  "sockets-small-1": { flight: 1 },
  "sockets-small-64": { flight: 64 },
  "http-small-1": { flight: 1 },
  "http-small-16": { flight: 16 },
};
const START = "start";
export const BUILD_LOADS: readonly string[] = [...Object.keys(LOADS), START];

/** `BuildGate.atMost` where nothing else is said. */
export const MAX_BUILD_RATIO = 1.05;

const MEASURES = { "p50 µs": "p50", "p99 µs": "p99", "CPU µs": "cpu" } as const;
/** The measures of a start. A client waits for the first list before it does anything. */
const START_MEASURES = {
  "ms to initialize": "initialized",
  "ms to the first list": "listed",
  "CPU ms to the first list": "cpu",
} as const;
/** The tail varies too much to count as a loss. */
const DECIDING: ReadonlySet<string> = new Set(["p50 µs", "CPU µs"]);

/** When a build counts as slower than another one. */
export interface BuildGate {
  /** The ratio above which it does, if the whole 95 % interval of the median lies above it. */
  readonly atMost: number;
  /** Measures that do not count, such as "start: ms to initialize". */
  readonly ignored?: readonly string[];
}

/**
 * Compares this build with another executable. In every round, two new processes of this build and one of the other run
 * side by side, and each has one turn. The ratio of this build to itself shows how much of a difference is noise.
 * @param other path of the other executable
 * @param gate when this build counts as slower
 * @param asked whether a load is measured
 * @returns the table of each load, and the loads under which this build is slower than the other, as texts
 * @throws if an executable is missing or gives a wrong answer
 */
export async function compareBuilds(
  stage: Stage,
  other: string,
  asked: (load: string) => boolean,
  pace: Pace,
  gate: BuildGate = { atMost: MAX_BUILD_RATIO },
): Promise<{ tables: Readonly<Record<string, Table>>; slower: readonly string[] }> {
  const otherStage = stage.with(other);
  const tables: Record<string, Table> = {};
  const slower: string[] = [];
  const judge = (name: string, title: string, spread: Spread): void => {
    if (spread.low <= gate.atMost || gate.ignored?.includes(`${name}: ${title}`)) return;
    const [ratios, low, high] = [spread.median, spread.low, spread.high].map(formatNumber);
    slower.push(`${name}: ${title} ${ratios} times the other's (95 %: ${low} to ${high})`);
  };
  for (const [name, settings] of Object.entries(LOADS)) {
    if (!asked(name)) continue;
    const { shape = "head", warmUp = pace.warmUp, duration = pace.duration, ...load } = settings;
    if (name.startsWith("sockets") && process.platform !== "linux") {
      console.log(`\n${name}: not measured, because pairs of sockets are made on Linux only`);
      continue;
    }
    const entrantAt = (at: Stage): Entrant => {
      if (name.startsWith("http")) return at.overHttp("toolmux", { shape });
      const stdio = name.startsWith("sockets") ? "sockets" : "pipes";
      return { ...at.relay("toolmux", { shape }), stdio };
    };
    const [current, again] = [entrantAt(stage), entrantAt(stage)];
    const run = await raceNewProcesses({ current, other: entrantAt(otherStage), again }, load, {
      rounds: pace.rounds,
      warmUp,
      duration,
    });
    const rows = Object.entries(MEASURES).map(([title, of]) => {
      const spread = spreadOf(ratiosToOther(run, of));
      if (DECIDING.has(title)) judge(name, title, spread);
      const row = {
        this: middle(run, of, "current"),
        other: middle(run, of, "other"),
        ...columnsOf(spread),
        "this:itself": ratio(run, of, "current", "again"),
      };
      return [title, row] as const;
    });
    const table = Object.fromEntries(rows);
    tables[name] = table;
    console.log(`\n${name}\n${formatFigures(table)}`);
  }
  if (asked(START)) {
    const peers = [stage, otherStage].map((at) => at.hub(1).peer);
    // These runs save snapshots of the server, from which the measured starts take their lists.
    await runJob("first", { peers, tools: 1, runs: 1 });
    const [own = [], others = []] = await runJob("first", { peers, tools: 1, runs: pace.rounds });
    const rows = Object.entries(START_MEASURES).map(([title, of]) => {
      const times = own.map((list) => list[of]);
      const otherTimes = others.map((list) => list[of]);
      const spread = spreadOf(ratiosOf(times, otherTimes));
      judge(START, title, spread);
      const row = { this: median(times), other: median(otherTimes), ...columnsOf(spread) };
      return [title, row] as const;
    });
    const table = Object.fromEntries(rows);
    tables[START] = table;
    console.log(`\n${START}\n${formatFigures(table)}`);
  }
  return { tables, slower };
}

function columnsOf({ median: middleRatio, lower, upper, low, high }: Spread) {
  return {
    "this:other": middleRatio,
    "lower quartile": lower,
    "upper quartile": upper,
    "95 % from": low,
    "95 % to": high,
  };
}

/** The ratios of this build (the mean of its two processes) to the other build, by round. */
function ratiosToOther(run: Turns, of: keyof Turn): readonly number[] {
  const names = ["current", "again", "other"];
  const [current = [], again = [], other = []] = names.map((name) => valuesOf(run, of, name));
  return other.map((value, round) => mean([current[round] ?? NaN, again[round] ?? NaN]) / value);
}
