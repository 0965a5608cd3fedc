import process from "node:process";
import { procTable } from "./proc.ts";
import { codeOf, type ProcessEntry, type ProcessName, type ProcessTable } from "./process-table.ts";
import { psTable } from "./ps.ts";

/** The process table of this system. */
export const table: ProcessTable = process.platform === "darwin" ? psTable : procTable;

/**
 * Time limit for a listing, in ms. Reading the environment of a process that is stuck in the kernel can block for ever.
 */
const LIMIT = 1500;

let running: Promise<readonly ProcessEntry[]> | undefined;
let next: Promise<readonly ProcessEntry[]> | undefined;

/**
 * All processes that this user may signal. Calls during a listing share the next one, so that many servers that stop at
 * once cost two listings.
 * @throws {Error} if the table could not be read, or not in time
 */
export function listProcesses(): Promise<readonly ProcessEntry[]> {
  if (running === undefined) {
    running = inTime(table.list().then(checked)).finally(() => (running = undefined));
    return running;
  }
  next ??= running.then(again, again);
  return next;
}

function again(): Promise<readonly ProcessEntry[]> {
  next = undefined;
  return listProcesses();
}

/** A listing without this process itself is incomplete. */
function checked(entries: readonly ProcessEntry[]): readonly ProcessEntry[] {
  if (entries.some(({ pid }) => pid === process.pid)) return entries;
  throw new Error("The system shows no processes.");
}

function inTime<T>(promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error("The processes could not be listed in time.")),
      LIMIT,
    );
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Whether it is certain that a process has exited; false also where the system does not tell. */
export async function hasEnded({ pid, started }: ProcessName): Promise<boolean> {
  try {
    const found = await table.look(pid);
    if (found !== undefined) return found.started !== started;
    // Other users' processes may be hidden from the table, but not from kill(2).
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return codeOf(error) === "ESRCH";
  }
}
