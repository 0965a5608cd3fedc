import { type Clock, systemClock } from "../base/clock.ts";
import { Debouncer } from "./burst.ts";
import { listDependencies, loadManifest, type LoadOptions, type LoadedManifest } from "./load.ts";
import { FolderWatcher, type WatchFolder, watchFolder } from "./lookout.ts";
import { resolveWatchedPaths } from "./trail.ts";

/** The polling interval without file system events, in ms. */
const POLL_INTERVAL = 2000;
/** The polling interval beside file system events, in ms: network and virtual file systems miss some. */
const SAFETY_POLL_INTERVAL = 30_000;
/** How long an empty file counts as being written, in ms. */
const WRITE_GRACE = 1000;

export interface WatchOptions {
  /** The fingerprint of the loaded manifest, see `LoadedManifest`; that manifest is not reported again. */
  readonly fingerprint: string;
  /** Called with each newly loaded manifest that differs from the previous one. */
  onLoad(result: LoadedManifest): void;
  /** Called with a warning, a line without a line end. */
  onWarning(text: string): void;
  readonly clock?: Clock;
  readonly watchFolder?: WatchFolder;
}

export interface ManifestWatcher {
  /** Reads the files soon, without waiting for an event. */
  check(): void;
  close(): void;
}

/**
 * Watches all files that a manifest is or could be loaded from, its plugins' files and the trust store, and reloads it
 * after changes of these files or of symbolic links to them. Changes between the load of `fingerprint` and this call
 * are noticed, too. Does not keep the process alive.
 */
export function watchManifest(options: LoadOptions, watchOptions: WatchOptions): ManifestWatcher {
  return new FileManifestWatcher(options, watchOptions);
}

class FileManifestWatcher implements ManifestWatcher {
  readonly #options: LoadOptions;
  readonly #watchOptions: WatchOptions;
  readonly #clock: Clock;
  readonly #debouncer: Debouncer;
  readonly #folderWatcher: FolderWatcher;
  /** The fingerprint of the manifest reported last. */
  #fingerprint: string;
  /** A manifest that is held back because a file may be just being written; `since` in ms of the clock. */
  #heldBack: { readonly fingerprint: string; readonly since: number } | undefined;
  /** The plugins' files at the last load. */
  #pluginFiles: readonly string[] = [];
  #interval = SAFETY_POLL_INTERVAL;
  #cancelTimer = (): void => {};
  #isClosed = false;

  constructor(options: LoadOptions, watchOptions: WatchOptions) {
    this.#options = options;
    this.#watchOptions = watchOptions;
    this.#fingerprint = watchOptions.fingerprint;
    this.#clock = watchOptions.clock ?? systemClock;
    this.#debouncer = new Debouncer(this.#clock, () => this.#reload());
    this.#folderWatcher = new FolderWatcher({
      watchFolder: watchOptions.watchFolder ?? watchFolder,
      onChange: () => this.#debouncer.trigger(),
      onUnwatchable: (code) => this.#startPolling(code),
    });
    this.#debouncer.trigger();
  }

  check(): void {
    this.#debouncer.trigger();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
    this.#debouncer.close();
    this.#folderWatcher.close();
  }

  #startPolling(code: string): void {
    this.#interval = POLL_INTERVAL;
    const seconds = POLL_INTERVAL / 1000;
    this.#watchOptions.onWarning(
      `the files of the manifest cannot be watched (${code}); they are read every ${seconds} s instead`,
    );
    this.#debouncer.trigger();
  }

  /** Starts watching before it reads, so that later changes cause events. */
  async #reload(): Promise<void> {
    const result = await this.#load();
    if (this.#isClosed) return;
    const isWriting = this.#mayBeWriting(result);
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.after(isWriting ? WRITE_GRACE : this.#interval, () =>
      this.#debouncer.trigger(),
    );
    if (isWriting || result.fingerprint === this.#fingerprint) return;
    this.#fingerprint = result.fingerprint;
    this.#watchOptions.onLoad(result);
  }

  /** Loading reveals the plugins' files; if there are new ones, they are watched and the manifest is loaded again. */
  async #load(): Promise<LoadedManifest> {
    const known = [...listDependencies(this.#options), ...this.#pluginFiles];
    const watchedPaths = await Promise.all(known.map(resolveWatchedPaths));
    this.#folderWatcher.setPaths(watchedPaths.flat());
    const result = await loadManifest(this.#options);
    this.#pluginFiles = result.pluginFiles;
    const isComplete = result.pluginFiles.every((file) => known.includes(file));
    return isComplete || this.#isClosed ? result : this.#load();
  }

  /** Whether to wait: shells and downloads truncate a file before they write it, and an empty file means no servers. */
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
