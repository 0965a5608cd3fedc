import { readdir, readFile, realpath, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { writePrivate } from "../base/private-files.ts";
import type { FileBytes } from "../base/read-file.ts";

/** How many backups of one file are kept. */
const MAX_BACKUPS = 3;
const BACKUP_INFIX = ".toolmux-backup-";

/** A client's file before it is changed. */
export interface OriginalFile {
  /** The real path, with symbolic links resolved. */
  readonly path: string;
  /** undefined: the file does not exist. */
  readonly bytes: FileBytes | undefined;
}

/** Reads a file, through the symbolic links that lead to it. */
export async function openOriginal(file: string): Promise<OriginalFile> {
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
export async function writeBackup({ path, bytes }: OriginalFile, now: number): Promise<string> {
  const time = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "");
  const existing = await listBackups(path);
  let backup = `${path}${BACKUP_INFIX}${time}`;
  for (let number = 2; existing.includes(backup); number++)
    backup = `${path}${BACKUP_INFIX}${time}-${number}`;
  await writePrivate(backup, bytes ?? new Uint8Array());
  for (const old of existing.slice(MAX_BACKUPS - 1)) await rm(old, { force: true });
  return backup;
}

/** The paths of a file's backups, newest first. */
export async function listBackups(path: string): Promise<readonly string[]> {
  const folder = dirname(path);
  const start = `${basename(path)}${BACKUP_INFIX}`;
  const names = await readdir(folder).catch(() => []);
  const copies = names.filter((name) => name.startsWith(start)).toSorted(compareNewest);
  return copies.map((name) => join(folder, name));
}

/** Numeric comparison, because backups of the same second have a number at the end. */
function compareNewest(a: string, b: string): number {
  return b.localeCompare(a, "en", { numeric: true });
}
