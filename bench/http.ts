import type { EchoOptions, Stage } from "./contestants.ts";
import type { HttpMixResult, HttpStreamsResult, LoadResult } from "./job.ts";
import type { Plan } from "./plan.ts";
import { runJob } from "./runner.ts";
import { median } from "./stats.ts";

/** What is compared over HTTP. */
export const FACES = ["toolmux", "sdk"] as const;
export type FaceName = (typeof FACES)[number];

export interface HttpResult {
  /** Small calls: medians over the rounds. */
  readonly faces: Readonly<Record<FaceName, HttpFigures>>;
  /** Median of the ratios of the rates within each round. */
  readonly toSdk: number;
  readonly streams: HttpStreamsResult;
  readonly mix: HttpMixResult;
}

export interface HttpFigures {
  readonly rate: number;
  readonly p50: number;
  readonly p99: number;
  /** µs of its own process for a call; NaN where that cannot be known. */
  readonly cpu: number;
}

const ECHO: EchoOptions = { shape: "head", tools: 1, delay: 0 };
const CLIENTS = 64;
/** How much longer it takes until all that a request over HTTP runs through has been compiled. */
const WARMTH = 3;
const CHANGES = 10;
const SERVERS = ["a", "b", "c", "d"];

/** @returns undefined if the executable has not been built. @throws if something fails. */
export async function measureHttp(stage: Stage, plan: Plan): Promise<HttpResult | undefined> {
  const loads = await measureLoads(stage, plan);
  const [listener, medley] = [stage.medley(["a"]), stage.medley(SERVERS)];
  if (loads === undefined || listener === undefined || medley === undefined) return undefined;
  const { sessions, rest, clients, duration } = plan.http;
  const crowd = { sessions, rest, changes: CHANGES, tool: "a__change" };
  const streams = await runJob({ kind: "httpStreams", peer: listener, ...crowd });
  const asked = { servers: SERVERS, clients, duration };
  const mix = await runJob({ kind: "httpMix", peer: medley, ...asked });
  return { ...loads, streams, mix };
}

/** Both in turn in each round, each round beginning with the other one. */
async function measureLoads(
  stage: Stage,
  { rounds, warmUp, duration }: Plan,
): Promise<Pick<HttpResult, "faces" | "toSdk"> | undefined> {
  const results: Record<FaceName, LoadResult>[] = [];
  for (let round = 0; round < rounds; round++) {
    const own: Partial<Record<FaceName, LoadResult>> = {};
    for (const contestant of round % 2 === 0 ? FACES : FACES.toReversed()) {
      const scene = stage.face(contestant, ECHO);
      if (scene === undefined) return undefined;
      const load = { clients: CLIENTS, lines: 1, warmUp: WARMTH * warmUp, duration: 2 * duration };
      own[contestant] = await runJob({ kind: "httpLoad", ...scene, ...load });
    }
    const { toolmux, sdk } = own;
    if (toolmux && sdk) results.push({ toolmux, sdk });
  }
  const figures = (contestant: FaceName): HttpFigures => {
    const middle = (of: (result: LoadResult) => number | null) =>
      median(results.map((result) => of(result[contestant]) ?? Number.NaN));
    return {
      rate: middle(({ rate }) => rate),
      p50: middle(({ p50 }) => p50),
      p99: middle(({ p99 }) => p99),
      cpu: middle(({ cpu }) => cpu),
    };
  };
  return {
    faces: { toolmux: figures("toolmux"), sdk: figures("sdk") },
    toSdk: median(results.map(({ toolmux, sdk }) => toolmux.rate / sdk.rate)),
  };
}
