import type { ProcessStats } from "../../process/child-process.ts";
import { HubError } from "../../base/errors.ts";
import type { Env } from "../../base/paths.ts";
import { type ServerSpec, isRunnable } from "../../manifest/schema.ts";
import { describeStrayOutput } from "../../upstream/stray-output.ts";
import type { ConnectionStatus } from "../../upstream/status.ts";

import { describeServer } from "../server-description.ts";
import {
  alignTable,
  countNoun,
  describeStarting,
  formatDuration,
  formatSize,
  type TerminalStyle,
} from "../../terminal/terminal.ts";
import { hintsFor } from "../hints.ts";
import { sanitizeLine } from "../../terminal/report.ts";
import type { ServerState } from "../server-state.ts";

/** What `status` found out about one server. */
export type ServerDiagnosis = Healthy | Starting | Sick | Disabled;

interface Subject {
  readonly server: string;
  /** undefined: one that toolmux cannot use. */
  readonly transport: "stdio" | "remote" | "plugin" | undefined;
  /** Where it is reached, or the package that it comes as and what runs that; without what looks like a secret. */
  readonly start?: string;
  readonly package?: string;
}

interface Healthy extends Subject {
  readonly state: "connected";
  /** How many of its tools clients see. */
  readonly shown: number;
  readonly connection: ConnectionStatus;
  /** What runs for it; undefined: that is not known, or nothing does. */
  readonly vitals: ProcessStats | undefined;
}

interface Starting extends Subject {
  readonly state: "starting";
  /** How long its start has taken so far, in ms: longer than `connectTimeout`. */
  readonly elapsed: number;
}

interface Sick extends Subject {
  readonly state: "failed" | "unsupported";
  readonly cause: HubError;
  /** What a person can do: whole sentences. */
  readonly remedies: readonly string[];
}

interface Disabled extends Subject {
  readonly state: "disabled";
}

/** What it comes to for all servers that are switched on. */
export type StatusVerdict = "healthy" | "partial" | "failed" | "none";

/** The exit codes that tell it. */
export const EXIT_CODES = {
  healthy: 0,
  partial: 1,
  failed: 3,
  none: 2,
} as const satisfies Record<StatusVerdict, number>;

const COLORS = {
  healthy: "green",
  partial: "yellow",
  failed: "red",
  none: "yellow",
} as const satisfies Record<StatusVerdict, string>;

const TITLES = "SERVER STATE TOOLS PROMPTS RESOURCES START PID MEMORY PROTOCOL".split(" ");

/** @param env the hub's own environment */
export function diagnose(
  standing: ServerState,
  spec: ServerSpec,
  vitals: ProcessStats | undefined,
  env: Env,
): ServerDiagnosis {
  const { name: server, kind } = spec;
  const subject: Subject = {
    server,
    transport: isRunnable(spec) ? spec.kind : undefined,
    ...(spec.kind === "remote" && { start: describeServer(spec) }),
    ...(spec.kind === "stdio" &&
      spec.package !== undefined && { start: describeServer(spec), package: spec.package.name }),
  };
  const fail = (cause: HubError): Sick => {
    const state = kind === "unsupported" ? kind : "failed";
    return { ...subject, state, cause, remedies: hintsFor(cause, spec, env) };
  };
  switch (standing.at) {
    case "disabled":
      return { ...subject, state: "disabled" };
    case "starting":
      return { ...subject, state: "starting", elapsed: standing.elapsed };
    case "failed":
      return fail(standing.cause);
    case "idle":
      return fail(new HubError("serverStopped", `Server "${server}" was stopped.`, { server }));
    case "connected": {
      const { connection, tools: shown } = standing;
      if (connection.responsive !== false)
        return { ...subject, state: "connected", shown, connection, vitals };
      const text = `Server "${server}" is connected, but does not answer.`;
      return fail(new HubError("notResponding", text, { server }));
    }
  }
}

export function verdictOf(diagnoses: readonly ServerDiagnosis[]): StatusVerdict {
  const wanted = diagnoses.filter(({ state }) => state !== "disabled");
  const healthy = wanted.filter(({ state }) => state === "connected");
  if (wanted.length === 0) return "none";
  if (healthy.length === wanted.length) return "healthy";
  const isAnyLeft = wanted.some(({ state }) => state === "connected" || state === "starting");
  return isAnyLeft ? "partial" : "failed";
}

/** For people: a table of all, then each failure and what to do about it, then the verdict. */
export function describeDiagnoses(
  diagnoses: readonly ServerDiagnosis[],
  paper: TerminalStyle,
): string {
  const { colors } = paper;
  const table = drawTable(diagnoses.map(toRow), paper);
  const failures = diagnoses.flatMap((it) => ("cause" in it ? [describeFailure(it, paper)] : []));
  const notes = diagnoses.flatMap((it) => describeNotes(it, paper));
  const verdict = colors[COLORS[verdictOf(diagnoses)]](describeVerdict(diagnoses));
  const details = [...failures, ...(notes.length > 0 ? [notes.join("\n")] : [])];
  if (details.length > 0) return [table, ...details, verdict].join("\n\n");
  return diagnoses.length > 0 ? `${table}\n${verdict}` : verdict;
}

