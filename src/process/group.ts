import process from "node:process";

/** A process group that this process has started and must terminate. */
export interface ProcessGroup {
  /** The group id; undefined as soon as it may have been reused. */
  readonly group: number | undefined;
}

/** All groups that may still have members. */
export const liveGroups = new Set<ProcessGroup>();

/**
 * Sends a signal to a process, or to a group if `pid` is negative; signal 0 only checks.
 * @returns false if it does not exist, or belongs to another user
 */
export function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
