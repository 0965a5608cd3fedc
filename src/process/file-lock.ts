import { link, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { dirname } from "node:path";
import { HubError } from "../base/errors.ts";
import { ensurePrivateFolder, removeStaleTempFiles, writePrivate } from "../base/private-files.ts";
import { sleep, untilAborted } from "../base/clock.ts";
import { ownerState, ownOwner, parseOwnerTag } from "./orphans.ts";
import { errnoCodeOf } from "./process-table.ts";

/* A lock is a file that says whose it is: it comes and goes as a whole, so nobody ever sees half of it. */

/** How long others are waited for, in ms. */
const LIMIT = 60_000;
/** Between two looks, in ms: the first, and the longest. */
const PAUSE = { first: 4, longest: 60 };
/** How often a holder shows that it lives, in ms, to those who cannot see its process. */
const BEAT = 2_000;
/** How often a holder's process is looked for, in ms: some systems start a program for that. */
const LOOK = 250;
/** As `LockOptions.silence`. */
const SILENCE = 15_000;

/** Those of this process take turns without a look at the file. */
const queues = new Map<string, Promise<unknown>>();

export interface FileLockOptions {
  /** How long others are waited for, in ms. */
  readonly limit?: number;
  /** After how long a holder that cannot be seen and shows nothing counts as dead, in ms. */
  readonly silence?: number;
}

/**
 * Does something while no other process does anything under the same lock. One that was killed holds none: its lock is
 * taken over at once, or after `SILENCE` if it ran where this process cannot look (another container).
 * @param path of the lock's file, which is made, with a private folder for it, and goes in the end
 * @param signal gives up waiting; `work` has to look at it itself
 * @throws {HubError} storeBusy if others hold it for too long, storeBroken if it cannot be made; the signal's reason; what
 * `work` throws
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

/** `end` is of the process's own clock, `silence` in ms. */
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
    // Another has taken it over if this process stood still for too long where that one could not see it.
    if ((await read(path)) === own) await rm(path, { force: true });
  }
}

/** @returns what the lock says of its holder now: another text each time */
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
      // Many who wait must not all look at the same moment.
      await sleep(pause * (0.5 + Math.random()));
    }
  } finally {
    await rm(draft, { force: true });
  }
}

/** @returns whether there was none */
async function place(draft: string, path: string, bytes: Uint8Array): Promise<boolean> {
  try {
    await link(draft, path).catch((error: unknown) => {
      if (!LINKLESS.has(errnoCodeOf(error))) throw error;
      // For a moment it is there and says nothing: as of a holder that cannot be seen.
      return writePrivate(path, bytes);
    });
    return true;
  } catch (error) {
    if (errnoCodeOf(error) === "EEXIST") return false;
    throw error;
  }
}

/** What file systems say that have no links. */
const LINKLESS = new Set(["EPERM", "EACCES", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

/**
 * Puts the own lock in the place of a dead holder's. Only one may do that at a time for each dead holder, and only while
 * its lock is still there: else two could, and the second would remove what the first has just got.
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
    // Who was killed may have left one.
    await removeStaleTempFiles(dirname(path), Date.now()).catch(() => {});
    return true;
  } finally {
    if ((await read(over)) === own) await rm(over, { force: true });
  }
}

/** Looks after a holder. */
class Watch {
  readonly #path: string;
  readonly #silence: number;
  /** What was seen of it last, and when, in ms. */
  #seen = "";
  #since = 0;
  /** The one whose process ran when it was last looked for, and when that is to be done again, in ms. */
  #running = "";
  #due = 0;

  constructor(path: string, silence: number) {
    this.#path = path;
    this.#silence = silence;
  }

  /** @returns what the lock says if its holder is dead */
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
    // Not the time of day: a clock that jumps must not make anybody dead.
    if (seen !== this.#seen) this.#since = now;
    this.#seen = seen;
    return now - this.#since >= this.#silence ? holder : undefined;
  }
}

/** @returns undefined if there is none, or it cannot be read */
async function read(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(() => undefined);
}

async function touch(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now).catch(() => {});
}

/** What the file system says against writing to a folder, as an error that says where; anything else as it is. */
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
