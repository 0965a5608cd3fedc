import { Buffer } from "node:buffer";
import { chmod, lstat, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { type Clock, systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import { listen, type HttpListener, type RequestInfo } from "../frontend/http/listener.ts";
import {
  MAX_SOCKET_PATH,
  removeDeadHubs,
  type RunFolder,
  runFolders,
  socketNameOf,
} from "./socket-files.ts";
import type { HubFile } from "./schemas.ts";

/**
 * How often a hub checks that its socket still exists, in ms. Programs that clean up temporary folders may remove it.
 */
const CHECK_INTERVAL = 60_000;
/** How long to wait for connections to send their last responses when the hub ends, in ms. */
const FLUSH_TIME = 100;

export interface HubSocketOptions extends Pick<SystemEnvironment, "env" | "platform"> {
  /** The contents of the file beside the socket. */
  readonly file: () => HubFile;
  readonly fetch: (request: Request, info: RequestInfo) => Promise<Response>;
  readonly warn: (text: string) => void;
  readonly clock?: Clock;
}

/** The socket of a running hub. */
export interface HubSocket {
  readonly path: string;
  /** Writes the file beside the socket again, with the present facts about the hub. */
  update(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Serves the control API on a Unix socket that only this user can open: the socket has mode 0600, its folder has mode
 * 0700 and belongs to the user. A file beside the socket describes the hub. Removes the sockets of hubs that were
 * killed.
 * @throws {HubError} usage if no folder can be used, with the reason for each
 */
export async function openHubSocket(options: HubSocketOptions): Promise<HubSocket> {
  const { env, platform, file, fetch, warn, clock = systemClock } = options;
  const uid = process.getuid?.() ?? -1;
  const { pid, startedAt } = file();
  const name = socketNameOf(pid, startedAt);
  const folder = await findSocketFolder(runFolders({ env, platform }, uid), uid, `${name}.sock`);
  await removeDeadHubs(folder);
  const path = join(folder, `${name}.sock`);
  const filePath = join(folder, `${name}.json`);
  const open = async (): Promise<HttpListener> => {
    await rm(path, { force: true });
    const listener = await listen({ address: { path }, fetch });
    await chmod(path, 0o600);
    return listener;
  };
  const update = async (): Promise<void> => {
    await writeFile(filePath, `${JSON.stringify(file())}\n`, { mode: 0o600 });
  };
  let listener = await open();
  await update();
  let isClosed = false;
  let cancelTimer = (): void => {};
  const check = async (): Promise<void> => {
    try {
      const isThere = await lstat(path).then(
        (stats) => stats.isSocket(),
        () => false,
      );
      if (!isThere && !isClosed) {
        await listener.close(FLUSH_TIME);
        await findSocketFolder([{ path: folder, parent: folder }], uid, `${name}.sock`);
        listener = await open();
        await update();
      }
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      warn(`The socket of this hub is gone, and cannot be made again: ${reason}`);
    }
    schedule();
  };
  const schedule = (): void => {
    if (!isClosed) cancelTimer = clock.after(CHECK_INTERVAL, () => void check());
  };
  schedule();
  return {
    path,
    update,
    async close() {
      isClosed = true;
      cancelTimer();
      await listener.close(FLUSH_TIME);
      await Promise.all([path, filePath].map((one) => rm(one, { force: true })));
    },
  };
}

/**
 * Finds the first folder that can have a socket: a folder of this user, in which nobody else can put files. Creates it if
 * it does not exist.
 * @param name the name of the socket, which limits the length of the folder's path
 * @throws {HubError} usage if no folder can be used, with the reason for each
 */
export async function findSocketFolder(
  folders: readonly RunFolder[],
  uid: number,
  name: string,
): Promise<string> {
  const reasons: string[] = [];
  for (const { path, parent } of folders) {
    const reason = await makeFolder(path, parent, uid, name);
    if (reason === undefined) return path;
    reasons.push(`${path}: ${reason}`);
  }
  throw new HubError("usage", `No folder can have the socket of this hub: ${reasons.join("; ")}.`);
}

/** Makes a folder for sockets, or checks the existing one. @returns why it cannot be used */
async function makeFolder(
  path: string,
  parent: string,
  uid: number,
  name: string,
): Promise<string | undefined> {
  if (Buffer.byteLength(join(path, name)) > MAX_SOCKET_PATH) {
    return `the path of a socket in it is longer than ${MAX_SOCKET_PATH} bytes`;
  }
  try {
    // The parent folder is not created. If it belongs to the system, such as /run/user/1000, and does not exist, the
    // user is not logged in.
    if (parent !== "" && parent !== path) await lstat(parent);
    const created = await mkdir(path, { recursive: true, mode: 0o700 });
    const stats = await lstat(path);
    if (stats.isSymbolicLink()) return "it is a symbolic link";
    if (!stats.isDirectory()) return "it is no folder";
    if (uid !== -1 && stats.uid !== uid) return "it belongs to another user";
    // The user has named the folder, which may be used for other things, too: its mode stays as it is.
    if (created === undefined && parent === path)
      return (stats.mode & 0o022) === 0 ? undefined : "other users can write into it";
    if ((stats.mode & 0o077) !== 0) await chmod(path, 0o700);
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}
