import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { EchoOptions, Stage } from "./contestants.ts";
import type { CyclesResult, KillsResult } from "./job.ts";
import type { Plan } from "./plan.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/** First lists of a hub that remembers what its servers list, while some of these never answer. */
export interface SnapshotsResult {
  readonly servers: number;
  readonly mute: number;
  readonly tools: number;
  /** From the start of the process to the answer, in ms. */
  readonly median: number;
  readonly worst: number;
}

const ECHO: EchoOptions = { shape: "head", tools: 1, delay: 0 };
const REMEMBERED = { servers: 10, mute: 3, toolsEach: 20 };
const KILLED_SERVERS = 4;
const KILL_FLIGHT = 32;

/* Each of these yields undefined if the executable has not been built, and throws if something fails. */

export async function measureSnapshots(
  stage: Stage,
  { starts: runs }: Plan,
): Promise<SnapshotsResult | undefined> {
  const { servers, mute, toolsEach } = REMEMBERED;
  const mutes = stage.makeFolder("mutes");
  const hub = stage.hub(servers, { ...ECHO, tools: toolsEach, mutes });
  if (hub === undefined) return undefined;
  const tools = servers * toolsEach;
  // All of them work this once.
  await runJob({ kind: "list", peer: hub.peer, tools, runs: 0 });
  const muted = hub.servers.filter((_, at) => at % Math.floor(servers / mute) === 1).slice(0, mute);
  for (const name of muted) writeFileSync(join(mutes, name), "");
  const { times } = await runJob({ kind: "first", peer: hub.peer, tools, runs });
  rmSync(mutes, { recursive: true });
  return { servers, mute: muted.length, tools, median: median(times), worst: Math.max(...times) };
}

export async function measureKills(stage: Stage, plan: Plan): Promise<KillsResult | undefined> {
  const hub = stage.hub(KILLED_SERVERS, { ...ECHO, tools: 2 });
  if (hub === undefined) return undefined;
  const { peer, servers } = hub;
  return runJob({ kind: "kills", peer, servers, flight: KILL_FLIGHT, ...plan.siege });
}

export async function measureCycles(stage: Stage, plan: Plan): Promise<CyclesResult> {
  const folder = stage.makeFolder("diaries");
  return runJob({ kind: "cycles", folder, ...plan.cycling });
}
