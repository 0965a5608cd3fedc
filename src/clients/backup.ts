import { chmod, mkdir, readdir, readFile, realpath, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { replaceBy, writePrivate } from "../manifest/draft.ts";

/** How many backups of one file are kept. */
const MOST = 3;
const MARK = ".toolmux-backup-";

/** A file of somebody else's that is about to be changed. */
export interface Original {
  /** Where the file really is, whatever links lead there. */
  readonly path: string;
  /** undefined: there is none. */
  readonly bytes: Buffer | undefined;
  /** Its permissions. */
  readonly mode: number;
}

/** Looks at a file, through the links that lead to it. */
export async function openOriginal(file: string): Promise<Original> {
  const path = await realpath(file).catch(() => file);
  try {
    const { mode } = await stat(path);
    return { path, bytes: await readFile(path), mode: mode & 0o777 };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return { path, bytes: undefined, mode: 0o600 };
  }
}

/** Writes the file anew, whole or not at all, with the permissions that it had. */
export async function rewrite({ path, mode }: Original, bytes: Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${crypto.randomUUID()}.draft`;
  await writePrivate(draft, bytes);
  try {
    await chmod(draft, mode);
    await replaceBy(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/**
 * Keeps a copy beside the file that only its owner can read, and removes the oldest of too many.
 * @param now ms since the epoch
 * @returns the copy's path
 */
export async function keepBackup({ path, bytes }: Original, now: number): Promise<string> {
  const time = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "");
  const taken = await listBackups(path);
  let copy = `${path}${MARK}${time}`;
  for (let number = 2; taken.includes(copy); number++) copy = `${path}${MARK}${time}-${number}`;
  await writePrivate(copy, bytes ?? new Uint8Array());
  for (const old of taken.slice(MOST - 1)) await rm(old, { force: true });
  return copy;
}

/** The copies of a file, the newest first. */
export async function listBackups(path: string): Promise<readonly string[]> {
  const folder = dirname(path);
  const start = `${basename(path)}${MARK}`;
  const names = await readdir(folder).catch(() => []);
  const copies = names.filter((name) => name.startsWith(start)).toSorted(compareNewest);
  return copies.map((name) => join(folder, name));
}

/** Those of one second are numbered. */
function compareNewest(a: string, b: string): number {
  return b.localeCompare(a, "en", { numeric: true });
}
