import { link, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { dirname } from "node:path";
import { HubError } from "../base/errors.ts";
import { ensurePrivateFolder, removeStaleTempFiles, writePrivate } from "../base/private-files.ts";
import { sleep, untilAborted } from "../base/clock.ts";
import { ownerState, ownOwner, parseOwnerTag } from "./orphans.ts";
import { errnoCodeOf } from "./process-table.ts";

/* A lock is a file with the identity of its holder. It is created and removed atomically with its content. */

/** Default maximum wait, in ms. */
const LIMIT = 60_000;
/** Poll interval, in ms: first and maximum. */
const PAUSE = { first: 4, longest: 60 };
/** How often the holder updates the file's modification time, for processes that cannot see it, in ms. */
const BEAT = 2_000;
/** How often the holder's process is looked up, in ms: on some systems that starts a program. */
const LOOK = 250;
/** Default of `FileLockOptions.silence`. */
const SILENCE = 15_000;

/** Callers within this process wait here, without polling the file. */
const queues = new Map<string, Promise<unknown>>();

export interface FileLockOptions {
  /** Maximum wait for other holders, in ms. */
  readonly limit?: number;
  /** After this time without a heartbeat a holder whose process cannot be looked up counts as dead, in ms. */
  readonly silence?: number;
}

/**
 * Runs `work` while no other process holds the lock. The lock of a killed process is taken over at once, or after
 * `HEARTBEAT_TIMEOUT` if its process cannot be looked up from here (another container).
 * @param path of the lock file, which is created, with a private folder for it, and removed at the end
 * @param signal aborts the wait; `work` has to observe it itself
 * @throws {HubError} storeBusy if others hold it for too long, storeBroken if it cannot be created; the signal's
 * reason; what `work` throws
 */
export async function withFileLock<T>(
  path: string,
  signal: AbortSignal,
  work: () => Promise<T>,
  { limit = LIMIT, silence = SILENCE }: FileLockOptions = {},
): Promise<T> {
  const patience = { signal, end: performance.now() + limit, silence };
  const before = queues.get(path) ?? Promise.resolve();
  const turn = before.then(() => hold(path, work, patience));
  const settled = turn.catch(() => {});
  queues.set(path, settled);
  void settled.then(() => queues.get(path) === settled && queues.delete(path));
  return untilAborted(turn, signal);
}

/** `end`: deadline in ms of `performance.now()`; `silence`: heartbeat timeout in ms. */
interface Patience {
  readonly signal: AbortSignal;
  readonly end: number;
  readonly silence: number;
}

async function hold<T>(path: string, work: () => Promise<T>, patience: Patience): Promise<T> {
  const own = await acquire(path, patience).catch((error: unknown) => {
    throw writeErrorOf(dirname(path), error);
  });
  const beat = setInterval(() => void touch(path), BEAT);
  beat.unref();
  try {
    patience.signal.throwIfAborted();
    return await work();
  } finally {
    clearInterval(beat);
    // If this process was suspended for too long another one may have taken the lock over.
    if ((await read(path)) === own) await rm(path, { force: true });
  }
}

/** @returns the content of the lock file; unique for each acquisition */
async function acquire(path: string, patience: Patience): Promise<string> {
  const { signal, end, silence } = patience;
  signal.throwIfAborted();
  const { pid, started, boot, pidNamespace: space } = await ownOwner();
  const own = [pid, started, boot, space, crypto.randomUUID()].join("/");
  const draft = `${path}.${crypto.randomUUID()}.draft`;
  const bytes = new TextEncoder().encode(own);
  await ensurePrivateFolder(dirname(path));
  await writePrivate(draft, bytes);
  try {
    const watch = new Watch(path, silence);
    for (let pause = PAUSE.first; ; pause = Math.min(pause * 2, PAUSE.longest)) {
      if (await place(draft, path, bytes)) return own;
      const dead = await watch.look();
      if (dead !== undefined && (await takeOver(path, dead, draft, patience))) return own;
      signal.throwIfAborted();
      if (performance.now() >= end) throw busy(path);
      // Random, so that waiting processes do not poll at the same moment.
      await sleep(pause * (0.5 + Math.random()));
    }
  } finally {
    await rm(draft, { force: true });
  }
}

/** @returns whether the lock was created; false if it is held */
async function place(draft: string, path: string, bytes: Uint8Array): Promise<boolean> {
  try {
    await link(draft, path).catch((error: unknown) => {
      if (!LINKLESS.has(errnoCodeOf(error))) throw error;
      // Not atomic: for a moment the file is empty, which others read as a holder that cannot be looked up.
      return writePrivate(path, bytes);
    });
    return true;
  } catch (error) {
    if (errnoCodeOf(error) === "EEXIST") return false;
    throw error;
  }
}

/** Error codes of file systems without hard links. */
const LINKLESS = new Set(["EPERM", "EACCES", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

/**
 * Replaces the lock of a dead holder. Only one process may do that for each dead holder, and only while its lock is
 * still there: otherwise two could, and the second would remove the first one's new lock.
 */
async function takeOver(
  path: string,
  dead: string,
  draft: string,
  patience: Patience,
): Promise<boolean> {
  const over = `${path}.${dead.slice(dead.lastIndexOf("/") + 1)}`;
  const own = await acquire(over, patience);
  try {
    if ((await read(path)) !== dead) return false;
    await rename(draft, path);
    // A killed process may have left a temporary file.
    await removeStaleTempFiles(dirname(path), Date.now()).catch(() => {});
    return true;
  } finally {
    if ((await read(over)) === own) await rm(over, { force: true });
  }
}

/** Monitors the holder of a lock. */
class Watch {
  readonly #path: string;
  readonly #silence: number;
  /** The last observed content and modification time, and when they changed, in ms of `performance.now()`. */
  #seen = "";
  #since = 0;
  /** The holder whose process was alive at the last look-up, and when the next one is due, in ms. */
  #running = "";
  #due = 0;

  constructor(path: string, silence: number) {
    this.#path = path;
    this.#silence = silence;
  }

  /** @returns the content of the lock file if its holder is dead */
  async look(): Promise<string | undefined> {
    const holder = await read(this.#path);
    const now = performance.now();
    if (holder === undefined || (holder === this.#running && now < this.#due)) return undefined;
    const owner = parseOwnerTag(holder);
    const verdict = owner === undefined ? "unknown" : await ownerState(owner);
    this.#running = verdict === "runs" ? holder : "";
    this.#due = now + LOOK;
    if (verdict !== "unknown") return verdict === "ended" ? holder : undefined;
    const touched = await stat(this.#path).then(
      ({ mtimeMs }) => mtimeMs,
      () => 0,
    );
    const seen = `${holder} ${touched}`;
    // Monotonic time: a change of the system clock must not make a holder look dead.
    if (seen !== this.#seen) this.#since = now;
    this.#seen = seen;
    return now - this.#since >= this.#silence ? holder : undefined;
  }
}

/** @returns undefined if there is no file, or it is not readable */
async function read(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(() => undefined);
}

async function touch(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now).catch(() => {});
}

/** Converts a file system error into one that names the folder; returns other errors unchanged. */
export function writeErrorOf(folder: string, error: unknown): unknown {
  if (!/^E[A-Z]+$/.test(errnoCodeOf(error))) return error;
  const [why = ""] = (error as Error).message.split(",", 1);
  const text = `Nothing can be kept in ${folder} (${why}): it has to be a folder that this user can write to, on a disk that has room.`;
  return new HubError("storeBroken", text, { cause: error });
}

function busy(path: string): HubError {
  const text = `Another process has held a lock for too long; if none of toolmux runs, remove ${path}.`;
  return new HubError("storeBusy", text);
}
