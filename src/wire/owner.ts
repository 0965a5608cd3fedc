import process from "node:process";
import { ASK, endProcesses, KILL } from "./ending.ts";
import { LAST_GRACE, pause } from "./grace.ts";
import { groups, sendSignal } from "./group.ts";
import { hasEnded, listProcesses, table } from "./processes.ts";
import { type ProcessEntry, splitTags } from "./table.ts";

/**
 * What an owner tag says: which hub started the process. A tag is `<pid>/<started>/<boot>/<space>/<hub>.<number>`;
 * the last part is another for every child.
 */
export interface Owner {
  readonly pid: number;
  readonly started: string;
  readonly boot: string;
  readonly space: string;
}

/** Stands for what the system does not say. No hub is ever taken for dead by it. */
const UNKNOWN = "?";
/** So many tags a process carries at most: hubs that start each other without end must not fill its environment. */
const MOST_TAGS = 8;
/** In the tags of this process, and in no others. */
const MARK = `/${crypto.randomUUID()}.`;

let self: Promise<Owner> | undefined;
let children = 0;

/** This process, as its tags name it. What could not be learned is looked for again the next time. */
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

/** A tag for one child of this hub, and for all that descends from it. */
export async function newTag(): Promise<string> {
  if (children === 0) process.prependOnceListener("exit", killOwn);
  const number = ++children;
  const { pid, started, boot, space } = await identify();
  return `${[pid, started, boot, space].join("/")}${MARK}${number}`;
}

/**
 * TOOLMUX_OWNER for a child of that tag. A hub that is itself started by another one's server passes on what it
 * carries (`inherited`), so that the outer hub finds what the inner one had no time to end.
 */
export function tagVariable(tag: string, inherited = ""): string {
  const outer = splitTags(inherited).filter((one) => parseTag(one) !== undefined);
  return [tag, ...outer].slice(0, MOST_TAGS).join(",");
}

/** @returns undefined for what no hub wrote. */
export function parseTag(tag: string): Owner | undefined {
  const [pid = "", started, boot, space, random, more] = tag.split("/");
  if (!/^[1-9]\d*$/.test(pid) || more !== undefined) return undefined;
  if (!started || !boot || !space || !random) return undefined;
  return { pid: Number(pid), started, boot, space };
}

/**
 * Ends what hubs left behind that did not live to do it themselves: processes of this user whose tag names a
 * dead hub, and the groups that such processes lead. Children of living hubs, also in other containers, stay.
 * Never fails, and takes less than a second.
 * @returns how many processes it found.
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
  /** What is in a group that an orphan leads descends from it, though its environment may not say so any more. */
  let led = new Set<number>();
  const find = async (): Promise<readonly ProcessEntry[]> => {
    const all = await listProcesses();
    const entries = all.filter(
      (entry) => entry.uid === user && entry.pid !== process.pid && !isOwn(entry),
    );
    const verdict = await Promise.all(entries.map(isOrphan));
    const leaders = entries.filter(({ pid, group }, at) => verdict[at] && pid === group);
    // A group's number is its own as long as somebody is in it.
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

/** Whether a process still runs, as far as it can be seen from here. Never fails. */
export async function judge(owner: Owner): Promise<"runs" | "ended" | "unknown"> {
  const here = await identify();
  if ([owner, here].some((side) => Object.values(side).includes(UNKNOWN))) return "unknown";
  // A pid means nothing outside its own space: that process may well live in its container.
  if (owner.space !== here.space) return "unknown";
  return owner.boot !== here.boot || (await hasEnded(owner)) ? "ended" : "runs";
}

/**
 * Kills whatever this process has started and not ended yet, wherever it went. It runs in the last moment of this
 * process, however that ends by itself, so nothing can be waited for. Never fails, and takes LAST_GRACE at most.
 */
function killOwn(): void {
  const end = performance.now() + LAST_GRACE;
  // As in `endProcesses`, two looks in a row prove that nothing is left.
  for (let clean = 0; clean < 2 && performance.now() < end;) {
    for (const { group } of groups) if (group !== undefined) sendSignal(-group, "SIGKILL");
    const isLeft = killTagged();
    clean = isLeft ? 0 : clean + 1;
    if (isLeft) pause(1);
  }
}

/** Kills what carries a tag of this process. @returns false if it saw that there is nothing. */
function killTagged(): boolean {
  const stopped: number[] = [];
  let seesItself = false;
  try {
    for (const entry of table.listNow()) {
      if (isOwn(entry) && sendSignal(entry.pid, "SIGSTOP")) stopped.push(entry.pid);
      seesItself ||= entry.pid === process.pid;
    }
  } catch {
    // What could not be seen may be left.
  }
  // What stands still is what it was; and nobody sees another's death and starts it again.
  for (const pid of stopped) sendSignal(pid, "SIGKILL");
  return stopped.length > 0 || !seesItself;
}

function isOwn({ tags }: ProcessEntry): boolean {
  return tags.some((tag) => tag.includes(MARK));
}

/** How many processes of this user carry the tag of a dead hub: what `sweepOrphans` would end. @throws {Error} if nothing could be learned */
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
