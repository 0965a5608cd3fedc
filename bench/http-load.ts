import type { EntrantResult } from "./contest.ts";
import type { Stage } from "./contestants.ts";
import type { Plan } from "./plan.ts";
import { ECHO, entrantOf, middle, race, ratio } from "./race.ts";

/** One kind of load over HTTP. */
interface HttpLoad {
  readonly name: string;
  readonly flight: number;
  readonly lines: number;
}

export interface HttpFigures extends HttpLoad {
  /** `rate`: calls per second. `p50`: in µs. `cpu`: CPU time of the hub per call, in µs. NaN if unknown. */
  readonly rate: number;
  readonly p50: number;
  readonly cpu: number;
  /** Medians of the ratios to the SDK's relay within each round. */
  readonly rateToSdk: number;
  readonly cpuToSdk: number;
  readonly memory: Omit<EntrantResult, "turns">;
}

const LOADS: readonly HttpLoad[] = [
  { name: "small-1", flight: 1, lines: 1 },
  { name: "small-16", flight: 16, lines: 1 },
  { name: "small-64", flight: 64, lines: 1 },
  { name: "small-256", flight: 256, lines: 1 },
  { name: "medium-16", flight: 16, lines: 312 },
  { name: "large-4", flight: 4, lines: 31_250 },
];
const NO_MEMORY = { base: null, peak: null, rss: null };

/**
 * Compares the hub with a relay that is built with the MCP SDK, over HTTP; the two take turns. @throws if one has not
 * been built, or fails
 */
export async function measureHttp(stage: Stage, { pace }: Plan): Promise<readonly HttpFigures[]> {
  const results: HttpFigures[] = [];
  for (const load of LOADS) {
    const overHttp = { transport: "http" } as const;
    const entrants = {
      toolmux: entrantOf(stage.overHttp("toolmux", ECHO), overHttp),
      sdk: entrantOf(stage.overHttp("sdk", ECHO), overHttp),
    };
    const { flight, lines } = load;
    // The code for HTTP requests takes longer to be JIT-compiled.
    const own = await race(entrants, { flight, lines }, { ...pace, warmUp: 3 * pace.warmUp });
    const { base, peak, rss } = own["toolmux"] ?? NO_MEMORY;
    results.push({
      ...load,
      rate: middle(own, ({ rate }) => rate, "toolmux"),
      p50: middle(own, ({ p50 }) => p50, "toolmux"),
      cpu: middle(own, ({ cpu }) => cpu, "toolmux"),
      rateToSdk: ratio(own, ({ rate }) => rate, "toolmux", "sdk"),
      cpuToSdk: ratio(own, ({ cpu }) => cpu, "toolmux", "sdk"),
      memory: { base, peak, rss },
    });
  }
  return results;
}
