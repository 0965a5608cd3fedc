/**
 * Checks the hub against the limits in budget.json, in about a minute. The compared programs take turns in many short
 * rounds, so that other load on the machine affects all of them.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import {
  formatVerdicts,
  groupLimits,
  checkLimits,
  type Limit,
  resetLimits,
  type Trial,
} from "./budget.ts";
import { awaitCalm } from "./calm.ts";
import type { Entrant, Turn } from "./contest.ts";
import type { Stage } from "./contestants.ts";
import { policyOf } from "./policies.ts";
import { ECHO, entrantOf, hubOf, type Pace, race, ratioAtBest, relayOf } from "./race.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";
import { measureCatalog } from "./listing.ts";

const BUDGET = fileURLToPath(new URL("budget.json", import.meta.url));
/**
 * The factor between a measured figure and the limit that `reset` writes. It is below 1.5, because a figure that gets
 * worse by half must exceed its limit.
 */
const ROOM = 1.25;

/** Maximum total time to wait for the machine to be calm before trials are repeated, in ms. */
const PATIENCE = 60_000;

const SHORT: Pace = { rounds: 15, warmUp: 500, duration: 80 };
/** The pace over HTTP. Its warm-up is longer, because the code for HTTP requests takes longer to be JIT-compiled. */
const HTTP: Pace = { rounds: 15, warmUp: 1500, duration: 120 };
const STARTS = 21;
const NOTES = 20_000;
const NOTE_ROUNDS = 11;

const cpu = (turn: Turn) => turn.cpu;
const p50 = (turn: Turn) => turn.p50;

/**
 * The relays that are compared. The SDK's relay always works in the same way, so it shows how fast the machine is at
 * the moment. The pump does not show this, because its cost depends on how many messages arrive at once.
 */
function relays(stage: Stage): Readonly<Record<"pump" | "toolmux" | "sdk", Entrant | undefined>> {
  return {
    pump: relayOf(stage, "pump"),
    toolmux: relayOf(stage, "toolmux"),
    sdk: relayOf(stage, "sdk"),
  };
}

