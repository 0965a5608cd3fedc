import { randomUUID } from "node:crypto";
import { lstat, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { stateFolder, type SystemEnvironment } from "../base/paths.ts";
import {
  listenOnUnixSocket,
  type SocketConnection,
  type SocketListener,
} from "../base/unix-socket.ts";
import { findSocketFolder } from "../control/hub-socket.ts";
import { probe, runFolders } from "../control/socket-files.ts";
import { parseAttachName } from "../attach/attach-name.ts";
import { withFileLock } from "../process/file-lock.ts";

/** How often the hub looks whether its socket is still there, in ms. Programs that clean temporary folders remove it. */
const CHECK_INTERVAL = 60_000;
/** Maximum wait for another process that is opening the same socket, in ms. */
const LOCK_TIMEOUT = 5000;

/** The names of sockets on which a hub listens already, but which have not got their name. */
const UNFINISHED_SUFFIX = ".attach.tmp";
const UNFINISHED_NAME = /^[0-9a-f]{8}\.attach\.tmp$/;

export interface AttachSocketOptions extends Pick<SystemEnvironment, "env" | "platform"> {
  /** The name of the socket. Hubs of one manifest and one version have the same. */
  readonly name: string;
  readonly clock: Clock;
  onConnection(connection: SocketConnection): void;
  /** Another process has opened a socket of this name: clients do not find this hub any more. Called at most once. */
  onReplaced(): void;
  readonly warn: (text: string) => void;
}

/** The socket at which other processes attach their clients to this hub. */
export interface AttachSocket {
  /** The path of the socket. */
  readonly path: string;
  /** Accepts no more connections, and removes the socket. Open connections stay. Later calls do nothing. */
  close(): Promise<void>;
}

/**
 * Opens the attach socket in the first folder for sockets that can be used. Only this user can connect to it: it has mode
 * 0600 before it gets its name, and its folder belongs to the user. A socket that a killed hub has left is replaced.
 * @throws {HubError} conflict if a hub listens on a socket of this name; usage if no folder can be used; storeBusy,
 * storeBroken if the state folder cannot be written
 */
export async function openAttachSocket(options: AttachSocketOptions): Promise<AttachSocket> {
  const { env, platform, name, clock, warn } = options;
  const uid = process.getuid?.() ?? -1;
  const folder = await findSocketFolder(runFolders({ env, platform }, uid), uid, name);
  const path = join(folder, name);
  const key = parseAttachName(name)?.key ?? name;
  const lock = join(stateFolder(env, platform), `attach-${key}.listen.lock`);
  let isClosed = false;

  /** Listens under another name first, so that nobody can connect before the mode is set. */
  const open = async (): Promise<OpenSocket> => {
    const ownPath = join(folder, `${randomUUID().slice(0, 8)}${UNFINISHED_SUFFIX}`);
    const listener = await listenOnUnixSocket(ownPath, (it) => options.onConnection(it));
    try {
      const { ino } = await lstat(ownPath);
      // The lock keeps two processes from taking each other's new socket for one that a killed hub has left.
      const take = async (): Promise<void> => {
        const state = await probe(path);
        if (state !== "dead") throw alreadyRunning(path);
        await rename(ownPath, path);
        await removeDeadSockets(folder, key);
      };
      const limits = { waitTimeout: LOCK_TIMEOUT };
      await withFileLock(lock, new AbortController().signal, take, limits);
      return { listener, ino };
    } catch (error) {
      listener.close();
      await rm(ownPath, { force: true });
      throw error;
    }
  };

  let socket = await open();
  let cancelTimer = (): void => {};
  const check = async (): Promise<void> => {
    try {
      const found = await inodeOf(path);
      if (isClosed) return;
      if (found !== undefined && found !== socket.ino) {
        options.onReplaced();
        return;
      }
      if (found === undefined) {
        const before = socket;
        await findSocketFolder([{ path: folder, parent: folder }], uid, name);
        socket = await open();
        before.listener.close();
        if (isClosed) await remove();
      }
    } catch (error) {
      if (error instanceof HubError && error.code === "conflict") {
        options.onReplaced();
        return;
      }
      const reason = error instanceof Error ? error.message : String(error);
      warn(`The socket for clients of this hub is gone, and cannot be made again: ${reason}`);
    }
    schedule();
  };
  const schedule = (): void => {
    if (!isClosed) cancelTimer = clock.after(CHECK_INTERVAL, () => void check());
  };
  /** Removes the socket, unless it is another hub's by now. */
  const remove = async (): Promise<void> => {
    socket.listener.close();
    if ((await inodeOf(path)) === socket.ino) await rm(path, { force: true });
  };
  schedule();
  return {
    path,
    async close() {
      if (isClosed) return;
      isClosed = true;
      cancelTimer();
      await remove();
    },
  };
}

interface OpenSocket {
  readonly listener: SocketListener;
  /** The number of the socket's file. */
  readonly ino: number;
}

/** Removes what killed hubs of a key, of all versions, have left, also while they started. */
async function removeDeadSockets(folder: string, key: string): Promise<void> {
  const names = await readdir(folder);
  const own = names.filter(
    (name) => parseAttachName(name)?.key === key || UNFINISHED_NAME.test(name),
  );
  for (const name of own) {
    const path = join(folder, name);
    const isSocket = await lstat(path).then(
      (stats) => stats.isSocket(),
      () => false,
    );
    if (isSocket && (await probe(path)) === "dead") await rm(path, { force: true });
  }
}

/** The number of the file at a path; undefined if there is none. */
async function inodeOf(path: string): Promise<number | undefined> {
  return lstat(path).then(
    ({ ino }) => ino,
    () => undefined,
  );
}

function alreadyRunning(path: string): HubError {
  const text = `A shared hub of this manifest and this version runs already: it listens on ${path}. To start it anew: toolmux daemon restart`;
  return new HubError("conflict", text);
}
