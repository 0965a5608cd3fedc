/**
 * Checks the hub against the limits in budget.json, in about a minute. The compared programs take turns in many short
 * rounds, so that other load on the machine affects all of them.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  checkLimits,
  formatVerdicts,
  groupLimits,
  type Limit,
  resetLimits,
  type Trial,
} from "./budget.ts";
import type { BuildGate } from "./builds.ts";
import { timeCatalog, timeParsing } from "./catalogs.ts";
import type { Pace } from "./contest.ts";
import { timeLimits } from "./limits.ts";
import { timeMetrics } from "./telemetry-metrics.ts";
import { timeTraces } from "./telemetry-traces.ts";
import { race, ratios } from "./race.ts";
import { runJob } from "./runner.ts";
import type { Stage } from "./stage.ts";

const BUDGET = fileURLToPath(new URL("budget.json", import.meta.url));
/**
 * The factor between a measured figure and the limit that `reset` writes. It is below 1.5, because a figure that gets
 * worse by half must exceed its limit.
 */
const ROOM = 1.25;
/** Maximum total time to wait for the machine to be calm before trials are repeated, in ms. */
const PATIENCE = 60_000;

const SHORT: Pace = { rounds: 15, warmUp: 300, duration: 75 };
const PASSING = `export default { name: "passing", setup: () => ({ call: (next) => (call) => next(call) }) };\n`;

/**
 * The programs that are compared. The SDK's relay always works in the same way, so it shows how fast the machine is at
 * the moment. The pump does not show this, because its cost depends on how many messages arrive at once.
 */
function hubAndSdk(stage: Stage) {
  return { toolmux: stage.relay("toolmux"), sdk: stage.relay("sdk") };
}

/** The trials by name. Each measures the figures whose names in budget.json begin with the trial's name. */
const TRIALS: Readonly<Record<string, (stage: Stage) => Promise<Trial> | Trial>> = {
  async call(stage) {
    const entrants = { pump: stage.relay("pump"), ...hubAndSdk(stage) };
    const run = await race(entrants, { flight: 1 }, SHORT);
    return {
      "call p50 to the pump's": ratios(run, "p50", "toolmux", "pump"),
      "call CPU to the SDK relay's": ratios(run, "cpu", "toolmux", "sdk"),
      "call memory at rest to the pump's": [divide(run["toolmux"]?.base, run["pump"]?.base)],
    };
  },
  async calls(stage) {
    const use = join(stage.makeFolder("passing"), "passing.js");
    writeFileSync(use, PASSING);
    const renaming = { server: { tools: { rename: { echo: "mirror" } } } };
    const era = "modern";
    const entrants = {
      ...hubAndSdk(stage),
      renamed: { ...stage.hub(1, {}, renaming), tools: ["s000__mirror"] as const },
      plugged: stage.hub(1, {}, { plugins: [{ use }] }),
      ten: stage.hub(10),
      modern: { ...stage.hub(1, { era }), era } as const,
    };
    const run = await race(entrants, {}, SHORT);
    const toSdk = (name: keyof typeof entrants) => ratios(run, "cpu", name, "sdk");
    return {
      "calls CPU to the SDK relay's": toSdk("toolmux"),
      "calls CPU with a rename to the SDK relay's": toSdk("renamed"),
      "calls CPU with a plugin to the SDK relay's": toSdk("plugged"),
      "calls CPU with ten servers to the SDK relay's": toSdk("ten"),
      "calls CPU in the modern era to the SDK relay's": toSdk("modern"),
    };
  },
  async answers(stage) {
    const entrants = { pump: stage.relay("pump"), ...hubAndSdk(stage) };
    const run = await race(entrants, { flight: 4, lines: 31_250 }, SHORT);
    return {
      "answers CPU to the SDK relay's": ratios(run, "cpu", "toolmux", "sdk"),
      "answers peak of memory to the pump's": [divide(run["toolmux"]?.peak, run["pump"]?.peak)],
    };
  },
  async arguments(stage) {
    const run = await race(hubAndSdk(stage), { flight: 4, pad: 1_000_000 }, SHORT);
    return { "arguments CPU to the SDK relay's": ratios(run, "cpu", "toolmux", "sdk") };
  },
  async http(stage) {
    const entrants = { toolmux: stage.overHttp("toolmux"), sdk: stage.overHttp("sdk") };
    const run = await race(entrants, { flight: 16 }, { ...SHORT, duration: 120 });
    return { "http CPU to the SDK relay's": ratios(run, "cpu", "toolmux", "sdk") };
  },
  async progress(stage) {
    const job = { ...stage.hub(1), notes: 20_000, rounds: 15 };
    const { cpus: costs, readings, faults } = await runJob("flood", job);
    return {
      "progress CPU to that of reading it": costs.map((cost, round) =>
        divide(cost, readings[round]),
      ),
      "progress out of order or missing": [faults],
    };
  },
  async start(stage) {
    const hello = { command: stage.hello(), speaksFirst: true };
    const peers = [hello, { command: stage.hub(1).peer }];
    const [least = [], toolmux = []] = await runJob("start", { peers, runs: 21 });
    const times = toolmux.map((time, round) => divide(time, least[round]));
    return { "start time to hello-world's": times };
  },
  catalog() {
    const rounds = Array.from({ length: 15 }, () => {
      const parsing = timeParsing(100);
      const [one, many] = [timeCatalog(1), timeCatalog(100)];
      return [many.first / parsing, many.rebuild / parsing, many.find / one.find];
    });
    const column = (at: number) => rounds.map((round) => round[at] ?? Number.NaN);
    return {
      "catalog time to build to that of parsing": column(0),
      "catalog time to rebuild to that of parsing": column(1),
      "catalog look-up among 5,000 to among 50": column(2),
    };
  },
  limits() {
    return { "limits of all kinds in µs of a call": timeLimits({ rounds: 15 }) };
  },
  "telemetry-traces"() {
    const timing = { protocol: "http/protobuf", rounds: 15 } as const;
    return {
      "telemetry-traces in µs of a call": timeTraces({ ...timing, sample: 1 }),
      "telemetry-traces of 1 % in µs of a call": timeTraces({ ...timing, sample: 0.01 }),
      "telemetry-traces off in µs of a call": timeTraces({ ...timing, sample: undefined }),
    };
  },
  "telemetry-metrics"() {
    return { "telemetry-metrics in µs of a call": timeMetrics({ rounds: 15 }) };
  },
};

