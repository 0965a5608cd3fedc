import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { EchoOptions, Stage } from "./contestants.ts";
import type { LoadResult } from "./job.ts";
import type { Plan } from "./plan.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/** What a plugin does with the calls of the tool: there is none, it is for other servers, it only passes them on, … */
export const CUSTOMS = ["none", "elsewhere", "passing", "awaiting", "reading"] as const;
export type Custom = (typeof CUSTOMS)[number];

/** What calls cost with plugins of one kind. */
export interface Toll {
  readonly rate: number;
  /** µs of the hub's own process for a call; NaN where that cannot be known. */
  readonly cpu: number;
  /** Median of the ratios to a hub without plugins within each round. */
  readonly rateToNone: number;
  readonly cpuToNone: number;
}

export interface PluginsResult {
  readonly small: Readonly<Record<Custom, Toll>>;
  readonly large: Readonly<Record<Custom, Toll>>;
}

const SIZES = { small: { lines: 1, flight: 64 }, large: { lines: 31_250, flight: 4 } } as const;
const ECHO: EchoOptions = { shape: "head", tools: 1, delay: 0 };

/** What each does with a call. */
const WAYS: Readonly<Record<Custom, string>> = {
  none: "",
  elsewhere: "next",
  passing: "(call) => next(call)",
  awaiting: "async (call) => await next(call)",
  reading: `async (call) => {
    const answer = await next(call);
    if (call.arguments.key === undefined || answer.value === undefined) throw new Error();
    return answer;
  }`,
};

/** @returns undefined if the executable has not been built. @throws if something fails. */
export async function measurePlugins(stage: Stage, plan: Plan): Promise<PluginsResult | undefined> {
  const folder = stage.makeFolder("plugins");
  const small = await measureSize(stage, plan, folder, "small");
  const large = await measureSize(stage, plan, folder, "large");
  return small && large && { small, large };
}

async function measureSize(
  stage: Stage,
  { rounds, warmUp, duration }: Plan,
  folder: string,
  size: keyof typeof SIZES,
): Promise<Record<Custom, Toll> | undefined> {
  const results: Record<Custom, LoadResult>[] = [];
  for (let round = 0; round < rounds; round++) {
    const own: Partial<Record<Custom, LoadResult>> = {};
    for (const [at] of CUSTOMS.entries()) {
      const custom = CUSTOMS[(at + round) % CUSTOMS.length] ?? "none";
      const hub = stage.hub(1, ECHO, { plugins: entriesOf(custom, folder) });
      if (hub === undefined) return undefined;
      const load = { ...SIZES[size], warmUp, duration };
      own[custom] = await runJob({ kind: "load", ...hub, ...load });
    }
    results.push(own as Record<Custom, LoadResult>);
  }
  return Object.fromEntries(CUSTOMS.map((custom) => [custom, tollOf(results, custom)])) as Record<
    Custom,
    Toll
  >;
}

/** The plugins of a manifest. */
function entriesOf(custom: Custom, folder: string): readonly object[] {
  if (custom === "none") return [];
  const use = join(folder, `${custom}.js`);
  writeFileSync(
    use,
    `export default { name: "${custom}", setup: () => ({ call: (next) => ${WAYS[custom]} }) };\n`,
  );
  return [{ use, ...(custom === "elsewhere" && { servers: ["another"] }) }];
}

function tollOf(rounds: readonly Record<Custom, LoadResult>[], custom: Custom): Toll {
  const own = rounds.map((round) => round[custom]);
  const to = (of: (result: LoadResult) => number) =>
    median(rounds.map((round) => of(round[custom]) / of(round.none)));
  const cpu = (result: LoadResult) => result.cpu ?? Number.NaN;
  return {
    rate: median(own.map(({ rate }) => rate)),
    cpu: median(own.map(cpu)),
    rateToNone: to(({ rate }) => rate),
    cpuToNone: to(cpu),
  };
}
