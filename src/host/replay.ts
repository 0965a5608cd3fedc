import { HubError } from "../base/errors.ts";
import { StdioServerTransport } from "../frontend/stdio.ts";
import { isRunnable, LIMIT_DEFAULTS, type Manifest } from "../manifest/manifest.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import type { RecordedExchange } from "../recording/exchanges.ts";
import { type ReplayOptions, replayServer } from "../recording/replay.ts";
import { memoryTransportPair } from "../transport/memory.ts";
import type { HostContext } from "./context.ts";
import { openHub } from "./open-hub.ts";
import { untilParentGone } from "../process/parent-process.ts";
import { untilSignal } from "./serve-hub.ts";

/** How to replay each recorded server, by server name. */
export type RecordedServers = ReadonlyMap<string, ReplayOptions>;

/** Replays one recorded server on stdin and stdout. @returns whether the recorded server ended its connection */
export async function serveRecordedServer(
  server: string,
  servers: RecordedServers,
  signal: AbortSignal,
): Promise<boolean> {
  const options = servers.get(server);
  if (options === undefined) return false;
  const stdio = new StdioServerTransport(LIMIT_DEFAULTS.maxMessage);
  const replayed = replayServer(stdio, options, signal).then((hasEnded) => {
    throwFault(stdio);
    return hasEnded;
  });
  const left = Promise.race([untilSignal(signal), untilParentGone()]).then(() => false);
  const hasEnded = await Promise.race([replayed, left]);
  if (stdio.outputError !== undefined) throw stdio.outputError;
  return hasEnded;
}

/** Replays all recorded servers, as a hub that serves one client on stdin and stdout. */
export async function serveReplayHub(
  manifest: Manifest,
  servers: RecordedServers,
  context: HostContext,
  log: CommandLog,
): Promise<void> {
  const { hub, close } = await openHub(manifest, context, log, {
    kinds: ["log"],
    authorizes: false,
    transportFactory: {
      redact: (text) => text,
      finish: () => Promise.resolve(),
      resolveIdentity: () => Promise.resolve(undefined),
      openTransport: ({ name }) => {
        const options = servers.get(name);
        if (options === undefined) {
          const text = `The recording has no start of server "${name}".`;
          return Promise.reject(new HubError("notRecorded", text, { server: name }));
        }
        const [serverEnd, hubEnd] = memoryTransportPair();
        // The replay ends when the hub closes this transport. Errors of the replay are ignored, because nobody could
        // receive them.
        replayServer(hubEnd, options, context.signal).catch(() => {});
        return Promise.resolve(serverEnd);
      },
    },
  });
  const stdio = new StdioServerTransport(LIMIT_DEFAULTS.maxMessage);
  const client = hub.accept(stdio, context.signal);
  try {
    await Promise.race([untilSignal(context.signal), untilParentGone(), client]);
    throwFault(stdio);
  } finally {
    await close();
  }
  if (stdio.outputError !== undefined) throw stdio.outputError;
}

/** @throws {HubError} internal if a message of the client could not be handled */
function throwFault({ fault }: StdioServerTransport): void {
  if (fault !== undefined)
    throw new HubError("internal", `A message of the client could not be handled: ${fault}`);
}

/**
 * Fixes each server to the protocol era in which it was recorded, legacy (up to 2025-11-25) or modern (2026-07-28),
 * because the hub might negotiate another one.
 */
export function withRecordedEras(
  manifest: Manifest,
  exchanges: ReadonlyMap<string, readonly RecordedExchange[]>,
): Manifest {
  const servers = manifest.servers.map((spec) => {
    const serverExchanges = exchanges.get(spec.name);
    if (serverExchanges === undefined || !isRunnable(spec)) return spec;
    const methods = new Set(serverExchanges.map(({ method }) => method));
    const [isLegacy, isModern] = [methods.has("initialize"), methods.has("server/discover")];
    if (isLegacy === isModern) return spec;
    return { ...spec, era: isLegacy ? ("legacy" as const) : ("modern" as const) };
  });
  return { ...manifest, servers };
}
