import process from "node:process";
import { KILL_GRACE, TERM_GRACE } from "../base/grace-periods.ts";
import { sleep } from "../base/clock.ts";
import { type ProcessEntry, processTable } from "./process-table.ts";

/** A process group that this process has started and must terminate. */
export interface ProcessGroup {
  /** The group id; undefined as soon as it may have been reused. */
  readonly group: number | undefined;
}

/** All process groups that may still have members. */
export const liveGroups = new Set<ProcessGroup>();

/**
 * Sends a signal to a process, or to a group if `pid` is negative; signal 0 only checks.
 * @returns false if the process or group does not exist, or belongs to another user
 */
export function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** Signals to send, and how long to wait, in ms, for the processes to disappear. */
export interface SignalStep {
  readonly signals: readonly NodeJS.Signals[];
  readonly grace: number;
}

/** SIGCONT follows SIGTERM, since a stopped process (SIGSTOP) does not handle SIGTERM. */
export const TERMINATE: SignalStep = { signals: ["SIGTERM", "SIGCONT"], grace: TERM_GRACE };
/** All processes are stopped before the first is killed, so that none can observe another's death and restart it. */
export const KILL: SignalStep = { signals: ["SIGSTOP", "SIGKILL"], grace: KILL_GRACE };

/** The processes to terminate. */
export interface ProcessSelection {
  /** The selected processes that are running. @throws {Error} if the process table cannot be read */
  readonly find: () => Promise<readonly ProcessEntry[]>;
  /** Groups that are signalled as a whole, because all their members are selected. */
  readonly groups: () => readonly number[];
}

/** Interval between two reads of the process table, in ms: the first, and the longest. */
const POLL_INTERVAL = { first: 5, max: 100 };

/**
 * Carries out the steps in order, until no process is left or all steps are over. Each step signals every process once,
 * including those that appear during the step. Never rejects.
 */
export async function endProcesses(
  selection: ProcessSelection,
  steps: readonly SignalStep[],
): Promise<void> {
  for (const step of steps) {
    const end = performance.now() + step.grace;
    const signalled = new Set<string>();
    for (let interval = POLL_INTERVAL.first, round = 0; ; round++) {
      const remaining = await findRemaining(selection);
      if (remaining?.length === 0) return;
      const unsignalled = remaining?.filter((entry) => !signalled.has(identityKey(entry))) ?? [];
      await signalAll(unsignalled, step.signals, round === 0 ? selection.groups : () => []);
      if (performance.now() >= end) break;
      for (const entry of unsignalled) signalled.add(identityKey(entry));
      interval =
        unsignalled.length > 0 ? POLL_INTERVAL.first : Math.min(interval * 2, POLL_INTERVAL.max);
      await sleep(interval);
    }
  }
}

/**
 * Finds the selected processes that are left. A read can miss a process that starts or forks meanwhile: only two empty
 * reads in a row prove that none is left.
 * @returns undefined if the process table could not be read
 */
async function findRemaining({
  find,
}: ProcessSelection): Promise<readonly ProcessEntry[] | undefined> {
  try {
    const found = await find();
    return found.length > 0 ? found : await find();
  } catch {
    return undefined;
  }
}

/** Signals the groups, and each process outside of them if its pid still belongs to the same process. */
async function signalAll(
  entries: readonly ProcessEntry[],
  signals: readonly NodeJS.Signals[],
  currentGroups: () => readonly number[],
): Promise<void> {
  const isSameProcess = await processTable.recheck(entries).catch(() => () => false);
  const groups = currentGroups();
  const ungrouped = entries.filter(({ group }) => !groups.includes(group));
  for (const signal of signals) {
    for (const group of groups) sendSignal(-group, signal);
    for (const entry of ungrouped) if (isSameProcess(entry)) sendSignal(entry.pid, signal);
  }
}

function identityKey({ pid, started }: ProcessEntry): string {
  return `${pid}/${started}`;
}
