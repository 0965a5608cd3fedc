import { watch } from "node:fs";
import { basename } from "node:path";
import { runtimeName } from "../base/runtime.ts";
import type { Spot } from "./trail.ts";

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
    const isVague = event === "rename" && runtimeName === "deno";
    onChange(isVague ? null : name);
    // Deno refs the watcher again for each event.
    queueMicrotask(() => watcher.unref());
  });
  watcher.unref();
  watcher.on("error", onError);
  return () => watcher.close();
};

export interface LookoutParts {
  readonly watchFolder: WatchFolder;
  /** Called when one of the paths has changed, or may have. */
  changed(): void;
  /** Called when nothing can be watched any more; `code` is the system's error code, for example EMFILE. */
  deaf(code: string): void;
}

interface Post {
  /** Normalized by `normalizeName`. */
  names: ReadonlySet<string>;
  leave: () => void;
}

/** Watches the folders of a set of paths for changes of these paths. */
export class Lookout {
  readonly #parts: LookoutParts;
  readonly #posts = new Map<string, Post>();
  #isOpen = true;

  constructor(parts: LookoutParts) {
    this.#parts = parts;
  }

  /** Replaces the set of watched paths. */
  aim(spots: readonly Spot[]): void {
    if (!this.#isOpen) return;
    const wanted = new Map<string, Set<string>>();
    for (const { folder, name } of spots) {
      const names = wanted.get(folder) ?? new Set();
      wanted.set(folder, names.add(fold(name)));
    }
    for (const folder of this.#posts.keys()) if (!wanted.has(folder)) this.#leave(folder);
    for (const [folder, names] of wanted) {
      const post = this.#posts.get(folder);
      if (post === undefined) this.#enter(folder, names);
      else post.names = names;
    }
  }

  close(): void {
    this.#isOpen = false;
    for (const folder of this.#posts.keys()) this.#leave(folder);
  }

  #enter(folder: string, names: ReadonlySet<string>): void {
    if (!this.#isOpen) return;
    const post: Post = { names, leave: () => {} };
    const isCurrent = (): boolean => this.#posts.get(folder) === post;
    const onChange = (name: string | null): void => {
      if (isCurrent()) this.#take(folder, post, name);
    };
    const onError = (error: unknown): void => {
      if (isCurrent()) this.#fail(folder, error);
    };
    this.#posts.set(folder, post);
    try {
      post.leave = this.#parts.watchFolder(folder, onChange, onError);
    } catch (error) {
      this.#fail(folder, error);
    }
  }

  #take(folder: string, { names }: Post, name: string | null): void {
    // The folder may have been moved or deleted. The next call of `setPaths` watches whatever has replaced it.
    if (name === null || fold(name) === fold(basename(folder))) this.#leave(folder);
    else if (!names.has(fold(name))) return;
    this.#parts.changed();
  }

  #leave(folder: string): void {
    this.#posts.get(folder)?.leave();
    this.#posts.delete(folder);
  }

  #fail(folder: string, error: unknown): void {
    const code = codeOf(error);
    this.#leave(folder);
    // The folder was removed after its path was resolved.
    if (code === "ENOENT" || code === "ENOTDIR") return this.#parts.changed();
    this.close();
    this.#parts.deaf(code);
  }
}

function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "unknown error";
}

/** Some file systems ignore case and Unicode normalization in names. */
function fold(name: string): string {
  return name.normalize().toLowerCase();
}
