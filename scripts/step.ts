import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import process from "node:process";

/** One command of a longer run. */
export interface Step {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** How long it may take, in ms; then it is killed and has failed. */
  readonly limit: number;
  /** The file that gets its output: what a pipe would lose or wait for when a step leaves processes behind. */
  readonly log: string;
}

/** Runs a step in a process group of its own and leaves nothing of that group; says why it failed, if it did. */
export async function runStep(step: Step): Promise<string | undefined> {
  const log = openSync(step.log, "w");
  const child = spawn(step.command, step.args, { stdio: ["ignore", log, log], detached: true });
  closeSync(log);
  const leave = () => {
    killGroup(child.pid);
    process.exit(130);
  };
  process.on("SIGINT", leave).on("SIGTERM", leave).on("SIGHUP", leave);
  try {
    await once(child, "exit", { signal: AbortSignal.timeout(step.limit) });
  } catch (error) {
    const late = error instanceof Error && error.name === "AbortError";
    return late ? `no end within ${step.limit / 1000} s` : String(error);
  } finally {
    killGroup(child.pid);
    process.off("SIGINT", leave).off("SIGTERM", leave).off("SIGHUP", leave);
  }
  if (child.exitCode === 0) return undefined;
  return child.exitCode === null ? `ended by ${child.signalCode}` : `exit code ${child.exitCode}`;
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // Usually nothing is left of the group.
  }
}
