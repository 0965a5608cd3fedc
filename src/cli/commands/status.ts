import { EXIT_CODES, STEP_TEXTS, type StatusVerdict } from "../status-verdict.ts";
import { openLogBeside } from "../command-log.ts";
import { suggestName } from "../../manifest/problems.ts";
import { count, formatDuration, formatSize } from "../../base/format.ts";
import { type Clock, systemClock, abortable } from "../../base/clock.ts";
import { HubError, usageError } from "../../base/errors.ts";
import type { EventBus, StateName } from "../../base/events.ts";
import type { Env } from "../../base/paths.ts";
import { isIdleRule } from "../../catalog/idle-rules.ts";
import type { Hub } from "../../hub/hub.ts";
import {
  isRunnable,
  type Manifest,
  presentationOf,
  type ServerPresentation,
  type ServerSpec,
  tableNameOf,
} from "../../manifest/manifest.ts";
import type { ProcessStats } from "../../process/child-process.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import {
  alignTable,
  formatStartingTime,
  type Cell,
  type StatusLine,
  type TerminalStyle,
  wrapText,
} from "../../terminal/terminal.ts";
import type { ConnectionStatus } from "../../upstream/status.ts";
import { describeStrayOutput } from "../../upstream/stray-output.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { hintsFor } from "../../operations/hints.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import { openHub, openSnapshots } from "../../host/open-hub.ts";
import { describeServer, withInstalledRunner } from "../../operations/server-description.ts";
import type { HubOptions } from "../running-hub.ts";
import { serverStateOf, type ServerState } from "../../hub/server-state.ts";

/** The diagnosis of one server by `status`. */
export type ServerDiagnosis = HealthyServer | StartingServer | FailedServer | DisabledServer;

