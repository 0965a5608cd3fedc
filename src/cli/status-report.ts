import type { ConnectPhase, HubError } from "../base/errors.ts";
import { formatDuration, formatSize } from "../base/format.ts";
import type { Env } from "../base/paths.ts";
import { availabilityOf, errorOf } from "../control/hub-reader.ts";
import type { RunningHub } from "../control/running-hubs.ts";
import type { ServerDocument } from "../control/schemas.ts";
import {
  describeConnections,
  describeServers,
  isFailing,
  wordOfState,
} from "../control/state-text.ts";
import {
  isRunnable,
  presentationOf,
  type ServerPresentation,
  type ServerSpec,
  tableNameOf,
} from "../manifest/manifest.ts";
import { hintsFor } from "../operations/hints.ts";
import { sanitizeLine } from "../terminal/log.ts";
import {
  alignTable,
  type Cell,
  formatStartingTime,
  type TerminalStyle,
  wrapText,
} from "../terminal/terminal.ts";
import { describeStrayOutput } from "../upstream/stray-output.ts";
import {
  countServers,
  describeCounts,
  type ServerSummary,
  type Verdict,
  verdictOf,
} from "../upstream/verdict.ts";
import type { FoundServer } from "./running-hub.ts";

export const EXIT_CODES = {
  healthy: 0,
  partial: 1,
  failed: 3,
  none: 2,
} as const satisfies Record<Verdict, number>;

const VERDICT_COLORS = {
  healthy: "green",
  partial: "yellow",
  failed: "red",
  none: "yellow",
} as const satisfies Record<Verdict, string>;

/** The end of "failed to …", for each step of connecting to a server. */
const STEP_TEXTS: Readonly<Record<ConnectPhase, string>> = {
  resolve: "fill in its settings",
  spawn: "start",
  dial: "connect",
  authorize: "authorize",
  handshake: "initialize",
  list: "list its tools",
};

/** The data of a server that `status` shows, whichever hub it belongs to. */
interface ServerReport {
  readonly name: string;
  readonly title?: string | undefined;
  /** The process id of its hub, if several hubs are shown. */
  readonly hub?: number | undefined;
  readonly state: Exclude<Cell, string>;
  /** The data that the other cells are made of; only the transport if nothing else is known. */
  readonly document: Partial<ServerDocument>;
  readonly trouble?: Trouble | undefined;
  /** Sentences about a server that is in order. */
  readonly notes?: readonly string[];
}

/** The reason for which a server cannot be used, and what to do. */
interface Trouble {
  /** Such as `files: failed to start (spawnFailed)`. */
  readonly head: string;
  /** The URL or the command line with which the server is reached. */
  readonly start?: string | undefined;
  readonly texts: readonly string[];
  readonly stderr: readonly string[];
  readonly advice: readonly string[];
}

interface Column {
  readonly title: string;
  readonly cell: (report: ServerReport) => Cell;
}

/** A table of servers, what is wrong with them, and the verdict. */
interface StatusReport {
  readonly columns: readonly Column[];
  readonly servers: readonly ServerReport[];
  readonly verdict: Verdict;
  readonly verdictText: string;
  /** The text that separates the verdict from details above it. */
  readonly gap: string;
}

const numberOrNothing = (value: number | undefined): string => String(value ?? "");
/** "-" if the server has none; nothing if it is unknown. */
const numberOrDash = (value: number | undefined): string =>
  value === 0 ? "-" : numberOrNothing(value);

