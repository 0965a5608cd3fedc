import { watch } from "node:fs";
import { basename } from "node:path";
import { runtimeName } from "../base/runtime.ts";
import type { WatchedPath } from "./trail.ts";

/**
 * Watches one folder, not its subfolders. `name` is the changed name in the folder, the folder's own name, or null if
 * unknown. Must not keep the process alive. May throw what it would otherwise pass to `onError`; makes no callback
 * before it returns.
 * @returns stops watching
 */
export type WatchFolder = (
  folder: string,
  onChange: (name: string | null) => void,
  onError: (error: unknown) => void,
) => () => void;

export const watchFolder: WatchFolder = (folder, onChange, onError) => {
  const watcher = watch(folder, { persistent: false }, (event, name) => {
    // For a symbolic link renamed over another one, Deno reports only its old name.
    const isNameUnreliable = event === "rename" && runtimeName === "deno";
    onChange(isNameUnreliable ? null : name);
    // Deno refs the watcher again for each event.
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
  /** Normalized by `normalizeName`. */
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
