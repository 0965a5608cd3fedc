import process from "node:process";
import { HubError } from "../../base/errors.ts";
import { EarlyInitialize, type InitializeAnswers } from "../../frontend/early-initialize.ts";
import { installationKeyPath, stateFolder } from "../../base/paths.ts";
import { listDependencies } from "../../manifest/load.ts";
import type { Manifest } from "../../manifest/schema.ts";
import { VERSION } from "../../base/version.ts";
import { settlesWithin } from "../../base/clock.ts";
import { HUBS_VARIABLE } from "../../process/outer-hubs.ts";
import { readHttpAddress } from "../http-address.ts";
import { loadManifestLogged, loadOptions, openLog } from "../load-manifest.ts";
import type { CommandContext, Invocation } from "../command.ts";
import type { HostOutput } from "../serve-hub.ts";
import { LogTapeLogger } from "../../terminal/logtape.ts";
import { formatLogRecord, makeLogRecord } from "../../terminal/log.ts";
import { StderrWriter } from "../../terminal/stderr.ts";

/** Longest wait for a slow reader of stderr at exit, in ms. */
const FLUSH_LIMIT = 250;

/**
 * `toolmux serve`: serves one client on stdin and stdout until it disconnects, its process is gone or a signal arrives;
 * or any number of clients over HTTP, until a signal arrives.
 */
export async function serve(invocation: Invocation, context: CommandContext): Promise<number> {
  const { logFormat } = invocation;
  const stderrWriter = new StderrWriter((missing) => {
    const text = `${missing} lines are missing here: nobody read`;
    return formatLogRecord(makeLogRecord("warn", text, { missing }), logFormat);
  });
  const logger = new LogTapeLogger((record) =>
    stderrWriter.print(formatLogRecord(record, logFormat)),
  );
  // Log lines are written at exit, too: if a bug ends the process, the last ones explain it.
  process.once("exit", () => logger.flush());
  const log = openLog(invocation, (record) => logger.write(record));
  try {
    return await serveWithOutput(invocation, context, {
      logger,
      log,
      print: (text) => stderrWriter.print(text),
    });
  } finally {
    logger.flush();
    await settlesWithin(FLUSH_LIMIT, stderrWriter.drained());
  }
}

async function serveWithOutput(
  invocation: Invocation,
  context: CommandContext,
  output: HostOutput,
): Promise<number> {
  const requestedAddress = readHttpAddress(invocation, context);
  // Recording options are validated only when the hub is opened; if any is given, `initialize` is answered only after
  // that.
  const isPlainStdio =
    requestedAddress === undefined && !RECORDING_OPTIONS.some((it) => invocation.values.has(it));
  if (isPlainStdio)
    context.initializeCache?.recordFiles(listDependencies(loadOptions(invocation, context)));
  const loaded = await loadManifestLogged(invocation, context, output.log);
  await rejectHubLoop(loaded.manifest, requestedAddress === undefined || invocation.stdio, context);
  const earlyInitialize =
    context.earlyInitialize ??
    (isPlainStdio ? await answerInitializeEarly(loaded.manifest, context) : undefined);
  const { serveHub } = await import("../serve-hub.ts");
  return serveHub({
    invocation,
    context: { ...context, earlyInitialize },
    output,
    loaded,
    requestedAddress,
  });
}

/**
 * Refuses to start if hubs start each other in an endless loop.
 * @param isOnStdio whether a client on stdio has to be told
 * @throws {HubError} hubLoop, after that client's requests were answered with it
 */
async function rejectHubLoop(
  manifest: Manifest,
  isOnStdio: boolean,
  context: CommandContext,
): Promise<void> {
  if (!context.env[HUBS_VARIABLE]) return;
  const { answerWithError, checkHubLoop } = await import("../hub-loop.ts");
  try {
    await checkHubLoop(manifest, context.env, 0);
  } catch (error) {
    if (error instanceof HubError && isOnStdio) {
      await answerWithError(error, context.earlyInitialize, context.signal);
    }
    throw error;
  }
}

const RECORDING_OPTIONS = ["record", "record-limit"] as const;

/**
 * Answers `initialize` before the hub's code is loaded, which takes most of the start time. Only if the manifest is
 * valid and the servers' instructions are known from snapshots; not with plugins, whose effect is unknown.
 */
async function answerInitializeEarly(
  manifest: Manifest,
  context: CommandContext,
): Promise<EarlyInitialize | undefined> {
  if (manifest.plugins.length > 0) return undefined;
  // The instructions may report the problem of an invalid entry, which snapshots do not contain.
  if (manifest.servers.some(({ kind }) => kind === "invalid")) return undefined;
  let answers: InitializeAnswers | undefined = {};
  if (mayHaveSnapshots(context)) {
    const { openInstructionsRecall } = await import("../recalled-instructions.ts");
    answers = openInstructionsRecall(manifest, context);
  }
  const earlyInitialize =
    answers && new EarlyInitialize({ name: manifest.hub.name, version: VERSION }, answers);
  await earlyInitialize?.readAvailable();
  return earlyInitialize;
}

/** Whether there may be snapshots: none can be read without the key file. */
function mayHaveSnapshots({ env, platform }: CommandContext): boolean {
  try {
    return process
      .getBuiltinModule("node:fs")
      .existsSync(installationKeyPath(stateFolder(env, platform)));
  } catch {
    // Without a home folder, the path of the key file is unknown: snapshots are assumed.
    return true;
  }
}
