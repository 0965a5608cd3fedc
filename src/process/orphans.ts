import process from "node:process";
import { endProcesses, KILL, liveGroups, sendSignal, TERMINATE } from "./process-group.ts";
import { EXIT_GRACE } from "../base/grace-periods.ts";
import { sleepSync } from "../base/clock.ts";
import {
  hasEnded,
  type ListedProcesses,
  listProcesses,
  type ProcessEntry,
  processTable,
  splitOwnerTags,
} from "./process-table.ts";

/**
 * The identity of a hub in an owner tag, which marks the processes that the hub has started. The format of a tag is
 * `<pid>/<started>/<boot>/<pidNamespace>/<hub>.<number>`; `<hub>` is a UUID, and the number differs for every child.
 */
export interface OwnerIdentity {
  readonly pid: number;
  readonly started: string;
  readonly boot: string;
  readonly pidNamespace: string;
}

/**
 * Placeholder for a value of an `OwnerIdentity` that is not available. A hub with such a value is never considered
 * dead.
 */
const UNKNOWN = "?";
/**
 * Maximum number of tags of one process. Without this limit, hubs that start each other in a loop would fill the
 * environment.
 */
const MAX_OWNER_TAGS = 8;
/** The part that all tags made by this process contain, and no other tag. */
const OWN_TAG_PART = `/${crypto.randomUUID()}.`;

let ownOwnerPromise: Promise<OwnerIdentity> | undefined;
let childCount = 0;

/** The identity of this process in its children's tags. If reading it fails, the next call reads it again. */
export async function currentOwner(): Promise<OwnerIdentity> {
  const { pid } = process;
  ownOwnerPromise ??= Promise.all([processTable.find(pid), processTable.system()]).then(
    ([found, system]) => ({
      pid,
      started: found?.started ?? UNKNOWN,
      ...system,
    }),
  );
  try {
    return await ownOwnerPromise;
  } catch {
    ownOwnerPromise = undefined;
    return { pid, started: UNKNOWN, boot: UNKNOWN, pidNamespace: UNKNOWN };
  }
}

/** A new tag for one child of this hub and all its descendants. */
export async function newOwnerTag(): Promise<string> {
  if (childCount === 0) process.prependOnceListener("exit", killDescendants);
  const number = ++childCount;
  const { pid, started, boot, pidNamespace } = await currentOwner();
  return `${[pid, started, boot, pidNamespace].join("/")}${OWN_TAG_PART}${number}`;
}

/**
 * The value of TOOLMUX_OWNER for a child with this tag. A hub that runs inside another hub's server adds the outer
 * hub's tags (`inherited`), so that the outer hub finds processes that the inner hub could not terminate.
 */
export function ownerVariableOf(tag: string, inherited = ""): string {
  const outer = splitOwnerTags(inherited).filter(
    (outerTag) => parseOwnerTag(outerTag) !== undefined,
  );
  return [tag, ...outer].slice(0, MAX_OWNER_TAGS).join(",");
}

/** @returns undefined if the text does not have the format of an owner tag */
export function parseOwnerTag(tag: string): OwnerIdentity | undefined {
  const [pid = "", started, boot, pidNamespace, childId, extraPart] = tag.split("/");
  if (!/^[1-9]\d*$/.test(pid) || extraPart !== undefined) return undefined;
  if (!started || !boot || !pidNamespace || !childId) return undefined;
  return { pid: Number(pid), started, boot, pidNamespace };
}

/**
 * Terminates the orphans of dead hubs: processes of this user whose tag names a dead hub, and the groups that such
 * processes lead. Children of running hubs, also those in other containers, are left alone. Never rejects; takes less
 * than 1 s.
 * @returns the number of orphans found
 */
