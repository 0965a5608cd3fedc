import { abortable, systemClock } from "../../base/clock.ts";
import { count } from "../../base/format.ts";
import { HubError } from "../../base/errors.ts";
import type { HubReader } from "../../control/hub-reader.ts";
import { runningHubReader } from "../../control/running-hub-reader.ts";
import type { ServerFindingsDocument } from "../../control/schemas.ts";
import { DEFAULT_SCAN_LEVEL } from "../../hub/scanned-servers.ts";
import { openHub, openSnapshots, withoutEarlyStarts } from "../../host/open-hub.ts";
import { readOpenedHub } from "../../host/opened-hub-reader.ts";
import { checkServerNames } from "../../manifest/problems.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import { scanFile } from "../../operations/scan.ts";
import { describePlace, type EntryFinding } from "../../scan/checks.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { wrapText } from "../../terminal/terminal.ts";
import { openLogBeside } from "../command-log.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { hubToUse } from "../running-hub.ts";
import { openStartProgress, startedServersOf } from "../start-progress.ts";

interface ScanOptions {
  readonly fresh: boolean;
  readonly hub: string | undefined;
  readonly json: boolean;
}

/**
 * `toolmux scan`: prints suspicious texts in the definitions of servers, or of a file that has the answer of
 * `tools/list`.
 * @returns the exit code: 1 if there is a hard finding, 3 if a server could not be listed and there is none
 */
export async function scan(
  invocation: Invocation<ScanOptions>,
  context: CommandContext,
): Promise<number> {
  const [subject] = invocation.args;
  if (subject !== undefined && isFile(subject)) return scanOfFile(subject, invocation, context);
  const running = await hubToUse(invocation, context);
  if (running === undefined) return scanHere(subject, invocation, context);
  const reader = runningHubReader(running, { signal: context.signal });
  try {
    return await scanServers(reader, subject, invocation, context);
  } finally {
    await reader.close();
  }
}

/** Whether an argument is a path and no name of a server. */
function isFile(subject: string): boolean {
  return /[/\\]|\.(?:jsonl?|ndjson)$/i.test(subject);
}

async function scanOfFile(
  file: string,
  { options }: Invocation<ScanOptions>,
  context: CommandContext,
): Promise<number> {
  const { entries, findings } = await scanFile(file);
  if (options.json) context.terminal.printJson({ file, entries, findings });
  else {
    printFindings(undefined, findings, context);
    context.terminal.printWrapped(`${count(entries, "definition")}: ${summaryOf(findings)}`);
  }
  return findings.some(({ hard }) => hard) ? 1 : 0;
}

/** Scans servers of the manifest: what they listed in earlier runs, or list now. */
async function scanHere(
  server: string | undefined,
  invocation: Invocation<ScanOptions>,
  context: CommandContext,
): Promise<number> {
  const { options } = invocation;
  const line = options.json ? undefined : context.terminal.openStatusLine();
  const log = openLogBeside(line, invocation);
  const loaded = await loadManifestOnly(invocation, context, log);
  const opened = await openHub(loaded, context, log, {
    kinds: ["log"],
    logsNotes: false,
    authorizes: false,
    snapshots: openSnapshots(context, log, options.fresh ? "nothing" : "newest"),
    choose(all) {
      const names = all.servers.map(({ name }) => name);
      if (server !== undefined) checkServerNames([server], names);
      return options.fresh ? all : withoutEarlyStarts(all);
    },
  });
  const started = options.fresh ? startedServersOf(opened.manifest) : undefined;
  const endProgress = line && openStartProgress(started, opened.bus, line, systemClock);
  try {
    const reader = readOpenedHub(opened, context);
    await reader.client();
    await abortable(opened.hub.settled(), context.signal);
    endProgress?.();
    return await scanServers(reader, server, invocation, context);
  } finally {
    endProgress?.();
    line?.clear();
    await opened.close();
  }
}

async function scanServers(
  reader: HubReader,
  server: string | undefined,
  { options }: Invocation<ScanOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const servers = await findingsOfAll(reader, server);
  const findings = servers.flatMap((each) => each.findings);
  // A server whose table has a problem is in no hub.
  if (server !== undefined && servers.length === 0) {
    const name = sanitizeLine(server);
    const text = `Server "${name}" was not scanned: it cannot be started. What to do: toolmux status ${name}`;
    throw new HubError("serverStopped", text, { server });
  }
  if (options.json) terminal.printJson({ servers });
  else {
    for (const each of servers) printFindings(each.server, each.findings, context);
    for (const each of servers) {
      const reason = reasonOf(each);
      if (reason !== undefined) terminal.note(`${sanitizeLine(each.server)}: ${reason}`);
    }
    const scanned = servers.filter(({ isScanned }) => isScanned);
    terminal.printWrapped(`${count(scanned.length, "server")}: ${summaryOf(findings)}`);
  }
  if (findings.some(({ hard }) => hard)) return 1;
  const isMissing = servers.some((each) => each.level !== "off" && !each.isScanned);
  return isMissing ? 3 : 0;
}

/** What was found in servers; those that the hub does not have because of their tables are there, too, not scanned. */
async function findingsOfAll(
  reader: HubReader,
  server: string | undefined,
): Promise<readonly ServerFindingsDocument[]> {
  const found = await reader.findings(server);
  if (server !== undefined) return found;
  const known = new Set(found.map((each) => each.server));
  const missing = (await reader.servers()).filter(
    ({ name, goal }) => goal !== "down" && !known.has(name),
  );
  const unscanned = missing.map(({ name }): ServerFindingsDocument => ({
    server: name,
    level: DEFAULT_SCAN_LEVEL,
    isScanned: false,
    findings: [],
  }));
  return [...found, ...unscanned];
}

/** Why nothing is known of a server; undefined: it was scanned. */
function reasonOf({ server, level, isScanned }: ServerFindingsDocument): string | undefined {
  if (level === "off") return 'not scanned: the manifest says scan = "off"';
  return isScanned
    ? undefined
    : `not scanned: it could not be listed. What to do: toolmux status ${sanitizeLine(server)}`;
}

function summaryOf(findings: readonly EntryFinding[]): string {
  const hard = findings.filter((finding) => finding.hard).length;
  if (findings.length === 0) return "nothing suspicious found";
  return `${count(hard, "hard finding")}, ${count(findings.length - hard, "soft one")}`;
}

function printFindings(
  server: string | undefined,
  findings: readonly EntryFinding[],
  { terminal }: CommandContext,
): void {
  const { colors, width } = terminal.stdout;
  for (const finding of findings) {
    const { check, hard, excerpt } = finding;
    const place =
      server === undefined ? describePlace(finding) : `${server}: ${describePlace(finding)}`;
    terminal.printWrapped(colors.bold(sanitizeLine(place)));
    const text = `${hard ? "hard" : "soft"}  ${check}: ${excerpt}`;
    terminal.print(wrapText(sanitizeLine(text), width, "   "));
  }
}
