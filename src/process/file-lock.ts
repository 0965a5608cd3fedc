import { link, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { dirname } from "node:path";
import { HubError } from "../base/errors.ts";
import { ensurePrivateFolder, removeStaleTempFiles, writePrivate } from "../base/private-files.ts";
import { sleep, abortable } from "../base/clock.ts";
import { ownerState, currentOwner, parseOwnerTag } from "./orphans.ts";
import { errnoCodeOf } from "./process-table.ts";

/* A file lock: a file with the identity of its holder. It is created and removed atomically with its content. */

/** Default maximum wait, in ms. */
const WAIT_TIMEOUT = 60_000;
/** Interval in ms at which the lock is polled: it grows from `first` to `max`. */
const POLL_DELAY = { first: 4, max: 60 };
/**
 * How often the holder updates the modification time of the lock file, in ms. A process that cannot look up the
 * holder's process sees by this heartbeat that the holder is alive.
 */
const HEARTBEAT_INTERVAL = 2_000;
/** Interval in ms at which the holder's process is looked up: on some systems, a look-up starts a program. */
const PROCESS_CHECK_INTERVAL = 250;
/** Default of `FileLockOptions.heartbeatTimeout`. */
const HEARTBEAT_TIMEOUT = 15_000;

/** Settles when all callers in this process have had their turns, by path of the lock file. The next caller waits for it. */
const queues = new Map<string, Promise<unknown>>();

export interface FileLockOptions {
  /** Maximum wait for other holders, in this process and in others, in ms. */
  readonly waitTimeout?: number;
  /** Time without a heartbeat, in ms, after which a holder whose process cannot be looked up counts as dead. */
  readonly heartbeatTimeout?: number;
}

/**
 * Runs `work` while no other process holds the lock. The lock of a killed process is taken over at once, or after
 * `HEARTBEAT_TIMEOUT` if the process cannot be looked up from here, because it was in another container.
 * @param path the lock file, which is created, in a private folder, and removed at the end
 * @param signal aborts the wait; `work` has to observe the signal itself
 * @throws {HubError} storeBusy if others hold the lock for too long, storeBroken if it cannot be created; the signal's
 * reason; what `work` throws
 */
export async function withFileLock<T>(
  path: string,
  signal: AbortSignal,
  work: () => Promise<T>,
  { waitTimeout = WAIT_TIMEOUT, heartbeatTimeout = HEARTBEAT_TIMEOUT }: FileLockOptions = {},
): Promise<T> {
  const wait = { signal, deadline: performance.now() + waitTimeout, heartbeatTimeout };
  const previous = queues.get(path) ?? Promise.resolve();
  const turn = waitInQueue(path, previous, wait).then(() => runLocked(path, work, wait));
  // A caller that has given up leaves its place to those behind it, who wait for the same holder.
  const settled = Promise.allSettled([previous, turn]);
  queues.set(path, settled);
  void settled.then(() => queues.get(path) === settled && queues.delete(path));
  return abortable(turn, signal);
}

/** `deadline`: in ms of `performance.now()`; `heartbeatTimeout`: in ms. */
interface WaitOptions {
  readonly signal: AbortSignal;
  readonly deadline: number;
  readonly heartbeatTimeout: number;
}

/** Waits for the earlier callers in this process. @throws {HubError} storeBusy after the deadline */
async function waitInQueue(
  path: string,
  previous: Promise<unknown>,
  { deadline }: WaitOptions,
): Promise<void> {
  const late = Promise.withResolvers<never>();
  // Also with a deadline that is over, the queue counts as free if its last caller has ended in this turn of the loop.
  const timer = setTimeout(
    () => late.reject(busyError(path)),
    Math.max(0, deadline - performance.now()),
  );
  try {
    await Promise.race([previous, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

async function runLocked<T>(path: string, work: () => Promise<T>, wait: WaitOptions): Promise<T> {
  const content = await acquire(path, wait).catch((error: unknown) => {
    throw writeErrorOf(dirname(path), error);
  });
  const heartbeat = setInterval(() => void updateModificationTime(path), HEARTBEAT_INTERVAL);
  heartbeat.unref();
  try {
    wait.signal.throwIfAborted();
    return await work();
  } finally {
    clearInterval(heartbeat);
    // If this process was suspended for too long, another one may have taken the lock over. The lock file then has
    // other content and is not removed.
    if ((await readHolder(path)) === content) await rm(path, { force: true });
  }
}

/** Waits for the lock and creates its file. @returns the content of the file; unique for each acquisition */
async function acquire(path: string, wait: WaitOptions): Promise<string> {
  const { signal, deadline, heartbeatTimeout } = wait;
  signal.throwIfAborted();
  const { pid, started, boot, pidNamespace } = await currentOwner();
  const content = [pid, started, boot, pidNamespace, crypto.randomUUID()].join("/");
  const tempPath = `${path}.${crypto.randomUUID()}.draft`;
  const bytes = new TextEncoder().encode(content);
  await ensurePrivateFolder(dirname(path));
  await writePrivate(tempPath, bytes);
  try {
    const monitor = new HolderMonitor(path, heartbeatTimeout);
    for (let delay = POLL_DELAY.first; ; delay = Math.min(delay * 2, POLL_DELAY.max)) {
      if (await createLock(tempPath, path, bytes)) return content;
      const deadHolder = await monitor.findDeadHolder();
      if (deadHolder !== undefined && (await takeOver(path, deadHolder, tempPath, wait)))
        return content;
      signal.throwIfAborted();
      if (performance.now() >= deadline) throw busyError(path);
      // Random, so that waiting processes do not poll at the same time.
      await sleep(delay * (0.5 + Math.random()));
    }
  } finally {
    await rm(tempPath, { force: true });
  }
}

/** @returns whether the lock was created; false if it is held */
async function createLock(tempPath: string, path: string, bytes: Uint8Array): Promise<boolean> {
  try {
    await link(tempPath, path).catch((error: unknown) => {
      if (!NO_HARD_LINK_CODES.has(errnoCodeOf(error))) throw error;
      // Not atomic: for a moment the file is empty, and other processes take it for the lock of a holder that cannot be
      // looked up.
      return writePrivate(path, bytes);
    });
    return true;
  } catch (error) {
    if (errnoCodeOf(error) === "EEXIST") return false;
    throw error;
  }
}

/** Error codes of file systems without hard links. */
const NO_HARD_LINK_CODES = new Set([
  "EPERM",
  "EACCES",
  "ENOTSUP",
  "EOPNOTSUPP",
  "ENOSYS",
  "EMLINK",
]);

/**
 * Replaces the lock of a dead holder. Only one process may do that per dead holder, and only while its lock is still
 * there: otherwise a second process would remove the first one's new lock.
 */
async function takeOver(
  path: string,
  deadHolder: string,
  tempPath: string,
  wait: WaitOptions,
): Promise<boolean> {
  const takeoverPath = `${path}.${deadHolder.slice(deadHolder.lastIndexOf("/") + 1)}`;
  const content = await acquire(takeoverPath, wait);
  try {
    if ((await readHolder(path)) !== deadHolder) return false;
    await rename(tempPath, path);
    // A killed process may have left a temporary file.
    await removeStaleTempFiles(dirname(path), Date.now()).catch(() => {});
    return true;
  } finally {
    if ((await readHolder(takeoverPath)) === content) await rm(takeoverPath, { force: true });
  }
}

/** Finds out whether the holder of a lock is dead. */
class HolderMonitor {
  readonly #path: string;
  readonly #heartbeatTimeout: number;
  /**
   * The last observed content and modification time of the file, and when they last changed, in ms of
   * `performance.now()`.
   */
  #lastObserved = "";
  #lastChange = 0;
  /** The holder, if it was alive at the last look-up, and the next look-up's time, in ms of `performance.now()`. */
  #aliveHolder = "";
  #nextCheck = 0;

  constructor(path: string, heartbeatTimeout: number) {
    this.#path = path;
    this.#heartbeatTimeout = heartbeatTimeout;
  }

  /** @returns the content of the lock file if its holder is dead */
  async findDeadHolder(): Promise<string | undefined> {
    const holder = await readHolder(this.#path);
    const now = performance.now();
    if (holder === undefined || (holder === this.#aliveHolder && now < this.#nextCheck))
      return undefined;
    const owner = parseOwnerTag(holder);
    const state = owner === undefined ? "unknown" : await ownerState(owner);
    this.#aliveHolder = state === "runs" ? holder : "";
    this.#nextCheck = now + PROCESS_CHECK_INTERVAL;
    if (state !== "unknown") return state === "ended" ? holder : undefined;
    const modifiedAt = await stat(this.#path).then(
      ({ mtimeMs }) => mtimeMs,
      () => 0,
    );
    const observed = `${holder} ${modifiedAt}`;
    // `now` is monotonic time: with it, a change of the system clock cannot make a holder look dead.
    if (observed !== this.#lastObserved) this.#lastChange = now;
    this.#lastObserved = observed;
    return now - this.#lastChange >= this.#heartbeatTimeout ? holder : undefined;
  }
}

/** @returns the content of the lock file; undefined if there is no file, or it is not readable */
async function readHolder(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(() => undefined);
}

async function updateModificationTime(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now).catch(() => {});
}

/** Converts a file system error into one that names the folder; returns other errors unchanged. */
export function writeErrorOf(folder: string, error: unknown): unknown {
  if (!/^E[A-Z]+$/.test(errnoCodeOf(error))) return error;
  const [reason = ""] = (error as Error).message.split(",", 1);
  const text = `Cannot write to ${folder} (${reason}): it must be a folder that this user can write to, on a disk with free space.`;
  return new HubError("storeBroken", text, { cause: error });
}

function busyError(path: string): HubError {
  const text = `A lock was held for too long; if no toolmux is running, remove ${path}.`;
  return new HubError("storeBusy", text);
}
