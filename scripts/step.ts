import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import process from "node:process";

/** One command of a longer run. */
export interface Step {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Environment variables in addition to those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Time limit, in ms. A step that takes longer is killed and has failed. */
  readonly limit: number;
  /**
   * The file to which the step's output is written. A pipe is not used: if the step left processes behind, the reader
   * of the pipe would have to wait for them, or would lose output.
   */
  readonly log: string;
}

/**
 * Runs a step in its own process group. No process of the group is left afterwards.
 * @returns the reason why the step failed; undefined if it did not fail
 */
export async function runStep(step: Step): Promise<string | undefined> {
  const log = openSync(step.log, "w");
  const child = spawn(step.command, step.args, {
    env: { ...process.env, ...step.env },
    stdio: ["ignore", log, log],
    detached: true,
  });
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
    return late ? `did not end within ${step.limit / 1000} s` : String(error);
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
    // The signal could not be sent, usually because no process of the group is left.
  }
}
