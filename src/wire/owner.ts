import process from "node:process";
import { KILL_GRACE, sleep, TERM_GRACE } from "./grace.ts";
import { findProcess, listProcesses, type ProcessEntry, readSystem } from "./processes.ts";

/**
 * What an owner tag says: which hub started the process. The tag is the value of TOOLMUX_OWNER,
 * `<pid>/<started>/<boot>/<space>/<random>`; the random part is another for every child.
 */
export interface Owner {
  readonly pid: number;
  readonly started: string;
  readonly boot: string;
  readonly space: string;
}

/** Stands for what the system does not say. No hub is ever taken for dead by it. */
const UNKNOWN = "?";
/** Between two looks at processes that were told to end, in ms: the first, and the longest. */
const LOOK_PAUSE = { first: 5, longest: 100 };

let self: Promise<Owner> | undefined;

/** This hub, as its tags name it. */
function identify(): Promise<Owner> {
  self ??= Promise.all([findProcess(process.pid), readSystem()]).then(([entry, system]) => ({
    pid: process.pid,
    started: entry?.started ?? UNKNOWN,
    boot: system?.boot ?? UNKNOWN,
    space: system?.space ?? UNKNOWN,
  }));
  return self;
}

/** A tag for one child of this hub, and for all that descends from it. */
export async function newTag(): Promise<string> {
  const { pid, started, boot, space } = await identify();
  return [pid, started, boot, space, crypto.randomUUID()].join("/");
}

/** @returns undefined for what no hub wrote. */
export function parseTag(tag: string): Owner | undefined {
  const [pid = "", started, boot, space, random, more] = tag.split("/");
  if (!/^[1-9]\d*$/.test(pid) || more !== undefined) return undefined;
  if (!started || !boot || !space || !random) return undefined;
  return { pid: Number(pid), started, boot, space };
}

/** The pids of all running processes that carry this very tag. */
export async function processesWithTag(tag: string): Promise<number[]> {
  return (await listProcesses()).filter((entry) => entry.tag === tag).map(({ pid }) => pid);
}

/**
 * Ends what hubs left behind that did not live to do it themselves: processes of this user whose tag names a
 * dead hub. Children of living hubs, also in other containers, stay. Never fails, and takes less than a second.
 * @returns how many processes it found.
 */
export async function sweepOrphans(): Promise<number> {
  const user = process.getuid?.();
  const verdicts = new Map<string, Promise<boolean>>();
  const isOrphan = async ({ pid, uid, tag }: ProcessEntry): Promise<boolean> => {
    if (tag === undefined || uid !== user || pid === process.pid) return false;
    const hub = tag.slice(0, tag.lastIndexOf("/"));
    const verdict = verdicts.get(hub) ?? hasDeadHub(tag);
    verdicts.set(hub, verdict);
    return await verdict;
  };
  const find = async (): Promise<ProcessEntry[]> => {
    const entries = await listProcesses();
    const orphaned = await Promise.all(entries.map(isOrphan));
    return entries.filter((_, at) => orphaned[at]);
  };
  const found = (await find()).length;
  if (found > 0) await endProcesses(find, signalTagged);
  return found;
}

async function hasDeadHub(tag: string): Promise<boolean> {
  const owner = parseTag(tag);
  const here = await identify();
  if (owner === undefined) return false;
  if ([owner, here].some((side) => Object.values(side).includes(UNKNOWN))) return false;
  // A pid means nothing outside its own space: that hub may well live in its container.
  if (owner.space !== here.space) return false;
  if (owner.boot !== here.boot) return true;
  const hub = await findProcess(owner.pid);
  return hub === undefined ? !isHidden(owner.pid) : hub.started !== owner.started;
}

/** Whether there is a process of another user, which /proc may not show. */
function isHidden(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/**
 * SIGTERM to all that `find` yields, a wait, SIGKILL to what it yields then; settles when nothing is left, or time is up.
 * A process that starts or forks during a look can be missed by it, so that only two looks in a row prove nothing is left.
 */
export async function endProcesses(
  find: () => Promise<readonly ProcessEntry[]>,
  signalAll: (entries: readonly ProcessEntry[], signal: NodeJS.Signals) => Promise<unknown>,
): Promise<void> {
  const steps = [
    ["SIGTERM", TERM_GRACE],
    ["SIGKILL", KILL_GRACE],
  ] as const;
  const look = async (): Promise<readonly ProcessEntry[]> => {
    const seen = await find();
    return seen.length > 0 ? seen : find();
  };
  let left = await look();
  for (const [signal, grace] of steps) {
    const end = performance.now() + grace;
    let pause = LOOK_PAUSE.first;
    if (left.length > 0) await signalAll(left, signal);
    while (left.length > 0 && performance.now() < end) {
      await sleep(pause);
      pause = Math.min(pause * 2, LOOK_PAUSE.longest);
      left = await look();
    }
  }
}

/** Signals each entry if its pid still is that process and carries that tag. */
export async function signalTagged(
  entries: readonly ProcessEntry[],
  signal: NodeJS.Signals,
): Promise<void> {
  const signalOne = async ({ pid, started, tag }: ProcessEntry): Promise<void> => {
    const now = await findProcess(pid);
    if (tag !== undefined && now?.tag === tag && now.started === started) sendSignal(pid, signal);
  };
  await Promise.all(entries.map(signalOne));
}

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
