import { join } from "node:path";
import process from "node:process";
import {
  type Env,
  RUN_FOLDER_VARIABLE,
  stateFolder,
  type SystemEnvironment,
} from "../base/paths.ts";

/** Maximum length of the path of a Unix socket, in bytes: the limit of macOS. Linux allows 107. */
export const MAX_SOCKET_PATH = 103;

/** A folder in which a hub may put its socket. */
export interface RunFolder {
  readonly path: string;
  /** A hub creates `path` only if this folder exists. If it is empty or equals `path`, no folder needs to exist. */
  readonly parent: string;
}

/**
 * The folders that may have the sockets of this user's hubs, in order of preference. A hub uses the first folder that
 * it can use. A search for hubs looks into all folders, because MCP clients start hubs with different environments.
 * @param uid the user's id
 */
export function runFolders(
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  uid: number,
): readonly RunFolder[] {
  const chosen = absolute(env, RUN_FOLDER_VARIABLE);
  if (chosen !== undefined) return [{ path: chosen, parent: chosen }];
  const runtime = absolute(env, "XDG_RUNTIME_DIR");
  const system = `/run/user/${uid}`;
  const state = stateFolder(env, platform);
  const folders: RunFolder[] = [
    ...(runtime === undefined ? [] : [{ path: join(runtime, "toolmux"), parent: runtime }]),
    ...(runtime === system ? [] : [{ path: join(system, "toolmux"), parent: system }]),
    { path: join(state, "run"), parent: "" },
    { path: `/tmp/toolmux-${uid}`, parent: "/tmp" },
  ];
  return folders;
}

function absolute(env: Env, variable: string): string | undefined {
  const path = env[variable];
  return path?.startsWith("/") === true ? path : undefined;
}

/** The name of a hub's socket, without its suffix. @param startedAt in ms since the epoch */
export function socketNameOf(pid: number, startedAt: number): string {
  return `${pid}-${startedAt.toString(36)}`;
}

/** The end of the names of attach sockets, which stand in the same folders: they have other owners and no file beside. */
const ATTACH_SUFFIX = ".attach.sock";

/** The control sockets in a folder of this user; none if the folder is missing or a link, or if others may write into it. */
export function socketsIn(folder: string, uid: number): readonly string[] {
  const { readdirSync } = process.getBuiltinModule("node:fs");
  try {
    if (faultOfFolder(folder, uid) !== undefined) return [];
    return readdirSync(folder)
      .filter((name) => name.endsWith(".sock") && !name.endsWith(ATTACH_SUFFIX))
      .map((name) => join(folder, name));
  } catch {
    return [];
  }
}

/**
 * Why the sockets in a folder are not trusted: others could have put them there. Undefined if they are.
 * @throws the system's error if there is no such folder
 */
export function faultOfFolder(folder: string, uid: number): string | undefined {
  const stats = process.getBuiltinModule("node:fs").lstatSync(folder);
  if (!stats.isDirectory()) return "it is no folder, or a link";
  if (uid !== -1 && stats.uid !== uid) return "it belongs to another user";
  if ((stats.mode & 0o022) === 0) return undefined;
  const mode = (stats.mode & 0o777).toString(8);
  return `others may write into it (mode ${mode}). To use it: chmod 700 '${folder}'`;
}

/**
 * Whether a process listens on a socket. A process that is suspended counts as alive, because the kernel accepts
 * connections for it.
 */
export function probe(socket: string): Promise<"alive" | "dead" | "unknown"> {
  return new Promise((resolve) => {
    // Only some of those who look for sockets need it, and it takes time to load.
    const connection = process.getBuiltinModule("node:net").connect(socket);
    connection.once("connect", () => {
      connection.destroy();
      resolve("alive");
    });
    connection.once("error", (error: NodeJS.ErrnoException) => {
      resolve(error.code === "ECONNREFUSED" || error.code === "ENOENT" ? "dead" : "unknown");
    });
  });
}

/** The sockets of hubs that were killed, in all folders of this user. */
export async function findDeadHubs(
  environment: Pick<SystemEnvironment, "env" | "platform">,
): Promise<readonly string[]> {
  const uid = process.getuid?.() ?? -1;
  const folders = runFolders(environment, uid);
  return (await Promise.all(folders.map(({ path }) => deadIn(path, uid)))).flat();
}

async function deadIn(folder: string, uid: number): Promise<readonly string[]> {
  const sockets = socketsIn(folder, uid);
  const states = await Promise.all(sockets.map(probe));
  return sockets.filter((_, at) => states[at] === "dead");
}

/** Removes the sockets of hubs that were killed, with the files beside them. @returns their paths */
export async function removeDeadHubs(folder: string): Promise<readonly string[]> {
  const dead = await deadIn(folder, process.getuid?.() ?? -1);
  await Promise.all(dead.map(removeHubSocket));
  return dead;
}

/** Removes a socket and the file beside it. */
export async function removeHubSocket(socket: string): Promise<void> {
  // A client that attaches removes none, and need not load this.
  const { rm } = process.getBuiltinModule("node:fs/promises");
  await rm(socket, { force: true });
  await rm(socket.replace(/\.sock$/, ".json"), { force: true });
}