const COLUMNS = {
  hub: { title: "HUB", cell: ({ hub }) => numberOrNothing(hub) },
  server: { title: "SERVER", cell: tableNameOf },
  state: { title: "STATE", cell: ({ state }) => state },
  tools: {
    title: "TOOLS",
    cell: ({ document: { tools, shown } }) =>
      tools === undefined || shown === tools ? numberOrNothing(tools) : `${shown} of ${tools}`,
  },
  prompts: { title: "PROMPTS", cell: ({ document }) => numberOrDash(document.prompts) },
  resources: { title: "RESOURCES", cell: ({ document }) => numberOrDash(document.resources) },
  calls: {
    title: "CALLS",
    cell: ({ document: { calls, inFlight = 0 } }) =>
      inFlight > 0 ? `${calls} (${inFlight} running)` : numberOrNothing(calls),
  },
  lastTool: { title: "LAST TOOL", cell: ({ document }) => document.lastTool ?? "" },
  start: {
    title: "START",
    cell: ({ document: { startDuration } }) =>
      startDuration === undefined ? "" : formatDuration(startDuration),
  },
  pid: { title: "PID", cell: ({ document }) => numberOrNothing(document.pid) },
  memory: {
    title: "MEMORY",
    cell: ({ document: { memory } }) => (memory === undefined ? "" : formatSize(memory)),
  },
  protocol: {
    title: "PROTOCOL",
    cell: ({ document: { transport = "", era, protocolVersion = "" } }) =>
      era === undefined ? transport : `${transport}, ${era} ${protocolVersion}`.trimEnd(),
  },
} as const satisfies Readonly<Record<string, Column>>;

/** Formats a report for people. */
function formatReport(report: StatusReport, style: TerminalStyle): string {
  const { colors, width } = style;
  const { servers, verdict, gap } = report;
  const table = servers.length === 0 ? [] : [drawTable(report, style)];
  const troubles = servers.flatMap(({ trouble }) =>
    trouble === undefined ? [] : [formatTrouble(trouble, style)],
  );
  const notes = servers.flatMap((server) => formatNotes(server, style)).join("\n");
  const details = notes === "" ? troubles : [...troubles, notes];
  const last = colors[VERDICT_COLORS[verdict]](wrapText(report.verdictText, width));
  const shown = [...table, ...details].join("\n\n");
  return shown === "" ? last : `${shown}${details.length > 0 ? gap : "\n"}${last}`;
}

/** Draws the table of servers. If it is too wide, draws two: what the servers offer, and their processes. */
function drawTable({ columns, servers }: StatusReport, style: TerminalStyle): string {
  const draw = (shown: readonly Column[], { width } = style): string => {
    const rows = servers.map((server) => shown.map(({ cell }) => cell(server)));
    return alignTable(
      shown.map(({ title }) => title),
      rows,
      { ...style, width },
    );
  };
  const fitting = draw(columns);
  const at = columns.indexOf(COLUMNS.pid);
  if (fitting === draw(columns, { ...style, width: Number.POSITIVE_INFINITY })) return fitting;
  return [
    draw(columns.slice(0, at)),
    draw([...columns.slice(0, columns.indexOf(COLUMNS.server) + 1), ...columns.slice(at)]),
  ].join("\n\n");
}

function formatTrouble(
  { head, start, texts, stderr, advice }: Trouble,
  { colors, width }: TerminalStyle,
): string {
  const wrap = (text: string, first: string, indent = first): string =>
    wrapText(sanitizeLine(text), width, indent, first);
  return [
    colors.bold(wrap(head, "", "  ")),
    ...(start === undefined ? [] : [wrap(start, "  ", "    ")]),
    ...texts.map((text) => wrap(text, "  ")),
    ...stderr.map((line) => colors.dim(wrap(line, "  | "))),
    ...advice.map((text) => wrap(text, "  - ", "    ")),
  ].join("\n");
}

function formatNotes(
  { name, notes = [] }: ServerReport,
  { colors, width }: TerminalStyle,
): readonly string[] {
  const server = sanitizeLine(name);
  return notes.map((text) => {
    const line = wrapText(`${server}: ${sanitizeLine(text)}`, width, "  ", "");
    return colors.bold(server) + line.slice(server.length);
  });
}

const RUNNING_COLORS = {
  connected: "green",
  notStarted: "yellow",
  idle: "dim",
  connecting: "yellow",
  authenticating: "yellow",
  reconnecting: "yellow",
  stopping: "yellow",
  failed: "red",
  stopped: "dim",
  disabled: "dim",
} as const satisfies Record<ServerDocument["state"], string>;

