/**
 * The load client: runs the job that its arguments contain, and prints the result as JSON. It is a process of its own,
 * so that it may block, can be killed, and does not inherit memory from an earlier run. Times are in ms.
 */
import { Buffer } from "node:buffer";
import process from "node:process";
import type { measureProgram, measurePrograms } from "./against/measure.ts";
import type { timeCatalogs } from "./catalogs.ts";
import type { timeLimits } from "./limits.ts";
import type { timeTraces } from "./telemetry-traces.ts";
import type { timeMetrics } from "./telemetry-metrics.ts";
import type { timeReviews } from "./pins.ts";
import { contest } from "./contest.ts";
import type { floodNeighbours } from "./flood-neighbours.ts";
import { Flight } from "./flight.ts";
import { flood } from "./flood.ts";
import { type Command, Peer } from "./peer.ts";
import { median } from "./stats.ts";
import type { attachedClients, manyClients, manyServers } from "./scale.ts";
import { anonymousMemoryOf, ownMemoryOf, readUsage } from "./usage.ts";

/** Number of memory measurements during a soak test. */
const SOAK_SAMPLES = 100;
const INITIALIZE = Buffer.from(
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}\n',
);
const LIST = Buffer.from('{"jsonrpc":"2.0","id":"list","method":"tools/list","params":{}}\n');

/** The jobs by name. */
export interface Jobs {
  contest: typeof contest;
  flood: typeof flood;
  floodNeighbours: typeof floodNeighbours;
  soak: typeof soak;
  idle: typeof idle;
  list: typeof list;
  first: typeof first;
  start: typeof start;
  catalogs: typeof timeCatalogs;
  limits: typeof timeLimits;
  traces: typeof timeTraces;
  metrics: typeof timeMetrics;
  reviews: typeof timeReviews;
  program: typeof measureProgram;
  programs: typeof measurePrograms;
  manyServers: typeof manyServers;
  manyClients: typeof manyClients;
  attachedClients: typeof attachedClients;
}

/** Makes `calls` calls. @returns the peer's memory in bytes after each hundredth of them */
async function soak(job: {
  readonly peer: Command;
  readonly tools: readonly [string, ...string[]];
  readonly flight: number;
  readonly calls: number;
}): Promise<readonly number[]> {
  const { tools, calls, flight: width } = job;
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => tools.every((tool) => names.includes(tool)));
  const flight = new Flight(tools, 1, width);
  const rss: number[] = [];
  for (let sample = 1; sample <= SOAK_SAMPLES; sample++) {
    while (flight.answered < (calls * sample) / SOAK_SAMPLES) {
      flight.send(peer);
      flight.receive(peer);
    }
    rss.push(readUsage(peer.pid)?.rss ?? Number.NaN);
  }
  flight.finish(peer);
  flight.verify();
  await peer.end();
  return rss;
}

/**
 * Measures a peer that has nothing to do for `duration` ms, after it had nothing to do for `rest` ms.
 * @returns its CPU time as a fraction of one core, and its memory in bytes at the end; null if unknown
 */
async function idle(job: {
  readonly peer: Command;
  /** Number of tools that the peer lists. */
  readonly tools: number;
  readonly rest: number;
  readonly duration: number;
}): Promise<Record<"core" | "rss" | "own" | "anonymous", number | null>> {
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => names.length >= job.tools);
  await pass(job.rest);
  const began = performance.now();
  const before = readUsage(peer.pid);
  await pass(job.duration);
  const after = readUsage(peer.pid);
  const took = performance.now() - began;
  const own = ownMemoryOf(peer.pid) ?? null;
  const anonymous = anonymousMemoryOf(peer.pid) ?? null;
  await peer.end();
  const core = before && after ? (after.whole - before.whole) / 1000 / took : null;
  return { core, rss: after?.rss ?? null, own, anonymous };
}

