import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { errnoCodeOf } from "../../process/process-table.ts";

/** How old one has to be that is swept away, in ms: where folders are shared but pids are not, its owner may live. */
const AGE = 3_600_000;

/** Makes a folder for the time of a measurement, and removes those of others that were killed. */
export async function makeBenchFolder(parent: string): Promise<string> {
  await sweep(parent);
  return mkdtemp(join(parent, `toolmux-bench-${process.pid}-`));
}

/** What cannot be removed is somebody else's. */
async function sweep(parent: string): Promise<void> {
  for (const name of await readdir(parent).catch(() => [])) {
    const [, pid] = /^toolmux-bench-(\d+)-\w+$/.exec(name) ?? [];
    if (pid === undefined || isThere(Number(pid))) continue;
    const path = join(parent, name);
    const age = Date.now() - ((await stat(path).catch(() => undefined))?.mtimeMs ?? Infinity);
    if (age > AGE) await rm(path, { recursive: true, force: true }).catch(() => {});
  }
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return errnoCodeOf(error) !== "ESRCH";
  }
}
