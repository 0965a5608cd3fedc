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

/** How long somebody who reads stderr slowly can hold up the end, in ms. */
const FLUSH_LIMIT = 250;

/**
 * Serves one client on stdin and stdout until it leaves, its process is gone, or this one is told to end; or any number over
 * HTTP, until this process is told to end.
 */
export async function serve(invocation: Invocation, world: CommandContext): Promise<number> {
  const { logFormat } = invocation;
  const notices = new StderrWriter((missing) => {
    const text = `${missing} lines are missing here: nobody read`;
    return formatLogRecord(makeLogRecord("warn", text, { missing }), logFormat);
  });
  const journal = new LogTapeLogger((record) => notices.print(formatLogRecord(record, logFormat)));
  // An end that waits for nothing, as after a mistake in this program, must not cost the lines that explain it.
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
  // Whether something can be recorded, and how much of it, shows only when the hub is put together.
  const isUsual = wanted === undefined && !RECORDING.some((it) => invocation.values.has(it));
  if (isUsual) world.greetings?.note(listDependencies(loadOptions(invocation, world)));
  const basis = await loadManifestLogged(invocation, world, voices.log);
  await refuseToLoop(basis.manifest, wanted === undefined || invocation.stdio, world);
  const welcome = world.welcome ?? (isUsual ? await greetEarly(basis.manifest, world) : undefined);
  const { serveHub } = await import("../serve-hub.ts");
  return serveHub({ invocation, world: { ...world, welcome }, voices, basis, wanted });
}

/** @param isOnStdio whether there is a client to be told @throws {HubError} hubLoop, after the client has been told */
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
 * Answers a client that has asked already before what serves it is loaded, which takes most of a start: the manifest is known
 * to be good, and what its servers could have said at an earlier one is kept. What plugins say can be anything.
 */
async function greetEarly(
  manifest: Manifest,
  world: CommandContext,
): Promise<EarlyInitialize | undefined> {
  if (manifest.plugins.length > 0) return undefined;
  // What is said then depends on what is wrong.
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

/** Whether anything may be kept of servers: nothing can be read without the key. */
function mayKnow({ env, platform }: CommandContext): boolean {
  try {
    return process
      .getBuiltinModule("node:fs")
      .existsSync(installationKeyPath(stateFolder(env, platform)));
  } catch {
    // It may have no home.
    return true;
  }
}
