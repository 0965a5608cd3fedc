import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Job, Results } from "./job.ts";
import { MOST_STEPS } from "./warmth.ts";

/** ms that a job may take longer than what it measures. */
const PATIENCE = 60_000;
/** So many of the last characters of what a job complains of are kept: a hub that logs each call is talkative. */
const COMPLAINTS = 1 << 16;
const CLIENT = fileURLToPath(new URL("client.ts", import.meta.url));
const running = new Set<ChildProcess>();

/**
 * Runs a job in a process group of its own, of which nothing is left when it has ended.
 * @throws with the last that it said, if it fails or takes too long.
 */
export async function runJob<J extends Job>(job: J): Promise<Results[J["kind"]]> {
  const child = spawn(process.execPath, [CLIENT, JSON.stringify(job)], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  running.add(child);
  const limit = PATIENCE + durationOf(job);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    killGroup(child);
  }, limit);
  let output = "";
  let complaints = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on(
    "data",
    (chunk: Buffer) => (complaints = (complaints + chunk.toString()).slice(-COMPLAINTS)),
  );
  // Its pipes close only when all of its group that has them is gone as well.
  child.on("exit", () => killGroup(child));
  try {
    await once(child, "close");
  } finally {
    clearTimeout(timer);
    running.delete(child);
  }
  if (child.exitCode === 0) return JSON.parse(output) as Results[J["kind"]];
  const end = late ? `no end within ${limit / 1000} s` : `ended by ${child.signalCode}`;
  throw new Error(`${job.kind}: ${lastLines(child.exitCode === null ? end : complaints)}`);
}

/** ms that a job takes by itself; 0 if `PATIENCE` is enough for it. */
function durationOf(job: Job): number {
  if (job.kind === "contest") return job.entrants.length * (job.warmUp + job.rounds * job.duration);
  if ("warmUp" in job && "duration" in job) return MOST_STEPS * job.warmUp + job.duration;
  if (job.kind === "idle") return job.rest + job.duration;
  return 0;
}

/** Ends every job that is running, at once. */
export function killAll(): void {
  for (const child of running) killGroup(child);
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // Usually nothing is left of the group.
  }
}

function lastLines(text: string): string {
  return text.trim().split("\n").slice(-8).join("\n");
}
