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

/** Links are not followed, and what is no file cannot block. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** How the name of a draft ends, whatever it is a draft of. */
const DRAFT = /\.[0-9a-f-]{36}\.draft$/;
/** In ms. Nobody writes for that long: an older draft is one whose writer ended. */
export const MAX_DRAFT_AGE = 10 * 60 * 1000;

/** Makes a folder that only its owner can look into; one that others could look into becomes private. */
export async function makePrivateFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const { mode } = await stat(folder);
  if ((mode & 0o077) !== 0) await chmod(folder, 0o700);
}

/** Reads a regular file of at most `maxLength` bytes; what others could read becomes private. undefined for everything else. Never rejects. */
export async function readPrivate(
  path: string,
  maxLength: number,
): Promise<Buffer<ArrayBuffer> | undefined> {
  try {
    const handle = await open(path, FLAGS);
    try {
      const stats = await handle.stat();
      if (!stats.isFile() || stats.size > maxLength) return undefined;
      if ((stats.mode & 0o077) !== 0) await handle.chmod(0o600);
      const bytes = Buffer.alloc(stats.size);
      const { bytesRead } = await handle.read(bytes, 0, stats.size, 0);
      return bytesRead === stats.size ? bytes : undefined;
    } finally {
      await handle.close();
    }
  } catch {
    return undefined;
  }
}

/**
 * Writes a new file that only its owner can read, safely on disk.
 * @throws {Error} of the file system; EEXIST if there is something of that name.
 */
export async function writePrivate(path: string, bytes: Uint8Array): Promise<void> {
  const handle = await open(path, "wx", 0o600);
  try {
    await handle.writeFile(bytes);
    await handle.sync();
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
}

/** Puts a file in the place of whatever has that path: readers see all of the old or all of the new one. */
export async function replaceBy(draft: string, path: string): Promise<void> {
  try {
    await rename(draft, path);
  } catch (error) {
    // No rename replaces a folder; whatever else goes wrong must not cost what is there.
    const isFolder = await lstat(path).then(
      (stats) => stats.isDirectory(),
      () => false,
    );
    if (!isFolder) throw error;
    await rm(path, { recursive: true, force: true });
    await rename(draft, path);
  }
}

/**
 * Writes a file anew that only its owner can read, whole or not at all.
 * @param changedAt what the file says of when it was written, in ms since the epoch; by default the truth.
 */
export async function rewritePrivate(
  path: string,
  bytes: Uint8Array,
  changedAt?: number,
): Promise<void> {
  const draft = `${path}.${crypto.randomUUID()}.draft`;
  await writePrivate(draft, bytes);
  try {
    if (changedAt !== undefined) await utimes(draft, new Date(changedAt), new Date(changedAt));
    await replaceBy(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/** Whether a path is that of a draft. */
export function isDraft(path: string): boolean {
  return DRAFT.test(path);
}

/** Removes the drafts in a folder that nobody is writing any more. `now` is in ms since the epoch. */
export async function removeDrafts(folder: string, now: number): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!DRAFT.test(name)) continue;
    const path = join(folder, name);
    const written = await lstat(path).then(
      (stats) => stats.mtimeMs,
      () => now,
    );
    if (now - written > MAX_DRAFT_AGE) await rm(path, { force: true });
  }
}
