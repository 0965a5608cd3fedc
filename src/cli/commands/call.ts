import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { abortable } from "../../base/clock.ts";
import { type ErrorCode, HubError, usageError } from "../../base/errors.ts";
import { formatDuration } from "../../base/format.ts";
import { parseDuration } from "../../manifest/fields.ts";
import { expandHome } from "../../base/paths.ts";
import type { HubReader } from "../../control/hub-reader.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import type { ServerDocument, ToolDefinitionDocument } from "../../control/schemas.ts";
import type { CallProgress } from "../../frontend/hub-client.ts";
import { bodyOf, type Response } from "../../jsonrpc/message.ts";
import { sanitizeLines, sanitizeLine } from "../../terminal/log.ts";
import type { StatusLine } from "../../terminal/terminal.ts";
import { answerWhileCommandRuns } from "../answer-form.ts";
import { formatArguments, readArgumentSource } from "../call-arguments.ts";
import {
  type CallReport,
  describeAttachment,
  describeResult,
  type ResultView,
  saveAttachment,
} from "../call-result.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { askFor } from "../running-hub.ts";
import { type FoundItem, type LookupChoice, unknownItemError, withItem } from "../item-lookup.ts";

/** Formats progress as `3/10 (30%) copying`; unknown parts are left out. */
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

interface CallOptions extends LookupChoice {
  readonly timeout: string | undefined;
  readonly json: string | undefined;
  readonly structured: boolean;
  readonly raw: boolean;
  readonly output: string | undefined;
}

/**
 * `toolmux call`: calls one tool and prints its result. If a saved listing (what a server listed in an earlier run) has
 * the tool, only the tool's server is started.
 */
export async function call(
  invocation: Invocation<CallOptions>,
  context: CommandContext,
): Promise<number> {
  const [name = ""] = invocation.args;
  const view = readView(invocation.options);
  const timeLimit = readTimeLimit(invocation.options.timeout);
  const argumentSource = await abortable(readArgumentSource(invocation, context), context.signal);
  const use = async ({ reader, running, server, line, redactor }: FoundItem): Promise<number> => {
    const known = await reader.tool(name);
    const hasPairs = argumentSource.kind === "pairs" && argumentSource.pairs.length > 0;
    const make = async (signal: AbortSignal) => {
      const tool =
        known === undefined && running !== undefined && hasPairs
          ? await toolOnceListed(name, reader, running, signal)
          : known;
      const args = formatArguments(argumentSource, tool?.definition["inputSchema"]);
      const folder = await makeOutputFolder(invocation.options.output, context);
      const client = await reader.client();
      const response = await client.callTool(name, args, showProgressOn(line), signal);
      return { tool, folder, response };
    };
    const { tool, folder, response } = await withTimeLimit(timeLimit, context.signal, make);
    line?.clear();
    // A hub says why it does not list a tool of a server that is not connected. For any other name, the error suggests
    // names.
    if (tool === undefined && isUnknownTool(response))
      throw unknownItemError("tools", name, (await reader.catalog()).tools);
    const code = await printReport(describeResult(response, view, redactor), folder, context);
    if (code === 3 && running === undefined && server !== undefined)
      context.terminal.note(`What to do: toolmux status ${server}`);
    return code;
  };
  const elicit = (clear: () => void) => answerWhileCommandRuns(context, clear);
  const lookup = { kind: "tools", name, startsServer: true, asksForUnlisted: true } as const;
  return withItem({ ...lookup, elicit, use }, invocation, context);
}

/** Maximum wait of a call for the list of a server, in ms. After it, the hub itself says why it cannot call the tool. */
const LISTING_WAIT = 10_000;

/**
 * The tool of a running hub that does not list it yet, because nobody has needed its server: values are converted as the
 * tool's schema demands, so that those servers are started that may have it. Returns with the first that lists it.
 * @returns undefined if none lists it in time
 * @throws the signal's reason
 */
