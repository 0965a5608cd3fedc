import { abortable } from "../../base/clock.ts";
import { count } from "../../base/format.ts";
import type { HubReader } from "../../control/hub-reader.ts";
import { runningHubReader } from "../../control/running-hub-reader.ts";
import type { FoundToolsDocument } from "../../control/schemas.ts";
import { openHub, openSnapshots, withoutEarlyStarts } from "../../host/open-hub.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import { describeModeFault } from "../../manifest/modes.ts";
import { usageError } from "../../base/errors.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLogBeside } from "../command-log.ts";
import { readOpenedHub } from "../../host/opened-hub-reader.ts";
import { type HubOptions, hubToUse } from "../running-hub.ts";

interface FindOptions extends HubOptions {
  readonly server: string | undefined;
  readonly limit: number;
  readonly mode: string | undefined;
  readonly explain: boolean;
  readonly fresh: boolean;
}

/**
 * `toolmux find`: prints the tools that match some words best, as `search_tools` finds them: those of a running hub, or
 * else those that the servers listed last. Servers that were never listed are started; with `--fresh`, all are.
 */
export async function find(
  invocation: Invocation<FindOptions>,
  context: CommandContext,
): Promise<number> {
  const { mode } = invocation.options;
  const running = await hubToUse(invocation, context);
  if (running === undefined) return findHere(invocation, context);
  const reader = runningHubReader(running, { mode, signal: context.signal });
  try {
    return await findIn(reader, invocation, context);
  } finally {
    await reader.close();
  }
}

/** Searches the tools of the manifest's servers, in a hub of this process. */
async function findHere(
  invocation: Invocation<FindOptions>,
  context: CommandContext,
): Promise<number> {
  const { json, fresh, mode } = invocation.options;
  const line = json ? undefined : context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const loaded = await loadManifestOnly(invocation, context, log);
  const fault = mode === undefined ? undefined : describeModeFault(mode, loaded.modes ?? []);
  if (fault !== undefined) throw usageError(fault);
  const opened = await openHub(loaded, context, log, {
    authorizes: false,
    snapshots: openSnapshots(context, log, fresh ? "nothing" : "newest"),
    choose: (manifest) => (fresh ? manifest : withoutEarlyStarts(manifest)),
  });
  try {
    const reader = readOpenedHub(opened, context, { mode });
    await reader.client();
    await abortable(opened.hub.settled(), context.signal);
    return await findIn(reader, invocation, context);
  } finally {
    await opened.close();
  }
}

async function findIn(
  reader: HubReader,
  { args, options }: Invocation<FindOptions>,
  { terminal }: CommandContext,
): Promise<number> {
  const { server, limit, explain, json } = options;
  const found = await reader.find(args.join(" "), { server, limit, explain });
  if (json) {
    terminal.printJson(found);
    return 0;
  }
  const rows = found.tools.map((tool) => [
    tool.name,
    tool.server,
    explain ? explanationOf(tool) : tool.description,
  ]);
  terminal.printTable(["TOOL", "SERVER", explain ? "SCORE" : "DESCRIPTION"], rows);
  const shown =
    found.tools.length === found.matches ? "" : `; the best ${found.tools.length} are shown`;
  const text = `${found.matches} of ${count(found.available, "tool")} match${shown}`;
  terminal.print(terminal.stdout.colors.dim(text));
  return 0;
}

/** `4.21: list 2.1, bug → issu 1.3`: the score and the words that counted. */
function explanationOf({ score, words = [] }: FoundToolsDocument["tools"][number]): string {
  const parts = words.map((matched) => {
    const { asked, word, as } = matched;
    const what = as === "same" ? asked : as === "name" ? `name ${word}` : `${asked} → ${word}`;
    return `${what} ${formatScore(matched.score)}`;
  });
  return `${formatScore(score)}: ${parts.join(", ")}`;
}

function formatScore(score: number): string {
  return String(Number(score.toFixed(2)));
}
