import process from "node:process";
import { isAbsolute, join } from "node:path";

export type Env = Readonly<Record<string, string | undefined>>;

/** Where the hub runs. `platform` is spelled as in `process.platform`. */
export interface Surroundings {
  readonly env: Env;
  /** The hub's working directory, absolute. */
  readonly cwd: string;
  readonly platform: string;
}

/** The folders that may hold the user's manifest, absolute, first choice first. */
export function configFolders(env: Env, platform: string): readonly string[] {
  const base = findBase(env, "XDG_CONFIG_HOME") ?? join(homeFolder(env), ".config");
  const folder = join(base, "toolmux");
  return platform === "darwin" ? [folder, libraryFolder(env)] : [folder];
}

/** The folder for what the hub remembers, absolute. */
export function stateFolder(env: Env, platform: string): string {
  const base = findBase(env, "XDG_STATE_HOME");
  if (base !== undefined) return join(base, "toolmux");
  if (platform === "darwin") return libraryFolder(env);
  return join(homeFolder(env), ".local", "state", "toolmux");
}

/** A `HOME` that is relative would be in whatever folder one happens to stand: then the system's word counts. */
export function homeFolder({ HOME }: Env): string {
  if (HOME !== undefined && isAbsolute(HOME)) return HOME;
  return process.getBuiltinModule("node:os").userInfo().homedir;
}

/** A leading `~` or `~/` becomes the home folder. */
export function expandHome(path: string, env: Env): string {
  return path === "~" || path.startsWith("~/") ? join(homeFolder(env), path.slice(1)) : path;
}

/** The XDG base directory rules say that a relative path is to be ignored. */
function findBase(env: Env, variable: string): string | undefined {
  const path = env[variable];
  return path !== undefined && isAbsolute(path) ? path : undefined;
}

function libraryFolder(env: Env): string {
  return join(homeFolder(env), "Library", "Application Support", "toolmux");
}
