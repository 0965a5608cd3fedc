import type { HubError } from "../base/errors.ts";
import { formatDuration, formatSize } from "../base/format.ts";
import type { Env } from "../base/paths.ts";
import { availabilityOf, errorOf } from "../control/hub-reader.ts";
import type { ServerDocument } from "../control/schemas.ts";
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
import {
  countServers,
  describeCounts,
  type ServerSummary,
  type Verdict,
  verdictOf,
} from "../upstream/verdict.ts";
import { describeStrayOutput } from "../upstream/stray-output.ts";
import { STEP_TEXTS, VERDICT_COLORS } from "./status-verdict.ts";

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

const TITLES = "SERVER STATE TOOLS PROMPTS RESOURCES START PID MEMORY PROTOCOL".split(" ");

/** Makes the result of `status` for one server. @param env the environment of the hub */
export function diagnose(document: ServerDocument, spec: ServerSpec, env: Env): ServerDiagnosis {
  const { name: server, kind } = spec;
  const { endpoint: start = "", late: elapsed = 0, remedies } = document;
  const subject: ServerSubject = {
    server,
    ...presentationOf(spec),
    transport: isRunnable(spec) ? spec.kind : undefined,
    ...(spec.kind === "remote" && { start }),
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
  const { colors } = style;
  const table = drawTable(
    diagnoses.map((it) => toRow(it, style)),
    style,
  );
  const failures = diagnoses.flatMap((it) => ("cause" in it ? [describeFailure(it, style)] : []));
  const notes = diagnoses.flatMap((it) => describeNotes(it, style));
  const verdict = colors[VERDICT_COLORS[verdictOfDiagnoses(diagnoses)]](
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
  const { shown, document } = diagnosis;
  const { tools = 0, prompts, resources, startDuration, pid, memory } = document;
  const { transport: way = transport, era, protocolVersion } = document;
  return [
    name,
    { text: state, color },
    shown === tools ? String(tools) : `${shown} of ${tools}`,
    prompts === 0 ? "-" : String(prompts ?? ""),
    resources === 0 ? "-" : String(resources ?? ""),
    startDuration === undefined ? "" : formatDuration(startDuration),
    String(pid ?? ""),
    memory === undefined ? "" : formatSize(memory),
    era === undefined ? way : `${way}, ${era} ${protocolVersion ?? ""}`,
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
  const { strayOutput, capabilityFaults = [] } = diagnosis.document;
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
  if (diagnoses.length === 0)
    return "no servers in the manifest; add them with toolmux import or toolmux add NAME";
  return describeCounts(countServers(diagnoses.map(({ state }) => SUMMARIES[state])));
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
  return { verdict: verdictOfDiagnoses(diagnoses), servers };
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
  const { shown, document, unusedRules = [] } = diagnosis;
  const { era, protocolVersion, implementation, tools, prompts, resources } = document;
  const { startDuration, pid, memory, strayOutput, capabilityFaults } = document;
  return {
    name,
    state,
    transport,
    url,
    package: named,
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
