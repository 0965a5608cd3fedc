import { openLog } from "../command-log.ts";
import { count } from "../../base/format.ts";
import { HubError } from "../../base/errors.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { settlesWithin } from "../../base/clock.ts";
import { HUBS_VARIABLE } from "../../process/outer-hubs.ts";
import { readHttpAddress } from "../../host/http-address.ts";
import { loadManifestLogged } from "../../operations/load-manifest.ts";
import type { CommandContext, Invocation } from "../command.ts";
import type { HostOutput, ManifestChanges, ServeCommandOptions } from "../../host/serve-hub.ts";
import { formatLogRecord, makeLogRecord } from "../../terminal/log.ts";
import { StderrWriter } from "../../terminal/stderr.ts";

/** Maximum wait for a slow reader of stderr at exit, in ms. */
const FLUSH_LIMIT = 250;

/**
 * `toolmux serve`: serves one client on stdin and stdout until the client disconnects, the parent process ends or a
 * signal arrives. With `--http` it serves any number of clients over HTTP, until a signal arrives.
 */
export async function serve(
  invocation: Invocation<ServeCommandOptions>,
  context: CommandContext,
  changes?: ManifestChanges,
): Promise<number> {
  const { logFormat } = invocation;
  const stderrWriter = new StderrWriter((missing) => {
    const text = `${count(missing, "line")} of the log ${missing === 1 ? "is" : "are"} missing: stderr was not read`;
    return formatLogRecord(makeLogRecord("warn", text, { missing }), logFormat);
  });
  const log = openLog(invocation, (record) =>
    stderrWriter.print(formatLogRecord(record, logFormat)),
  );
  try {
    const output = { log, print: (text: string) => stderrWriter.print(text) };
    return await serveWithOutput(invocation, context, output, changes);
  } finally {
    await settlesWithin(FLUSH_LIMIT, stderrWriter.drained());
  }
}

async function serveWithOutput(
  invocation: Invocation<ServeCommandOptions>,
  context: CommandContext,
  output: HostOutput,
  changes: ManifestChanges | undefined,
): Promise<number> {
  const { options } = invocation;
  const requestedAddress = readHttpAddress(options, context);
  const loaded = await loadManifestLogged(
    invocation,
    context,
    output.log,
    changes?.mayBeAbsent === true,
  );
  await rejectHubLoop(loaded.manifest, requestedAddress === undefined || options.stdio, context);
  const { serveHub } = await import("../../host/serve-hub.ts");
  return serveHub({ invocation, context, output, loaded, requestedAddress, changes });
}

/**
 * Refuses to start if hubs start each other in an endless loop.
 * @param isOnStdio whether a client on stdio gets this error as the answer to its requests
 * @throws {HubError} hubLoop
 */
async function rejectHubLoop(
  manifest: Manifest,
  isOnStdio: boolean,
  context: CommandContext,
): Promise<void> {
  if (!context.env[HUBS_VARIABLE]) return;
  const { answerWithError, checkHubLoop } = await import("../../host/nesting.ts");
  try {
    await checkHubLoop(manifest, context.env, 0);
  } catch (error) {
    if (error instanceof HubError && isOnStdio) {
      await answerWithError(error, context.signal);
    }
    throw error;
  }
}