export async function sweepOrphans(): Promise<number> {
  const identities = new Set<string>();
  const ownUid = process.getuid?.();
  const deadHubs = new Map<string, Promise<boolean>>();
  const hasDeadHub = (tag: string): Promise<boolean> => {
    const hub = tag.slice(0, tag.lastIndexOf("/"));
    const isDead = deadHubs.get(hub) ?? isOrphanTag(tag);
    deadHubs.set(hub, isDead);
    return isDead;
  };
  const isOrphan = async ({ tags }: ProcessEntry): Promise<boolean> =>
    (await Promise.all(tags.map(hasDeadHub))).includes(true);
  /** Groups led by an orphan: their members descend from it, even if their environment lacks the tag. */
  let orphanGroups = new Set<number>();
  const list = async (listed: ListedProcesses): Promise<readonly ProcessEntry[]> =>
    (await listProcesses(listed)).filter(
      (entry) => entry.uid === ownUid && entry.pid !== process.pid && !hasOwnTag(entry),
    );
  const find = async (): Promise<readonly ProcessEntry[]> => {
    if (orphanGroups.size === 0) {
      const areOrphans = await Promise.all((await list("tagged")).map(isOrphan));
      if (!areOrphans.includes(true)) return [];
    }
    const entries = await list("all");
    const areOrphans = await Promise.all(entries.map(isOrphan));
    const leaders = entries.filter(({ pid, group }, at) => areOrphans[at] && pid === group);
    // A group stays in the set as long as it has members: the system does not reuse the id of such a group.
    orphanGroups = new Set(
      [...leaders, ...entries.filter(({ group }) => orphanGroups.has(group))].map(
        ({ group }) => group,
      ),
    );
    const orphans = entries.filter(({ group }, at) => areOrphans[at] || orphanGroups.has(group));
    for (const { pid, started } of orphans) identities.add(`${pid}/${started}`);
    return orphans;
  };
  await endProcesses({ find, groups: () => [] }, [TERMINATE, KILL]);
  return identities.size;
}

/** Whether it is certain that the hub of a tag is dead. */
export async function isOrphanTag(tag: string): Promise<boolean> {
  const owner = parseOwnerTag(tag);
  return owner !== undefined && (await ownerState(owner)) === "ended";
}

/** Whether the process of an owner is running; `unknown` if this process cannot tell. Never rejects. */
export async function ownerState(owner: OwnerIdentity): Promise<"runs" | "ended" | "unknown"> {
  const ownIdentity = await currentOwner();
  if ([owner, ownIdentity].some((identity) => Object.values(identity).includes(UNKNOWN)))
    return "unknown";
  // A pid is valid only in its own pid namespace: the owner may be running in another container.
  if (owner.pidNamespace !== ownIdentity.pidNamespace) return "unknown";
  return owner.boot !== ownIdentity.boot || (await hasEnded(owner)) ? "ended" : "runs";
}

/**
 * Kills all remaining descendants of this process, in whatever group. Runs in the `exit` event, so it is synchronous.
 * Never throws; takes EXIT_GRACE at most.
 */
function killDescendants(): void {
  const end = performance.now() + EXIT_GRACE;
  // As in `endProcesses`, two reads in a row without a process prove that none is left.
  for (let emptyReads = 0; emptyReads < 2 && performance.now() < end;) {
    for (const { group } of liveGroups) if (group !== undefined) sendSignal(-group, "SIGKILL");
    const isAnyLeft = killTaggedProcesses();
    emptyReads = isAnyLeft ? 0 : emptyReads + 1;
    if (isAnyLeft) sleepSync(1);
  }
}

/** Kills processes that carry a tag of this process. @returns false if it is certain that there are none */
function killTaggedProcesses(): boolean {
  const stopped: number[] = [];
  let isSelfListed = false;
  try {
    for (const entry of processTable.listSync("younger")) {
      if (hasOwnTag(entry) && sendSignal(entry.pid, "SIGSTOP")) stopped.push(entry.pid);
      isSelfListed ||= entry.pid === process.pid;
    }
  } catch {
    // Reading failed: processes that were not read may remain.
  }
  // A stopped process can neither exit, which would free its pid, nor restart a process that is killed here.
  for (const pid of stopped) sendSignal(pid, "SIGKILL");
  return stopped.length > 0 || !isSelfListed;
}

function hasOwnTag({ tags }: ProcessEntry): boolean {
  return tags.some((tag) => tag.includes(OWN_TAG_PART));
}

/** The number of orphans that `sweepOrphans` would terminate. @throws {Error} if the process table could not be read */
export async function countOrphans(): Promise<number> {
  const ownUid = process.getuid?.();
  const entries = (await listProcesses("tagged")).filter(
    ({ uid, pid }) => uid === ownUid && pid !== process.pid,
  );
  const areOrphans = await Promise.all(
    entries.map(async ({ tags }) => (await Promise.all(tags.map(isOrphanTag))).includes(true)),
  );
  return areOrphans.filter(Boolean).length;
}
