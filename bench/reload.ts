import { Buffer } from "node:buffer";
import { readFileSync, writeFileSync } from "node:fs";
import { type Command, Peer } from "./peer.ts";
import { median } from "./stats.ts";
import { readUsage } from "./usage.ts";

/** A manifest in which one server is changed, again and again. */
export interface ReloadJob {
  readonly kind: "reload";
  readonly peer: Command;
  readonly file: string;
  /** A server whose second argument is how many tools it lists, and how many tools all list at first. */
  readonly server: string;
  readonly tools: number;
  readonly changes: number;
}

/** Medians. */
export interface ReloadResult {
  /** ms from the change of the file to the list that shows it. */
  readonly time: number;
  /** ms of the hub's own processor time; null where that cannot be known. */
  readonly cpu: number | null;
}

interface Manifest {
  readonly servers: Readonly<Record<string, { args: string[] }>>;
}

/** Between two changes, in ms. */
const CALM = 500;

export async function reload(job: ReloadJob): Promise<ReloadResult> {
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => names.length === job.tools);
  const times: number[] = [];
  const cpus: (number | null)[] = [];
  for (let change = 1; change <= job.changes; change++) {
    await new Promise((resolve) => setTimeout(resolve, CALM));
    const before = readUsage(peer.pid);
    const began = performance.now();
    addTool(job.file, job.server);
    // Each time the list has changed, until it is the one.
    for (let count = 0; count < job.tools + change;) {
      awaitChange(peer);
      count = peer.listTools().length;
    }
    times.push(performance.now() - began);
    const after = readUsage(peer.pid);
    cpus.push(before && after ? (after.cpu - before.cpu) / 1000 : null);
  }
  await peer.end();
  const known = cpus.flatMap((cpu) => cpu ?? []);
  return { time: median(times), cpu: known.length > 0 ? median(known) : null };
}

/** Waits until the peer says that its list of tools is another. */
export function awaitChange(peer: Peer): void {
  const sign = Buffer.from('"notifications/tools/list_changed"');
  while (!peer.line().includes(sign));
}

function addTool(file: string, server: string): void {
  const manifest = JSON.parse(readFileSync(file, "utf8")) as Manifest;
  const args = manifest.servers[server]?.args;
  if (args === undefined) throw new Error(`no server ${server} in ${file}`);
  args[1] = String(Number(args[1]) + 1);
  writeFileSync(file, JSON.stringify(manifest));
}
