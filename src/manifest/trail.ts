import { lstat, readlink } from "node:fs/promises";
import { dirname, join, parse } from "node:path";

/** A name in a folder that is there; what becomes of it may change what a path leads to. */
export interface Spot {
  /** Absolute, without links. */
  readonly folder: string;
  readonly name: string;
}

/** The most links that are followed on one path. */
const MAX_LINKS = 40;

/**
 * Where an absolute path can come to lead elsewhere: every link on its way, and the file itself; if that is not
 * there, the first folder on the way that is missing.
 */
export async function traceFile(path: string): Promise<readonly Spot[]> {
  const spots: Spot[] = [];
  let folder = parse(path).root;
  let names = split(path);
  let links = 0;
  for (let [name, ...rest] = names; name !== undefined; [name, ...rest] = names) {
    names = rest;
    if (name === "..") {
      folder = dirname(folder);
      continue;
    }
    const full = join(folder, name);
    const kind = await inspect(full);
    if (kind === "folder" && rest.length > 0) {
      folder = full;
      continue;
    }
    spots.push({ folder, name });
    if (kind !== "link" || ++links > MAX_LINKS) return spots;
    const target = await readlink(full).catch(() => undefined);
    // Just taken away.
    if (target === undefined) return spots;
    const { root } = parse(target);
    if (root !== "") folder = root;
    names = [...split(target), ...rest];
  }
  return spots;
}

/** What is out of reach counts as neither. */
async function inspect(path: string): Promise<"link" | "folder" | "other"> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isSymbolicLink()) return "link";
  return stats?.isDirectory() ? "folder" : "other";
}

function split(path: string): string[] {
  const { root } = parse(path);
  return path
    .slice(root.length)
    .split("/")
    .filter((name) => name !== "" && name !== ".");
}
