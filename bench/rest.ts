import type { Stage } from "./contestants.ts";
import type { IdleResult } from "./idle.ts";
import type { Plan } from "./plan.ts";
import { ECHO } from "./race.ts";
import { runJob } from "./runner.ts";

/** Calls in flight that nobody answers, and the bytes that each takes; null where that cannot be known. */
export interface ParkedResult {
  readonly counts: readonly number[];
  readonly each: readonly (number | null)[];
}

const SERVERS = 10;
const COUNTS = [1000, 10_000] as const;

/* Each of these yields undefined if the executable has not been built, and throws if something fails. */

/** A hub with some servers and nothing to do. */
export async function measureIdle(stage: Stage, plan: Plan): Promise<IdleResult | undefined> {
  const hub = stage.hub(SERVERS, ECHO);
  return hub && (await runJob({ kind: "idle", peer: hub.peer, tools: SERVERS, ...plan.idle }));
}

export async function measureParked(stage: Stage): Promise<ParkedResult | undefined> {
  const hub = stage.hub(1, { ...ECHO, tools: 3 });
  if (hub === undefined) return undefined;
  const park = `${hub.servers[0] ?? ""}__park`;
  const { each } = await runJob({
    kind: "park",
    peer: hub.peer,
    tool: hub.tool,
    park,
    counts: COUNTS,
  });
  return { counts: COUNTS, each };
}
