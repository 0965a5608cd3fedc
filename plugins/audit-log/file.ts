import { Buffer } from "node:buffer";
import { constants, type FileHandle, lstat, mkdir, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout } from "node:timers/promises";

/**
 * Flags for opening the log file. Append: hubs that share the file do not overwrite each other. Read: to check the
 * last line. No symbolic links: others who can write to the folder could redirect them. Non-blocking: a FIFO must not
 * block.
 */
const FLAGS =
  constants.O_RDWR |
  constants.O_APPEND |
  constants.O_CREAT |
  constants.O_NOFOLLOW |
  constants.O_NONBLOCK;

/** Age in ms above which a lock is stale: no rotation takes that long, so its hub was killed. */
const STALE_LOCK_AGE = 10_000;

/** Maximum number of bytes that a search reads: the default size of the file and its rotated ones. */
const MAX_SEARCHED = 64 * 1024 * 1024;
const READ_SIZE = 256 * 1024;
/** Maximum length of a line, in bytes. Arguments and result have 64 KiB each, and names are cut. */
const MAX_LINE = 1024 * 1024;

/** Longest pause, in ms, between two parts of a line that another hub is writing. */
const MAX_WRITE_GAP = 10;

const NEWLINE = 0x0a;
const SYMLINK_ERROR = "it is a symbolic link, which is not followed";

export interface FileLimits {
  /** Maximum size of the file, in bytes. A file with a single line may be larger. */
  readonly maxSize: number;
  /** Maximum number of rotated files; `PATH.1` is the newest. */
  readonly keep: number;
}

/**
 * A log file with rotation. Each write opens the file again, because the file may be moved or removed at any time,
 * and because a write may succeed after the previous one failed.
 */
export class LogFile {
  readonly path: string;
  readonly #limits: FileLimits;

  constructor(path: string, limits: FileLimits) {
    this.path = path;
    this.#limits = limits;
  }

  /**
   * Appends lines (without their line ends) in one write: as many as fit, but at least one.
   * @returns how many lines, from the first one on, were written completely
   * @throws {Error} the file system's error
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
      if (codeOf(error) === "ELOOP") throw new Error(SYMLINK_ERROR, { cause: error });
      if (codeOf(error) !== "ENOENT") throw error;
    }
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    return open(this.path, FLAGS, 0o600);
  }

  async #write(handle: FileHandle, lines: readonly string[]): Promise<number> {
    const stats = await handle.stat();
    const isFile = stats.isFile();
    // Devices such as /dev/null are allowed. Pipes are not, because lines in a pipe that nobody reads would be lost.
    if (!isFile && !stats.isCharacterDevice()) throw new Error("it is no file");
    if (isFile && (stats.mode & 0o077) !== 0) await handle.chmod(0o600);
    const { end, isCut } = isFile ? await findEnd(handle) : { end: undefined, isCut: false };
    const room = end === undefined ? Infinity : this.#limits.maxSize - end;
    // If a full disk or a killed hub left the last line incomplete, a line break ends that line first.
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
    const written = await writeBytes(handle, bytes, end);
    const whole = ends.filter((length) => length <= written).length;
    if (whole === 0) throw new Error("it took only a part of a line");
    return whole;
  }

  /**
   * Finds the newest line for which `matches` is true, in this file and the rotated ones. Reads at most
   * `MAX_SEARCHED` bytes.
   * @throws {Error} the file system's error, unless a file is missing
   */
  async findLast(matches: (line: string) => boolean): Promise<string | undefined> {
    let left = MAX_SEARCHED;
    for (let number = 0; number <= this.#limits.keep && left > 0; number++) {
      const path = number === 0 ? this.path : this.#rotatedPath(number);
      let handle: FileHandle;
      try {
        handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
      } catch (error) {
        // After a rotation that was cut off, a number may be missing.
        if (codeOf(error) === "ENOENT") continue;
        throw error;
      }
      try {
        const stats = await handle.stat();
        if (!stats.isFile()) return undefined;
        const line = await findLastLine(handle, stats.size, left, matches);
        if (line !== undefined) return line;
        left -= stats.size;
      } finally {
        await handle.close();
      }
    }
    return undefined;
  }

