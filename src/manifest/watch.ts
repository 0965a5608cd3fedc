import { createHash } from "node:crypto";
import { stat } from "node:fs/promises";
import { type Clock, systemClock } from "../base/clock.ts";
import { readFileLimited } from "../base/read-file.ts";
import { listDependencies, type LoadedManifest, loadManifest, type LoadOptions } from "./load.ts";
import { SERVERS_VARIABLE } from "./manifest.ts";

/**
 * The interval between two checks of the files' metadata, in ms. Together with `QUIET_TIME`, it ensures that a change
 * is reported within 2 s. Measurements: docs/decisions/watching-manifests.md.
 */
const POLL_INTERVAL = 1900;
/** The files are read once they have not changed for this time, in ms, so that no half-written file is read. */
const QUIET_TIME = 100;
/** The longest wait for files that keep changing, in ms. */
const MAX_WAIT = 1000;
/**
 * The interval between two readings of files that seem unchanged, in ms. Reading finds a second write that changes
 * neither the size nor, within the file system's resolution, the timestamps.
 */
const READ_INTERVAL = 30_000;
/** The size up to which the content of a file is compared, in bytes: more than that of any file that is loaded. */
const MAX_COMPARED = 64 * 1024 * 1024;
/** How long an empty file is assumed to be still being written, in ms. */
const WRITE_GRACE = 1000;

export interface WatchOptions {
  /** The fingerprint of the manifest that is already loaded; that manifest is not reported again. */
  readonly fingerprint: string;
  /** Called with each newly loaded manifest that differs from the previous one. */
  onLoad(result: LoadedManifest): void;
  readonly clock?: Clock;
}

export interface ManifestWatcher {
  /**
   * Reads the files at once. Settles when they have been read and a changed manifest has been reported, or when the
   * watcher is closed.
   */
  check(): Promise<void>;
  close(): void;
}

/**
 * Watches all files that a manifest is or could be loaded from, its plugins' files and the trust store, and reloads it
 * after changes of these files or of symbolic links to them. Changes between the load of `fingerprint` and this call
 * are noticed, too. Does not keep the process alive.
 */
export function watchManifest(options: LoadOptions, watchOptions: WatchOptions): ManifestWatcher {
  return new PollingWatcher(options, watchOptions);
}

class PollingWatcher implements ManifestWatcher {
  readonly #options: LoadOptions;
  readonly #watchOptions: WatchOptions;
  readonly #clock: Clock;
  /** The fingerprint of the manifest reported last. */
  #fingerprint: string;
  /** A manifest that is not reported yet, because a file may still be being written; `since`: in ms of the clock. */
  #heldBack: { readonly fingerprint: string; readonly since: number } | undefined;
  /** The plugins' files at the last load. */
  #dependentFiles: readonly string[] = [];
  /**
   * The paths that were checked last, the result of `identify` for them, and a digest of what was in the files when they
   * were loaded; undefined before the first loading.
   */
  #seen:
    | { readonly paths: readonly string[]; readonly identity: string; readonly digest: string }
    | undefined;
  /**
   * The time when the first change after the last reading was noticed, in ms of the clock; undefined if there was
   * none.
   */
  #changedAt: number | undefined;
  /** The time when the files are read even if no file seems to have changed, in ms of the clock. */
  #readAt = 0;
  #isPolling = false;
  /** Whether to read the files without waiting for `QUIET_TIME`. */
  #isCheckWanted = false;
  /** The pending calls of `check`; they settle when the next reading is done. */
  #waiting: PromiseWithResolvers<void>[] = [];
  #cancelTimer = (): void => {};
  #isClosed = false;

  constructor(options: LoadOptions, watchOptions: WatchOptions) {
    this.#options = options;
    this.#watchOptions = watchOptions;
    this.#clock = watchOptions.clock ?? systemClock;
    this.#fingerprint = watchOptions.fingerprint;
    this.#schedule(QUIET_TIME);
  }

