import { watch } from "node:fs";
import { lstat, readlink } from "node:fs/promises";
import { basename, dirname, join, parse } from "node:path";
import { type Clock, systemClock } from "../base/clock.ts";
import { runtimeName } from "../base/runtime.ts";
import { listDependencies, type LoadedManifest, loadManifest, type LoadOptions } from "./load.ts";

/** A burst of changes ends after this time without a change, in ms. */
const QUIET_TIME = 100;
/** The longest wait for the end of a burst, in ms. */
const MAX_WAIT = 1000;

type DebouncerState =
  | { readonly state: "idle" }
  /** `since`: ms of the clock at the first change of the burst. */
  | { readonly state: "waiting"; readonly since: number; readonly cancelTimer: () => void }
  /** `changedAt`: ms of the clock at the first change during the run; undefined if there was none. */
  | { readonly state: "running"; changedAt: number | undefined }
  | { readonly state: "closed" };

/** Debounces changes: runs an action after each burst. Runs never overlap, and a change during a run causes another. */
export class Debouncer {
  readonly #clock: Clock;
  readonly #action: () => Promise<void>;
  #state: DebouncerState = { state: "idle" };

  /** @param action must handle its own errors: a rejection is not caught */
  constructor(clock: Clock, action: () => Promise<void>) {
    this.#clock = clock;
    this.#action = action;
  }

  /** Reports a change. */
  trigger(): void {
    const state = this.#state;
    const now = this.#clock.now();
    if (state.state === "idle") this.#schedule(now);
    if (state.state === "running") state.changedAt ??= now;
    if (state.state !== "waiting") return;
    state.cancelTimer();
    this.#schedule(state.since);
  }

  /** Cancels a pending run; a run in progress finishes. */
  close(): void {
    if (this.#state.state === "waiting") this.#state.cancelTimer();
    this.#state = { state: "closed" };
  }

  #schedule(since: number): void {
    const remaining = since + MAX_WAIT - this.#clock.now();
    const cancelTimer = this.#clock.after(
      Math.max(0, Math.min(QUIET_TIME, remaining)),
      () => void this.#runAction(),
    );
    this.#state = { state: "waiting", since, cancelTimer };
  }

  async #runAction(): Promise<void> {
    const state: DebouncerState = { state: "running", changedAt: undefined };
    this.#state = state;
    await this.#action();
    // The debouncer was closed during the run.
    if (this.#state !== state) return;
    this.#state = { state: "idle" };
    if (state.changedAt !== undefined) this.#schedule(state.changedAt);
  }
}

/**
 * Watches one folder, not its subfolders. `name` is the changed name in the folder, the folder's own name, or null if
 * unknown. Must not keep the process alive. May throw an error instead of passing it to `onError`; calls back only
 * after it has returned.
 * @returns a function that stops watching
 */
export type WatchFolder = (
  folder: string,
  onChange: (name: string | null) => void,
  onError: (error: unknown) => void,
) => () => void;

export const watchFolder: WatchFolder = (folder, onChange, onError) => {
  const watcher = watch(folder, { persistent: false }, (event, name) => {
    // If a symbolic link is renamed over another one, Deno reports only its old name, so the changed name counts as
    // unknown.
    const isNameUnreliable = event === "rename" && runtimeName === "deno";
    onChange(isNameUnreliable ? null : name);
    // At each event, Deno makes the watcher keep the process alive again.
    queueMicrotask(() => watcher.unref());
  });
  watcher.unref();
  watcher.on("error", onError);
  return () => watcher.close();
};

export interface FolderWatcherOptions {
  readonly watchFolder: WatchFolder;
  /** Called when one of the paths has changed, or may have. */
  onChange(): void;
  /** Called when nothing can be watched any more; `code` is the system's error code, for example EMFILE. */
  onUnwatchable(code: string): void;
}

interface WatchedFolder {
  /** The watched names in the folder, normalized by `normalizeName`. */
  names: ReadonlySet<string>;
  stop: () => void;
}

/** Watches the folders of a set of paths for changes of these paths. */
export class FolderWatcher {
  readonly #options: FolderWatcherOptions;
  readonly #folders = new Map<string, WatchedFolder>();
  #isOpen = true;

  constructor(options: FolderWatcherOptions) {
    this.#options = options;
  }