async function toolOnceListed(
  name: string,
  reader: HubReader,
  running: RunningHub,
  signal: AbortSignal,
): Promise<ToolDefinitionDocument | undefined> {
  // Its client starts the servers.
  await reader.client();
  const servers = (await reader.servers()).filter((server) => mayList(server, name));
  const found = new AbortController();
  const limited = AbortSignal.any([signal, found.signal]);
  const find = async ({ name: server, state }: ServerDocument): Promise<ToolDefinitionDocument> => {
    const input = { params: { name: server }, query: { wait: `${LISTING_WAIT}ms` } };
    const options = { signal: limited, timeout: LISTING_WAIT };
    // A call starts a failed server again, too.
    if (state === "failed" || state === "reconnecting")
      await askFor(running, "POST /servers/:name/start", options, input);
    else await askFor(running, "GET /servers/:name", options, input);
    const tool = await reader.tool(name);
    if (tool === undefined) throw new HubError("unknownTool", `${server} does not list it.`);
    return tool;
  };
  try {
    return await Promise.any(servers.map(find));
  } catch {
    signal.throwIfAborted();
    return undefined;
  } finally {
    found.abort();
  }
}

/**
 * Tells if a server that has not been listed may have a tool, and is worth a wait. By default, the prefix of a server's
 * tools is its name. The hub does not wait for one whose start takes long, or that waits for a login, either.
 */
function mayList(
  { name: server, tools, goal, late, state }: ServerDocument,
  name: string,
): boolean {
  const isAwaited = goal !== "down" && late === undefined && state !== "authenticating";
  return tools === undefined && isAwaited && name.startsWith(server);
}

function isUnknownTool(response: Response): boolean {
  if (response.outcome !== "error") return false;
  const code: ErrorCode = "unknownTool";
  return bodyOf(response).object("data").string("code") === code;
}

/** The value of `--timeout` in ms. @throws {HubError} usage */
function readTimeLimit(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const limit = parseDuration(text);
  if (limit !== undefined && limit > 0) return limit;
  throw usageError(`--timeout must be a duration such as 30s or 5m, not "${text}".`);
}

/**
 * Runs `work`, and aborts it after `limit` ms if there is a limit.
 * @throws {HubError} callTimeout; the signal's reason
 */
async function withTimeLimit<T>(
  limit: number | undefined,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  if (limit === undefined) return work(signal);
  const late = new AbortController();
  const text = `The tool did not answer within ${formatDuration(limit)} (--timeout).`;
  const timer = setTimeout(() => late.abort(new HubError("callTimeout", text)), limit);
  try {
    return await work(AbortSignal.any([signal, late.signal]));
  } finally {
    clearTimeout(timer);
  }
}

/** Makes a callback that shows the progress of a request on the status line; undefined without a status line. */
export function showProgressOn(
  line: StatusLine | undefined,
): ((progress: CallProgress) => void) | undefined {
  return line && ((it) => line.show(formatProgress(it)));
}

function readView({ raw, structured, output }: CallOptions): ResultView {
  if (raw && structured) throw usageError("Choose one of --raw and --structured.");
  if (raw && output !== undefined) throw usageError("Choose one of --raw and --output.");
  if (raw) return "raw";
  return structured ? "structured" : "texts";
}

/** Creates the folder of `--output` before the call, so that no result is lost because the folder cannot be created. */
export async function makeOutputFolder(
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
 * Prints all parts, and saves attachments in `folder` if it is given.
 * @returns the report's exit code; 1 instead of 0 if an attachment could not be saved
 */
export async function printReport(
  { stream, parts, code }: CallReport,
  folder: string | undefined,
  { terminal }: CommandContext,
): Promise<number> {
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
    // Printing adds a line break, so one at the end of the text is removed.
    const whole = `${text}${note}`.replace(/\n$/, "");
    const shown = isTerminal ? sanitizeLines(whole) : whole;
    if (stream === "stdout") terminal.print(shown);
    else terminal.printStderr(shown);
  }
  return allSaved ? code : code || 1;
}