/** The trials by name. Each measures the figures whose names in budget.json begin with the trial's name. */
const TRIALS: Readonly<Record<string, (stage: Stage) => Promise<Trial>>> = {
  async call(stage) {
    const alone = await race(relays(stage), { flight: 1 }, SHORT);
    return {
      "call p50 to the pump's": ratioAtBest(alone, p50, "toolmux", "pump"),
      "call CPU to the SDK relay's": ratioAtBest(alone, cpu, "toolmux", "sdk"),
    };
  },
  async calls(stage) {
    const crowd = await race(relays(stage), { flight: 64 }, SHORT);
    const [hub, pump] = [crowd["toolmux"]?.base, crowd["pump"]?.base];
    return {
      "calls CPU to the SDK relay's": ratioAtBest(crowd, cpu, "toolmux", "sdk"),
      "calls memory at rest to the pump's": hub && pump ? hub / pump : Number.NaN,
    };
  },
  async answers(stage) {
    const large = await race(relays(stage), { flight: 4, lines: 31_250 }, SHORT);
    const [hub, pump] = [large["toolmux"]?.peak, large["pump"]?.peak];
    return {
      "answers CPU to the SDK relay's": ratioAtBest(large, cpu, "toolmux", "sdk"),
      "answers peak of memory to the pump's": hub && pump ? hub / pump : Number.NaN,
    };
  },
  async arguments(stage) {
    const large = await race(relays(stage), { flight: 4, pad: 1_000_000 }, SHORT);
    return { "arguments CPU to the SDK relay's": ratioAtBest(large, cpu, "toolmux", "sdk") };
  },
  async http(stage) {
    const overHttp = { transport: "http" } as const;
    const entrants = {
      toolmux: entrantOf(stage.overHttp("toolmux", ECHO), overHttp),
      sdk: entrantOf(stage.overHttp("sdk", ECHO), overHttp),
    };
    const crowd = await race(entrants, { flight: 16 }, HTTP);
    return { "http CPU to the SDK relay's": ratioAtBest(crowd, cpu, "toolmux", "sdk") };
  },
  async policies(stage) {
    const entrants = {
      sdk: relayOf(stage, "sdk"),
      renamed: policyOf(stage, "renamed"),
      plugged: policyOf(stage, "plugged"),
    };
    const crowd = await race(entrants, {}, SHORT);
    return {
      "policies CPU with a rename to the SDK relay's": ratioAtBest(crowd, cpu, "renamed", "sdk"),
      "policies CPU with a plugin to the SDK relay's": ratioAtBest(crowd, cpu, "plugged", "sdk"),
    };
  },
  async mixture(stage) {
    const modern = stage.hub(1, { ...ECHO, era: "modern" });
    const entrants = {
      sdk: relayOf(stage, "sdk"),
      ten: hubOf(stage, 10),
      modern: entrantOf(modern, { era: "modern" }),
    };
    const crowd = await race(entrants, {}, SHORT);
    return {
      "mixture CPU with ten servers to the SDK relay's": ratioAtBest(crowd, cpu, "ten", "sdk"),
      "mixture CPU in the modern era to the SDK relay's": ratioAtBest(crowd, cpu, "modern", "sdk"),
    };
  },
  async progress(stage) {
    const hub = stage.relay("toolmux", ECHO);
    if (hub === undefined) throw new Error("toolmux has not been built");
    const entrants = [{ peer: hub.peer, tools: [hub.tool] }];
    const job = { entrants, notes: NOTES, rounds: NOTE_ROUNDS };
    const [result] = await runJob({ kind: "flood", ...job });
    const { cpus = [], readings = [], faults = Number.NaN } = result ?? {};
    const ratios = cpus.map((each, at) => (each ?? Number.NaN) / (readings[at] ?? Number.NaN));
    return {
      "progress CPU to that of reading it": median(ratios.filter((each) => !Number.isNaN(each))),
      "progress out of order or missing": faults,
    };
  },
  async start(stage) {
    const hub = stage.relay("toolmux", ECHO);
    if (hub === undefined) throw new Error("toolmux has not been built");
    const peers = [
      { command: stage.hello(), speaksFirst: true },
      { command: hub.peer, speaksFirst: false },
    ];
    const { times } = await runJob({ kind: "start", peers, runs: STARTS });
    const [hello = [], toolmux = []] = times;
    const ratios = toolmux.map((time, at) => time / (hello[at] ?? Number.NaN));
    return { "start time to hello-world's": median(ratios) };
  },
  catalog() {
    return measureCatalog();
  },
};

/**
 * Measures all figures that have a limit.
 * @param reset whether to write new limits to budget.json: the measured figures times `ROOM`
 * @param only runs only the trials whose names contain one of these texts; all trials if empty
 * @returns the names of exceeded limits, and other problems, as texts
 */
export async function check(
  stage: Stage,
  { reset, only }: { readonly reset: boolean; readonly only: readonly string[] },
): Promise<string[]> {
  const limits = readBudget();
  const problems: string[] = [];
  const reached: Limit[] = [];
  let patience = PATIENCE;
  for (const [name, own] of groupLimits(limits)) {
    const trial = TRIALS[name];
    if (trial === undefined) {
      problems.push(`bench/budget.json: nothing is called "${name}"`);
      continue;
    }
    if (only.length > 0 && !only.some((part) => name.includes(part))) {
      reached.push(...own);
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
    reached.push(...resetLimits(verdicts, ROOM));
    problems.push(...verdicts.filter(({ isKept }) => !isKept).map(({ name: which }) => which));
  }
  const known = groupLimits(limits);
  const open = Object.keys(TRIALS).filter((name) => !known.has(name));
  problems.push(...open.map((name) => `bench/budget.json: "${name}" has no limit`));
  if (!reset) return problems;
  writeFileSync(BUDGET, `${JSON.stringify(reached, undefined, 2)}\n`);
  return [];
}

/** Reads the limits from budget.json. @throws if the file cannot be read or is not JSON */
export function readBudget(): readonly Limit[] {
  return JSON.parse(readFileSync(BUDGET, "utf8")) as Limit[];
}
