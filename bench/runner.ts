import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Jobs } from "./client.ts";

/** The limits of a job. Times are in ms. */
interface Limits {
  /** The planned time of the measurement, if `patience` is not enough for it. */
  readonly duration?: number;
  /** Maximum time that the job may take in addition to its measurement. */
  readonly patience?: number;
  /** Called when the process has ended or is killed, before its output is read to the end. */
  readonly onEnd?: () => void;
}

/** Number of characters that are kept from the end of a job's stderr. A hub that logs each call writes much to it. */
const COMPLAINTS = 1 << 16;
const CLIENT = fileURLToPath(new URL("client.ts", import.meta.url));
const running = new Set<ChildProcess>();

/**
 * Runs a job in its own process group. No process of the group is left when it has ended.
 * @throws with the last lines of its stderr if it fails, or if it takes too long
 */
export async function runJob<Name extends keyof Jobs>(
  name: Name,
  job: Parameters<Jobs[Name]>[0],
  { duration = 0, patience = 120_000, onEnd }: Limits = {},
): Promise<Awaited<ReturnType<Jobs[Name]>>> {
  const child = spawn(process.execPath, [CLIENT, name, JSON.stringify(job)], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  running.add(child);
  const limit = patience + duration;
  const end = (): void => {
    killGroup(child);
    onEnd?.();
  };
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    end();
  }, limit);
  let output = "";
  let complaints = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => {
    complaints = (complaints + chunk.toString()).slice(-COMPLAINTS);
  });
  // The pipes close only when all processes that hold them have ended, so the rest of the group is killed.
  child.on("exit", end);
  try {
    await once(child, "close");
  } finally {
    clearTimeout(timer);
    running.delete(child);
  }
  if (child.exitCode === 0) return JSON.parse(output) as Awaited<ReturnType<Jobs[Name]>>;
  const how = isLate ? `did not end within ${limit / 1000} s` : `ended by ${child.signalCode}`;
  const said = complaints.trim().split("\n").slice(-8).join("\n");
  throw new Error(`${name}: ${child.exitCode === null ? how : said}`);
}

/** Kills all running jobs at once. */
export function killAll(): void {
  for (const child of running) killGroup(child);
}

function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch {
    // The signal could not be sent, usually because no process of the group is left.
  }
}