interface ServerSubject extends ServerPresentation {
  readonly server: string;
  /** How toolmux reaches the server; undefined for an entry that toolmux cannot use. */
  readonly transport: "stdio" | "remote" | "plugin" | undefined;
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
  readonly connection: ConnectionStatus;
  /** Resource usage of the server's processes; undefined if it is unknown or there are none. */
  readonly processStats: ProcessStats | undefined;
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

const COLORS = {
  healthy: "green",
  partial: "yellow",
  failed: "red",
  none: "yellow",
} as const satisfies Record<StatusVerdict, string>;

const STATE_COLORS = {
  connected: "green",
  starting: "yellow",
  failed: "red",
  unsupported: "red",
  disabled: "dim",
} as const satisfies Record<ServerDiagnosis["state"], string>;

const TITLES = "SERVER STATE TOOLS PROMPTS RESOURCES START PID MEMORY PROTOCOL".split(" ");

/** Makes the result of `status` for one server. @param env the environment of the hub */
export function diagnose(
  serverState: ServerState,
  spec: ServerSpec,
  processStats: ProcessStats | undefined,
  env: Env,
): ServerDiagnosis {
  const { name: server, kind } = spec;
  const subject: ServerSubject = {
    server,
    ...presentationOf(spec),
    transport: isRunnable(spec) ? spec.kind : undefined,
    ...(spec.kind === "remote" && { start: describeServer(spec) }),
    ...(spec.kind === "stdio" &&
      spec.package !== undefined && { start: describeServer(spec), package: spec.package.name }),
  };
  const fail = (cause: HubError): FailedServer => {
    const state = kind === "unsupported" ? kind : "failed";
    return { ...subject, state, cause, hints: hintsFor(cause, spec, env) };
  };
  switch (serverState.at) {
    case "disabled":
      return { ...subject, state: "disabled" };
    case "starting":
      return { ...subject, state: "starting", elapsed: serverState.elapsed };
    case "failed":
      return fail(serverState.cause);
    case "idle":
      return fail(new HubError("serverStopped", `Server "${server}" was stopped.`, { server }));
    case "connected": {
      const { connection, tools: shown } = serverState;
      if (connection.responsive !== false)
        return { ...subject, state: "connected", shown, connection, processStats };
      const text = `Server "${server}" is connected, but does not respond.`;
      return fail(new HubError("notResponding", text, { server }));
    }
  }
}

export function verdictOf(diagnoses: readonly ServerDiagnosis[]): StatusVerdict {
  const enabled = diagnoses.filter(({ state }) => state !== "disabled");
  const healthy = enabled.filter(({ state }) => state === "connected");
  if (enabled.length === 0) return "none";
  if (healthy.length === enabled.length) return "healthy";
  const isAnyLeft = enabled.some(({ state }) => state === "connected" || state === "starting");
  return isAnyLeft ? "partial" : "failed";
}

/** The result for people: a table, each failure with hints, then the verdict. */
export function describeDiagnoses(
  diagnoses: readonly ServerDiagnosis[],
  style: TerminalStyle,
): string {
  const { colors } = style;
  const table = drawTable(
    diagnoses.map((it) => toRow(it, style)),
    style,
  );
  const failures = diagnoses.flatMap((it) => ("cause" in it ? [describeFailure(it, style)] : []));
  const notes = diagnoses.flatMap((it) => describeNotes(it, style));
  const verdict = colors[COLORS[verdictOf(diagnoses)]](
    wrapText(describeVerdict(diagnoses), style.width),
  );
  const details = [...failures, ...(notes.length > 0 ? [notes.join("\n")] : [])];
  if (details.length > 0) return [table, ...details, verdict].join("\n\n");
  return diagnoses.length > 0 ? `${table}\n${verdict}` : verdict;
}

/** Draws the table of servers. If it is too wide, draws two: what the servers offer, and their processes. */
function drawTable(rows: readonly (readonly Cell[])[], style: TerminalStyle): string {
  const wide = alignTable(TITLES, rows, { ...style, width: Number.POSITIVE_INFINITY });
  const fitting = alignTable(TITLES, rows, style);
  if (fitting === wide) return wide;
  const splitAt = TITLES.indexOf("PID");
  const first = <T>(row: readonly T[]): readonly T[] => row.slice(0, splitAt);
  const second = <T>(row: readonly T[]): readonly T[] => [
    ...row.slice(0, 1),
    ...row.slice(splitAt),
  ];
  return [
    alignTable(first(TITLES), rows.map(first), style),
    alignTable(second(TITLES), rows.map(second), style),
  ].join("\n\n");
}

/** A row of the table. In it, "-" means that the server has no prompts or resources; an empty cell means unknown. */
function toRow(diagnosis: ServerDiagnosis, { colors }: TerminalStyle): readonly Cell[] {
  const { server, title, state, transport = "" } = diagnosis;
  const name = tableNameOf({ name: server, title });
  const color = colors[STATE_COLORS[state]];
  if (diagnosis.state !== "connected") {
    const text = diagnosis.state === "starting" ? formatStartingTime(diagnosis.elapsed) : state;
    return [name, { text, color }, "", "", "", "", "", "", transport];
  }
  const { shown, connection, processStats } = diagnosis;
  const { tools = 0, prompts, resources, startDuration, peer, httpTransport } = connection;
  const way = httpTransport ?? transport;
  return [
    name,
    { text: state, color },
    shown === tools ? String(tools) : `${shown} of ${tools}`,
    prompts === 0 ? "-" : String(prompts ?? ""),
    resources === 0 ? "-" : String(resources ?? ""),
    startDuration === undefined ? "" : formatDuration(startDuration),
    String(processStats?.pid ?? ""),
    processStats === undefined ? "" : formatSize(processStats.memory),
    peer === undefined ? way : `${way}, ${peer.era} ${peer.protocolVersion}`,
  ];
}

function describeFailure(
  { server, start, cause, hints }: FailedServer,
  { colors, width }: TerminalStyle,
): string {
  const { message, code, step, stderr } = cause;
  const where = step === undefined ? "" : ` to ${STEP_TEXTS[step]}`;
  const wrap = (text: string, first: string, indent = first): string =>
    wrapText(sanitizeLine(text), width, indent, first);
  return [
    colors.bold(wrap(`${server}: failed${where} (${code})`, "", "  ")),
    ...(start === undefined ? [] : [wrap(start, "  ", "    ")]),
    wrap(message, "  "),
    ...stderr.map((line) => colors.dim(wrap(line, "  | "))),
    ...hints.map((line) => wrap(line, "  - ", "    ")),
  ].join("\n");
}

function describeNotes(
  diagnosis: ServerDiagnosis,
  { colors, width }: TerminalStyle,
): readonly string[] {
  if (diagnosis.state !== "connected") return [];
  const { strayOutput, capabilityFaults = [] } = diagnosis.connection;
  const server = sanitizeLine(diagnosis.server);
  const texts = [
    ...(strayOutput === undefined ? [] : [describeStrayOutput(strayOutput)]),
    ...capabilityFaults.map((fault) => `${fault}.`),
    ...(diagnosis.unusedRules ?? []),
  ];
  return texts.map((text) => {
    const line = wrapText(`${server}: ${sanitizeLine(text)}`, width, "  ", "");
    return colors.bold(server) + line.slice(server.length);
  });
}

function describeVerdict(diagnoses: readonly ServerDiagnosis[]): string {
  const counted = (...states: readonly ServerDiagnosis["state"][]): number =>
    diagnoses.filter(({ state }) => states.includes(state)).length;
  const disabled = counted("disabled");
  const servers = count(diagnoses.length - disabled, "server");
  const more = disabled === 0 ? "" : `; ${disabled} disabled`;
  switch (verdictOf(diagnoses)) {
    case "healthy":
      return `all healthy: ${servers}${more}`;
    case "partial": {
      const [failed, starting] = [counted("failed", "unsupported"), counted("starting")];
      if (starting === 0) return `${failed} of ${servers} failed${more}`;
      const also = failed === 0 ? "" : `, ${failed} failed`;
      return `not all ready: ${starting} of ${servers} still starting${also}${more}`;
    }
    case "failed":
      return `all failed: ${servers}${more}`;
    case "none":
      return disabled > 0
        ? `no server is enabled${more}`
        : "no servers in the manifest; add them with toolmux import or toolmux add NAME";
  }
}

/**
 * The result for programs: `{verdict, servers: [{name, state, …}]}`. Unknown values are absent. Times are in ms,
 * memory is in bytes. `elapsed` is the time since the start of a server that is still starting. `tools`, `prompts`
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
  return { verdict: verdictOf(diagnoses), servers };
}

function toEntry(diagnosis: ServerDiagnosis): object {
  const { server: name, state, transport, package: named } = diagnosis;
  const url = transport === "remote" ? diagnosis.start : undefined;
  if (diagnosis.state === "disabled") return { name, state, transport, url, package: named };
  if (diagnosis.state === "starting") {
    const elapsed = Math.round(diagnosis.elapsed);
    return { name, state, transport, url, package: named, elapsed };
  }
  if (diagnosis.state !== "connected") {
    const { message, code, step, stderr } = diagnosis.cause;
    const error = { code, message, step, stderr };
    return { name, state, transport, url, package: named, error, remedies: diagnosis.hints };
  }
  const { shown, connection, processStats, unusedRules = [] } = diagnosis;
  const { tools, prompts, resources, startDuration, peer, httpTransport, strayOutput } = connection;
  const { capabilityFaults } = connection;
  return {
    name,
    state,
    transport,
    url,
    package: named,
    way: httpTransport,
    era: peer?.era,
    protocolVersion: peer?.protocolVersion,
    implementation: peer && { name: peer.name, version: peer.version },
    tools,
    shown,
    prompts,
    resources,
    startDuration: startDuration && Math.round(startDuration),
    pid: processStats?.pid,
    memory: processStats?.memory,
    strayOutput,
    capabilityFaults,
    ...(unusedRules.length > 0 && { unusedRules }),
  };
}

/** Interval between two updates of the status line, in ms. */
const REDRAW_INTERVAL = 100;

/** The state of a starting server. `since`: time at which that state began, in ms of the monotonic clock. */
export interface StartProgress {
  readonly server: string;
  readonly state: StateName;
  readonly since: number;
}

/**
 * Shows the progress of starting servers in a status line, until the returned function is called.
 * @param servers the servers to show; if undefined, all servers that start
 * @returns a function that stops showing the progress and clears the line. Any other output must clear the line first.
 */
export function openStartProgress(
  servers: readonly string[] | undefined,
  bus: EventBus,
  line: StatusLine,
  clock: Clock,
): () => void {
  const progress = new Map<string, StartProgress>(
    (servers ?? []).map((server) => [server, { server, state: "idle", since: clock.now() }]),
  );
  let cancelTimer = (): void => {};
  const draw = (): void => {
    cancelTimer();
    if (progress.size > 0) line.show(describeStartProgress([...progress.values()], clock.now()));
    cancelTimer = clock.after(REDRAW_INTERVAL, draw);
  };
  const unsubscribe = bus.subscribe(
    (event) => {
      if (event.kind !== "state") return;
      if (servers !== undefined && !progress.has(event.server)) return;
      const { server, to: state } = event;
      progress.set(server, { server, state, since: clock.now() });
      draw();
    },
    ["state"],
  );
  draw();
  return () => {
    unsubscribe();
    cancelTimer();
    line.clear();
  };
}

/** Names of the servers that a hub starts. */
export function startedServersOf({ servers }: Manifest): readonly string[] {
  return servers.flatMap((spec) => (spec.enabled && isRunnable(spec) ? [spec.name] : []));
}

/** Describes the starts: `2 of 5 ready, 1 failed; waiting for git 2.3 s, files 900 ms`, with the longest wait first. */
export function describeStartProgress(all: readonly StartProgress[], now: number): string {
  const waiting = all
    .filter(({ state }) => isStarting(state))
    .toSorted((a, b) => a.since - b.since)
    .map(({ server, since }) => `${server} ${formatDuration(now - since)}`);
  const ready = all.filter(({ state }) => state === "connected").length;
  const failed = all.filter(({ state }) => hasFailed(state)).length;
  const counts = `${ready} of ${all.length} ready${failed === 0 ? "" : `, ${failed} failed`}`;
  return waiting.length > 0 ? `${counts}; waiting for ${waiting.join(", ")}` : counts;
}

function isStarting(state: StateName): boolean {
  return state === "connecting" || state === "authenticating";
}

/** Whether a start has failed. While servers start, a server is stopped (`stopping`) only after a failure. */
function hasFailed(state: StateName): boolean {
  return state === "failed" || state === "reconnecting" || state === "stopping";
}

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
  if (!invocation.options.fresh) {
    const { findRunningHubs } = await import("../../control/running-hubs.ts");
    const running = await findRunningHubs(context);
    if (running.length > 0 || invocation.options.hub !== undefined) {
      const { hubStatus } = await import("./hub-status.ts");
      const exitCode = await hubStatus(invocation, context, running);
      if (exitCode !== undefined) return exitCode;
    }
  }
  const isForPeople = !invocation.options.json;
  const line = isForPeople ? context.terminal.openStatusLine() : undefined;
  const log = openLogBeside(line, invocation);
  const loaded = await loadManifestOnly(invocation, context, log);
  const { hub, bus, manifest, close } = await openHub(loaded, context, log, {
    choose: (all) => pickServers(all, invocation.args),
    // Checking the status must not open login pages.
    authorizes: false,
    snapshots: openSnapshots(context, log, "nothing"),
  });
  const endProgress = line && openStartProgress(startedServersOf(manifest), bus, line, systemClock);
  try {
    const diagnoses = await abortable(diagnoseServers(manifest, hub, context), context.signal);
    endProgress?.();
    if (isForPeople) context.terminal.print(describeDiagnoses(diagnoses, context.terminal.stdout));
    else context.terminal.printJson({ source: "fresh", ...statusToJson(diagnoses) });
    return EXIT_CODES[verdictOf(diagnoses)];
  } finally {
    endProgress?.();
    await close();
  }
}

async function diagnoseServers(
  manifest: Manifest,
  hub: Hub,
  context: CommandContext,
): Promise<readonly ServerDiagnosis[]> {
  const { connected } = await hub.startAllAndSettle();
  const processStats = new Map<string, ProcessStats | undefined>();
  await Promise.all(
    connected.map(async (server) => {
      // An error is ignored: if the server has exited, the state that is read below shows it.
      const running = await hub.inspect(server).catch(() => undefined);
      processStats.set(server, running);
    }),
  );
  return Promise.all(
    manifest.servers.map(async (spec) => {
      const settled = isRunnable(spec) ? await withInstalledRunner(spec, context) : spec;
      const diagnosis = diagnose(
        serverStateOf(spec, hub),
        settled,
        processStats.get(spec.name),
        context.env,
      );
      if (diagnosis.state !== "connected") return diagnosis;
      const notes = hub.catalog.notes.filter(
        (note) => note.server === spec.name && isIdleRule(note),
      );
      return { ...diagnosis, unusedRules: notes.map(({ text }) => text) };
    }),
  );
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
