/**
 * The benchmark, which compares whole processes. It compiles the programs, runs every load with every contestant in
 * turn, prints a table for each load and whether the goals are reached, and writes all figures to a JSON file.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { buildPrograms } from "./build.ts";
import { compareBuilds, slowerLoads } from "./builds.ts";
import { check } from "./check.ts";
import { Stage } from "./contestants.ts";
import { measureControl } from "./control.ts";
import { measureCopies } from "./copies.ts";
import { measureCatalogs } from "./catalogs.ts";
import { measureEras } from "./eras.ts";
import { judge, type Measurements, setGoals } from "./goals.ts";
import { measureBroad, measureSlow, measureSnapshots, measureSoak, measureStart } from "./hub.ts";
import { measureHttp } from "./http-load.ts";
import { measureIdle } from "./idle.ts";
import { describeMachine } from "./machine.ts";
import { parsePlan, type Plan, type Scenario, USAGE } from "./plan.ts";
import { measureRelays } from "./relay.ts";
import { formatGoals, formatMachine, formatRelay, formatScenarios } from "./report.ts";
import { killAll } from "./runner.ts";

const LATEST = fileURLToPath(new URL("results/latest.json", import.meta.url));

/**
 * The function of each scenario. It returns undefined if the executable has not been built, and throws if something
 * fails.
 */
const SCENARIO_TABLE: {
  readonly [Name in Scenario]: (stage: Stage, plan: Plan) => Promise<Measurements[Name]>;
} = {
  start: measureStart,
  slow: measureSlow,
  broad: measureBroad,
  snapshots: measureSnapshots,
  copies: measureCopies,
  catalogs: measureCatalogs,
  idle: measureIdle,
  control: measureControl,
  eras: measureEras,
  http: measureHttp,
  soak: measureSoak,
};

/** Runs the plan. @returns the exit code: 1 if something failed; a missed goal is no failure */
async function main(plan: Plan, folder: string): Promise<number> {
  const machine = describeMachine();
  console.log(formatMachine(machine));
  const stage = new Stage(buildPrograms(folder), folder);
  const { language, toolmux, stale } = stage.programs;
  console.log(`the echo server is written in ${language}`);
  const problems: string[] = [];
  const report = (text: string) => void problems.push(text);
  if (toolmux === undefined) report("dist/toolmux has not been built: run `npm run build`");
  if (stale) report("dist/toolmux is older than its sources: run `npm run build`");

  if (plan.budget !== undefined) {
    if (problems.length === 0) problems.push(...(await check(stage, plan.budget)));
    for (const problem of problems) console.log(`\nPROBLEM: ${problem}`);
    return problems.length > 0 ? 1 : 0;
  }
  if (plan.against !== undefined) {
    if (problems.length === 0) problems.push(...(await compare(stage, plan, plan.against)));
    for (const problem of problems) console.log(`\nPROBLEM: ${problem}`);
    return problems.length > 0 ? 1 : 0;
  }
  const measurements = await measure(stage, plan, report);
  const goals = setGoals(measurements);
  for (const relay of measurements.relay) console.log(`\n${formatRelay(relay)}`);
  console.log(["", ...formatScenarios(measurements), "", formatGoals(goals)].join("\n"));
  for (const problem of problems) console.log(`\nPROBLEM: ${problem}`);

  const { mode, rounds, warmUp, duration } = plan;
  const verdicts = goals.map((goal) => ({ ...goal, verdict: judge(goal) }));
  const settings = { mode, rounds, warmUp, duration, server: language };
  writeJson(plan.json ?? LATEST, { machine, settings, ...measurements, goals: verdicts, problems });
  return problems.length > 0 ? 1 : 0;
}

/** Compares this build with another one. @returns the loads under which this build is slower, as texts */
async function compare(
  stage: Stage,
  { pace, json }: Plan,
  { executable, only }: NonNullable<Plan["against"]>,
): Promise<readonly string[]> {
  const print = (text: string) => console.log(`\n${text}`);
  const builds = await compareBuilds(stage, executable, only, pace, print);
  if (json !== undefined) writeJson(json, { machine: describeMachine(), pace, executable, builds });
  return slowerLoads(builds);
}

async function measure(
  stage: Stage,
  plan: Plan,
  report: (text: string) => void,
): Promise<Measurements> {
  const relay = await measureRelays(stage, plan, report);
  const figures: Record<string, unknown> = {};
  for (const name of plan.scenarios) {
    try {
      figures[name] = await SCENARIO_TABLE[name](stage, plan);
    } catch (error) {
      report(`${name}: ${String(error)}`);
    }
  }
  return { relay, ...figures };
}

/** Writes figures as JSON, rounded to six significant digits; NaN becomes null. */
function writeJson(file: string, figures: object): void {
  mkdirSync(dirname(file), { recursive: true });
  const round = (_: string, value: unknown) =>
    typeof value === "number" ? Number(value.toPrecision(6)) : value;
  writeFileSync(file, `${JSON.stringify(figures, round, 2)}\n`);
}

function clean(folder: string): void {
  killAll();
  rmSync(folder, { recursive: true, force: true });
}

async function run(plan: Plan): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "bench-"));
  // The jobs create their temporary files in this folder, so that the files are removed even if a job is killed.
  process.env["TMPDIR"] = folder;
  const leave = () => {
    clean(folder);
    process.exit(130);
  };
  process.on("SIGINT", leave).on("SIGTERM", leave).on("SIGHUP", leave);
  try {
    process.exitCode = await main(plan, folder);
  } finally {
    clean(folder);
  }
}

try {
  await run(parsePlan(process.argv.slice(2)));
} catch (error) {
  console.error(error instanceof TypeError ? `${error.message}\n\n${USAGE}` : error);
  process.exitCode = error instanceof TypeError ? 2 : 1;
}
