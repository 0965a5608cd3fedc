import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { BUILD_LOADS, MAX_BUILD_RATIO } from "./builds.ts";
import { type Contestant, SHAPES, type Shape } from "./contestants.ts";
import type { Pace } from "./race.ts";

/** One kind of load on a relay. */
export interface Load {
  readonly name: string;
  readonly size: keyof typeof LINES;
  /** Lines of text in an answer. */
  readonly lines: number;
  /** Padding in a call's arguments, in bytes. */
  readonly pad: number;
  /** Calls in flight. */
  readonly flight: number;
  readonly shape: Shape;
  /** A contestant that is left out because it cannot handle the load, and the reason. */
  readonly without?: { readonly contestant: Contestant; readonly why: string };
}

/** The scenarios other than loads; each has one function in SCENARIO_TABLE of main.ts. */
export const SCENARIOS = [
  "start",
  "slow",
  "broad",
  "snapshots",
  "copies",
  "catalogs",
  "idle",
  "control",
  "eras",
  "http",
  "soak",
] as const;
/** Scenarios that take long. A quick run includes them only if they are named. */
const LONG: readonly string[] = ["soak", "idle", "control", "http", "copies"];
export type Scenario = (typeof SCENARIOS)[number];

/** The plan of a benchmark run. Times are in ms. */
export interface Plan {
  readonly mode: "full" | "quick";
  /** If defined, only the figures that have a limit in budget.json are measured. `reset`: write new limits. */
  readonly budget: { readonly reset: boolean; readonly only: readonly string[] } | undefined;
  readonly rounds: number;
  readonly loads: readonly Load[];
  readonly scenarios: readonly Scenario[];
  /** Times of each run: one contestant under one load, in one round. */
  readonly warmUp: number;
  readonly duration: number;
  /** The rounds and times for peers that take turns. */
  readonly pace: Pace;
  readonly starts: number;
  readonly soakCalls: number;
  /** The scenario `idle`: idle time before the measurement (`rest`), and length of the measurement. */
  readonly idle: { readonly rest: number; readonly duration: number };
  /** Number of times that a catalog is built in one process. */
  readonly catalogs: number;
  /**
   * If defined, this build is only compared with another executable, under the loads of builds.ts whose names contain
   * one of `only`.
   */
  readonly against: { readonly executable: string; readonly only: readonly string[] } | undefined;
  /** The file to which the figures are written; undefined for the default file. */
  readonly json: string | undefined;
}

/**
 * Lines of text in an answer. The answers have about 120 bytes (`small`), 10 kB, 1 MB and 16 MB (`huge`). The loads
 * `asking…` have small answers, but arguments of 10 kB or 1 MB.
 */
const LINES = {
  small: 1,
  medium: 312,
  large: 31_250,
  huge: 500_000,
  asking10k: 1,
  asking1M: 1,
} as const;
const PADS: Partial<Record<keyof typeof LINES, number>> = {
  asking10k: 10_000,
  asking1M: 1_000_000,
};

const SDK_LIMIT = {
  contestant: "sdk",
  why: "the SDK closes a connection on which a message of more than 10 MiB comes",
} as const;

const LOADS: readonly Load[] = [
  ...matrix("small", [1, 16, 64, 256], ["head"]),
  ...matrix("small", [1, 64], ["tail", "spaced"]),
  ...matrix("medium", [1, 16, 64], ["head"]),
  ...matrix("large", [1, 4, 16], ["head"]),
  ...matrix("large", [4], ["tail", "spaced"]),
  ...matrix("huge", [1, 4], ["head"]),
  ...matrix("asking10k", [16], ["head"]),
  ...matrix("asking1M", [4], ["head"]),
];
/** Default and minimum number of rounds in which two builds take turns. Fewer rounds show only noise. */
const AGAINST_ROUNDS = 21;
const MIN_AGAINST_ROUNDS = 15;
const QUICK = ["small-1-head", "small-64-head", "small-64-spaced", "large-4-head"];

