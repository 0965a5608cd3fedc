import process from "node:process";
import { linuxProcessTable } from "./proc.ts";
import {
  errnoCodeOf,
  type ProcessEntry,
  type ProcessIdentity,
  type ProcessTable,
} from "./process-table.ts";
import { macosProcessTable } from "./ps.ts";

/** The process table of this system. */
export const processTable: ProcessTable =
  process.platform === "darwin" ? macosProcessTable : linuxProcessTable;

/**
 * Time limit for a listing, in ms. Reading the environment of a process that is stuck in the kernel can block for ever.
 */
const LIST_TIMEOUT = 1500;

let currentListing: Promise<readonly ProcessEntry[]> | undefined;
let nextListing: Promise<readonly ProcessEntry[]> | undefined;

/**
 * All processes that this user may signal. Calls during a listing share the next one, so that many servers that stop at
 * once cost two listings.
 * @throws {Error} if the table could not be read, or not in time
 */
export function listProcesses(): Promise<readonly ProcessEntry[]> {
  if (currentListing === undefined) {
    currentListing = withTimeout(processTable.list().then(checkComplete)).finally(
      () => (currentListing = undefined),
    );
    return currentListing;
  }
  nextListing ??= currentListing.then(listAgain, listAgain);
  return nextListing;
}

function listAgain(): Promise<readonly ProcessEntry[]> {
  nextListing = undefined;
  return listProcesses();
}

/** A listing without this process itself is incomplete. */
function checkComplete(entries: readonly ProcessEntry[]): readonly ProcessEntry[] {
  if (entries.some(({ pid }) => pid === process.pid)) return entries;
  throw new Error("The system shows no processes.");
}

function withTimeout<T>(promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error("The processes could not be listed in time.")),
      LIST_TIMEOUT,
    );
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}

/** Whether it is certain that a process has exited; false also where the system does not tell. */
export async function hasEnded({ pid, started }: ProcessIdentity): Promise<boolean> {
  try {
    const found = await processTable.find(pid);
    if (found !== undefined) return found.started !== started;
    // Other users' processes may be hidden from the table, but not from kill(2).
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return errnoCodeOf(error) === "ESRCH";
  }
}