/** Where there is no room for one table, what was asked of the servers and what they are stand below each other. */
function drawTable(rows: readonly (readonly string[])[], paper: TerminalStyle): string {
  const whole = alignTable(TITLES, rows, { ...paper, width: Number.POSITIVE_INFINITY });
  const fitting = alignTable(TITLES, rows, paper);
  if (fitting === whole) return whole;
  const half = TITLES.indexOf("PID");
  const first = (row: readonly string[]): readonly string[] => row.slice(0, half);
  const second = (row: readonly string[]): readonly string[] => [row[0] ?? "", ...row.slice(half)];
  const parts = [first, second].map((pick) => alignTable(pick(TITLES), rows.map(pick), paper));
  return parts.join("\n\n");
}

/** A dash is in the place of what a server does not have; nothing, of what is not known. */
function toRow(diagnosis: ServerDiagnosis): readonly string[] {
  const { server, state, transport = "" } = diagnosis;
  if (diagnosis.state !== "connected") {
    const how = diagnosis.state === "starting" ? describeStarting(diagnosis.elapsed) : state;
    return [server, how, "", "", "", "", "", "", transport];
  }
  const { shown, connection, vitals } = diagnosis;
  const { tools = 0, prompts, resources, startDuration, peer, way } = connection;
  const how = way ?? transport;
  return [
    server,
    state,
    shown === tools ? String(tools) : `${shown} of ${tools}`,
    prompts === 0 ? "-" : String(prompts ?? ""),
    resources === 0 ? "-" : String(resources ?? ""),
    startDuration === undefined ? "" : formatDuration(startDuration),
    String(vitals?.pid ?? ""),
    vitals === undefined ? "" : formatSize(vitals.memory),
    peer === undefined ? how : `${how}, ${peer.era} ${peer.protocolVersion}`,
  ];
}

function describeFailure(
  { server, start, cause, remedies }: Sick,
  { colors }: TerminalStyle,
): string {
  const { message, code, step, stderr } = cause;
  const where = step === undefined ? "" : ` at step ${step}`;
  return [
    colors.bold(sanitizeLine(`${server}: failed${where} (${code})`)),
    ...(start === undefined ? [] : [`  ${sanitizeLine(start)}`]),
    `  ${sanitizeLine(message)}`,
    ...stderr.map((line) => `  | ${sanitizeLine(line)}`),
    ...remedies.map((line) => `  - ${sanitizeLine(line)}`),
  ].join("\n");
}

/** What a person should know of a server that works. */
function describeNotes(diagnosis: ServerDiagnosis, { colors }: TerminalStyle): readonly string[] {
  if (diagnosis.state !== "connected") return [];
  const { strayOutput } = diagnosis.connection;
  if (strayOutput === undefined) return [];
  return [
    `${colors.bold(sanitizeLine(diagnosis.server))}: ${sanitizeLine(describeStrayOutput(strayOutput))}`,
  ];
}

function describeVerdict(diagnoses: readonly ServerDiagnosis[]): string {
  const counted = (...states: readonly ServerDiagnosis["state"][]): number =>
    diagnoses.filter(({ state }) => states.includes(state)).length;
  const disabled = counted("disabled");
  const servers = countNoun(diagnoses.length - disabled, "server");
  const more = disabled === 0 ? "" : `; ${disabled} disabled`;
  switch (verdictOf(diagnoses)) {
    case "healthy":
      return `all healthy: ${servers}${more}`;
    case "partial": {
      const [failed, starting] = [counted("failed", "unsupported"), counted("starting")];
      if (starting === 0) return `partial failure: ${failed} of ${servers} failed${more}`;
      const also = failed === 0 ? "" : `, ${failed} failed`;
      return `not all ready: ${starting} of ${servers} still starting${also}${more}`;
    }
    case "failed":
      return `all failed: ${servers}${more}`;
    case "none":
      return `no servers to ask${more}`;
  }
}

/**
 * For programs: `{verdict, servers: [{name, state, …}]}`. Times are in ms (`elapsed`: of a start that goes on), memory in bytes; `tools`, `prompts` and
 * `resources` count what the server lists, `shown` the tools that clients see of it; what is not known is absent.
 * `strayOutput` is `{lines, example?}`, of stdout lines that were no messages; absent if there were none.
 */
export function statusToJson(diagnoses: readonly ServerDiagnosis[]): object {
  return { verdict: verdictOf(diagnoses), servers: diagnoses.map(toEntry) };
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
    return { name, state, transport, url, package: named, error, remedies: diagnosis.remedies };
  }
  const { shown, connection, vitals } = diagnosis;
  const { tools, prompts, resources, startDuration, peer, way, strayOutput } = connection;
  return {
    name,
    state,
    transport,
    url,
    package: named,
    way,
    era: peer?.era,
    protocolVersion: peer?.protocolVersion,
    implementation: peer && { name: peer.name, version: peer.version },
    tools,
    shown,
    prompts,
    resources,
    startDuration: startDuration && Math.round(startDuration),
    pid: vitals?.pid,
    memory: vitals?.memory,
    strayOutput,
  };
}
