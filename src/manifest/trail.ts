import { lstat, readlink } from "node:fs/promises";
import { dirname, join, parse } from "node:path";

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
    // Removed meanwhile.
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
