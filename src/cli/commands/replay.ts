import { count } from "../../base/format.ts";
import type { Buffer } from "node:buffer";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { settlesWithin, systemClock } from "../../base/clock.ts";
import { type HubError, usageError } from "../../base/errors.ts";
import { findNearest } from "../../manifest/problems.ts";
import { ReplayReport } from "../../recording/replay.ts";
import { readRecording } from "../../recording/reader.ts";
import { readExchanges } from "../../recording/exchanges.ts";
import { ExchangeMatcher } from "../../recording/matcher.ts";
import { readManifest } from "../../recording/recorded-manifest.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { formatLogRecord, makeLogRecord } from "../../terminal/log.ts";
import { StderrWriter } from "../../terminal/stderr.ts";
import { openLog } from "../command-log.ts";
import {
  type RecordedServers,
  serveRecordedServer,
  serveReplayHub,
  withRecordedEras,
} from "../../host/replay.ts";

/** Maximum wait for a slow reader of stderr at exit, in ms. */
const FLUSH_LIMIT = 250;

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
      await serveReplayHub(manifest, servers, context, openLog(invocation));
    } else {
      hasEnded = await serveRecordedServer(server, servers, context.signal);
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

function unknownServerError(server: string, names: readonly string[]): HubError {
  const nearest = findNearest(server, names);
  const others = names.length === 0 ? "no servers" : names.map((name) => `"${name}"`).join(", ");
  const hint = nearest === undefined ? ` It has ${others}.` : ` Did you mean "${nearest}"?`;
  return usageError(`The recording has no server "${server}".${hint}`);
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
