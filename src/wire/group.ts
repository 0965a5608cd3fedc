import process from "node:process";

/** A process group that this process started and has to end. */
export interface Group {
  /** undefined as soon as it may be another's. */
  readonly group: number | undefined;
}

/** Every group that may still have members. */
export const groups = new Set<Group>();

/**
 * Signals a process, or with a negative pid its group; 0 only asks.
 * @returns false if there is none, or it belongs to another user.
 */
export function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
