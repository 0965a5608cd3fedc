import { count } from "../../base/format.ts";
import type { Buffer } from "node:buffer";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { settlesWithin, systemClock } from "../../base/clock.ts";
import { HubError, usageError } from "../../base/errors.ts";
import { StdioServerTransport } from "../../frontend/stdio.ts";
import { findNearest } from "../../manifest/problems.ts";
import { isRunnable, LIMIT_DEFAULTS, type Manifest } from "../../manifest/manifest.ts";
import { type ReplayOptions, ReplayReport, replayServer } from "../../recording/replay.ts";
import { readRecording } from "../../recording/reader.ts";
import { readExchanges, type RecordedExchange } from "../../recording/exchanges.ts";
import { ExchangeMatcher } from "../../recording/matcher.ts";
import { readManifest } from "../../recording/recorded-manifest.ts";
import { memoryTransportPair } from "../../transport/memory.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { formatLogRecord, makeLogRecord } from "../../terminal/log.ts";
import { StderrWriter } from "../../terminal/stderr.ts";
import { openLog } from "../command-log.ts";
import { openHub } from "../../host/open-hub.ts";
import { untilParentGone, untilSignal } from "../../host/serve-hub.ts";

/** Maximum wait for a slow reader of stderr at exit, in ms. */
const FLUSH_LIMIT = 250;

/** How to replay each recorded server, by server name. */
type RecordedServers = ReadonlyMap<string, ReplayOptions>;

interface ReplayCommandOptions {
  readonly server: string | undefined;
  readonly speed: string | undefined;
  readonly strict: boolean;
}

/** `toolmux replay`: serves a recording, either one recorded server (`--server`) or a hub with all recorded servers. */
export async function replay(
  invocation: Invocation<ReplayCommandOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options, logFormat } = invocation;
  const [path = ""] = args;
  const speed = readSpeed(options.speed ?? "1");
  const recorded = readRecording(await read(resolve(context.cwd, path), path), path);
  const stderrWriter = new StderrWriter(
    (missing) => `${count(missing, "line")} omitted here, because stderr was not read in time`,
  );
  const log = (level: "info" | "warn", text: string): void =>
    stderrWriter.print(formatLogRecord(makeLogRecord(level, text), logFormat));
  const report = new ReplayReport((text) => log("warn", text));
  const exchanges = new Map(
    [...Map.groupBy(recorded.lines, ({ server }) => server)].map(
      ([name, entries]) => [name, readExchanges(entries)] as const,
    ),
  );
  const servers: RecordedServers = new Map(
    [...exchanges].map(([server, serverExchanges]) => {
      const matcher = new ExchangeMatcher(serverExchanges);
      return [server, { server, matcher, report, clock: systemClock, speed }] as const;
    }),
  );
  const { server } = options;
  if (server !== undefined && !servers.has(server))
    throw unknownServerError(server, [...servers.keys()]);
  for (const note of recorded.notes) log("info", note);
  let hasEnded = false;
  try {
    if (server === undefined) {
      const manifest = withRecordedEras(
        readManifest(recorded.manifest, [...servers.keys()]),
        exchanges,
      );
      await serveReplayHub(manifest, servers, invocation, context);
    } else {
      hasEnded = await serveOneServer(server, servers, context);
      if (hasEnded) log("info", `the recording of ${server} ends here with the end of the server`);
    }
  } finally {
    const unplayed = [...servers.values()].reduce(
      (sum, { matcher }) => sum + matcher.neverRequested,
      0,
    );
    log(report.hasDiverged ? "warn" : "info", report.summary(unplayed));
    await settlesWithin(FLUSH_LIMIT, stderrWriter.drained());
  }
  return hasEnded || (report.hasDiverged && options.strict) ? 1 : 0;
}

/** Replays one recorded server on stdin and stdout. @returns whether the recorded server ended its connection */
async function serveOneServer(
  server: string,
  servers: RecordedServers,
  context: CommandContext,
): Promise<boolean> {
  const options = servers.get(server);
  if (options === undefined) return false;
  const stdio = new StdioServerTransport(LIMIT_DEFAULTS.maxMessage);
  const replayed = replayServer(stdio, options, context.signal).then((hasEnded) => {
    throwFault(stdio);
    return hasEnded;
  });
  const left = Promise.race([untilSignal(context.signal), untilParentGone()]).then(() => false);
  const hasEnded = await Promise.race([replayed, left]);
  if (stdio.outputError !== undefined) throw stdio.outputError;
  return hasEnded;
}

function unknownServerError(server: string, names: readonly string[]): HubError {
  const nearest = findNearest(server, names);
  const others = names.length === 0 ? "no servers" : names.map((name) => `"${name}"`).join(", ");
  const hint = nearest === undefined ? ` It has ${others}.` : ` Did you mean "${nearest}"?`;
  return usageError(`The recording has no server "${server}".${hint}`);
}

async function serveReplayHub(
  manifest: Manifest,
  servers: RecordedServers,
  invocation: Invocation,
  context: CommandContext,
): Promise<void> {
  const { hub, close } = await openHub(manifest, context, openLog(invocation), {
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
function withRecordedEras(
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

async function read(file: string, name: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw usageError(`Could not read the recording ${name}: ${reason}`);
  }
}

/** Reads the value of `--speed`: a factor, or `max` as Infinity. @throws {HubError} usage */
function readSpeed(text: string): number {
  if (text === "max") return Number.POSITIVE_INFINITY;
  const speed = /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : 0;
  if (speed > 0 && Number.isFinite(speed)) return speed;
  throw usageError(`--speed must be a number (1 is the recorded speed) or max, not "${text}".`);
}
