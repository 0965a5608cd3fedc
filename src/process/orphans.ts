import process from "node:process";
import { ASK, endProcesses, KILL } from "./process-group.ts";
import { LAST_GRACE, pause } from "../base/grace.ts";
import { groups, sendSignal } from "./group.ts";
import { hasEnded, listProcesses, table } from "./processes.ts";
import { type ProcessEntry, splitTags } from "./process-table.ts";

/**
 * An owner tag: which hub has started a process. Its format is `<pid>/<started>/<boot>/<pidNamespace>/<hub>.<number>`;
 * `<hub>` is a UUID, and the number differs for every child.
 */
export interface Owner {
  readonly pid: number;
  readonly started: string;
  readonly boot: string;
  readonly space: string;
}

/** Placeholder for an unavailable value. No hub is considered dead because of it. */
const UNKNOWN = "?";
/** The most tags of one process: hubs that start each other must not fill its environment. */
const MOST_TAGS = 8;
/** Occurs in the tags of this process only. */
const MARK = `/${crypto.randomUUID()}.`;

let self: Promise<Owner> | undefined;
let children = 0;

/** The owner that the tags of this process name. Values that could not be read are read again on the next call. */
export async function identify(): Promise<Owner> {
  const { pid } = process;
  self ??= Promise.all([table.look(pid), table.system()]).then(([found, system]) => ({
    pid,
    started: found?.started ?? UNKNOWN,
    ...system,
  }));
  try {
    return await self;
  } catch {
    self = undefined;
    return { pid, started: UNKNOWN, boot: UNKNOWN, space: UNKNOWN };
  }
}

/** A new tag for one child of this hub and all its descendants. */
export async function newTag(): Promise<string> {
  if (children === 0) process.prependOnceListener("exit", killOwn);
  const number = ++children;
  const { pid, started, boot, space } = await identify();
  return `${[pid, started, boot, space].join("/")}${MARK}${number}`;
}

/**
 * The value of TOOLMUX_OWNER for a child with that tag. A hub that runs inside another hub's server passes the outer
 * tags on (`inherited`), so that the outer hub finds what the inner one could not terminate.
 */
export function tagVariable(tag: string, inherited = ""): string {
  const outer = splitTags(inherited).filter((one) => parseTag(one) !== undefined);
  return [tag, ...outer].slice(0, MOST_TAGS).join(",");
}

/** @returns undefined if the format is not that of a hub */
export function parseTag(tag: string): Owner | undefined {
  const [pid = "", started, boot, space, random, more] = tag.split("/");
  if (!/^[1-9]\d*$/.test(pid) || more !== undefined) return undefined;
  if (!started || !boot || !space || !random) return undefined;
  return { pid: Number(pid), started, boot, space };
}

/**
 * Terminates the orphans of dead hubs: processes of this user whose tag names a dead hub, and the groups that such
 * processes lead. Children of running hubs, also those in other containers, are left alone. Never rejects; takes less
 * than 1 s.
 * @returns the number of orphans found
 */
export async function sweepOrphans(): Promise<number> {
  const found = new Set<string>();
  const user = process.getuid?.();
  const verdicts = new Map<string, Promise<boolean>>();
  const hasDeadHub = (tag: string): Promise<boolean> => {
    const hub = tag.slice(0, tag.lastIndexOf("/"));
    const verdict = verdicts.get(hub) ?? isOfDeadHub(tag);
    verdicts.set(hub, verdict);
    return verdict;
  };
  const isOrphan = async ({ tags }: ProcessEntry): Promise<boolean> =>
    (await Promise.all(tags.map(hasDeadHub))).includes(true);
  /** Groups led by an orphan: their members descend from it, even if their environment lacks the tag. */
  let led = new Set<number>();
  const find = async (): Promise<readonly ProcessEntry[]> => {
    const all = await listProcesses();
    const entries = all.filter(
      (entry) => entry.uid === user && entry.pid !== process.pid && !isOwn(entry),
    );
    const verdict = await Promise.all(entries.map(isOrphan));
    const leaders = entries.filter(({ pid, group }, at) => verdict[at] && pid === group);
    // A group id is not reused while the group has members.
    led = new Set(
      [...leaders, ...entries.filter(({ group }) => led.has(group))].map(({ group }) => group),
    );
    const orphans = entries.filter(({ group }, at) => verdict[at] || led.has(group));
    for (const { pid, started } of orphans) found.add(`${pid}/${started}`);
    return orphans;
  };
  await endProcesses({ find, groups: () => [] }, [ASK, KILL]);
  return found.size;
}

/** Whether it is certain that the hub of a tag is dead. */
export async function isOfDeadHub(tag: string): Promise<boolean> {
  const owner = parseTag(tag);
  return owner !== undefined && (await judge(owner)) === "ended";
}

/** Whether a process is running, as far as can be seen from here. Never rejects. */
export async function judge(owner: Owner): Promise<"runs" | "ended" | "unknown"> {
  const here = await identify();
  if ([owner, here].some((side) => Object.values(side).includes(UNKNOWN))) return "unknown";
  // A pid is valid only in its own namespace: that process may be running in its container.
  if (owner.space !== here.space) return "unknown";
  return owner.boot !== here.boot || (await hasEnded(owner)) ? "ended" : "runs";
}

/**
 * Kills all remaining descendants of this process, in whatever group. Runs in the `exit` event, so it is synchronous.
 * Never throws; takes EXIT_GRACE at most.
 */
function killOwn(): void {
  const end = performance.now() + LAST_GRACE;
  // As in `endProcesses`, two empty reads in a row prove that none is left.
  for (let clean = 0; clean < 2 && performance.now() < end;) {
    for (const { group } of groups) if (group !== undefined) sendSignal(-group, "SIGKILL");
    const isLeft = killTagged();
    clean = isLeft ? 0 : clean + 1;
    if (isLeft) pause(1);
  }
}

/** Kills processes that carry a tag of this process. @returns false if it is certain that there are none */
function killTagged(): boolean {
  const stopped: number[] = [];
  let seesItself = false;
  try {
    for (const entry of table.listNow()) {
      if (isOwn(entry) && sendSignal(entry.pid, "SIGSTOP")) stopped.push(entry.pid);
      seesItself ||= entry.pid === process.pid;
    }
  } catch {
    // Processes that were not read may be left.
  }
  // A stopped process cannot exit and free its pid, nor restart another one.
  for (const pid of stopped) sendSignal(pid, "SIGKILL");
  return stopped.length > 0 || !seesItself;
}

function isOwn({ tags }: ProcessEntry): boolean {
  return tags.some((tag) => tag.includes(MARK));
}

/** The number of orphans that `sweepOrphans` would terminate. @throws {Error} if the process table could not be read */
export async function countOrphans(): Promise<number> {
  const user = process.getuid?.();
  const entries = (await listProcesses()).filter(
    ({ uid, pid }) => uid === user && pid !== process.pid,
  );
  const verdicts = await Promise.all(
    entries.map(async ({ tags }) => (await Promise.all(tags.map(isOfDeadHub))).includes(true)),
  );
  return verdicts.filter(Boolean).length;
}