/** NaN if one of the numbers is unknown. */
function divide(one: number | null | undefined, other: number | null | undefined): number {
  return (one ?? Number.NaN) / (other ?? Number.NaN);
}

/**
 * Measures all figures that have a limit.
 * @param reset whether to write new limits to budget.json: the measured figures times `ROOM`
 * @param asked whether a trial is run
 * @returns the names of exceeded limits, and other problems, as texts
 */
export async function check(
  stage: Stage,
  reset: boolean,
  asked: (trial: string) => boolean,
): Promise<readonly string[]> {
  const budget = readBudget();
  const groups = groupLimits(budget.limits);
  const unlimited = Object.keys(TRIALS).filter((name) => !groups.has(name));
  const problems = unlimited.map((name) => `bench/budget.json: "${name}" has no limit`);
  const limits: Limit[] = [];
  let patience = PATIENCE;
  for (const [name, own] of groups) {
    const trial = TRIALS[name];
    if (trial === undefined) problems.push(`bench/budget.json: nothing is called "${name}"`);
    if (trial === undefined || !asked(name)) {
      limits.push(...own);
      continue;
    }
    let isRepeated = false;
    const attempt = async (): Promise<Trial> => {
      if (isRepeated) patience -= await awaitCalm(patience);
      isRepeated = true;
      return trial(stage);
    };
    const verdicts = await checkLimits(own, attempt, reset ? "always" : "ifExceeded");
    console.log(formatVerdicts(verdicts));
    limits.push(...resetLimits(verdicts, ROOM));
    problems.push(...verdicts.filter(({ isKept }) => !isKept).map(({ name: which }) => which));
  }
  if (!reset) return problems;
  writeFileSync(BUDGET, `${JSON.stringify({ ...budget, limits }, undefined, 2)}\n`);
  return [];
}

/** The content of budget.json. */
interface Budget {
  /**
   * The build that `--baseline` compares with. It moves only when something has got better, so that many small losses
   * add up to one that is seen. `loads`: those of `--against`; `why`: the reason for what is ignored.
   */
  readonly baseline: BuildGate & {
    readonly commit: string;
    readonly loads: readonly string[];
    readonly why: string;
  };
  readonly limits: readonly Limit[];
}

/** Reads budget.json. @throws if the file cannot be read or is not JSON */
export function readBudget(): Budget {
  return JSON.parse(readFileSync(BUDGET, "utf8")) as Budget;
}

/**
 * Waits until at most a quarter of all cores is busy, for at most `patience` ms.
 * @returns the time that it waited, in ms
 */
async function awaitCalm(patience: number): Promise<number> {
  const began = performance.now();
  const sum = (of: "idle" | undefined) =>
    cpus().reduce((total, { times }) => {
      return total + (of ? times[of] : Object.values(times).reduce((all, ms) => all + ms, 0));
    }, 0);
  while (performance.now() < began + patience) {
    const [idle, all] = [sum("idle"), sum(undefined)];
    await new Promise((resolve) => setTimeout(resolve, 500));
    if (sum("idle") - idle >= 0.75 * (sum(undefined) - all)) break;
  }
  return performance.now() - began;
}
