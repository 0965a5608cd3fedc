import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { EchoOptions, Stage } from "./contestants.ts";
import type { Plan } from "./plan.ts";
import { runJob } from "./runner.ts";
import { mean, median } from "./stats.ts";

/** Medians of the time from the start of a process to its first line, in ms. */
export interface StartResult {
  readonly hello: number;
  /** `toolmux`: with snapshots of the servers from an earlier run. `first`: without snapshots. */
  readonly toolmux: number;
  readonly first: number;
}

/** The start of a hub whose servers start slowly; they start in parallel. */
export interface SlowResult {
  readonly servers: number;
  /** Time that each server sleeps at its start, in ms. */
  readonly delay: number;
  /** Time from the start of the hub to the list of all tools, in ms. */
  readonly ready: number;
}

/** The same measurements with one server and with many. */
export interface BroadResult {
  readonly one: BreadthResult;
  readonly many: BreadthResult;
  /** Medians over the rounds of the ratio of many servers to one. */
  readonly ratio: { readonly call: number; readonly listByte: number };
}

export interface BreadthResult {
  readonly servers: number;
  readonly tools: number;
  /** Time from the start of the hub to the list of all tools, in ms. */
  readonly ready: number;
  /** Median latency of a call, one in flight, in µs. */
  readonly call: number;
  /** `size`: size of the tool list, in bytes. `list`: time to get the list, in µs. */
  readonly size: number;
  readonly list: number;
}

export interface SoakResult {
  readonly calls: number;
  /**
   * Mean resident memory during the second tenth of the calls (`early`) and during the last tenth (`late`), in bytes.
   */
  readonly early: number;
  readonly late: number;
}

const ONE: EchoOptions = { shape: "head", tools: 1, delay: 0 };
const SLOW_DELAY = 500;
const SLOW_SERVERS = 20;
const TOOLS = 50;
/**
 * Number of servers in the broad scenario, by the language of the echo server. A server in JavaScript needs more
 * memory.
 */
const BROAD_SERVERS = { C: 100, JavaScript: 20 } as const;

/*
 * Each of the following functions returns undefined if the executable has not been built, and throws if something
 * fails.
 */

export async function measureStart(
  stage: Stage,
  { starts }: Plan,
): Promise<StartResult | undefined> {
  const [known, fresh] = [stage.hub(1, ONE), stage.hub(1, ONE)];
  if (known === undefined || fresh === undefined) return undefined;
  // This run saves a snapshot of the server, from which the measured starts take its instructions.
  await runJob({ kind: "first", peer: known.peer, tools: 1, runs: 1 });
  const peers = [
    { command: stage.hello(), speaksFirst: true },
    { command: known.peer, speaksFirst: false },
    { command: fresh.peer, speaksFirst: false },
  ];
  const { times } = await runJob({ kind: "start", peers, runs: starts });
  const [hello, toolmux, first] = times.map((each) => median(each));
  return { hello: hello ?? NaN, toolmux: toolmux ?? NaN, first: first ?? NaN };
}

export async function measureSlow(stage: Stage, { rounds }: Plan): Promise<SlowResult | undefined> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    // Use a new hub in each round, so that it has no snapshots of its servers.
    const hub = stage.hub(SLOW_SERVERS, { ...ONE, delay: SLOW_DELAY });
    if (hub === undefined) return undefined;
    const { ready } = await runJob({ kind: "list", peer: hub.peer, tools: SLOW_SERVERS, runs: 0 });
    times.push(ready);
  }
  return { servers: SLOW_SERVERS, delay: SLOW_DELAY, ready: median(times) };
}

export async function measureBroad(stage: Stage, plan: Plan): Promise<BroadResult | undefined> {
  const rounds: { one: BreadthResult; many: BreadthResult }[] = [];
  for (let round = 0; round < plan.rounds; round++) {
    const one = await measureBreadth(stage, plan, 1);
    const many = await measureBreadth(stage, plan, BROAD_SERVERS[stage.programs.language]);
    if (one === undefined || many === undefined) return undefined;
    rounds.push({ one, many });
  }
  const perByte = ({ list, size }: BreadthResult) => list / size;
  return {
    one: middle(rounds.map(({ one }) => one)),
    many: middle(rounds.map(({ many }) => many)),
    ratio: {
      call: median(rounds.map(({ one, many }) => many.call / one.call)),
      listByte: median(rounds.map(({ one, many }) => perByte(many) / perByte(one))),
    },
  };
}

async function measureBreadth(
  stage: Stage,
  { warmUp, duration }: Plan,
  servers: number,
): Promise<BreadthResult | undefined> {
  const hub = stage.hub(servers, { ...ONE, tools: TOOLS });
  if (hub === undefined) return undefined;
  const tools = servers * TOOLS;
  const list = await runJob({ kind: "list", peer: hub.peer, tools, runs: 100 });
  const load = await runJob({ kind: "load", ...hub, flight: 1, lines: 1, warmUp, duration });
  return { servers, tools, ready: list.ready, call: load.p50, size: list.size, list: list.p50 };
}

function middle(results: readonly BreadthResult[]): BreadthResult {
  const of = (value: (result: BreadthResult) => number) => median(results.map(value));
  return {
    servers: of(({ servers }) => servers),
    tools: of(({ tools }) => tools),
    ready: of(({ ready }) => ready),
    call: of(({ call }) => call),
    size: of(({ size }) => size),
    list: of(({ list }) => list),
  };
}

export async function measureSoak(
  stage: Stage,
  { soakCalls: calls }: Plan,
): Promise<SoakResult | undefined> {
  const hub = stage.hub(1, ONE);
  if (hub === undefined) return undefined;
  const { rss } = await runJob({ kind: "soak", ...hub, flight: 64, calls });
  const tenth = (part: number) => {
    const size = rss.length / 10;
    return mean(rss.slice((part - 1) * size, part * size));
  };
  return { calls, early: tenth(2), late: tenth(10) };
}

/**
 * The first tool lists of a hub that has snapshots of its servers, while some servers never answer. Times are in ms.
 */
export interface SnapshotsResult {
  readonly servers: number;
  readonly mute: number;
  readonly tools: number;
  /** Times from the start of the process to the answer. */
  readonly median: number;
  readonly worst: number;
}

const KNOWN = { servers: 10, mute: 3, toolsEach: 20 };

export async function measureSnapshots(
  stage: Stage,
  { starts: runs }: Plan,
): Promise<SnapshotsResult | undefined> {
  const { servers, mute, toolsEach } = KNOWN;
  const mutes = stage.makeFolder("mutes");
  const hub = stage.hub(servers, { ...ONE, tools: toolsEach, mutes });
  if (hub === undefined) return undefined;
  const tools = servers * toolsEach;
  // In this run all servers answer, so that the hub saves snapshots of them.
  await runJob({ kind: "list", peer: hub.peer, tools, runs: 0 });
  const muted = hub.servers.filter((_, at) => at % Math.floor(servers / mute) === 1).slice(0, mute);
  for (const name of muted) writeFileSync(join(mutes, name), "");
  const { times } = await runJob({ kind: "first", peer: hub.peer, tools, runs });
  rmSync(mutes, { recursive: true });
  return { servers, mute: muted.length, tools, median: median(times), worst: Math.max(...times) };
}
