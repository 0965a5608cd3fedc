import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Job, Results } from "./job.ts";
import { MOST_STEPS } from "./warmth.ts";

/** Maximum time that a job may take in addition to its measurement, in ms. */
const PATIENCE = 60_000;
/** Number of characters that are kept from the end of a job's stderr. A hub that logs each call writes much to it. */
const COMPLAINTS = 1 << 16;
const CLIENT = fileURLToPath(new URL("client.ts", import.meta.url));
const running = new Set<ChildProcess>();

/**
 * Runs a job in its own process group. No process of the group is left when it has ended.
 * @throws with the last lines of its stderr if it fails, or if it takes too long
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
  // The pipes close only when all processes that hold them have ended, so the rest of the group is killed.
  child.on("exit", () => killGroup(child));
  try {
    await once(child, "close");
  } finally {
    clearTimeout(timer);
    running.delete(child);
  }
  if (child.exitCode === 0) return JSON.parse(output) as Results[J["kind"]];
  const end = late ? `did not end within ${limit / 1000} s` : `ended by ${child.signalCode}`;
  throw new Error(`${job.kind}: ${lastLines(child.exitCode === null ? end : complaints)}`);
}

/** The planned time of a job's measurement, in ms; 0 if `PATIENCE` is enough for it. */
function durationOf(job: Job): number {
  if (job.kind === "contest") return job.entrants.length * (job.warmUp + job.rounds * job.duration);
  if ("warmUp" in job && "duration" in job) return MOST_STEPS * job.warmUp + job.duration;
  if (job.kind === "idle") return job.rest + job.duration;
  return 0;
}

/** Kills all running jobs at once. */
export function killAll(): void {
  for (const child of running) killGroup(child);
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The signal could not be sent, usually because no process of the group is left.
  }
}

function lastLines(text: string): string {
  return text.trim().split("\n").slice(-8).join("\n");
}