/** Whether a server is as it should be. */
const isInOrder = ({ state }: ServerDocument): boolean =>
  ["connected", "idle", "stopped", "disabled"].includes(state);

/**
 * The states of servers in running hubs, for people.
 * @param hubs the number of hubs; if there are several, a column names the hub, and commands need `--hub`
 */
export function describeFound(
  found: readonly FoundServer[],
  hubs: number,
  style: TerminalStyle,
): string {
  const { hub, server, state, tools, calls, lastTool, start, pid, memory, protocol } = COLUMNS;
  const columns = [server, state, tools, calls, lastTool, start, pid, memory, protocol];
  const verdict = verdictOf(found.map((one) => one.server));
  return formatReport(
    {
      columns: hubs > 1 ? [hub, ...columns] : columns,
      servers: found.map((one) => reportOfFound(one, hubs > 1, style)),
      verdict,
      verdictText: describeServers(found.map((one) => one.server)),
      gap: "\n",
    },
    style,
  );
}

/** Where a server of the fleet is: the machines, and the subject of its requests. */
function placeOf({ transport, endpoint }: Partial<ServerDocument>): readonly string[] {
  return transport === "fleet" && endpoint !== undefined ? [`${endpoint}.`] : [];
}

function reportOfFound(
  { hub, server }: FoundServer,
  isOneOfMany: boolean,
  { colors }: TerminalStyle,
): ServerReport {
  const { name, title, state } = server;
  return {
    name,
    title,
    hub: hub.pid,
    state: {
      text: wordOfState(server),
      color: isFailing(server) ? colors.red : colors[RUNNING_COLORS[state]],
    },
    document: server,
    trouble:
      isInOrder(server) || state === "notStarted"
        ? undefined
        : troubleOfFound(server, hub, isOneOfMany),
    notes: [...placeOf(server), ...describeConnections(server.connections)],
  };
}

function troubleOfFound(
  server: ServerDocument,
  { pid }: RunningHub,
  isOneOfMany: boolean,
): Trouble {
  const { name, state, statusText, lastError, unavailable, progress, remedies = [] } = server;
  // An earlier error is not why a server is on its way.
  const { code, step, stderr = [] } = (unavailable === true && lastError) || {};
  const where = step === undefined ? "" : ` to ${STEP_TEXTS[step]}`;
  const [inHub, option] = isOneOfMany ? [` in toolmux ${pid}`, ` --hub ${pid}`] : ["", ""];
  const hasFailed = state === "failed" || state === "reconnecting";
  const advice = [
    ...remedies,
    `After the cause is fixed: toolmux reconnect ${name}${option}`,
    `To see its log: toolmux logs ${name}${option}`,
  ];
  const login =
    progress?.url !== undefined
      ? `Log in at ${progress.url}`
      : state === "authenticating"
        ? `To log in, in a browser: toolmux reconnect ${name}${option}`
        : undefined;
  return {
    head: `${name}${inHub}: ${wordOfState(server)}${where}${code === undefined ? "" : ` (${code})`}`,
    start: placeOf(server)[0],
    texts: statusText.split("\n"),
    stderr,
    advice: login !== undefined ? [login] : hasFailed ? advice : [],
  };
}

/** The servers of running hubs for programs: their documents, with the hub of each. */
export function foundToJson(found: readonly FoundServer[], hubs: readonly RunningHub[]): object {
  const servers = found.map(({ hub, server }) => {
    const { lastError: error } = server;
    return { hub: hub.pid, ...server, ...(!isInOrder(server) && error && { error }) };
  });
  const described = hubs.map(({ pid, endpoints, startedAt }) => ({ pid, endpoints, startedAt }));
  return { verdict: verdictOf(found.map(({ server }) => server)), hubs: described, servers };
}