  /** Replaces the set of watched paths. */
  setPaths(paths: readonly WatchedPath[]): void {
    if (!this.#isOpen) return;
    const wanted = new Map<string, Set<string>>();
    for (const { folder, name } of paths) {
      const names = wanted.get(folder) ?? new Set();
      wanted.set(folder, names.add(normalizeName(name)));
    }
    for (const folder of this.#folders.keys()) if (!wanted.has(folder)) this.#unwatch(folder);
    for (const [folder, names] of wanted) {
      const watched = this.#folders.get(folder);
      if (watched === undefined) this.#watch(folder, names);
      else watched.names = names;
    }
  }

  close(): void {
    this.#isOpen = false;
    for (const folder of this.#folders.keys()) this.#unwatch(folder);
  }

  #watch(folder: string, names: ReadonlySet<string>): void {
    if (!this.#isOpen) return;
    const watched: WatchedFolder = { names, stop: () => {} };
    const isCurrent = (): boolean => this.#folders.get(folder) === watched;
    const onChange = (name: string | null): void => {
      if (isCurrent()) this.#onChange(folder, watched, name);
    };
    const onError = (error: unknown): void => {
      if (isCurrent()) this.#onError(folder, error);
    };
    this.#folders.set(folder, watched);
    try {
      watched.stop = this.#options.watchFolder(folder, onChange, onError);
    } catch (error) {
      this.#onError(folder, error);
    }
  }

  #onChange(folder: string, { names }: WatchedFolder, name: string | null): void {
    // The folder may have been moved or deleted. The next call of `setPaths` watches whatever has replaced it.
    if (name === null || normalizeName(name) === normalizeName(basename(folder)))
      this.#unwatch(folder);
    else if (!names.has(normalizeName(name))) return;
    this.#options.onChange();
  }

  #unwatch(folder: string): void {
    this.#folders.get(folder)?.stop();
    this.#folders.delete(folder);
  }

  #onError(folder: string, error: unknown): void {
    const code = codeOf(error);
    this.#unwatch(folder);
    // The folder was removed after its path was resolved.
    if (code === "ENOENT" || code === "ENOTDIR") return this.#options.onChange();
    this.close();
    this.#options.onUnwatchable(code);
  }
}

function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "unknown error";
}

/** Some file systems ignore case and Unicode normalization in names. */
function normalizeName(name: string): string {
  return name.normalize().toLowerCase();
}

/** A name in an existing folder; if it changes, a path may lead to another file. */
export interface WatchedPath {
  /** Absolute, without symbolic links. */
  readonly folder: string;
  readonly name: string;
}

/** The maximum number of symbolic links that are followed on one path. */
const MAX_LINKS = 40;

/**
 * The names that determine where an absolute path leads: every symbolic link on the way, and the file itself; if that
 * does not exist, the first missing folder.
 */
export async function resolveWatchedPaths(path: string): Promise<readonly WatchedPath[]> {
  const paths: WatchedPath[] = [];
  let folder = parse(path).root;
  let names = splitPath(path);
  let links = 0;
  for (let [name, ...rest] = names; name !== undefined; [name, ...rest] = names) {
    names = rest;
    if (name === "..") {
      folder = dirname(folder);
      continue;
    }
    const full = join(folder, name);
    const kind = await kindOf(full);
    if (kind === "folder" && rest.length > 0) {
      folder = full;
      continue;
    }
    paths.push({ folder, name });
    if (kind !== "link" || ++links > MAX_LINKS) return paths;
    const target = await readlink(full).catch(() => undefined);
    // The link was removed after it was found.
    if (target === undefined) return paths;
    const { root } = parse(target);
    if (root !== "") folder = root;
    names = [...splitPath(target), ...rest];
  }
  return paths;
}

/** Paths that cannot be read count as "other". */
async function kindOf(path: string): Promise<"link" | "folder" | "other"> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isSymbolicLink()) return "link";
  return stats?.isDirectory() ? "folder" : "other";
}

function splitPath(path: string): string[] {
  const { root } = parse(path);
  return path
    .slice(root.length)
    .split("/")
    .filter((name) => name !== "" && name !== ".");
}

/** The polling interval if there are no file system events, in ms. */
const POLL_INTERVAL = 2000;
/** The polling interval in addition to file system events, in ms: network and virtual file systems miss some. */
const SAFETY_POLL_INTERVAL = 30_000;
/** How long an empty file is assumed to be still being written, in ms. */
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

  /**
   * Whether to wait: shells and downloads truncate a file before they write it, and an empty file would mean that there
   * are no servers.
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
