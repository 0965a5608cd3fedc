import { KILL_GRACE, sleep, TERM_GRACE } from "../base/grace.ts";
import { sendSignal } from "./group.ts";
import { table } from "./processes.ts";
import type { ProcessEntry } from "./process-table.ts";

/** Signals to send, and how long to wait, in ms, for the processes to disappear. */
export interface Step {
  readonly signals: readonly NodeJS.Signals[];
  readonly grace: number;
}

/** SIGCONT follows, since a stopped process does not handle SIGTERM. */
export const ASK: Step = { signals: ["SIGTERM", "SIGCONT"], grace: TERM_GRACE };
/** All are stopped before the first is killed, so that none can see another's death and restart it. */
export const KILL: Step = { signals: ["SIGSTOP", "SIGKILL"], grace: KILL_GRACE };

/** The processes to terminate. */
export interface Prey {
  /** Those that are running. @throws {Error} if the process table cannot be read */
  readonly find: () => Promise<readonly ProcessEntry[]>;
  /** Groups that belong to the selection as a whole. */
  readonly groups: () => readonly number[];
}

/** Interval between two reads of the process table, in ms: the first, and the longest. */
const PAUSE = { first: 5, longest: 100 };

/**
 * Takes the steps in order until no process is left or the time is up. Each step signals every process once, including
 * those that appear while it lasts. Never rejects.
 */
export async function endProcesses(prey: Prey, steps: readonly Step[]): Promise<void> {
  for (const step of steps) {
    const end = performance.now() + step.grace;
    const told = new Set<string>();
    for (let pause = PAUSE.first, round = 0; ; round++) {
      const left = await look(prey);
      if (left?.length === 0) return;
      const fresh = left?.filter((entry) => !told.has(nameOf(entry))) ?? [];
      await tell(fresh, step.signals, round === 0 ? prey.groups : () => []);
      if (performance.now() >= end) break;
      for (const entry of fresh) told.add(nameOf(entry));
      pause = fresh.length > 0 ? PAUSE.first : Math.min(pause * 2, PAUSE.longest);
      await sleep(pause);
    }
  }
}

/**
 * A process that starts or forks during a read can be missed by it: only two empty reads in a row prove that none is
 * left.
 * @returns undefined if the process table could not be read
 */
async function look({ find }: Prey): Promise<readonly ProcessEntry[] | undefined> {
  try {
    const seen = await find();
    return seen.length > 0 ? seen : await find();
  } catch {
    return undefined;
  }
}

/** Signals the groups, and each process outside of them whose pid still is the same process. */
async function tell(
  entries: readonly ProcessEntry[],
  signals: readonly NodeJS.Signals[],
  groupsNow: () => readonly number[],
): Promise<void> {
  const isSame = await table.recheck(entries).catch(() => () => false);
  const groups = groupsNow();
  const single = entries.filter(({ group }) => !groups.includes(group));
  for (const signal of signals) {
    for (const group of groups) sendSignal(-group, signal);
    for (const entry of single) if (isSame(entry)) sendSignal(entry.pid, signal);
  }
}

function nameOf({ pid, started }: ProcessEntry): string {
  return `${pid}/${started}`;
}
