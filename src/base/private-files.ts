import { Buffer } from "node:buffer";
import {
  chmod,
  constants,
  lstat,
  mkdir,
  open,
  readdir,
  rename,
  rm,
  stat,
  utimes,
} from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";

/** The flags for opening a file to read: symbolic links are not followed, and pipes and devices do not block. */
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** Matches the suffix that all temporary files have, whichever file they will replace. */
const TEMP_FILE_SUFFIX = /\.[0-9a-f-]{36}\.draft$/;
/**
 * Maximum age, in ms, of a temporary file that is still being written. No write takes that long, so the process that
 * wrote an older file has ended.
 */
export const MAX_TEMP_FILE_AGE = 10 * 60 * 1000;

/** Makes a folder that only its owner can access; from an existing folder, removes other users' permissions. */
export async function ensurePrivateFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const { mode } = await stat(folder);
  if ((mode & 0o077) !== 0) await chmod(folder, 0o700);
}

/**
 * Reads a regular file of at most `maxLength` bytes, and removes other users' permissions from it. Returns undefined
 * if the path is anything else, or if reading fails. Never rejects. Reads synchronously: the first use of the
 * asynchronous file API starts threads, and each of its operations waits for one, which delays the answer to the first
 * client by more than reading takes.
 */
export function readPrivate(
  path: string,
  maxLength: number,
): Promise<Buffer<ArrayBuffer> | undefined> {
  return Promise.resolve(readPrivateSync(path, maxLength));
}

function readPrivateSync(path: string, maxLength: number): Buffer<ArrayBuffer> | undefined {
  const { closeSync, fchmodSync, fstatSync, openSync, readSync } =
    process.getBuiltinModule("node:fs");
  try {
    const descriptor = openSync(path, OPEN_FLAGS);
    try {
      const stats = fstatSync(descriptor);
      if (!stats.isFile() || stats.size > maxLength) return undefined;
      if ((stats.mode & 0o077) !== 0) fchmodSync(descriptor, 0o600);
      const bytes = Buffer.alloc(stats.size);
      return readSync(descriptor, bytes, 0, stats.size, 0) === stats.size ? bytes : undefined;
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return undefined;
  }
}

/**
 * Writes a new file with mode 0600.
 * @param isSynced whether the file is on the disk when the promise resolves, which takes long on a busy disk. Otherwise,
 * the file may be empty after a power failure.
 * @throws {Error} of the file system; EEXIST if the path exists
 */
export async function writePrivate(
  path: string,
  bytes: Uint8Array,
  isSynced = true,
): Promise<void> {
  const handle = await open(path, "wx", 0o600);
  try {
    await handle.writeFile(bytes);
    if (isSynced) await handle.sync();
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
}

/** Renames a temporary file over a path atomically: readers see all of the old file or all of the new one. */
export async function replaceFromTemp(tempPath: string, path: string): Promise<void> {
  try {
    await rename(tempPath, path);
  } catch (error) {
    // A rename cannot replace a folder, so a folder is removed first. After any other error, the path stays as it is.
    const isFolder = await lstat(path).then(
      (stats) => stats.isDirectory(),
      () => false,
    );
    if (!isFolder) throw error;
    await rm(path, { recursive: true, force: true });
    await rename(tempPath, path);
  }
}

/**
 * Replaces a file atomically by a new file with mode 0600.
 * @param changedAt the file's modification time, in ms since the epoch; default: now
 * @param isSynced as for `writePrivate`
 */
export async function replacePrivate(
  path: string,
  bytes: Uint8Array,
  { changedAt, isSynced }: { readonly changedAt?: number; readonly isSynced?: boolean } = {},
): Promise<void> {
  const tempPath = `${path}.${crypto.randomUUID()}.draft`;
  await writePrivate(tempPath, bytes, isSynced);
  try {
    if (changedAt !== undefined) await utimes(tempPath, new Date(changedAt), new Date(changedAt));
    await replaceFromTemp(tempPath, path);
  } catch (error) {
    await rm(tempPath, { force: true });
    throw error;
  }
}

export function isTempFile(path: string): boolean {
  return TEMP_FILE_SUFFIX.test(path);
}

/** Removes temporary files older than MAX_TEMP_FILE_AGE from a folder. `now` is in ms since the epoch. */
export async function removeStaleTempFiles(folder: string, now: number): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!TEMP_FILE_SUFFIX.test(name)) continue;
    const path = join(folder, name);
    const written = await lstat(path).then(
      (stats) => stats.mtimeMs,
      () => now,
    );
    if (now - written > MAX_TEMP_FILE_AGE) await rm(path, { force: true });
  }
}
