/**
 * The benchmark, which compares whole processes. It compiles the programs, runs the scenarios, prints a table for each
 * and whether the goals are reached, and writes all figures to a JSON file.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { BUILD_LOADS, compareBuilds, MAX_BUILD_RATIO } from "./builds.ts";
import { check, readBudget } from "./check.ts";
import { formatGoals, judgeGoals } from "./goals.ts";
import { otherBuild } from "./other-build.ts";
import { describeMachine, formatFigures, type Table } from "./report.ts";
import { killAll } from "./runner.ts";
import { type Plan, SCENARIOS } from "./scenarios.ts";
import { runMain, Stage, withFolder } from "./stage.ts";

const LATEST = fileURLToPath(new URL("results/latest.json", import.meta.url));
/** The project's own tools and questions. */
const OWN_SETS = fileURLToPath(new URL("../test/fixtures/tool-search", import.meta.url));
/** Default and minimum number of rounds in which two builds take turns. Fewer rounds show only noise. */
const AGAINST_ROUNDS = 21;
const MIN_AGAINST_ROUNDS = 15;
/** Time without anything to do before a hub counts as idle, in ms: until then, Bun looks for garbage every second. */
const IDLE_REST = 40_000;

const USAGE = `usage: bun bench/main.ts [--quick | --check [--reset] | --against BUILD | --baseline] [--only NAME]…
                        [--rounds N] [--json FILE]
       bun bench/main.ts search [--data FOLDER]
       bun bench/main.ts exposures [--data FOLDER]
       bun bench/main.ts scan

  search       measures how well tools are found, and what that costs, with the sets of a folder
  scan         measures the scan of 10,000 definitions, and calls while it runs
  exposures    measures what lists of tools take of a model's context, and what calls by call_tool cost
  --check      holds the hub to bench/budget.json instead, in about a minute
  --reset      writes the limits of bench/budget.json anew, with room above what is measured
  --against BUILD
               compares this build with another one instead, an executable or a commit, which is built once and
               kept in the user's cache: both, and this one twice, take turns; exits with 1 if CPU a call, p50 or
               the start is more than ${MAX_BUILD_RATIO} times the other's, with the whole 95 % interval above that.
               --only NAME then takes: ${BUILD_LOADS.join(" ")}
  --baseline   the same against the commit in bench/budget.json, with its loads and its limit
  --quick      fewer scenarios and rounds: about a minute
  --only NAME  only what has NAME in its name; all names are:
               ${SCENARIOS.map(({ name }) => name).join(" ")}
  --rounds N   the figures are medians of rounds (5, quick 1; with --against 21, at least 15)
  --json FILE  where the figures go (bench/results/latest.json)`;

/** Parses the command line. @throws {TypeError} if it is not as in USAGE */
function parseOptions() {
  const { values } = parseArgs({
    options: {
      against: { type: "string" },
      baseline: { type: "boolean", default: false },
      check: { type: "boolean", default: false },
      reset: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      only: { type: "string", multiple: true, default: [] },
      rounds: { type: "string" },
      json: { type: "string" },
    },
  });
  const { quick, check: isCheck, reset } = values;
  const baseline = values.baseline ? readBudget().baseline : undefined;
  const against = values.against ?? baseline?.commit;
  const only = baseline !== undefined && values.only.length === 0 ? baseline.loads : values.only;
  if (reset && !isCheck) throw new TypeError("--reset needs --check");
  if (against !== undefined && (isCheck || quick))
    throw new TypeError("--against cannot be combined with --check and --quick");
  const rounds = Number(values.rounds ?? (against !== undefined ? AGAINST_ROUNDS : quick ? 1 : 5));
  if (!Number.isInteger(rounds) || rounds < 1) throw new TypeError("--rounds needs a number");
  if (against !== undefined && rounds < MIN_AGAINST_ROUNDS)
    throw new TypeError(`--against needs at least ${MIN_AGAINST_ROUNDS} rounds`);
  const asked = (name: string) => only.length === 0 || only.some((part) => name.includes(part));
  const names = against === undefined ? SCENARIOS.map(({ name }) => name) : BUILD_LOADS;
  if (!isCheck && !names.some(asked))
    throw new TypeError(`nothing has ${only.join(" or ")} in its name`);
  return { ...values, only, against, gate: baseline, rounds, asked };
}