export const USAGE = `usage: bun bench/main.ts [--quick | --check [--reset] | --against EXECUTABLE] [--soak] [--only NAME]…
                        [--rounds N] [--json FILE]

  --check      holds the hub to bench/budget.json instead, in about a minute
  --reset      writes the limits of bench/budget.json anew, with room above what is measured
  --against EXECUTABLE
               compares this build with another one instead: both, and this one twice, take turns;
               exits with 1 if CPU a call or p50 is more than ${MAX_BUILD_RATIO} times the other's.
               --only NAME then takes: ${BUILD_LOADS.join(" ")}
  --quick      fewer loads and scenarios, one short round: about a minute
  --soak       a million calls also with --quick
  --only NAME  only what has NAME in its name; all names are:
               ${[...SCENARIOS, ...LOADS.map(({ name }) => name)].join(" ")}
  --rounds N   how often each load is run (5, quick 1; with --against 21, at least 15);
               the figures are medians
  --json FILE  where the figures go (bench/results/latest.json)`;

/** Parses the command line. @throws {TypeError} if it is not as in USAGE */
export function parsePlan(argv: readonly string[]): Plan {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      against: { type: "string" },
      check: { type: "boolean", default: false },
      reset: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      soak: { type: "boolean", default: false },
      only: { type: "string", multiple: true, default: [] },
      rounds: { type: "string" },
      json: { type: "string" },
    },
  });
  const { quick, only, json, check, reset, against } = values;
  if (reset && !check) throw new TypeError("--reset needs --check");
  if (against !== undefined && (check || quick))
    throw new TypeError("--against cannot be combined with --check and --quick");
  const rounds = Number(values.rounds ?? (against !== undefined ? AGAINST_ROUNDS : quick ? 1 : 5));
  if (!Number.isInteger(rounds) || rounds < 1) throw new TypeError("--rounds needs a number");
  if (against !== undefined && rounds < MIN_AGAINST_ROUNDS)
    throw new TypeError(`--against needs at least ${MIN_AGAINST_ROUNDS} rounds`);
  const asked = (name: string) => only.some((part) => name.includes(part));
  // With --only, a quick run also measures the named loads and scenarios that it would otherwise leave out.
  const isWanted = (name: string, inQuick: boolean) =>
    only.length > 0 ? asked(name) : inQuick || !quick;
  const loads = LOADS.filter(({ name }) => isWanted(name, QUICK.includes(name)));
  const scenarios = SCENARIOS.filter((name) =>
    name === "soak" && values.soak ? true : isWanted(name, !LONG.includes(name)),
  );
  const buildLoads = BUILD_LOADS.filter(asked);
  const count = against === undefined ? loads.length + scenarios.length : buildLoads.length;
  if (!check && only.length > 0 && count === 0) {
    throw new TypeError(`nothing has ${only.join(" or ")} in its name`);
  }
  return {
    mode: quick ? "quick" : "full",
    budget: check ? { reset, only } : undefined,
    against: against === undefined ? undefined : { executable: resolve(against), only },
    rounds,
    loads,
    scenarios,
    warmUp: quick ? 150 : 300,
    duration: quick ? 300 : 1000,
    pace: quick
      ? { rounds: 5, warmUp: 400, duration: 80 }
      : against !== undefined
        ? { rounds, warmUp: 1000, duration: 200 }
        : { rounds: 4 * rounds + 1, warmUp: 1000, duration: 200 },
    starts: quick ? 20 : 40,
    soakCalls: 1_000_000,
    idle: quick ? { rest: 2000, duration: 20_000 } : { rest: 10_000, duration: 300_000 },
    catalogs: 10,
    json,
  };
}

function matrix(
  size: Load["size"],
  flights: readonly number[],
  shapes: readonly Shape[],
): readonly Load[] {
  const ordered = SHAPES.filter((shape) => shapes.includes(shape));
  return ordered.flatMap((shape) =>
    flights.map((flight) => ({
      name: `${size}-${flight}-${shape}`,
      size,
      lines: LINES[size],
      pad: PADS[size] ?? 0,
      flight,
      shape,
      ...(size === "huge" && { without: SDK_LIMIT }),
    })),
  );
}
