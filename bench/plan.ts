import { parseArgs } from "node:util";
import { SHAPES, type Shape } from "./contestants.ts";

/** One kind of load on a relay. */
export interface Load {
  readonly name: string;
  readonly size: "small" | "large";
  /** Lines of text in an answer. */
  readonly lines: number;
  /** Calls in flight. */
  readonly flight: number;
  readonly shape: Shape;
}

/** Everything but loads that can be measured. */
export const SCENARIOS = [
  "start",
  "slow",
  "broad",
  "snapshots",
  "kills",
  "cycles",
  "plugins",
  "eras",
  "http",
  "soak",
] as const;
export type Scenario = (typeof SCENARIOS)[number];

/** What is measured, and how long; times in ms. */
export interface Plan {
  readonly mode: "full" | "quick";
  readonly rounds: number;
  readonly loads: readonly Load[];
  readonly scenarios: readonly Scenario[];
  /** Of each load, of each contestant, in each round. */
  readonly warmUp: number;
  readonly duration: number;
  readonly starts: number;
  readonly soakCalls: number;
  /** Kills that warm up and that count, and how long memory rests before it is looked at. */
  readonly siege: { readonly warmUp: number; readonly kills: number; readonly rest: number };
  /** How many servers, how many starts and stops of each at every pace, and how many reconnects. */
  readonly cycling: {
    readonly servers: number;
    readonly cycles: number;
    readonly reconnects: number;
  };
  /** Sessions that listen, and for how long memory rests; clients that ask for everything, and for how long. */
  readonly http: {
    readonly sessions: number;
    readonly rest: number;
    readonly clients: number;
    readonly duration: number;
  };
  /** Where the figures go; undefined for the usual place. */
  readonly json: string | undefined;
}

/** Answers of about 120 bytes, and of one million. */
const LINES = { small: 1, large: 31_250 } as const;

const LOADS: readonly Load[] = [
  ...matrix("small", [1, 16, 64], ["head"]),
  ...matrix("small", [1, 64], ["tail", "spaced"]),
  ...matrix("large", [1, 4, 16], ["head"]),
  ...matrix("large", [4], ["tail", "spaced"]),
];
const QUICK = ["small-1-head", "small-64-head", "small-64-spaced", "large-4-head"];

export const USAGE = `usage: bun bench/main.ts [--quick] [--soak] [--only NAME]… [--rounds N] [--json FILE]

  --quick      fewer loads, one short round: less than half a minute
  --soak       a million calls also with --quick
  --only NAME  only what has NAME in its name; all names are:
               ${[...SCENARIOS, ...LOADS.map(({ name }) => name)].join(" ")}
  --rounds N   how often each load is run (5, quick 1); the figures are medians
  --json FILE  where the figures go (bench/results/latest.json)`;

/** @throws {TypeError} if the command line is not as USAGE has it. */
export function parsePlan(argv: readonly string[]): Plan {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: "boolean", default: false },
      soak: { type: "boolean", default: false },
      only: { type: "string", multiple: true, default: [] },
      rounds: { type: "string" },
      json: { type: "string" },
    },
  });
  const { quick, only, json } = values;
  const rounds = Number(values.rounds ?? (quick ? 1 : 5));
  if (!Number.isInteger(rounds) || rounds < 1) throw new TypeError("--rounds wants a number");
  const asked = (name: string) => only.some((part) => name.includes(part));
  // What is asked for by its name is measured also in a quick run.
  const isWanted = (name: string, inQuick: boolean) =>
    only.length > 0 ? asked(name) : inQuick || !quick;
  const loads = LOADS.filter(({ name }) => isWanted(name, QUICK.includes(name)));
  const scenarios = SCENARIOS.filter((name) =>
    name === "soak" ? values.soak || isWanted(name, false) : isWanted(name, true),
  );
  if (loads.length + scenarios.length === 0) {
    throw new TypeError(`nothing has ${only.join(" or ")} in its name`);
  }
  return {
    mode: quick ? "quick" : "full",
    rounds,
    loads,
    scenarios,
    warmUp: quick ? 150 : 300,
    duration: quick ? 300 : 1000,
    starts: quick ? 20 : 40,
    soakCalls: 1_000_000,
    siege: quick ? { warmUp: 20, kills: 100, rest: 0 } : { warmUp: 300, kills: 1000, rest: 15_000 },
    cycling: { servers: quick ? 1 : 4, cycles: 50, reconnects: 20 },
    http: quick
      ? { sessions: 100, rest: 0, clients: 20, duration: 3000 }
      : { sessions: 1000, rest: 15_000, clients: 200, duration: 60_000 },
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
      flight,
      shape,
    })),
  );
}