type Options = ReturnType<typeof parseOptions>;

/** Measures the search for tools. @throws {TypeError} if the command line is not as in USAGE */
async function searchTools(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { data: { type: "string", default: OWN_SETS } } });
  const { measureToolSearch } = await import("./tool-search.ts");
  await measureToolSearch(values.data);
}

/** Does what the options say. @returns what is wrong, as texts; a missed goal is not */
async function run(options: Options, folder: string): Promise<readonly string[]> {
  const { against, asked, json, gate, reset, rounds } = options;
  const machine = describeMachine();
  console.log(machine);
  const stage = await Stage.build(folder);
  console.log(`the echo server is written in ${stage.programs.language}`);
  if (options.check) return check(stage, reset, asked);
  if (against === undefined) return measure(stage, options, machine);
  const pace = { rounds, warmUp: 1000, duration: 400 };
  const { tables, slower } = await compareBuilds(stage, otherBuild(against), asked, pace, gate);
  if (json !== undefined) writeJson(json, { machine, pace, against, builds: tables });
  return slower;
}

/** Measures the scenarios. @returns those that failed, as texts */
async function measure(
  stage: Stage,
  { quick, only, asked, rounds, json }: Options,
  machine: string,
): Promise<readonly string[]> {
  const skipped: string[] = [];
  const skip = (text: string): void => {
    skipped.push(text);
    console.log(`\nSKIPPED: ${text}`);
  };
  const plan: Plan = quick
    ? {
        skip,
        rounds,
        pace: { rounds: 5 * rounds, warmUp: 800, duration: 80 },
        starts: 20,
        idle: { rest: IDLE_REST, duration: 60_000 },
      }
    : {
        skip,
        rounds,
        pace: { rounds: 4 * rounds + 1, warmUp: 2000, duration: 200 },
        starts: 40,
        idle: { rest: IDLE_REST, duration: 300_000 },
      };
  const problems: string[] = [];
  const measured = new Map<string, Table>();
  for (const { name, title, isQuick, measure: scenario } of SCENARIOS) {
    // With --only, a quick run also measures the named scenarios that it would otherwise leave out.
    if (!asked(name) || (quick && !isQuick && only.length === 0)) continue;
    try {
      const table = await scenario(stage, plan);
      measured.set(name, table);
      console.log(`\n${name}: ${title}\n${formatFigures(table)}`);
    } catch (error) {
      problems.push(`${name}: ${String(error)}`);
    }
  }
  const goals = judgeGoals(measured);
  console.log(`\n${formatGoals(goals)}`);
  const settings = { quick, ...plan, server: stage.programs.language };
  const figures = Object.fromEntries(measured);
  writeJson(json ?? LATEST, { machine, settings, figures, goals, skipped, problems });
  // Once more at the end, where it is not overlooked.
  for (const text of skipped) console.log(`\nSKIPPED: ${text}`);
  return problems;
}

/** Writes figures as JSON, rounded to six significant digits; NaN becomes null. */
function writeJson(file: string, figures: object): void {
  mkdirSync(dirname(file), { recursive: true });
  const round = (_: string, value: unknown) =>
    typeof value === "number" ? Number(value.toPrecision(6)) : value;
  writeFileSync(file, `${JSON.stringify(figures, round, 2)}\n`);
}

/** Measures what clients pay for each exposure. @throws {TypeError} if the command line is not as in USAGE */
async function exposures(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { data: { type: "string", default: OWN_SETS } } });
  const { measureExposures } = await import("./exposures.ts");
  await measureExposures(values.data);
}

async function main(): Promise<void> {
  if (process.argv[2] === "search") return searchTools(process.argv.slice(3));
  if (process.argv[2] === "scan") return (await import("./scan.ts")).measureScan(OWN_SETS);
  if (process.argv[2] === "exposures") return exposures(process.argv.slice(3));
  const options = parseOptions();
  const problems = await withFolder(killAll, (folder) => run(options, folder));
  for (const problem of problems) console.log(`\nPROBLEM: ${problem}`);
  if (problems.length > 0) process.exitCode = 1;
}

await runMain(main, USAGE);
