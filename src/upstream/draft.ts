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
  utimes,
} from "node:fs/promises";
import { basename, dirname, join } from "node:path";

type Bytes = Uint8Array<ArrayBuffer>;

/** Nothing is followed, and nothing that is no file can block. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const SUFFIX = ".draft";
/** Nobody writes for longer, in ms: what is older was left behind by a process that ended. */
const MAX_DRAFT_AGE = 10 * 60 * 1000;

/** Makes a folder that only its owner can look into. */
export async function makePrivate(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await chmod(folder, 0o700);
}

/** The content of a regular file of at most `maxLength` bytes, which from then on only its owner can read; undefined for everything else. Never rejects. */
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
      const bytes = Buffer.allocUnsafe(stats.size);
      const { bytesRead } = await handle.read(bytes, 0, stats.size, 0);
      return bytesRead === stats.size ? bytes : undefined;
    } finally {
      await handle.close();
    }
  } catch {
    return undefined;
  }
}