  /** Whether the line would make the file too large; an empty file has room for any line. */
  async #isFull(line: string): Promise<boolean> {
    try {
      const stats = await lstat(this.path);
      const size = stats.size + Buffer.byteLength(line) + 1;
      return stats.isFile() && stats.size > 0 && size > this.#limits.maxSize;
    } catch {
      // Ignore the error here: opening the file for the write reports it.
      return false;
    }
  }

  /** Rotates the files. If another hub is rotating them, nothing is done. */
  async #rotate(line: string): Promise<void> {
    const lock = `${this.path}.lock`;
    if (!(await acquireLock(lock))) return;
    try {
      // Another hub may have rotated the files before this one got the lock.
      if (!(await this.#isFull(line))) return;
      const { keep } = this.#limits;
      for (let number = keep; number > 1; number--) {
        await renameIfExists(this.#rotatedPath(number - 1), this.#rotatedPath(number));
      }
      if (keep > 0) await renameIfExists(this.path, this.#rotatedPath(1));
      else await rm(this.path, { force: true });
    } finally {
      await rm(lock, { force: true });
    }
  }

  #rotatedPath(number: number): string {
    return `${this.path}.${number}`;
  }
}

/**
 * Finds the last line for which `matches` is true, reading from the end.
 * @param size of the file, in bytes
 * @param limit maximum number of bytes that are read
 */
async function findLastLine(
  handle: FileHandle,
  size: number,
  limit: number,
  matches: (line: string) => boolean,
): Promise<string | undefined> {
  const least = Math.max(0, size - limit);
  let rest = Buffer.alloc(0);
  for (let end = size; end > least;) {
    const start = Math.max(least, end - READ_SIZE);
    const part = Buffer.alloc(end - start);
    const { bytesRead } = await handle.read(part, 0, part.length, start);
    // The file has become shorter: somebody has cut it.
    if (bytesRead < part.length) return undefined;
    const bytes = Buffer.concat([part, rest]);
    // The first line may begin before what was read, unless the file begins here.
    const first = start === 0 ? 0 : bytes.indexOf(NEWLINE) + 1;
    const isWhole = start === 0 || first > 0;
    if (isWhole) {
      const found = bytes.subarray(first).toString().split("\n").findLast(matches);
      if (found !== undefined) return found;
    }
    rest = isWhole ? bytes.subarray(0, first) : bytes;
    if (rest.length > MAX_LINE) return undefined;
    end = start;
  }
  return undefined;
}

/**
 * Writes bytes at the end of the file. Deno does not report a partial write, so after an error the file is read back to
 * find out how much was written. If another hub writes at the same time, a line may be written twice, but none is lost.
 * @param end end of the file before the write, in bytes; undefined if it is not a regular file
 * @returns how many bytes were written
 */
async function writeBytes(
  handle: FileHandle,
  bytes: Buffer,
  end: number | undefined,
): Promise<number> {
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

/**
 * The size of the file in bytes, and whether its last line is incomplete. While the file grows, another hub is still
 * writing the line, so it does not count as incomplete.
 */
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
    await setTimeout(MAX_WRITE_GAP);
  }
}

async function acquireLock(lock: string): Promise<boolean> {
  try {
    const handle = await open(lock, "wx", 0o600);
    await handle.close();
    return true;
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw error;
  }
  const { mtimeMs } = await lstat(lock).catch(() => ({ mtimeMs: Infinity }));
  if (Date.now() - mtimeMs > STALE_LOCK_AGE) await rm(lock, { force: true });
  return false;
}

async function renameIfExists(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
  }
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
