import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { textOf } from "../../base/bytes.ts";
import { systemClock, abortable } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { expandHome } from "../../base/paths.ts";
import type { ListedItem } from "../../catalog/listing.ts";
import { type CallProgress, InProcessClient } from "../../frontend/in-process-client.ts";
import { invalidError } from "../../manifest/problems.ts";
import { type HubSettings, isRunnable, type Manifest } from "../../manifest/manifest.ts";
import { sanitizeLines, sanitizeLine } from "../../terminal/log.ts";
import { suggestName, usageError } from "../args.ts";
import { formatArguments, readArgumentSource } from "../call-arguments.ts";
import {
  type CallReport,
  describeAttachment,
  describeResult,
  type ResultView,
  saveAttachment,
} from "../call-result.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { loadManifestOnly, openLogBeside } from "../load-manifest.ts";
import { openHub } from "../open-hub.ts";
import { serverStatesOf, type ServerState } from "../server-state.ts";
import { openStartProgress, startedServersOf } from "./status.ts";

/** `3/10 (30%) copying`; unknown parts are left out. */
export function formatProgress({ progress, total, message }: CallProgress): string {
  const isNumber = (value: unknown): value is number => typeof value === "number";
  const parts: string[] = [];
  if (isNumber(progress)) {
    const known = isNumber(total) && total > 0;
    const percent = known ? Math.floor((Math.min(progress, total) / total) * 100) : 0;
    parts.push(known ? `${progress}/${total} (${percent}%)` : String(progress));
  }
  if (typeof message === "string") parts.push(sanitizeLine(message));
  return parts.join(" ");
}

/** A truncated tool name ends with this many characters of a hash. */
const HASH_LENGTH = 7;

/** The options of `call`. */
interface CallOptions {
  readonly json: string | undefined;
  readonly structured: boolean;
  readonly raw: boolean;
  readonly output: string | undefined;
}

/**
 * `toolmux call`: calls one tool and prints its result. Starts only the servers whose prefix matches the tool's name.
 */
export async function call(
  invocation: Invocation<CallOptions>,
  context: CommandContext,
): Promise<number> {
  const [name = ""] = invocation.args;
  const view = readView(invocation.options);
  const line = context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const argumentSource = await abortable(readArgumentSource(invocation, context), context.signal);
  const loaded = await loadManifestOnly(invocation, context, log);
  throwIfNoneUsable(loaded);
  const { hub, bus, manifest, close } = await openHub(loaded, context, log, {
    kinds: ["log", "alert"],
    choose(all) {
      const servers = all.servers.filter(({ prefix }) => mayHaveTool(prefix, name, all.hub));
      return { ...all, servers };
    },
  });
  const endProgress = line && openStartProgress(startedServersOf(manifest), bus, line, systemClock);
  try {
    const client = await InProcessClient.connect(hub, context.signal);
    await abortable(hub.settled(), context.signal);
    const isListed = hub.catalog.tools.find(name) !== undefined;
    // A late server is awaited, too: this process makes only one call, so no later call could find the server ready.
    if (!isListed) await abortable(hub.settled("untilStarted"), context.signal);
    endProgress?.();
    const items = await client.listTools();
    const item = items.find((one) => one.key === name);
    if (item === undefined) throw unknownToolError(name, items, serverStatesOf(manifest, hub));
    const { inputSchema } = JSON.parse(textOf(item.bytes)) as { inputSchema?: unknown };
    const args = formatArguments(argumentSource, inputSchema);
    const folder = await makeOutputFolder(invocation.options.output, context);
    const response = await client.callTool(
      name,
      args,
      line && ((it) => line.show(formatProgress(it))),
    );
    line?.clear();
    const report = describeResult(response, view);
    const allSaved = await printReport(report, folder, context);
    return allSaved ? report.code : report.code || 1;
  } finally {
    endProgress?.();
    line?.clear();
    await close();
  }
}

/** @throws {HubError} serverInvalid if no server of the manifest is usable and one has an invalid entry */
function throwIfNoneUsable({ servers, plugins }: Manifest): void {
  const invalid = servers.find((spec) => spec.enabled && spec.kind === "invalid");
  const hasUsable = plugins.length > 0 || servers.some((spec) => spec.enabled && isRunnable(spec));
  if (invalid?.kind === "invalid" && !hasUsable) throw invalidError(invalid);
}

function readView({ raw, structured, output }: CallOptions): ResultView {
  if (raw && structured) throw usageError("Choose one of --raw and --structured.");
  if (raw && output !== undefined) throw usageError("Choose one of --raw and --output.");
  if (raw) return "raw";
  return structured ? "structured" : "texts";
}

/** Creates the folder of `--output`, before the call: the result of a call may not be available a second time. */
async function makeOutputFolder(
  output: string | undefined,
  { cwd, env }: CommandContext,
): Promise<string | undefined> {
  if (output === undefined) return undefined;
  const folder = resolve(cwd, expandHome(output, env));
  try {
    await mkdir(folder, { recursive: true });
  } catch (error) {
    throw usageError(`--output: the folder cannot be made: ${(error as Error).message}`);
  }
  return folder;
}

/**
 * Prints all parts, and saves attachments in `folder` if it is given. @returns false if an attachment could not be
 * saved
 */
async function printReport(
  { stream, parts }: CallReport,
  folder: string | undefined,
  { terminal }: CommandContext,
): Promise<boolean> {
  const { isTerminal } = terminal[stream];
  let allSaved = true;
  for (const part of parts) {
    const text = part.kind === "text" ? part.text : describeAttachment(part);
    let note = "";
    if (part.kind === "attachment" && folder !== undefined) {
      try {
        note = ` saved as ${await saveAttachment(part, folder)}`;
      } catch (error) {
        allSaved = false;
        terminal.note(`not saved: ${(error as Error).message}`);
      }
    }
    const shown = isTerminal ? sanitizeLines(text + note) : text + note;
    if (stream === "stdout") terminal.print(shown);
    else terminal.printStderr(shown);
  }
  return allSaved;
}

/**
 * Whether a tool may be of the server with this prefix: its name starts with the prefix, or with as much of the prefix
 * as a truncated name keeps.
 */
function mayHaveTool(prefix: string, name: string, hub: HubSettings): boolean {
  const maxPrefixLength = hub.nameLimit - hub.clientPrefix.length - HASH_LENGTH;
  return prefix === "" || name.startsWith((prefix + hub.separator).slice(0, maxPrefixLength));
}

/** The error for an unknown tool: why its server is unavailable, or that no server has it. */
function unknownToolError(
  name: string,
  items: readonly ListedItem[],
  states: readonly ServerState[],
): HubError {
  const failed = states.find((state) => state.at === "failed");
  if (failed !== undefined) return failed.cause;
  const disabled = states.find((state) => state.at === "disabled");
  if (disabled !== undefined && !states.some((state) => "tools" in state)) {
    const text = `Server "${disabled.server}" is switched off in the manifest (enabled = false).`;
    return new HubError("serverStopped", text, { server: disabled.server });
  }
  const names = items.map((item) => item.key);
  const near = suggestName(name, names) || " toolmux list shows what there is.";
  return new HubError("unknownTool", `There is no tool "${name}".${near}`);
}
