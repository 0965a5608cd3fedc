import { watch } from "node:fs";
import { basename } from "node:path";
import { runtimeName } from "../runtime.ts";
import type { Spot } from "./trail.ts";

/**
 * Watches one folder, not those within. `name` is that of what changed in it, or of the folder itself, or null if
 * nobody knows. Must not keep the process alive. May throw what it would give to `onError`
 * later; calls back only after it has returned.
 * @returns the undo
 */
export type WatchFolder = (
  folder: string,
  onChange: (name: string | null) => void,
  onError: (error: unknown) => void,
) => () => void;

export const watchFolder: WatchFolder = (folder, onChange, onError) => {
  const watcher = watch(folder, { persistent: false }, (event, name) => {
    // Of a link that takes another's name Deno tells only the name that it had before.
    const isVague = event === "rename" && runtimeName === "deno";
    onChange(isVague ? null : name);
    // Deno waits for the next event as if it had never been told not to.
    queueMicrotask(() => watcher.unref());
  });
  watcher.unref();
  watcher.on("error", onError);
  return () => watcher.close();
};

export interface LookoutParts {
  readonly watchFolder: WatchFolder;
  /** Something happened at one of the spots, or may have. */
  changed(): void;
  /** Nothing can be watched any more, for the reason of that code, for example EMFILE. */
  deaf(code: string): void;
}

interface Post {
  /** As `fold` makes them. */
  names: ReadonlySet<string>;
  leave: () => void;
}

/** Watches the folders of a set of spots for what concerns these. */
export class Lookout {
  readonly #parts: LookoutParts;
  readonly #posts = new Map<string, Post>();
  #isOpen = true;

  constructor(parts: LookoutParts) {
    this.#parts = parts;
  }

  /** Watches these spots from now on, and no others. */
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
    // The folder may have been moved or deleted: whatever is in its place is entered when aim is taken again.
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
    // Gone since its path was traced.
    if (code === "ENOENT" || code === "ENOTDIR") return this.#parts.changed();
    this.close();
    this.#parts.deaf(code);
  }
}

function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "unknown error";
}

/** Some file systems take names that differ in case, or in how an accent is spelled, for the same. */
function fold(name: string): string {
  return name.normalize().toLowerCase();
}