/** The diagnosis of a server that `status` has started. */
export type ServerDiagnosis = HealthyServer | StartingServer | FailedServer | DisabledServer;

interface ServerSubject extends ServerPresentation {
  readonly server: string;
  /** The way in which toolmux reaches the server; undefined for an entry that toolmux cannot use. */
  readonly transport: "stdio" | "remote" | "plugin" | "fleet" | undefined;
  /**
   * `start`: the URL of an HTTP server, or the command line of a server that is started from a package. Values that
   * look like secrets are masked. `package`: the name of the package.
   */
  readonly start?: string;
  readonly package?: string;
}

interface HealthyServer extends ServerSubject {
  readonly state: "connected";
  /** Number of the server's tools that clients see. */
  readonly shown: number;
  readonly document: ServerDocument;
  /** Sentences about settings of the manifest that match nothing that the server lists. */
  readonly unusedRules?: readonly string[];
}

interface StartingServer extends ServerSubject {
  readonly state: "starting";
  /** Time since the start of the server began, in ms. It is longer than the server's `connectTimeout`. */
  readonly elapsed: number;
}

interface FailedServer extends ServerSubject {
  readonly state: "failed" | "unsupported";
  readonly cause: HubError;
  /** Advice to the user, as full sentences. */
  readonly hints: readonly string[];
}

interface DisabledServer extends ServerSubject {
  readonly state: "disabled";
}

const STATE_COLORS = {
  connected: "green",
  starting: "yellow",
  failed: "red",
  unsupported: "red",
  disabled: "dim",
} as const satisfies Record<ServerDiagnosis["state"], string>;

/** Makes the result of `status` for one server. @param env the environment of the hub */
export function diagnose(document: ServerDocument, spec: ServerSpec, env: Env): ServerDiagnosis {
  const { name: server, kind } = spec;
  const { endpoint: start = "", late: elapsed = 0, remedies } = document;
  const subject: ServerSubject = {
    server,
    ...presentationOf(spec),
    transport: isRunnable(spec) ? spec.kind : undefined,
    ...((spec.kind === "remote" || spec.kind === "fleet") && { start }),
    ...(spec.kind === "stdio" &&
      spec.package !== undefined && { start, package: spec.package.name }),
  };
  const availability = availabilityOf(document);
  if (availability === "disabled") return { ...subject, state: "disabled" };
  if (availability === "starting") return { ...subject, state: "starting", elapsed };
  if (availability === "connected" && document.responsive !== false)
    return { ...subject, state: "connected", shown: document.shown, document };
  const cause = errorOf(document);
  const hints = remedies ?? hintsFor(cause, spec, env);
  return { ...subject, state: kind === "unsupported" ? kind : "failed", cause, hints };
}

/** The state and the goal of a server, as `verdictOf` counts them. */
const SUMMARIES = {
  connected: { goal: "up", state: "connected" },
  starting: { goal: "up", state: "connecting" },
  failed: { goal: "up", state: "failed" },
  unsupported: { goal: "up", state: "failed" },
  disabled: { goal: "down", state: "disabled" },
} as const satisfies Record<ServerDiagnosis["state"], ServerSummary>;

/** The overall state of the servers. */
export function verdictOfDiagnoses(diagnoses: readonly ServerDiagnosis[]): Verdict {
  return verdictOf(diagnoses.map(({ state }) => SUMMARIES[state]));
}

/** The result for people: a table, each failure with hints, then the verdict. */
export function describeDiagnoses(
  diagnoses: readonly ServerDiagnosis[],
  style: TerminalStyle,
): string {
  const { server, state, tools, prompts, resources, start, pid, memory, protocol } = COLUMNS;
  return formatReport(
    {
      columns: [server, state, tools, prompts, resources, start, pid, memory, protocol],
      servers: diagnoses.map((diagnosis) => reportOf(diagnosis, style)),
      verdict: verdictOfDiagnoses(diagnoses),
      verdictText: describeVerdict(diagnoses),
      gap: "\n\n",
    },
    style,
  );
}

