import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Figures, Job, Tell } from "./job.ts";
import { MOST_STEPS } from "../warmth.ts";
import { sweep } from "./kin.ts";

/** ms: Python on a busy machine starts within ten seconds. */
const PATIENCE = 25_000;
/** So many of the last characters of what is said on stderr are kept. */
const COMPLAINTS = 4000;
const CLIENT = fileURLToPath(new URL("client.ts", import.meta.url));

/**
 * Runs a job in a process group of its own. Nothing is left of it, nor of what left its group, when it has ended.
 * @param patience ms that it may take longer than its laps, start and end included
 * @throws with the last that was said, if it fails or takes too long.
 */
export async function runJob(job: Job, tell: Tell, patience: number = PATIENCE): Promise<void> {
  const child = spawn(process.execPath, [CLIENT, JSON.stringify(job)], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const end = () => {
    endGroup(child.pid);
    sweep(job.tag);
  };
  const limit = patience + job.laps.length * (MOST_STEPS * job.warmUp + job.duration);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    end();
  }, limit);
  let complaints = "";
  child.stderr.on("data", (chunk: Buffer) => {
    complaints = (complaints + chunk.toString()).slice(-COMPLAINTS);
  });
  createInterface({ input: child.stdout }).on("line", (line) => tell(JSON.parse(line) as Figures));
  // Its pipes close only when all that have them are gone as well.
  child.on("exit", end);
  await once(child, "close");
  clearTimeout(timer);
  if (isLate) throw new Error(`no end within ${limit / 1000} s`);
  if (child.exitCode !== 0) throw new Error(complaints.trim().split("\n").at(-1) ?? "");
}

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // Usually nothing is left of the group.
  }
}
