import { KILL_GRACE, sleep, TERM_GRACE } from "./grace.ts";
import { sendSignal } from "./group.ts";
import { table } from "./processes.ts";
import type { ProcessEntry } from "./table.ts";

/** What processes are told, and for how long, in ms, it is looked whether any is left. */
export interface Step {
  readonly signals: readonly NodeJS.Signals[];
  readonly grace: number;
}

/** Asks to end. What was stopped has to go on to hear it. */
export const ASK: Step = { signals: ["SIGTERM", "SIGCONT"], grace: TERM_GRACE };
/** All stand still before the first of them dies, so that none sees another's death and starts it again. */
export const KILL: Step = { signals: ["SIGSTOP", "SIGKILL"], grace: KILL_GRACE };

/** Processes that have to end, by what they have in common. */
export interface Prey {
  /** Those that run. @throws {Error} if that cannot be seen */
  readonly find: () => Promise<readonly ProcessEntry[]>;
  /** The groups that belong to them whoever is in there. */
  readonly groups: () => readonly number[];
}

/** Between two looks, in ms: the first, and the longest. */
const PAUSE = { first: 5, longest: 100 };

/**
 * Takes one step after the other until nothing is left, or time is up. A step signals every process once, also those
 * that appear while it lasts. Never fails.
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
 * A process that starts or forks during a look can be missed by it, so that only two looks in a row prove that
 * nothing is left. @returns undefined if there was nothing to be seen
 */
async function look({ find }: Prey): Promise<readonly ProcessEntry[] | undefined> {
  try {
    const seen = await find();
    return seen.length > 0 ? seen : await find();
  } catch {
    return undefined;
  }
}

/** Signals the groups, and each process outside of them if its pid still is its own. */
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
