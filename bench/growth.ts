import { Caller } from "./caller.ts";
import { type Command, Peer } from "./peer.ts";
import { awaitChange } from "./reload.ts";
import { median } from "./stats.ts";
import { readUsage } from "./usage.ts";

/** What a hub costs that has so many servers. */
export interface GrowthJob {
  readonly kind: "growth";
  readonly peer: Command;
  /** Of all servers. */
  readonly tools: number;
  /** A tool that is called, and one of the same server that makes its list another. */
  readonly tool: string;
  readonly change: string;
  readonly changes: number;
  readonly runs: number;
  /** ms of calls. */
  readonly duration: number;
}

/** Medians; times in ms, sizes in bytes; null where it cannot be known. */
export interface GrowthResult {
  /** From the start of the process to the list of all tools. */
  readonly ready: number;
  /** How long the list is, all of its pages together, and how long it takes to get it. */
  readonly size: number;
  readonly list: number;
  /** Processor time of the hub for one call. */
  readonly call: number | null;
  /** Processor time of the hub from one server's change to the word that the list is another, and how long that took. */
  readonly rebuild: number | null;
  readonly heard: number;
  readonly rss: number | null;
}

/** Between two changes, in ms: a server whose list changes all the time is asked for it ever more rarely. */
const CALM = 500;
const FLIGHT = 64;

export async function grow(job: GrowthJob): Promise<GrowthResult> {
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => names.length >= job.tools);
  const ready = performance.now() - peer.started;
  const rss = readUsage(peer.pid)?.rss ?? null;
  const times: number[] = [];
  let size = 0;
  for (let run = 0; run < job.runs; run++) {
    const asked = performance.now();
    size = peer.listPages().reduce((sum, page) => sum + page.length, 0);
    times.push(performance.now() - asked);
  }
  const rebuilds: number[] = [];
  const hearings: number[] = [];
  for (let change = 0; change < job.changes; change++) {
    await new Promise((resolve) => setTimeout(resolve, CALM));
    const before = readUsage(peer.pid);
    const began = performance.now();
    peer.request("tools/call", { name: job.change, arguments: { key: "12345678" } });
    awaitChange(peer);
    hearings.push(performance.now() - began);
    const after = readUsage(peer.pid);
    if (before && after) rebuilds.push((after.cpu - before.cpu) / 1000);
    // Who has not asked for the list since is not told again.
    peer.listTools();
  }
  await peer.end();
  const caller = new Caller(
    { peer: job.peer, tools: [job.tool] },
    { flight: FLIGHT, lines: 1, pad: 0 },
  );
  caller.run(job.duration);
  const { cpu } = caller.run(job.duration);
  await caller.end();
  return {
    ready,
    size,
    list: median(times),
    call: cpu === null ? null : cpu / 1000,
    rebuild: rebuilds.length > 0 ? median(rebuilds) : null,
    heard: median(hearings),
    rss,
  };
}
