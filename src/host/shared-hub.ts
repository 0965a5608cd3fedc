import { readdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { attachKey, ownAttachName, parseAttachName } from "../attach/attach-name.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import { compareVersions, VERSION } from "../base/version.ts";
import { faultOfFolder, probe, runFolders } from "../control/socket-files.ts";
import type { Hub } from "../hub/hub.ts";
import { variablesOf } from "../manifest/client-values.ts";
import { manifestIdentity } from "../manifest/identity.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import type { OuterHub } from "../process/outer-hubs.ts";
import { type AttachSocket, openAttachSocket } from "./attach-socket.ts";
import { AttachedClients } from "./attached-clients.ts";

/** How often the hub looks for a newer one, in ms. */
const CHECK_INTERVAL = 60_000;
/** Minimum time that a hub waits for its first client, in ms: the process that has started it needs time to connect. */
const FIRST_CLIENT_WAIT = 30_000;
/** Time after which a hub whose clients have left looks again whether its other users have, too, in ms. */
const BUSY_WAIT = 30_000;

export interface SharedHubOptions {
  readonly hub: Pick<Hub, "accept" | "modeFault" | "status" | "snapshot">;
  readonly manifest: Manifest;
  readonly context: SystemEnvironment;
  readonly log: CommandLog;
  /** Aborted when the hub ends. */
  readonly signal: AbortSignal;
  /** Maximum length of a message, in bytes. */
  readonly maxMessage: number;
  /** See `AttachedClientsOptions`. */
  readonly maxUnread?: number;
  /** Whether the hub ends when it has had no client for `hub.linger`. */
  readonly endsWithoutClients: boolean;
  readonly clock?: Clock;
  /** The version of this hub; by default that of the program. */
  readonly version?: string;
}

/** The side of a hub at which other processes attach their clients. */
export interface SharedHub {
  /** The path of the attach socket. */
  readonly path: string;
  /** The hubs above the processes of the clients: this hub's servers must not start them again. */
  readonly outerHubs: readonly OuterHub[];
  /** Settles with the reason when the hub has no client any more and is to end. */
  readonly ended: Promise<string>;
  /** Called when another manifest is in force. */
  setManifest(manifest: Manifest): void;
  /**
   * Accepts no more clients, and lets those go that are there: each as soon as it has no open request.
   * @param limit time after which all are disconnected, in ms
   */
  drain(limit: number): Promise<void>;
  /** Accepts no more clients. Those that are there stay until the hub is closed. */
  close(): Promise<void>;
}

/**
 * Opens the attach socket of a hub, and serves the clients that come.
 * @throws {HubError} as `openAttachSocket`
 */
export async function openSharedHub(options: SharedHubOptions): Promise<SharedHub> {
  const { hub, manifest, context, log, signal, maxMessage, endsWithoutClients } = options;
  const { clock = systemClock, version = VERSION } = options;
  const { env, platform } = context;
  const ended = Promise.withResolvers<string>();
  const key = attachKey(manifest.sources, env);
  let isReplaced = false;
  let isClosed = false;
  let { linger } = manifest.hub;
  let variables = variablesOf(manifest);
  let cancelLinger = (): void => {};
  let cancelCheck = (): void => {};

  /** Ends the hub after `delay` ms, unless a client comes. */
  const endLater = (delay: number): void => {
    cancelLinger();
    if (!endsWithoutClients && !isReplaced) return;
    cancelLinger = clock.after(delay, () => {
      if (clients.size > 0 || isClosed) return;
      if (isUsed(hub)) endLater(BUSY_WAIT);
      else ended.resolve(isReplaced ? "a newer hub has its clients" : "its last client has left");
    });
  };
  const clients = new AttachedClients({
    hub,
    clock,
    signal,
    maxMessage,
    maxUnread: options.maxUnread,
    variables: () => variables,
    manifestId: await manifestIdentity(manifest, env),
    log,
    onChange() {
      cancelLinger();
      if (clients.size === 0) endLater(linger);
    },
  });
  const socket: AttachSocket = await openAttachSocket({
    env,
    platform,
    name: ownAttachName(key, version),
    clock,
    onConnection: (connection) => clients.accept(connection),
    onReplaced: () => {
      log("warn", `Another hub has taken the socket ${socket.path}: this one lets its clients go.`);
      isReplaced = true;
      if (clients.size === 0) endLater(0);
    },
    warn: (text) => log("warn", text),
  });
  const check = async (): Promise<void> => {
    if (!isReplaced && (await isNewerThere(key, version, { env, platform }))) {
      log("info", "a newer hub of this manifest runs: clients move to it when they are idle");
      isReplaced = true;
      if (clients.size === 0) endLater(0);
    }
    if (isClosed) return;
    clients.check(isReplaced);
    cancelCheck = clock.after(CHECK_INTERVAL, () => void check());
  };
  cancelCheck = clock.after(CHECK_INTERVAL, () => void check());
  endLater(Math.max(linger, FIRST_CLIENT_WAIT));
  const close = async (): Promise<void> => {
    isClosed = true;
    cancelLinger();
    cancelCheck();
    await socket.close();
  };
  return {
    path: socket.path,
    get outerHubs() {
      return clients.outerHubs;
    },
    ended: ended.promise,
    setManifest(next) {
      ({ linger } = next.hub);
      variables = variablesOf(next);
    },
    async drain(limit) {
      await close();
      await clients.drain(limit);
    },
    close,
  };
}

/** Whether somebody besides attached clients uses a hub: a call runs, or a client of the operator is connected. */
function isUsed(hub: Pick<Hub, "snapshot">): boolean {
  const { calls, clients } = hub.snapshot();
  return calls.length > 0 || clients.some(({ transport }) => transport === "control");
}

/** Whether a hub of the same key and a newer version listens. */
async function isNewerThere(
  key: string,
  version: string,
  environment: Pick<SystemEnvironment, "env" | "platform">,
): Promise<boolean> {
  const uid = process.getuid?.() ?? -1;
  for (const { path: folder } of runFolders(environment, uid)) {
    for (const name of namesIn(folder, uid)) {
      const found = parseAttachName(name);
      if (found?.key !== key || compareVersions(found.version, version) <= 0) continue;
      if ((await probe(join(folder, name))) === "alive") return true;
    }
  }
  return false;
}

/** The names of the files in a folder for sockets; none if it cannot be trusted or read. */
function namesIn(folder: string, uid: number): readonly string[] {
  try {
    return faultOfFolder(folder, uid) === undefined ? readdirSync(folder) : [];
  } catch {
    return [];
  }
}
