import { Buffer } from "node:buffer";
import { join } from "node:path";
import process from "node:process";
import { lookFor, pause, systemClock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { type Env, stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { connectToUnixSocket, type SocketConnection } from "../base/unix-socket.ts";
import { compareVersions, VERSION } from "../base/version.ts";
import { faultOfFolder, runFolders } from "../control/socket-files.ts";
import { ownAttachName, parseAttachName } from "./attach-name.ts";
import { type FirstLine, FirstLineInput } from "./first-line.ts";
import {
  ATTACH_PROTOCOL,
  type AttachRequest,
  formatAttachRequest,
  formatVariables,
  HANDSHAKE_LIMITS,
  type ManifestFacts,
  parseAttachAnswer,
} from "./handshake.ts";
import type { StartedProcess } from "./shared-hub-process.ts";

/** Time within which a started hub must accept a client, and how often that is tried, in ms. */
const START_LIMIT = 10_000;
const POLL_INTERVAL = 2;
/** Maximum wait for another process that starts the hub, in ms. */
const LOCK_TIMEOUT = START_LIMIT + 5000;

export interface JoinOptions extends Pick<SystemEnvironment, "env" | "platform"> {
  readonly key: string;
  /** Without `env`, the hub is given those variables of the environment that it asks for. */
  readonly request: AttachRequest;
  readonly signal: AbortSignal;
  /** The version of this program. */
  readonly version?: string;
  /** Starts a hub of this version. @throws the reason why it cannot be started */
  start(): Promise<StartedProcess>;
}

/** `refused`: a hub has refused the client, and would again; `unavailable`: no hub answers, and none can be started. */
export type JoinResult =
  | {
      readonly kind: "joined";
      readonly connection: SocketConnection;
      readonly version: string;
      /** Maximum length of a message, in bytes; undefined if the hub did not say it. */
      readonly maxMessage: number | undefined;
    }
  | { readonly kind: "refused"; readonly error: HubError }
  | { readonly kind: "unavailable"; readonly error: HubError };

/**
 * Attaches a client to the newest hub of its key that accepts it, if it is not older than this program.
 * @returns undefined if there is none. Never rejects
 */
export function joinRunningHub(
  options: Omit<JoinOptions, "start" | "signal">,
): Promise<JoinResult | undefined> {
  const { version = VERSION } = options;
  return tryHubs(options, new Set(), (other) => compareVersions(other, version) >= 0);
}

/**
 * Attaches a client to the newest hub of its key that accepts it. If none does, starts one; an older hub than this
 * program is used only if none can be started. Never rejects.
 */
export async function joinHub(options: JoinOptions): Promise<JoinResult> {
  const { env, platform, key, version = VERSION } = options;
  /** Sockets whose hub did not answer. */
  const silent = new Set<string>();
  const tryCurrent = (): Promise<JoinResult | undefined> =>
    tryHubs(options, silent, (other) => compareVersions(other, version) >= 0);
  const isOwnSilent = (): boolean =>
    [...silent].some((path) => path.endsWith(`/${ownAttachName(key, version)}`));
  const startHub = async (): Promise<JoinResult> => {
    const result = await tryCurrent();
    if (result !== undefined) return result;
    if (isOwnSilent()) throw new HubError("notResponding", "The shared hub does not answer.");
    const started = await options.start();
    // The hub may also end because another one was there first, which is joined.
    const joined = await lookFor(tryCurrent, {
      limit: START_LIMIT,
      interval: POLL_INTERVAL,
      signal: options.signal,
      hasEnded: () => started.hasEnded(),
    });
    if (joined !== undefined) return joined;
    const log = await started.readLog();
    const what = started.hasEnded() ? "has ended while it started" : "is not ready in time";
    throw new HubError("spawnFailed", `The shared hub ${what}. ${log}`);
  };
  try {
    const result = await tryCurrent();
    if (result !== undefined) return result;
    const lock = join(stateFolder(env, platform), `attach-${key}.lock`);
    // What starts a hub is not loaded if one runs.
    const { withFileLock } = await import("../process/file-lock.ts");
    return await withFileLock(lock, options.signal, startHub, { waitTimeout: LOCK_TIMEOUT });
  } catch (error) {
    const older = await tryHubs(options, silent, (other) => compareVersions(other, version) < 0);
    return older ?? { kind: "unavailable", error: toHubError(error) };
  }
}

/**
 * Attaches a client to the newest of those hubs of its key that are wanted.
 * @param silent the sockets whose hub did not answer, which are left out; further ones are added
 */
async function tryHubs(
  options: Omit<JoinOptions, "start" | "signal">,
  silent: Set<string>,
  isWanted: (version: string) => boolean,
): Promise<JoinResult | undefined> {
  const found = socketsOf(options).filter((it) => isWanted(it.version));
  for (const { path } of found) {
    if (silent.has(path)) continue;
    const result = await attachTo(path, options);
    if (result === "silent") silent.add(path);
    else if (typeof result === "object") return result;
  }
  return undefined;
}

interface FoundSocket {
  readonly path: string;
  readonly version: string;
}

/**
 * The attach sockets of a key that can be trusted, the newest version first. Looks for them synchronously: the
 * asynchronous file API would start threads for a few short operations.
 */
function socketsOf({
  env,
  platform,
  key,
}: Pick<JoinOptions, "env" | "platform" | "key">): readonly FoundSocket[] {
  const uid = process.getuid?.() ?? -1;
  const folders = runFolders({ env, platform }, uid);
  const found = folders.flatMap(({ path }) => socketsIn(path, key, uid));
  return found.toSorted((a, b) => compareVersions(b.version, a.version));
}

function socketsIn(folder: string, key: string, uid: number): readonly FoundSocket[] {
  const { lstatSync, readdirSync } = process.getBuiltinModule("node:fs");
  try {
    const names = readdirSync(folder).flatMap((name) => {
      const parsed = parseAttachName(name);
      const isOfKey = parsed?.key === key && parsed.protocol === ATTACH_PROTOCOL;
      return isOfKey ? [{ path: join(folder, name), version: parsed.version }] : [];
    });
    if (names.length === 0 || faultOfFolder(folder, uid) !== undefined) return [];
    return names.filter(({ path }) => {
      const file = lstatSync(path, { throwIfNoEntry: false });
      return file?.isSocket() === true && (uid === -1 || file.uid === uid);
    });
  } catch {
    return [];
  }
}

/**
 * Connects to a socket, and sends the first line.
 * @returns `gone` if nobody listens or the hub takes no clients any more; `silent` if it does not answer in time
 */
async function attachTo(
  path: string,
  { request, env }: Pick<JoinOptions, "request" | "env">,
): Promise<JoinResult | "gone" | "silent"> {
  const answered = Promise.withResolvers<FirstLine | "silent">();
  let input: FirstLineInput | undefined;
  let connection: SocketConnection | undefined;
  const timer = setTimeout(() => answered.resolve("silent"), HANDSHAKE_LIMITS.timeout);
  try {
    await connectToUnixSocket(path, (opened) => {
      connection = opened;
      input = new FirstLineInput(opened.input, answered.resolve);
      void opened.output.write(Buffer.from(`${formatAttachRequest(request)}\n`));
    });
    const first = await answered.promise;
    if (connection === undefined || input === undefined) return "gone";
    const result = typeof first === "object" ? readAnswer(first.line) : goneOr(first);
    if (typeof result === "object" && result.kind === "accepted") {
      const { output } = connection;
      const { variables = [], version, maxMessage } = result;
      if (request.env === undefined && variables.length > 0) {
        const line = Buffer.from(`${formatVariables(valuesOf(variables, env))}\n`);
        if (line.length > HANDSHAKE_LIMITS.maxBytes) {
          connection.destroy();
          return { kind: "refused", error: tooLongError(variables) };
        }
        // What the client sends may only follow when the hub has taken the whole line.
        const limit = new AbortController();
        const isLate = pause(systemClock, HANDSHAKE_LIMITS.timeout, limit.signal).then(() => true);
        isLate.catch(() => {});
        const wasLate = await Promise.race([isLate, output.write(line)]);
        limit.abort();
        if (wasLate === true) {
          connection.destroy();
          return "silent";
        }
      }
      const opened = connection;
      const joined = {
        input,
        output,
        isPeerGone: () => opened.isPeerGone(),
        destroy: () => opened.destroy(),
      };
      return { kind: "joined", connection: joined, version, maxMessage };
    }
    connection.destroy();
    return result;
  } catch {
    return "gone";
  } finally {
    clearTimeout(timer);
  }
}

function tooLongError(variables: readonly string[]): HubError {
  const text = `The variables that the manifest takes from its clients are longer than ${HANDSHAKE_LIMITS.maxBytes} bytes here: ${variables.join(", ")}. Shorten one, or start this client with --private.`;
  return new HubError("messageTooLarge", text);
}

function goneOr(first: "ended" | "tooLong" | "silent"): "gone" | "silent" {
  return first === "silent" ? first : "gone";
}

/** Those of the variables that an environment has. */
function valuesOf(variables: readonly string[], env: Env): Env {
  return Object.fromEntries(
    variables.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]] as const])),
  );
}

/** Reads the answer to the first line. */
function readAnswer(
  line: string,
):
  | ({ readonly kind: "accepted"; readonly version: string } & Partial<ManifestFacts>)
  | { readonly kind: "refused"; readonly error: HubError }
  | "gone" {
  const answer = parseAttachAnswer(line);
  if (answer === undefined) return "gone";
  if (answer.ok) {
    const { hub, variables, maxMessage } = answer;
    return {
      kind: "accepted",
      version: hub.version,
      ...(variables !== undefined && { variables }),
      ...(maxMessage !== undefined && { maxMessage }),
    };
  }
  const { code, message } = answer.error;
  // A hub that ends, or has too many clients, refuses this one only for the moment.
  if (code === "hubBusy") return "gone";
  const known = HubError.isCode(code) ? code : "usage";
  return { kind: "refused", error: new HubError(known, message) };
}