  check(): Promise<void> {
    const checked = Promise.withResolvers<void>();
    if (this.#isClosed) checked.resolve();
    else this.#waiting.push(checked);
    this.#isCheckWanted = true;
    if (!this.#isPolling) this.#schedule(0);
    return checked.promise;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
    for (const { resolve } of this.#waiting) resolve();
  }

  #schedule(delay: number): void {
    if (this.#isClosed) return;
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.after(delay, () => void this.#poll());
  }

  async #poll(): Promise<void> {
    this.#isPolling = true;
    const isChecking = this.#isCheckWanted;
    this.#isCheckWanted = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    const delay = await this.#readIfDue(isChecking);
    for (const { resolve } of waiting) resolve();
    this.#isPolling = false;
    this.#schedule(this.#isCheckWanted ? 0 : delay);
  }

  /**
   * Reads the files if they have changed and are quiet, or if a reading is due. @returns the time until the next
   * poll, in ms
   */
  async #readIfDue(isChecking: boolean): Promise<number> {
    if (isChecking || this.#seen === undefined) return this.#read();
    const { paths, digest } = this.#seen;
    const identity = await identify(paths);
    const now = this.#clock.now();
    if (identity !== this.#seen.identity) {
      this.#seen = { paths, identity, digest };
      this.#changedAt ??= now;
      const remaining = this.#changedAt + MAX_WAIT - now;
      if (remaining > 0) return Math.min(QUIET_TIME, remaining);
    }
    if (this.#changedAt !== undefined) return this.#read();
    if (now < this.#readAt) return Math.min(POLL_INTERVAL, this.#readAt - now);
    // Parsing and checking files that are the same would be most of what an idle hub costs.
    const isSame = this.#heldBack === undefined && (await this.#digest(paths)) === digest;
    if (!isSame) return this.#read();
    this.#readAt = now + READ_INTERVAL;
    return POLL_INTERVAL;
  }

  /** Loads the manifest and reports it if it has changed. @returns the time until the next poll, in ms */
  async #read(): Promise<number> {
    this.#changedAt = undefined;
    const result = await this.#load();
    if (this.#isClosed) return 0;
    const isWriting = this.#mayBeWriting(result);
    const interval = isWriting ? WRITE_GRACE : READ_INTERVAL;
    this.#readAt = this.#clock.now() + interval;
    if (!isWriting && result.fingerprint !== this.#fingerprint) {
      this.#fingerprint = result.fingerprint;
      this.#watchOptions.onLoad(result);
    }
    return Math.min(POLL_INTERVAL, interval);
  }

  /**
   * Loads the manifest. The files are identified before they are read, so that later changes are noticed. If the loaded
   * manifest has new files of plugins, it is loaded again.
   */
  async #load(): Promise<LoadedManifest> {
    const paths = [...listDependencies(this.#options), ...this.#dependentFiles];
    this.#seen = { paths, identity: await identify(paths), digest: await this.#digest(paths) };
    const result = await loadManifest(this.#options);
    this.#dependentFiles = result.dependentFiles;
    const isComplete = result.dependentFiles.every((file) => paths.includes(file));
    return isComplete || this.#isClosed ? result : this.#load();
  }

  /** A digest of the files' contents, or of the reasons why they cannot be read, and of the servers in the environment. */
  async #digest(paths: readonly string[]): Promise<string> {
    const hash = createHash("sha256").update(this.#options.env[SERVERS_VARIABLE] ?? "");
    for (const path of paths) {
      const found = await readFileLimited(path, MAX_COMPARED);
      hash.update(`\n${path}\n${found.kind}\n`);
      if (found.kind === "read") hash.update(found.bytes);
      else if (found.kind === "refused") hash.update(found.reason);
    }
    return hash.digest("hex");
  }

  /**
   * Whether to wait because a file is empty: shells and downloads truncate a file before they write it, and an empty
   * file would mean that there are no servers.
   */
  #mayBeWriting({ hasEmptyFile, fingerprint }: LoadedManifest): boolean {
    if (!hasEmptyFile) {
      this.#heldBack = undefined;
      return false;
    }
    const now = this.#clock.now();
    if (this.#heldBack?.fingerprint !== fingerprint) this.#heldBack = { fingerprint, since: now };
    return now - this.#heldBack.since < WRITE_GRACE;
  }
}

/**
 * The identity, size and timestamps of the files that the paths lead to, through symbolic links. If the result differs
 * from an earlier one, the content of a file may have changed; only the manifest's fingerprint tells for certain.
 */
async function identify(paths: readonly string[]): Promise<string> {
  const identities = await Promise.all(
    paths.map((path) =>
      stat(path, { bigint: true }).then(
        ({ dev, ino, size, mtimeNs, ctimeNs }) => [dev, ino, size, mtimeNs, ctimeNs].join(" "),
        codeOf,
      ),
    ),
  );
  return identities.join("\n");
}

function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "unknown error";
}
