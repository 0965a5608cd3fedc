import type { Stage } from "./contestants.ts";
import { type Fit, fitPower } from "./fit.ts";
import type { GrowthResult } from "./growth.ts";
import type { CatalogTimes } from "./listing.ts";
import type { Plan } from "./plan.ts";
import { ECHO } from "./race.ts";
import type { ReloadResult } from "./reload.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/** What a hub costs, by how many servers it has. */
export interface GrowthsResult {
  readonly points: readonly GrowthPoint[];
  /** How each figure grows with the number of servers. */
  readonly fits: Readonly<Record<GrowthFigure, Fit>>;
}

export interface GrowthPoint extends GrowthResult {
  readonly servers: number;
  readonly tools: number;
}

/** All of them in ms, but for sizes in bytes. */
export const GROWTH_FIGURES = ["ready", "size", "list", "call", "rebuild", "rss"] as const;
export type GrowthFigure = (typeof GROWTH_FIGURES)[number];

/** What catalogs take within one process, by how many servers they are of, in ms. */
export interface CatalogResult {
  readonly points: readonly CatalogPoint[];
  readonly fits: Readonly<Record<keyof CatalogTimes, Fit>>;
}

export interface CatalogPoint extends CatalogTimes {
  readonly servers: number;
  readonly tools: number;
  /** The very first in a process that has done nothing like it. */
  readonly cold: number;
}

export interface ReloadsResult extends ReloadResult {
  readonly servers: number;
  readonly tools: number;
}

const TOOLS = 50;
/** By what servers are written in: those in JavaScript are dear. */
const COUNTS = { C: [1, 3, 10, 30, 100], JavaScript: [1, 3, 10, 20] } as const;

/* Each of these yields undefined if the executable has not been built, and throws if something fails. */

export async function measureGrowth(stage: Stage, plan: Plan): Promise<GrowthsResult | undefined> {
  const points: GrowthPoint[] = [];
  for (const servers of COUNTS[stage.programs.language]) {
    const hub = stage.hub(servers, { ...ECHO, tools: TOOLS });
    if (hub === undefined) return undefined;
    const { peer, tool } = hub;
    const tools = servers * TOOLS;
    const change = tool.replace(/echo$/, "change");
    const job = { peer, tools, tool, change, ...plan.growth };
    points.push({ servers, tools, ...(await runJob({ kind: "growth", ...job })) });
  }
  const fits = GROWTH_FIGURES.map((figure) => {
    const known = points.map((point) => [point.servers, point[figure] ?? Number.NaN] as const);
    return [figure, fitPower(known)] as const;
  });
  return { points, fits: Object.fromEntries(fits) as Record<GrowthFigure, Fit> };
}

export async function measureCatalogs(_stage: Stage, plan: Plan): Promise<CatalogResult> {
  const points: CatalogPoint[] = [];
  for (const servers of COUNTS.C) {
    // Each in processes of its own: the first build of each is as cold as a hub's.
    const runs: (readonly CatalogTimes[])[] = [];
    for (let round = 0; round < plan.rounds; round++) {
      runs.push(await runJob({ kind: "catalog", servers, rounds: plan.catalogs }));
    }
    const warm = runs.flatMap((run) => run.slice(1));
    const middle = (of: keyof CatalogTimes) => median(warm.map((times) => times[of]));
    points.push({
      servers,
      tools: servers * TOOLS,
      first: middle("first"),
      rebuild: middle("rebuild"),
      find: middle("find"),
      cold: median(runs.map(([times]) => times?.first ?? Number.NaN)),
    });
  }
  const fit = (of: keyof CatalogTimes) =>
    fitPower(points.map((point) => [point.servers, point[of]]));
  return { points, fits: { first: fit("first"), rebuild: fit("rebuild"), find: fit("find") } };
}

export async function measureReload(stage: Stage, plan: Plan): Promise<ReloadsResult | undefined> {
  const servers = COUNTS[stage.programs.language].at(-1) ?? 1;
  const hub = stage.hub(servers, { ...ECHO, tools: TOOLS });
  if (hub === undefined) return undefined;
  const tools = servers * TOOLS;
  const server = hub.servers[servers >> 1] ?? "";
  const job = { peer: hub.peer, file: hub.file, server, tools, changes: plan.changes };
  return { servers, tools, ...(await runJob({ kind: "reload", ...job })) };
}
