import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { configFolders, stateFolder } from "../../base/paths.ts";
import type { HostContext } from "../context.ts";

/** Maximum depth of the entries below a folder of toolmux. */
const MAX_DEPTH = 3;

/** A file or a folder. `size` is in bytes. */
export interface FileEntry {
  readonly path: string;
  readonly isFolder: boolean;
  /** Permission bits. */
  readonly mode: number;
  readonly size: number;
  /** Modification time, ms since the epoch. */
  readonly changed: number;
}

/** The files and folders of toolmux. */
export interface OwnFiles {
  /** The folders with the state and the secrets, and what is in them; only the user may access it. */
  readonly privateEntries: readonly FileEntry[];
  /** The folders of manifests, and what lies directly in them. */
  readonly configEntries: readonly FileEntry[];
}

/** Lists the files and folders of toolmux. Symbolic links are skipped. */
export async function listOwnFiles({
  env,
  platform,
}: Pick<HostContext, "env" | "platform">): Promise<OwnFiles> {
  const configs = configFolders(env, platform);
  const secrets = configs.map((folder) => listAll(join(folder, "secrets"), MAX_DEPTH));
  const state = listAll(stateFolder(env, platform), MAX_DEPTH);
  const privateEntries = (await Promise.all([state, ...secrets])).flat();
  const configEntries = await Promise.all(configs.map((folder) => listAll(folder, 1)));
  return { privateEntries, configEntries: configEntries.flat() };
}

/** The entry at `path` and all entries below it, down to `depth` levels; symbolic links are skipped. */
async function listAll(path: string, depth: number): Promise<readonly FileEntry[]> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats === undefined || stats.isSymbolicLink()) return [];
  const { mode, size, mtimeMs: changed } = stats;
  const entry = { path, isFolder: stats.isDirectory(), mode, size, changed };
  if (!entry.isFolder || depth === 0) return [entry];
  const names = await readdir(path).catch(() => []);
  const inner = await Promise.all(names.map((name) => listAll(join(path, name), depth - 1)));
  return [entry, ...inner.flat()];
}
