import { mkdir, open, readFile, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { RUN_FOLDER_VARIABLE, stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { ownCommand } from "../base/runtime.ts";
import { SERVERS_VARIABLE } from "../manifest/manifest.ts";
import { childEnvironment } from "../process/child-process.ts";

/** Maximum size of the log of a shared hub, in bytes; a longer one becomes the predecessor of a new one. */
const MAX_LOG = 1024 * 1024;
/** The number of characters of the log that a failed start shows. */
const LOG_TAIL = 2000;

export interface SharedHubStart extends SystemEnvironment {
  readonly key: string;
  /** The files of the manifest, absolute, in the order of merging. */
  readonly sources: readonly string[];
  /** Whether the user has named the files. Otherwise the hub finds them itself, and loads only those that are trusted. */
  readonly areNamed: boolean;
  /** Whether the hub ends when it has had no client for `hub.linger`. */
  readonly endsWithoutClients: boolean;
}

/** A shared hub that was started. */
export interface StartedProcess {
  hasEnded(): boolean;
  /** The end of what it has logged, for people. */
  readLog(): Promise<string>;
}

/**
 * Starts `toolmux daemon run` in a session of its own. It gets no variables of the environment besides those that every
 * server gets, and those that name the manifest and the folder for sockets.
 * @throws the error of the system
 */
export async function startSharedHubProcess(given: SharedHubStart): Promise<StartedProcess> {
  const { env, cwd, sources, areNamed, endsWithoutClients } = given;
  const log = await openLog(given);
  try {
    const { spawn } = await import("node:child_process");
    const [command, ...first] = ownCommand();
    const files = areNamed ? sources.flatMap((file) => ["--config", file]) : [];
    const options = endsWithoutClients ? [] : ["--no-linger"];
    // The files of a working directory are found only there; they come last.
    const source = areNamed ? sources[0] : sources.at(-1);
    const child = spawn(command, [...first, "daemon", "run", ...files, ...options], {
      detached: true,
      stdio: ["ignore", log.file.fd, log.file.fd],
      cwd: source === undefined ? cwd : dirname(source),
      env: childEnvironment(
        env,
        {},
        {
          [RUN_FOLDER_VARIABLE]: env[RUN_FOLDER_VARIABLE],
          [SERVERS_VARIABLE]: env[SERVERS_VARIABLE],
        },
      ),
    });
    let hasEnded = false;
    child.once("exit", () => (hasEnded = true));
    child.once("error", () => (hasEnded = true));
    child.unref();
    return { hasEnded: () => hasEnded, readLog: () => readEnd(log.path, log.size) };
  } finally {
    await log.file.close();
  }
}

/** The path of the log of the shared hub with this key. */
export function logOfSharedHub(
  key: string,
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
): string {
  return join(stateFolder(env, platform), "logs", `attach-${key}.log`);
}

/** Opens the log of the shared hub to append to it. `size`: its size before, in bytes. */
async function openLog({ key, env, platform }: SharedHubStart): Promise<{
  readonly path: string;
  readonly size: number;
  readonly file: Awaited<ReturnType<typeof open>>;
}> {
  const path = logOfSharedHub(key, { env, platform });
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const { size } = await stat(path).catch(() => ({ size: 0 }));
  if (size >= MAX_LOG) await rename(path, `${path}.1`);
  return { path, size: size >= MAX_LOG ? 0 : size, file: await open(path, "a", 0o600) };
}

async function readEnd(path: string, from: number): Promise<string> {
  const bytes = await readFile(path).catch(() => undefined);
  const text = bytes?.subarray(from).toString().trim() ?? "";
  return text === "" ? `Its log is ${path}.` : text.slice(-LOG_TAIL);
}
