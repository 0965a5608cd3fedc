/**
 * The load client: runs the job that its argument contains as JSON, and prints the result as JSON. It is a process of
 * its own, so that it may block, can be killed, and does not inherit memory from an earlier run.
 */
import { receive, send, catchUp } from "./exchange.ts";
import { Buffer } from "node:buffer";
import process from "node:process";
import { Caller } from "./caller.ts";
import { contest } from "./contest.ts";
import { Flight } from "./flight.ts";
import { flood } from "./flood.ts";
import { idle } from "./idle.ts";
import type {
  FirstJob,
  FirstResult,
  Job,
  ListJob,
  ListResult,
  LoadJob,
  LoadResult,
  Results,
  SoakJob,
  SoakResult,
  StartJob,
  StartResult,
} from "./job.ts";
import { Peer } from "./peer.ts";
import { median } from "./stats.ts";
import { readUsage } from "./usage.ts";
import { warmUp } from "./warmth.ts";

/** Number of memory measurements during a soak test. */
const SOAK_SAMPLES = 100;

async function load(job: LoadJob): Promise<LoadResult> {
  const { peer, tool, era, flight, lines, pad = 0, warmUp: step, duration } = job;
  const entrant = { peer, tools: [tool] as const, ...(era !== undefined && { era }) };
  const caller = new Caller(entrant, { flight, lines, pad });
  await warmUp((ms) => caller.run(ms).rate, step);
  const turn = caller.run(duration);
  const weight = caller.weigh();
  await caller.end();
  return { ...turn, ...weight };
}

async function soak(job: SoakJob): Promise<SoakResult> {
  const { tool, calls, flight: width } = job;
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => names.includes(tool));
  const flight = new Flight([tool], 1, width);
  begin(peer, flight);
  const rss: number[] = [];
  for (let sample = 1; sample <= SOAK_SAMPLES; sample++) {
    while (flight.answered < (calls * sample) / SOAK_SAMPLES) cycle(peer, flight);
    rss.push(readUsage(peer.pid)?.rss ?? Number.NaN);
  }
  await finish(peer, flight, width);
  return { rss };
}

async function list(job: ListJob): Promise<ListResult> {
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => names.length >= job.tools);
  const ready = performance.now() - peer.started;
  const request = Buffer.from('{"jsonrpc":"2.0","id":"list","method":"tools/list","params":{}}\n');
  const times: number[] = [];
  let size = 0;
  for (let run = 0; run < job.runs; run++) {
    const asked = performance.now();
    peer.write(request);
    // Skip notifications, which are shorter than any list.
    for (size = 0; size < 256;) size = peer.line().length;
    times.push((performance.now() - asked) * 1000);
  }
  await peer.end();
  return { ready, size, p50: median(times) };
}

/** Measures the time until the first tool list of new processes. The first list of each process must be complete. */
async function first(job: FirstJob): Promise<FirstResult> {
  const times: number[] = [];
  for (let run = 0; run < job.runs; run++) {
    const peer = new Peer(job.peer);
    peer.initialize();
    const names = peer.listTools();
    times.push(performance.now() - peer.started);
    if (names.length !== job.tools) throw new Error(`${names.length} tools in the first list`);
    await peer.end();
  }
  return { times };
}

async function start({ peers, runs }: StartJob): Promise<StartResult> {
  const times = peers.map((): number[] => []);
  const clientInfo = { name: "bench", version: "1.0.0" };
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo };
  const message = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
  const request = Buffer.from(`${message}\n`);
  for (let run = 0; run < runs; run++) {
    for (const [at, { command, speaksFirst }] of peers.entries()) {
      const peer = new Peer(command);
      if (!speaksFirst) peer.write(request);
      peer.line();
      times[at]?.push(performance.now() - peer.started);
      await peer.end();
    }
  }
  return { times };
}

/** Puts the first calls in flight. */
function begin(peer: Peer, flight: Flight): void {
  catchUp(peer, flight);
  send(peer, flight);
}

/** Reads once, and makes a new call for each answered one. @returns the time of the read, in ms */
function cycle(peer: Peer, flight: Flight): number {
  const now = receive(peer, flight);
  send(peer, flight);
  return now;
}

/** Waits for the calls that are still in flight, checks the sampled answers, and ends the peer. */
async function finish(peer: Peer, flight: Flight, width: number): Promise<void> {
  while (flight.free < width) receive(peer, flight);
  flight.verify();
  await peer.end();
}

async function perform(job: Job): Promise<Results[Job["kind"]]> {
  switch (job.kind) {
    case "catalog":
      return (await import("./listing.ts")).listCatalogs(job);
    case "contest":
      return contest(job);
    case "flood":
      return flood(job);
    case "idle":
      return idle(job);
    case "load":
      return load(job);
    case "soak":
      return soak(job);
    case "list":
      return list(job);
    case "start":
      return start(job);
    case "first":
      return first(job);
  }
}

try {
  const job = JSON.parse(process.argv[2] ?? "") as Job;
  console.log(JSON.stringify(await perform(job)));
  process.exit(0);
} catch (error) {
  console.error(String(error));
  process.exit(1);
}
