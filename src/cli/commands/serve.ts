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
 * `toolmux serve`: serves one client on stdin and stdout until it leaves, its process is gone or a signal
 * comes; or any number of clients over HTTP, until a signal comes.
 */
export async function serve(invocation: Invocation, world: CommandContext): Promise<number> {
  const { logFormat } = invocation;
  const notices = new StderrWriter((missing) => {
    const text = `${missing} lines are missing here: nobody read`;
    return formatLogRecord(makeLogRecord("warn", text, { missing }), logFormat);
  });
  const journal = new LogTapeLogger((record) => notices.print(formatLogRecord(record, logFormat)));
  // After a bug has ended the process at once, the last lines are needed to explain it.
  process.once("exit", () => journal.flush());
  const log = openLog(invocation, (record) => journal.write(record));
  try {
    return await run(invocation, world, { journal, log, tell: (text) => notices.print(text) });
  } finally {
    journal.flush();
    await settlesWithin(FLUSH_LIMIT, notices.drained());
  }
}

async function run(
  invocation: Invocation,
  world: CommandContext,
  voices: HostOutput,
): Promise<number> {
  const wanted = readHttpAddress(invocation, world);
  // Recording options are validated only when the hub is opened, so nothing is answered early with them.
  const isUsual = wanted === undefined && !RECORDING.some((it) => invocation.values.has(it));
  if (isUsual) world.greetings?.note(listDependencies(loadOptions(invocation, world)));
  const basis = await loadManifestLogged(invocation, world, voices.log);
  await refuseToLoop(basis.manifest, wanted === undefined || invocation.stdio, world);
  const welcome = world.welcome ?? (isUsual ? await greetEarly(basis.manifest, world) : undefined);
  const { serveHub } = await import("../serve-hub.ts");
  return serveHub({ invocation, world: { ...world, welcome }, voices, basis, wanted });
}

/**
 * @param isOnStdio whether there is a client to answer @throws {HubError} hubLoop, after the client was
 * answered with it
 */
async function refuseToLoop(
  manifest: Manifest,
  isOnStdio: boolean,
  world: CommandContext,
): Promise<void> {
  if (!world.env[HUBS_VARIABLE]) return;
  const { answerWith, refuseLoop } = await import("../hub-loop.ts");
  try {
    await refuseLoop(manifest, world.env, 0);
  } catch (error) {
    if (error instanceof HubError && isOnStdio) {
      await answerWith(error, world.welcome, world.signal);
    }
    throw error;
  }
}

const RECORDING = ["record", "record-limit"] as const;

/**
 * Answers an early `initialize` before the hub's code is loaded, which takes most of the start time: the
 * manifest is valid, and the servers' instructions are known from snapshots. Not with plugins, whose effect
 * is unknown.
 */
async function greetEarly(
  manifest: Manifest,
  world: CommandContext,
): Promise<EarlyInitialize | undefined> {
  if (manifest.plugins.length > 0) return undefined;
  // With an invalid entry the instructions depend on the problem.
  if (manifest.servers.some(({ kind }) => kind === "invalid")) return undefined;
  let wording: InitializeAnswers | undefined = {};
  if (mayKnow(world)) {
    const { openInstructionsRecall } = await import("../recalled-instructions.ts");
    wording = openInstructionsRecall(manifest, world);
  }
  const welcome =
    wording && new EarlyInitialize({ name: manifest.hub.name, version: VERSION }, wording);
  await welcome?.readAvailable();
  return welcome;
}

/** Whether there may be snapshots: none can be read without the key file. */
function mayKnow({ env, platform }: CommandContext): boolean {
  try {
    return process
      .getBuiltinModule("node:fs")
      .existsSync(installationKeyPath(stateFolder(env, platform)));
  } catch {
    // There may be no home folder.
    return true;
  }
}