function reportOf(diagnosis: ServerDiagnosis, { colors }: TerminalStyle): ServerReport {
  const { server: name, title, state, transport, start } = diagnosis;
  const color = colors[STATE_COLORS[state]];
  const text =
    diagnosis.state === "starting" ? formatStartingTime(diagnosis.elapsed) : diagnosis.state;
  const report = { name, title, state: { text, color }, document: { transport } };
  if ("cause" in diagnosis) return { ...report, trouble: troubleOf(diagnosis) };
  if (diagnosis.state !== "connected") return report;
  const { document, shown, unusedRules = [] } = diagnosis;
  const { strayOutput, capabilityFaults = [] } = document;
  return {
    ...report,
    document: { transport, tools: 0, ...document, shown },
    notes: [
      ...placeOf({ transport, endpoint: start }),
      ...(strayOutput === undefined ? [] : [describeStrayOutput(strayOutput)]),
      ...capabilityFaults.map((fault) => `${fault}.`),
      ...unusedRules,
    ],
  };
}

function troubleOf({ server, start, cause, hints }: FailedServer): Trouble {
  const { message, code, step, stderr } = cause;
  const where = step === undefined ? "" : ` to ${STEP_TEXTS[step]}`;
  return {
    head: `${server}: failed${where} (${code})`,
    start,
    texts: [message],
    stderr,
    advice: hints,
  };
}

function describeVerdict(diagnoses: readonly ServerDiagnosis[]): string {
  if (diagnoses.length === 0)
    return "no servers in the manifest; add them with toolmux import or toolmux add NAME";
  return describeCounts(countServers(diagnoses.map(({ state }) => SUMMARIES[state])));
}

/**
 * The result for programs: `{verdict, servers: [{name, state, …}]}`. Unknown values are absent. Times are in ms,
 * memory is in bytes. `endpoint`: where a server of the fleet is. `elapsed` is the time since the start of a server that is still starting. `tools`, `prompts`
 * and `resources` count what the server lists, `shown` the tools that clients see. `strayOutput` is `{lines,
 * example?}` for stdout lines that were not messages; absent if there were none. `capabilityFaults` has a phrase for
 * each fault of the capabilities that the server declares. `unusedRules` has a sentence for
 * each setting of the manifest that matches nothing.
 */
export function statusToJson(diagnoses: readonly ServerDiagnosis[]): object {
  const servers = diagnoses.map((diagnosis) => {
    const { title, description, icon } = diagnosis;
    return { ...toEntry(diagnosis), title, description, icon };
  });
  return { verdict: verdictOfDiagnoses(diagnoses), servers };
}

function toEntry(diagnosis: ServerDiagnosis): object {
  const { server: name, state, transport, package: named } = diagnosis;
  const url = transport === "remote" ? diagnosis.start : undefined;
  const endpoint = transport === "fleet" ? diagnosis.start : undefined;
  const entry = { name, state, transport, url, endpoint, package: named };
  if (diagnosis.state === "disabled") return entry;
  if (diagnosis.state === "starting") {
    const elapsed = Math.round(diagnosis.elapsed);
    return { ...entry, elapsed };
  }
  if (diagnosis.state !== "connected") {
    const { message, code, step, stderr } = diagnosis.cause;
    const error = { code, message, step, stderr };
    return { ...entry, error, remedies: diagnosis.hints };
  }
  const { shown, document, unusedRules = [] } = diagnosis;
  const { era, protocolVersion, implementation, tools, prompts, resources } = document;
  const { startDuration, pid, memory, strayOutput, capabilityFaults } = document;
  return {
    ...entry,
    way: transport === "remote" ? document.transport : undefined,
    era,
    protocolVersion,
    implementation,
    tools,
    shown,
    prompts,
    resources,
    startDuration,
    pid,
    memory,
    strayOutput,
    capabilityFaults,
    ...(unusedRules.length > 0 && { unusedRules }),
  };
}
