import { isAbsolute, join } from "node:path";
import process from "node:process";
import { HubError } from "./errors.ts";

export type Env = Readonly<Record<string, string | undefined>>;

/** The environment in which the hub runs. `platform` has a value of `process.platform`. */
export interface SystemEnvironment {
  readonly env: Env;
  /** The working directory, as an absolute path. */
  readonly cwd: string;
  readonly platform: string;
}

/** Whether there is anything at a path that can be reached. */
export function exists(path: string): Promise<boolean> {
  const { access } = process.getBuiltinModule("node:fs/promises");
  return access(path).then(
    () => true,
    () => false,
  );
}

/** The path of a file or folder without links; undefined if there is none at `path`. Looked for synchronously. */
export function realPathOf(path: string): string | undefined {
  try {
    return process.getBuiltinModule("node:fs").realpathSync.native(path);
  } catch {
    return undefined;
  }
}

/** The folders that may hold the user's manifest: absolute, in order of precedence. */
export function configFolders(env: Env, platform: string): readonly string[] {
  const base = xdgFolder(env, "XDG_CONFIG_HOME") ?? join(homeFolder(env), ".config");
  const folder = join(base, "toolmux");
  return platform === "darwin" ? [folder, libraryFolder(env)] : [folder];
}

/** The folder for the hub's state files, absolute. */
export function stateFolder(env: Env, platform: string): string {
  const base = xdgFolder(env, "XDG_STATE_HOME");
  if (base !== undefined) return join(base, "toolmux");
  if (platform === "darwin") return libraryFolder(env);
  return join(homeFolder(env), ".local", "state", "toolmux");
}

/** The folder for data that the user has fetched and does not want to lose, absolute. */
export function dataFolder(env: Env, platform: string): string {
  const base = xdgFolder(env, "XDG_DATA_HOME");
  if (base !== undefined) return join(base, "toolmux");
  if (platform === "darwin") return libraryFolder(env);
  return join(homeFolder(env), ".local", "share", "toolmux");
}

/**
 * The home folder: HOME if it is absolute, else the one in the system's user database. A relative HOME is not used,
 * because it would be resolved against the working directory.
 * @throws {HubError} valueMissing if there is neither, as for a user id of a container that is in no user database
 */
export function homeFolder(env: Env): string {
  const home = findHomeFolder(env);
  if (home !== undefined) return home;
  const text = `The home folder of user ${process.getuid?.() ?? ""} is not known: set HOME to the absolute path of a folder. For toolmux's own files, XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_DATA_HOME are enough.`;
  throw new HubError("valueMissing", text);
}

/** The home folder, as `homeFolder` finds it; undefined if it is not known. */
export function findHomeFolder({ HOME }: Env): string | undefined {
  if (HOME !== undefined && isAbsolute(HOME)) return HOME;
  try {
    const { homedir } = process.getBuiltinModule("node:os").userInfo();
    return isAbsolute(homedir) ? homedir : undefined;
  } catch {
    // The user id has no entry.
    return undefined;
  }
}

/** Replaces a leading `~` or `~/` by the home folder. */
export function expandHome(path: string, env: Env): string {
  return path === "~" || path.startsWith("~/") ? join(homeFolder(env), path.slice(1)) : path;
}

/** The XDG base directory specification requires relative paths to be ignored. */
function xdgFolder(env: Env, variable: string): string | undefined {
  const path = env[variable];
  return path !== undefined && isAbsolute(path) ? path : undefined;
}

function libraryFolder(env: Env): string {
  return join(homeFolder(env), "Library", "Application Support", "toolmux");
}

/**
 * The environment variable that names the folder for sockets. If it is set, hubs create their sockets only there, and a
 * search for hubs looks only there.
 */
export const RUN_FOLDER_VARIABLE = "TOOLMUX_RUN_DIR";

/** The environment variable that marks the hub of `toolmux demo`. */
export const DEMO_VARIABLE = "TOOLMUX_DEMO";

/** Whether this is the hub of `toolmux demo`, which changes no file of the user or of another program. */
export function isDemo(env: Env): boolean {
  return env[DEMO_VARIABLE] === "1";
}
