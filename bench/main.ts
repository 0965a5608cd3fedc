/**
 * The benchmark: whole processes side by side. Compiles what it compares, runs every load with every contestant
 * in turn, prints a table for each and how the goals stand, and writes all figures to a JSON file.
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
import { measureCopies } from "./copies.ts";
import { measureCatalogs, measureGrowth, measureReload } from "./curves.ts";
import { measureCycles, measureKills, measureSnapshots } from "./endurance.ts";
import { measureEras } from "./eras.ts";
import { measureFaces } from "./faces.ts";
import { judge, type Measurements, setGoals } from "./goals.ts";
import { measureBroad, measureSlow, measureSoak, measureStart } from "./hub.ts";
import { measureHttp } from "./http.ts";
import { describeMachine } from "./machine.ts";
import { parsePlan, type Plan, type Scenario, USAGE } from "./plan.ts";
import { measurePlugins } from "./plugins.ts";
import { measureRelays } from "./relay.ts";
import { formatGoals, formatHub, formatMachine, formatRelay } from "./report.ts";
import { measureIdle, measureParked } from "./rest.ts";
import { killAll } from "./runner.ts";
import { formatLoads, formatRest } from "./summary.ts";
import { measurePolicies, measureSpread } from "./spread.ts";
import { measureFlood } from "./torrents.ts";

const LATEST = fileURLToPath(new URL("results/latest.json", import.meta.url));

type Measure<T> = (stage: Stage, plan: Plan) => Promise<T | undefined>;

/** @returns the exit code: 1 if something failed, whatever became of the goals. */
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
  const findings = [formatHub, formatLoads, formatRest].flatMap((format) => format(measurements));
  console.log(["", ...findings, "", formatGoals(goals)].join("\n"));
  for (const problem of problems) console.log(`\nPROBLEM: ${problem}`);

  const { mode, rounds, warmUp, duration } = plan;
  const verdicts = goals.map((goal) => ({ ...goal, verdict: judge(goal) }));
  const settings = { mode, rounds, warmUp, duration, server: language };
  writeJson(plan.json ?? LATEST, { machine, settings, ...measurements, goals: verdicts, problems });
  return problems.length > 0 ? 1 : 0;
}

/** Compares this build with another one. @returns where it is slower */
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
  const attempt = async <T>(name: Scenario, scenario: Measure<T>): Promise<T | undefined> => {
    if (!plan.scenarios.includes(name)) return undefined;
    try {
      return await scenario(stage, plan);
    } catch (error) {
      report(`${name}: ${String(error)}`);
      return undefined;
    }
  };
  return {
    relay,
    start: await attempt("start", measureStart),
    slow: await attempt("slow", measureSlow),
    broad: await attempt("broad", measureBroad),
    snapshots: await attempt("snapshots", measureSnapshots),
    kills: await attempt("kills", measureKills),
    cycles: await attempt("cycles", measureCycles),
    plugins: await attempt("plugins", measurePlugins),
    policies: await attempt("policies", measurePolicies),
    spread: await attempt("spread", measureSpread),
    flood: await attempt("flood", measureFlood),
    copies: await attempt("copies", measureCopies),
    catalogs: await attempt("catalogs", measureCatalogs),
    growth: await attempt("growth", measureGrowth),
    reload: await attempt("reload", measureReload),
    parked: await attempt("parked", measureParked),
    idle: await attempt("idle", measureIdle),
    eras: await attempt("eras", measureEras),
    http: await attempt("http", measureHttp),
    faces: await attempt("faces", measureFaces),
    soak: await attempt("soak", measureSoak),
  };
}

/** Rounds to what can be told apart; what is not a number becomes null. */
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
  // What the jobs make for themselves goes with it, even if they are killed.
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
