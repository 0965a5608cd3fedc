import { abortable, systemClock } from "../../base/clock.ts";
import { usageError } from "../../base/errors.ts";
import { count, formatDuration, formatSize } from "../../base/format.ts";
import { isIdleRule } from "../../catalog/idle-rules.ts";
import { findRunningHubs, type RunningHub } from "../../control/running-hubs.ts";
import type { CatalogDocument, ClientDocument, ServerDocument } from "../../control/schemas.ts";
import {
  isRunnable,
  type Manifest,
  type ServerSpec,
  tableNameOf,
} from "../../manifest/manifest.ts";
import { suggestName } from "../../manifest/problems.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { type Cell, wrapText } from "../../terminal/terminal.ts";
import { type Verdict, verdictOf } from "../../upstream/status.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLogBeside } from "../command-log.ts";
import {
  describeDiagnoses,
  diagnose,
  type ServerDiagnosis,
  statusToJson,
  verdictOfDiagnoses,
} from "../diagnosis.ts";
import { openHub, openSnapshots } from "../../host/open-hub.ts";
import { readOpenedHub } from "../opened-hub-reader.ts";
import {
  allServers,
  askFor,
  chosenHubs,
  describeHub,
  type FoundServer,
  hubColumn,
  type HubOptions,
  hubsOfManifest,
  printRejections,
} from "../running-hub.ts";
import { openStartProgress, startedServersOf } from "../start-progress.ts";
import { EXIT_CODES, STEP_TEXTS, VERDICT_COLORS } from "../status-verdict.ts";

interface StatusOptions extends HubOptions {
  readonly fresh: boolean;
}

/**
 * `toolmux status`: prints the states of the servers in the hubs that serve the manifest. If no such hub runs, or
 * with `--fresh`, starts every server, or the named ones, and prints the state of each with hints about failures.
 */
