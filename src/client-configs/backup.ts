import { readdir, readFile, realpath, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { writePrivate } from "../base/private-files.ts";
import type { FileBytes } from "../base/read-file.ts";

/** How many backups of one file are kept. */
const MOST = 3;
const MARK = ".toolmux-backup-";

/** A client's file before it is changed. */
export interface Original {
  /** The real path, with symbolic links resolved. */
  readonly path: string;
  /** undefined: the file does not exist. */
  readonly bytes: FileBytes | undefined;
}

/** Reads a file, through the symbolic links that lead to it. */
export async function openOriginal(file: string): Promise<Original> {
  const path = await realpath(file).catch(() => file);
  try {
    return { path, bytes: await readFile(path) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return { path, bytes: undefined };
  }
}

/**
 * Writes a backup beside the file, readable by its owner only, and removes the oldest backups above MAX_BACKUPS.
 * @param now ms since the epoch
 * @returns the backup's path
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

/** The paths of a file's backups, newest first. */
export async function listBackups(path: string): Promise<readonly string[]> {
  const folder = dirname(path);
  const start = `${basename(path)}${MARK}`;
  const names = await readdir(folder).catch(() => []);
  const copies = names.filter((name) => name.startsWith(start)).toSorted(compareNewest);
  return copies.map((name) => join(folder, name));
}

/** Numeric comparison, because backups of the same second have a number at the end. */
function compareNewest(a: string, b: string): number {
  return b.localeCompare(a, "en", { numeric: true });
}
