/**
 * `bench scan`: what the scan of 10,000 definitions costs, and calls while it runs, with a hub and its server in this
 * process.
 */
import { setImmediate } from "node:timers/promises";
import { examineEntry } from "../src/scan/scan.ts";
import { Peers } from "./exposures.ts";
import { describeMachine } from "./report.ts";
import { median, spreadOf } from "./stats.ts";
import { readToolSets } from "./tool-sets.ts";

const TOOLS = 10_000;
/** Goals: all definitions in ms, and the ratio of calls while they are scanned. */
const MAX_TIME = 1000;
const MAX_RATIO = 1.1;
const PAIRS = 15;
const CALLS = 400;

/** So many tools, made of those of the sets, all different. */
function makeTools(folder: string): readonly string[] {
  const { tools } = readToolSets(folder);
  return Array.from({ length: TOOLS }, (_, at) => {
    const { name = "x", description, inputSchema } = tools[at % tools.length] ?? {};
    return JSON.stringify({
      name: `${name}_${at}`,
      description: `${description} (${at})`,
      inputSchema,
    });
  });
}

/** The median time of calls one after another, in ms. @param until ends them earlier */
async function timeCalls(peers: Peers, until?: () => boolean): Promise<number> {
  const params = '{"name":"many__first","arguments":{}}';
  const times: number[] = [];
  for (let i = 0; i < CALLS && until?.() !== true; i++) {
    await setImmediate();
    const start = performance.now();
    await peers.request("tools/call", params);
    times.push(performance.now() - start);
  }
  return median(times);
}

/** Measures and prints. @param folder of sets of tools */
export async function measureScan(folder: string): Promise<void> {
  console.log(describeMachine());
  const tools = makeTools(folder);
  const values = tools.map((text) => JSON.parse(text) as unknown);
  const times = Array.from({ length: 7 }, () => {
    const start = performance.now();
    for (const value of values) examineEntry(value);
    return performance.now() - start;
  });
  const [once = Number.NaN] = times;
  const verdict = once <= MAX_TIME ? "reached" : "not reached";
  console.log(
    `${TOOLS} definitions: ${once.toFixed(0)} ms the first time, ${median(times).toFixed(0)} ms the median (goal: ${MAX_TIME} ms, ${verdict})`,
  );
  const ratios: number[] = [];
  for (let pair = 0; pair < PAIRS; pair++) {
    const first = '{"name":"first","inputSchema":{"type":"object"}}';
    const peers = new Peers(new Map([["many", [first, ...tools]]]), "search");
    await peers.initialize();
    await peers.request("tools/list", "{}");
    const during = await timeCalls(peers, () => peers.hub.scanned.list()[0]?.isScanned === true);
    await peers.hub.scanned.settled();
    const alone = await timeCalls(peers);
    ratios.push(during / alone);
    await peers.hub.close();
  }
  const { median: ratio, low, high } = spreadOf(ratios);
  const kept = low <= MAX_RATIO ? "reached" : "not reached";
  console.log(
    `p50 of calls while they are scanned: ${ratio.toFixed(2)} times that of others (95 %: ${low.toFixed(2)}–${high.toFixed(2)}; goal: ${MAX_RATIO}, ${kept})`,
  );
}
