import type { Scene, Stage } from "./contestants.ts";
import type { FloodEntrant, FloodResult } from "./flood.ts";
import type { Plan } from "./plan.ts";
import { ECHO } from "./race.ts";
import { runJob } from "./runner.ts";

/** Floods of progress: through a pump, through the hub, and through the hub from several servers at once. */
export interface FloodsResult {
  readonly pump: FloodResult;
  readonly one: FloodResult;
  readonly several: FloodResult;
}

const SERVERS = 4;

/** @returns undefined if the executable has not been built. @throws if something fails */
export async function measureFlood(stage: Stage, plan: Plan): Promise<FloodsResult | undefined> {
  const hub = stage.hub(SERVERS, ECHO);
  const many = hub && { peer: hub.peer, tools: hub.servers.map((server) => `${server}__echo`) };
  const entrants = [
    alone(stage.relay("pump", ECHO)),
    alone(stage.relay("toolmux", ECHO)),
    many,
  ].flatMap((entrant) => entrant ?? []);
  const [pump, one, several] = await runJob({ kind: "flood", entrants, ...plan.flood });
  return pump && one && several && { pump, one, several };
}

function alone(scene: Scene | undefined): FloodEntrant | undefined {
  return scene && { peer: scene.peer, tools: [scene.tool] };
}