function pass(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Starts the peer, lists its tools until there are `tools` of them, and then lists them `runs` more times.
 * @returns the time from the start of the process to the first complete list (ms), the size of a list (bytes), and the
 * median time that a list takes (µs)
 */
async function list(job: {
  readonly peer: Command;
  readonly tools: number;
  readonly runs: number;
}): Promise<{ ready: number; size: number; p50: number }> {
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => names.length >= job.tools);
  const ready = performance.now() - peer.started;
  const times: number[] = [];
  let size = 0;
  for (let run = 0; run < job.runs; run++) {
    const asked = performance.now();
    peer.write(LIST);
    // Skip notifications, which are shorter than any list.
    for (size = 0; size < 256;) size = peer.line().length;
    times.push((performance.now() - asked) * 1000);
  }
  await peer.end();
  return { ready, size, p50: median(times) };
}

/** The times of one process from its start, in ms: until `initialize` is answered, and until its tools are listed. */
interface FirstList {
  readonly initialized: number;
  readonly listed: number;
  /** CPU time of the process until its tools are listed; NaN if there is no /proc. */
  readonly cpu: number;
}

/**
 * Starts the peers in turn, `runs` times each, and lists the tools of each process once.
 * @returns for each peer, its processes
 * @throws if there are not exactly `tools` tools in a list
 */
async function first(job: {
  readonly peers: readonly Command[];
  readonly tools: number;
  readonly runs: number;
}): Promise<readonly (readonly FirstList[])[]> {
  const lists = job.peers.map((): FirstList[] => []);
  for (let run = 0; run < job.runs; run++) {
    for (const [at, command] of job.peers.entries()) {
      const peer = new Peer(command);
      peer.initialize();
      const initialized = performance.now() - peer.started;
      const names = peer.listTools();
      const listed = performance.now() - peer.started;
      const cpu = (readUsage(peer.pid)?.cpu ?? NaN) / 1000;
      lists[at]?.push({ initialized, listed, cpu });
      if (names.length !== job.tools) throw new Error(`${names.length} tools in the first list`);
      await peer.end();
    }
  }
  return lists;
}

/**
 * Starts the peers in turn, `runs` times each, and ends each process after its first line. Those that do not write it
 * by themselves are sent an `initialize` request.
 * @returns for each peer, the times from the start of the process to its first line
 */
async function start(job: {
  readonly peers: readonly { readonly command: Command; readonly speaksFirst?: boolean }[];
  readonly runs: number;
}): Promise<readonly (readonly number[])[]> {
  const times = job.peers.map((): number[] => []);
  for (let run = 0; run < job.runs; run++) {
    for (const [at, { command, speaksFirst = false }] of job.peers.entries()) {
      const peer = new Peer(command);
      if (!speaksFirst) peer.write(INITIALIZE);
      peer.line();
      times[at]?.push(performance.now() - peer.started);
      await peer.end();
    }
  }
  return times;
}

if (import.meta.main) {
  try {
    const [name = "", job = ""] = process.argv.slice(2);
    const jobs: Readonly<Record<string, (job: never) => unknown>> = {
      contest,
      flood,
      soak,
      idle,
      list,
      first,
      start,
      // Their imports would take memory from the other jobs.
      catalogs: async (it) => (await import("./catalogs.ts")).timeCatalogs(it),
      limits: async (it) => (await import("./limits.ts")).timeLimits(it),
      traces: async (it) => (await import("./telemetry-traces.ts")).timeTraces(it),
      metrics: async (it) => (await import("./telemetry-metrics.ts")).timeMetrics(it),
      reviews: async (it) => (await import("./pins.ts")).timeReviews(it),
      floodNeighbours: async (it) => (await import("./flood-neighbours.ts")).floodNeighbours(it),
      program: async (it) => (await import("./against/measure.ts")).measureProgram(it),
      programs: async (it) => (await import("./against/measure.ts")).measurePrograms(it),
      manyServers: async (it) => (await import("./scale.ts")).manyServers(it),
      manyClients: async (it) => (await import("./scale.ts")).manyClients(it),
      attachedClients: async (it) => (await import("./scale.ts")).attachedClients(it),
    };
    console.log(JSON.stringify(await jobs[name]?.(JSON.parse(job) as never)));
    process.exit(0);
  } catch (error) {
    console.error(String(error));
    process.exit(1);
  }
}
