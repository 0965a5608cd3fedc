import { Buffer } from "node:buffer";
import { constants, type FileHandle, lstat, mkdir, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout } from "node:timers/promises";

/**
 * Appending, so that hubs that share a file add to it and never write over each other; reading, to see how it ends. Links
 * are not followed, as whoever may write to the folder could lead them anywhere; and what is no file cannot block.
 */
const FLAGS =
  constants.O_RDWR |
  constants.O_APPEND |
  constants.O_CREAT |
  constants.O_NOFOLLOW |
  constants.O_NONBLOCK;

/** Nobody rotates for so long, in ms: an older lock is one whose hub was killed. */
const OLDEST_LOCK = 10_000;

/** Nobody takes so long from one part of a write to the next, in ms. */
const SETTLING = 10;

const NEWLINE = 0x0a;
const LINK = "it is a symbolic link, which is not followed";

export interface FileLimits {
  /** In bytes; a file is longer only if one line is. */
  readonly maxSize: number;
  /** How many old files there may be: `PATH.1` is the newest. */
  readonly keep: number;
}

/**
 * A file of lines, and the old ones beside it. It is opened anew for each write: who moves or removes it needs to tell
 * nobody, and what was wrong with it may be right the next time.
 */
export class LogFile {
  readonly path: string;
  readonly #limits: FileLimits;

  constructor(path: string, limits: FileLimits) {
    this.path = path;
    this.#limits = limits;
  }

  /**
   * Appends lines, given without line ends, in one write; as many as there is room for, at least one.
   * @returns how many are in the file now, from the first one on
   * @throws {Error} of the file system; what it had begun to write is not counted
   */
  async append(lines: readonly string[]): Promise<number> {
    const [first] = lines;
    if (first === undefined) return 0;
    if (await this.#isFull(first)) await this.#rotate(first);
    const handle = await this.#open();
    try {
      return await this.#write(handle, lines);
    } finally {
      await handle.close();
    }
  }

  async #open(): Promise<FileHandle> {
    try {
      return await open(this.path, FLAGS, 0o600);
    } catch (error) {
      if (codeOf(error) === "ELOOP") throw new Error(LINK, { cause: error });
      if (codeOf(error) !== "ENOENT") throw error;
    }
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    return open(this.path, FLAGS, 0o600);
  }

  async #write(handle: FileHandle, lines: readonly string[]): Promise<number> {
    const stats = await handle.stat();
    const isFile = stats.isFile();
    // /dev/null is as good as a file; a pipe would lose what nobody reads.
    if (!isFile && !stats.isCharacterDevice()) throw new Error("it is no file");
    if (isFile && (stats.mode & 0o077) !== 0) await handle.chmod(0o600);
    const { end, isCut } = isFile ? await findEnd(handle) : { end: undefined, isCut: false };
    const room = end === undefined ? Infinity : this.#limits.maxSize - end;
    // A line that a full disk or the end of a hub has cut off must not run into the next one.
    const parts = [isCut ? "\n" : ""];
    const ends: number[] = [];
    let size = parts.join("").length;
    for (const line of lines) {
      size += Buffer.byteLength(line) + 1;
      if (size > room && ends.length > 0) break;
      parts.push(line, "\n");
      ends.push(size);
    }
    const bytes = Buffer.from(parts.join(""));
    const written = await write(handle, bytes, end);
    const whole = ends.filter((length) => length <= written).length;
    if (whole === 0) throw new Error("it took only a part of a line");
    return whole;
  }

  /** Whether a line is one too many; one that is alone never is. */
  async #isFull(line: string): Promise<boolean> {
    try {
      const stats = await lstat(this.path);
      const size = stats.size + Buffer.byteLength(line) + 1;
      return stats.isFile() && stats.size > 0 && size > this.#limits.maxSize;
    } catch {
      // What is wrong shows when it is opened.
      return false;
    }
  }

  /** Makes place for a new file. Another hub that is about to do the same is left to do it. */
  async #rotate(line: string): Promise<void> {
    const lock = `${this.path}.lock`;
    if (!(await take(lock))) return;
    try {
      // Another hub may just have done it.
      if (!(await this.#isFull(line))) return;
      const { keep } = this.#limits;
      for (let number = keep; number > 1; number--) {
        await move(this.#old(number - 1), this.#old(number));
      }
      if (keep > 0) await move(this.path, this.#old(1));
      else await rm(this.path, { force: true });
    } finally {
      await rm(lock, { force: true });
    }
  }

  #old(number: number): string {
    return `${this.path}.${number}`;
  }
}

/**
 * @param end of the file before, in bytes; undefined if it is none
 * @returns how many bytes are in it now. Deno does not tell when it fails in the middle, so they are looked for: a line may
 * be there twice if other hubs write at that moment, but none is lost.
 */
async function write(handle: FileHandle, bytes: Buffer, end: number | undefined): Promise<number> {
  try {
    const { bytesWritten } = await handle.write(bytes, 0, bytes.length, null);
    return bytesWritten;
  } catch (error) {
    if (end === undefined) throw error;
    const found = Buffer.alloc(bytes.length);
    const { bytesRead } = await handle.read(found, 0, found.length, end);
    const same = bytes.findIndex((byte, i) => i >= bytesRead || byte !== found[i]);
    if (same === 0) throw error;
    return same === -1 ? bytes.length : same;
  }
}

/** Where a file ends, in bytes, and whether that is in the middle of a line. While another hub writes it may look so: then it grows. */
async function findEnd(handle: FileHandle): Promise<{ end: number; isCut: boolean }> {
  const last = Buffer.alloc(1);
  let before = -1;
  for (;;) {
    const { size: end } = await handle.stat();
    if (end === 0) return { end, isCut: false };
    await handle.read(last, 0, 1, end - 1);
    if (last[0] === NEWLINE) return { end, isCut: false };
    if (end === before) return { end, isCut: true };
    before = end;
    await setTimeout(SETTLING);
  }
}

/** @returns whether this is now who has the lock. */
async function take(lock: string): Promise<boolean> {
  try {
    const handle = await open(lock, "wx", 0o600);
    await handle.close();
    return true;
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw error;
  }
  const { mtimeMs } = await lstat(lock).catch(() => ({ mtimeMs: Infinity }));
  if (Date.now() - mtimeMs > OLDEST_LOCK) await rm(lock, { force: true });
  return false;
}

/** Renames what is there, if anything is. */
async function move(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
  }
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