export async function status(
  invocation: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<number> {
  const hubs = await hubsToShow(invocation, context);
  const verdict = await (hubs.length > 0
    ? showRunning(hubs, invocation, context)
    : showFresh(invocation, context));
  return EXIT_CODES[verdict];
}

/** The running hubs whose servers are shown; none if the servers are to be started here. */
async function hubsToShow(
  invocation: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<readonly RunningHub[]> {
  if (invocation.options.fresh) return [];
  if (invocation.options.hub !== undefined) return chosenHubs(invocation, context);
  const running = await findRunningHubs(context);
  return running.length === 0 ? [] : hubsOfManifest(invocation, context, running);
}

/** Starts the servers of the manifest, and prints how that went. */
async function showFresh(
  invocation: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<Verdict> {
  const { terminal, env, signal } = context;
  const isForPeople = !invocation.options.json;
  const line = isForPeople ? terminal.openStatusLine() : undefined;
  const log = openLogBeside(line, invocation);
  const loaded = await loadManifestOnly(invocation, context, log);
  const opened = await openHub(loaded, context, log, {
    choose: (all) => pickServers(all, invocation.args),
    // Checking the status must not open login pages.
    authorizes: false,
    snapshots: openSnapshots(context, log, "nothing"),
  });
  const { hub, bus, manifest } = opened;
  const endProgress = line && openStartProgress(startedServersOf(manifest), bus, line, systemClock);
  try {
    await abortable(hub.startAllAndSettle(), signal);
    const reader = readOpenedHub(opened, context);
    const servers = new Map((await reader.servers()).map((server) => [server.name, server]));
    const { notes } = await reader.catalog();
    endProgress?.();
    const diagnoses = manifest.servers.flatMap((spec): readonly ServerDiagnosis[] => {
      const document = servers.get(spec.name);
      if (document === undefined) return [];
      const diagnosis = diagnose(document, spec, env);
      if (diagnosis.state !== "connected") return [diagnosis];
      return [{ ...diagnosis, unusedRules: unusedRulesOf(spec, notes) }];
    });
    if (isForPeople) terminal.print(describeDiagnoses(diagnoses, terminal.stdout));
    else terminal.printJson({ source: "fresh", ...statusToJson(diagnoses) });
    return verdictOfDiagnoses(diagnoses);
  } finally {
    endProgress?.();
    await opened.close();
  }
}

function unusedRulesOf({ name }: ServerSpec, notes: CatalogDocument["notes"]): readonly string[] {
  return notes.flatMap((note) => (note.server === name && isIdleRule(note) ? [note.text] : []));
}

const STATE_COLORS = {
  connected: "green",
  idle: "dim",
  connecting: "yellow",
  authenticating: "yellow",
  reconnecting: "yellow",
  stopping: "yellow",
  failed: "red",
  disconnected: "dim",
} as const satisfies Record<ServerDocument["state"], string>;

const TITLES = [
  "SERVER",
  "STATE",
  "TOOLS",
  "CALLS",
  "LAST TOOL",
  "START",
  "PID",
  "MEMORY",
  "PROTOCOL",
];

/** Prints the states of the servers in running hubs. */
async function showRunning(
  hubs: readonly RunningHub[],
  { args, options }: Invocation<StatusOptions>,
  context: CommandContext,
): Promise<Verdict> {
  const { terminal } = context;
  const all = await allServers(hubs, context);
  const known = all.map(({ server }) => server.name);
  const unknown = args.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    const more = suggestName(unknown, known) || ` It has ${known.join(", ") || "none"}.`;
    throw usageError(`The running toolmux has no server "${unknown}".${more}`);
  }
  const shown = all.filter(({ server }) => args.length === 0 || args.includes(server.name));
  const verdict = verdictOf(shown.map(({ server }) => server));
  if (options.json) {
    const servers = shown.map(({ hub, server }) => {
      const { state, lastError: error } = server;
      const isUsable = state === "connected" || state === "idle" || state === "disconnected";
      return { hub: hub.pid, ...server, ...(!isUsable && error && { error }) };
    });
    const described = hubs.map(({ pid, endpoints, startedAt }) => ({ pid, endpoints, startedAt }));
    const longLists = (await findLongLists(hubs, context)).map(({ hub, client, ...list }) => ({
      hub: hub.pid,
      client: client.id,
      ...(client.name !== undefined && { name: client.name }),
      ...list,
    }));
    terminal.printJson({
      source: "hub",
      verdict,
      hubs: described,
      servers,
      ...(longLists.length > 0 && { longLists }),
    });
    return verdict;
  }
  const { colors, width } = terminal.stdout;
  const heads = hubs.map((hub) =>
    wrapText(sanitizeLine(`in ${describeHub(hub)}`), width, "  ", ""),
  );
  terminal.print(colors.dim(heads.join("\n")));
  await printRejections(hubs, context);
  const { titles, cells } = hubColumn(hubs);
  terminal.printTable(
    [...titles, ...TITLES],
    shown.map(({ hub, server }) => [...cells(hub), ...rowOf(server, context)]),
  );
  for (const found of shown) printReason(found, hubs.length > 1, context);
  for (const list of await findLongLists(hubs, context))
    terminal.print(wrapText(sanitizeLine(describeLongList(list)), width, "  ", ""));
  terminal.print(colors[VERDICT_COLORS[verdict]](describeVerdict(verdict, shown)));
  return verdict;
}

/** A client that gets all tools in a list that is above the budget of its hub. */
interface LongList {
  readonly hub: RunningHub;
  readonly client: ClientDocument;
  /** The size of the list, and the budget, in tokens. */
  readonly tokens: number;
  readonly budget: number;
}

async function findLongLists(
  hubs: readonly RunningHub[],
  context: CommandContext,
): Promise<readonly LongList[]> {
  const lists = await Promise.all(
    hubs.map(async (hub): Promise<readonly LongList[]> => {
      const [{ exposeBudget: budget }, { clients }] = await Promise.all([
        askFor(hub, "GET /hub", context),
        askFor(hub, "GET /clients", context),
      ]);
      return clients.flatMap((client) => {
        // A hub of an older version says nothing of it.
        const { isLong, tokens = 0 } = client.exposure ?? {};
        return isLong === true ? [{ hub, client, tokens, budget }] : [];
      });
    }),
  );
  return lists.flat();
}

function describeLongList({ client: { id, name = id }, tokens, budget }: LongList): string {
  return `${name}: its list of tools takes about ${tokens} tokens, more than exposeBudget (${budget}). To let models search for tools instead, add to [hub], or to its table in [[clients]]: expose = "auto"`;
}

function rowOf(server: ServerDocument, { terminal }: CommandContext): readonly Cell[] {
  const { state, tools, shown, calls, inFlight, lastTool = "", startDuration } = server;
  const { pid, memory, transport = "", era, protocolVersion } = server;
  const text = state === "disconnected" ? "stopped" : state;
  return [
    tableNameOf(server),
    { text, color: terminal.stdout.colors[STATE_COLORS[state]] },
    tools === undefined || shown === tools ? String(tools ?? "") : `${shown} of ${tools}`,
    inFlight > 0 ? `${calls} (${inFlight} running)` : String(calls),
    lastTool,
    startDuration === undefined ? "" : formatDuration(startDuration),
    String(pid ?? ""),
    memory === undefined ? "" : formatSize(memory),
    era === undefined ? transport : `${transport}, ${era} ${protocolVersion ?? ""}`.trimEnd(),
  ];
}

/**
 * Prints why a server is not connected, and what to do.
 * @param isOneOfMany whether several hubs are shown, so that commands need `--hub`
 */
function printReason(
  { hub, server }: FoundServer,
  isOneOfMany: boolean,
  { terminal }: CommandContext,
): void {
  const { name, state, statusText, lastError, progress, remedies = [] } = server;
  if (state === "connected" || state === "idle" || state === "disconnected") return;
  const { colors, width } = terminal.stdout;
  const { code, step, stderr = [] } = lastError ?? {};
  const where = step === undefined ? "" : ` to ${STEP_TEXTS[step]}`;
  const [inHub, option] = isOneOfMany ? [` in toolmux ${hub.pid}`, ` --hub ${hub.pid}`] : ["", ""];
  const what = `${name}${inHub}: ${state}${where}${code === undefined ? "" : ` (${code})`}`;
  terminal.print();
  terminal.print(colors.bold(sanitizeLine(what)));
  const advice =
    progress?.url !== undefined
      ? [`- Log in at ${progress.url}`]
      : state === "failed" || state === "reconnecting"
        ? [
            ...remedies.map((text) => `- ${text}`),
            `- After the cause is fixed: toolmux reconnect ${name}${option}`,
            `- To see its log: toolmux logs ${name}${option}`,
          ]
        : [];
  const print = (line: string): void => {
    const indent = line.startsWith("-") ? "    " : "  ";
    terminal.print(wrapText(sanitizeLine(line), width, indent, "  "));
  };
  for (const line of statusText.split("\n")) print(line);
  for (const line of stderr)
    terminal.print(colors.dim(wrapText(sanitizeLine(line), width, "  | ")));
  for (const line of advice) print(line);
}

function describeVerdict(verdict: Verdict, found: readonly FoundServer[]): string {
  const wanted = found.filter(({ server }) => server.goal !== "down");
  const stopped = found.length - wanted.length;
  const servers = count(wanted.length, "server");
  const more = stopped === 0 ? "" : `; ${stopped} stopped`;
  if (verdict === "healthy") return `all healthy: ${servers}${more}`;
  if (verdict === "none") return `no server should run${more}`;
  const bad = wanted.filter(({ server: { state } }) => state !== "connected" && state !== "idle");
  const failed = bad.filter(({ server: { state } }) => state === "failed").length;
  const starting = bad.length - failed;
  const parts = [
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(starting > 0 ? [`${starting} not connected yet`] : []),
  ];
  return `${parts.join(", ")} of ${servers}${more}`;
}

/** The manifest with only the named servers, or with all. @throws {HubError} usage */
function pickServers(manifest: Manifest, names: readonly string[]): Manifest {
  const known = manifest.servers.map(({ name }) => name);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    const available = known.length === 0 ? "It has no servers." : `It has ${known.join(", ")}.`;
    const near = suggestName(unknown, known) || ` ${available}`;
    throw usageError(`There is no server "${unknown}" in the manifest.${near}`);
  }
  const servers = manifest.servers.filter(({ name }) => names.length === 0 || names.includes(name));
  return { ...manifest, servers: servers.map(withoutRetries) };
}

/**
 * Changes a server's settings so that it is started once, without retries, and is not stopped as idle while other
 * servers start.
 */
function withoutRetries(spec: ServerSpec): ServerSpec {
  if (!isRunnable(spec)) return spec;
  return { ...spec, idleStop: 0, reconnect: { ...spec.reconnect, policy: "none" } };
}
