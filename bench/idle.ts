import type { Stage } from "./contestants.ts";
import { type Command, Peer } from "./peer.ts";
import type { Plan } from "./plan.ts";
import { ECHO } from "./race.ts";
import { runJob } from "./runner.ts";
import { type Holding, holdingOf, readUsage } from "./usage.ts";

/** A job that measures a peer that has nothing to do. */
export interface IdleJob {
  readonly kind: "idle";
  readonly peer: Command;
  /** Number of tools that the peer lists. */
  readonly tools: number;
  /** `rest`: idle time before the measurement. `duration`: length of the measurement. Both are in ms. */
  readonly rest: number;
  readonly duration: number;
}

export interface IdleResult {
  /** Length of the measurement, in ms. */
  readonly duration: number;
  /** CPU time of the peer as a fraction of one core; null if unknown. */
  readonly core: number | null;
  /** The peer's memory at the end; null if unknown. */
  readonly holding: Holding | null;
}

export async function idle({ peer: command, ...job }: IdleJob): Promise<IdleResult> {
  const peer = new Peer(command);
  peer.awaitTools((names) => names.length >= job.tools);
  await pass(job.rest);
  const began = performance.now();
  const before = readUsage(peer.pid);
  await pass(job.duration);
  const after = readUsage(peer.pid);
  const took = performance.now() - began;
  const holding = holdingOf(peer.pid) ?? null;
  await peer.end();
  const core = before && after ? (after.whole - before.whole) / 1000 / took : null;
  return { duration: job.duration, core, holding };
}

function pass(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

const SERVERS = 10;

/** Measures an idle hub with ten servers. @returns undefined if the executable has not been built */
export async function measureIdle(stage: Stage, plan: Plan): Promise<IdleResult | undefined> {
  const hub = stage.hub(SERVERS, ECHO);
  return hub && (await runJob({ kind: "idle", peer: hub.peer, tools: SERVERS, ...plan.idle }));
}
