import { suggestName } from "../../manifest/problems.ts";
import { count, formatDuration, formatSize } from "../../base/format.ts";
import { type ConnectPhase, usageError } from "../../base/errors.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import type { ServerDocument } from "../../control/schemas.ts";
import { tableNameOf } from "../../manifest/manifest.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { type Cell, wrapText } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  allServers,
  chosenHubs,
  describeHub,
  type FoundServer,
  hubColumn,
  type HubOptions,
  hubsOfManifest,
  printRejections,
} from "../running-hub.ts";
import { EXIT_CODES, STEP_TEXTS, type StatusVerdict } from "../status-verdict.ts";

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

/**
 * Prints the states of the servers in running hubs.
 * @returns the exit code of `status`; undefined if no hub serves the manifest
 */
export async function hubStatus(
  invocation: Invocation<HubOptions>,
  context: CommandContext,
  running: readonly RunningHub[],
): Promise<number | undefined> {
  const { args, options } = invocation;
  const { terminal } = context;
  const isNamed = options.hub !== undefined;
  const hubs = isNamed
    ? await chosenHubs(invocation, context)
    : await hubsOfManifest(invocation, context, running);
  if (hubs.length === 0) return undefined;
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
    terminal.printJson({ source: "hub", verdict, hubs: described, servers });
    return EXIT_CODES[verdict];
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
  terminal.print(colors[VERDICT_COLORS[verdict]](describeVerdict(verdict, shown)));
  return EXIT_CODES[verdict];
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
  const where = step === undefined ? "" : ` to ${STEP_TEXTS[step as ConnectPhase] ?? step}`;
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

const VERDICT_COLORS = {
  healthy: "green",
  partial: "yellow",
  failed: "red",
  none: "yellow",
} as const;

function verdictOf(servers: readonly ServerDocument[]): StatusVerdict {
  const wanted = servers.filter(({ goal }) => goal !== "down");
  const usable = wanted.filter(({ state }) => state === "connected" || state === "idle");
  if (wanted.length === 0) return "none";
  if (usable.length === wanted.length) return "healthy";
  return wanted.every(({ state }) => state === "failed") ? "failed" : "partial";
}

function describeVerdict(verdict: StatusVerdict, found: readonly FoundServer[]): string {
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
