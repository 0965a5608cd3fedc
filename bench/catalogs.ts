import type { Stage } from "./contestants.ts";
import { type Fit, fitPower } from "./fit.ts";
import type { CatalogTimes } from "./listing.ts";
import type { Plan } from "./plan.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/** Times of catalogs within one process, by the number of servers, in ms. */
export interface CatalogResult {
  readonly points: readonly CatalogPoint[];
  readonly fits: Readonly<Record<keyof CatalogTimes, Fit>>;
}

export interface CatalogPoint extends CatalogTimes {
  readonly servers: number;
  readonly tools: number;
  /** Time of the first build in a new process, in ms. */
  readonly cold: number;
}

const TOOLS = 50;
const COUNTS = [1, 3, 10, 30, 100];

export async function measureCatalogs(_stage: Stage, plan: Plan): Promise<CatalogResult> {
  const points: CatalogPoint[] = [];
  for (const servers of COUNTS) {
    const runs: (readonly CatalogTimes[])[] = [];
    for (let round = 0; round < plan.rounds; round++)
      runs.push(await runJob({ kind: "catalog", servers, rounds: plan.catalogs }));
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
