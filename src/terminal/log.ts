import { nameAndIdOfClient } from "../base/client-name.ts";
import { count, formatDuration, formatWait } from "../base/format.ts";
import { type ErrorCode, HubError } from "../base/errors.ts";
import type {
  Alert,
  ApprovalEvent,
  CallEvent,
  ClientEvent,
  EventKind,
  HubEvent,
  LogLevel,
  StateEvent,
} from "../base/hub-events.ts";
import { MESSAGE_PREFIX, printToStderr } from "./stderr.ts";
import { escapeJsonForTerminal, sanitizeLine, sanitizeLines } from "./visible.ts";

export { escapeJsonForTerminal, escapeLines, sanitizeLine, sanitizeLines } from "./visible.ts";

/**
 * The folder terminal/ has the output for people (log lines, styles, tables), without knowledge of commands. Main type:
 * `LogRecord`, below. Read next: `stderr.ts` (writing without blocking) and `terminal.ts` (colors, widths, status
 * line).
 *
 * A log record, before it is formatted.
 */
export interface LogRecord {
  /** ms since the epoch. */
  readonly time: number;
  readonly level: LogLevel;
  /** The subject of the record: `["toolmux"]`, or for a server `["toolmux", "server", NAME]`. */
  readonly category: readonly string[];
  /** Text for people, without the server's name (it is in the category). */
  readonly message: string;
  readonly properties: LogFields;
}

/** Structured fields. Times are ISO texts, durations in ms. */
export interface LogFields {
  /** The error that the record is about; the record's message already contains the error's message. */
  readonly error?: HubError;
  /** Problems of a manifest, one line each. */
  readonly problems?: readonly string[];
  readonly [name: string]: unknown;
}

/** First element of every category; in the category of a record about the hub itself, the only element. */
const ROOT_CATEGORY = "toolmux";

/** Second element of a server's category. */
export const SERVER_CATEGORY = "server";

const SEVERITY_ORDER: Readonly<Record<LogLevel, number>> = { error: 0, warn: 1, info: 2, debug: 3 };

/** For each kind of event, the most severe level at which such an event can be logged; undefined: it is never logged. */
const MOST_SEVERE_LEVEL: Readonly<Record<EventKind, LogLevel | undefined>> = {
  server: "info",
  state: "error",
  log: "error",
  callStarted: "debug",
  callFinished: "debug",
  callCancelled: "debug",
  calls: undefined,
  catalog: "info",
  alert: "warn",
  pins: undefined,
  approval: "info",
  client: "info",
  manifest: "error",
  mode: "info",
  limit: "warn",
  fleet: "warn",
};

/** Maximum number of names in a message; further names are only counted. */
const MAX_NAMES = 5;

/** Whether records of a level are logged at this threshold. */
export function isLevelEnabled(level: LogLevel, threshold: LogLevel): boolean {
  return SEVERITY_ORDER[level] <= SEVERITY_ORDER[threshold];
}

/** The kinds of events that can be logged with this threshold. The log need not subscribe to other kinds. */
export function eventKindsAtLevel(threshold: LogLevel): readonly EventKind[] {
  const kinds = Object.keys(MOST_SEVERE_LEVEL) as EventKind[];
  return kinds.filter((kind) => {
    const level = MOST_SEVERE_LEVEL[kind];
    return level !== undefined && isLevelEnabled(level, threshold);
  });
}

/** Makes a record about the hub itself, or about one server. */
export function makeLogRecord(
  level: LogLevel,
  message: string,
  { server, time = Date.now(), ...properties }: RecordOrigin = {},
): LogRecord {
  const category =
    server === undefined ? [ROOT_CATEGORY] : [ROOT_CATEGORY, SERVER_CATEGORY, server];
  return { time, level, category, message, properties };
}

/** A copy of the record with `change` applied to all texts in it. */
export function redactRecord(record: LogRecord, change: (text: string) => string): LogRecord {
  const changeIn = (value: unknown): unknown => {
    if (typeof value === "string") return change(value);
    if (value instanceof HubError) return value.mapTexts(change);
    return Array.isArray(value) ? value.map(changeIn) : value;
  };
  const entries = Object.entries(record.properties).map(([name, value]) => [name, changeIn(value)]);
  const properties = Object.fromEntries(entries) as LogFields;
  return { ...record, message: change(record.message), properties };
}

interface RecordOrigin extends LogFields {
  readonly server?: string | undefined;
  readonly time?: number;
}

/** Whether an error's message lists the problems of a manifest or of an agent file, one per line. */
function listsProblems({ code, hint }: HubError): boolean {
  return code === "manifestInvalid" || (code === "agentInvalid" && hint === undefined);
}

/** Records for an error that ends a command; for an invalid file, one for each problem. */
export function recordsOfError(error: HubError): readonly LogRecord[] {
  if (!listsProblems(error)) {
    return [makeLogRecord("error", error.message, { server: error.server, error })];
  }
  return error.message.split("\n").map((problem) => makeLogRecord("error", problem));
}

/**
 * Makes the log record of an event; undefined if the event is not logged. A failure that causes state events and an
 * alert is reported only once: a permanent failure by the state `failed`, any other by the state `stopping`.
 * @param time now, in ms since the epoch
 */
export function recordOfEvent(event: HubEvent, time: number): LogRecord | undefined {
  switch (event.kind) {
    case "server": {
      const { server, change } = event;
      return makeLogRecord("info", SERVER_CHANGES[change], { server, time, change });
    }
    case "state":
      return recordOfState(event, time);
    case "log": {
      const { level, source, server, text } = event;
      return makeLogRecord(level, text, { server, time, source });
    }
    case "callStarted":
    case "callFinished":
    case "callCancelled":
      return recordOfCall(event, time);
    // What is pending is said by the alert about the server.
    case "pins":
    case "calls":
      return undefined;
    case "catalog": {
      const { added, removed, altered } = event;
      return makeLogRecord("info", describeTools(event), { time, added, removed, altered });
    }
    case "alert":
      return recordOfAlert(event.raised, event.alert, time);
    case "approval":
      return recordOfApproval(event, time);
    case "client":
      return recordOfClient(event, time);
    case "mode": {
      const { client, name, principal, from, to } = event;
      const who =
        client === undefined
          ? "clients"
          : `client ${nameAndIdOfClient({ id: client, name, principal })}`;
      const text = `mode of ${who}: "${to}" instead of "${from}"`;
      return makeLogRecord("info", text, { time, client, name, principal, from, to });
    }
    case "limit": {
      const { kind: _, text, ...fields } = event;
      return makeLogRecord("warn", text, { time, ...fields });
    }
    case "fleet": {
      const { change, machine, servers, reason } = event;
      const exported = servers.length === 0 ? "nothing" : servers.slice(0, MAX_NAMES).join(", ");
      const text =
        change === "joined"
          ? `machine "${machine}" has joined the fleet; it exports ${exported}`
          : `machine "${machine}" has left the fleet: it ${reason}`;
      const level = change === "joined" ? "info" : "warn";
      return makeLogRecord(level, text, { time, change, machine, servers });
    }
    case "manifest": {
      const { outcome } = event;
      if (outcome === "reloaded") {
        const { servers, added, changed, removed } = event;
        const changes = (["added", "changed", "removed"] as const)
          .filter((change) => event[change].length > 0)
          .map((change) => `${change}: ${describeNames(event[change])}`);
        const what = changes.length === 0 ? "no server changed" : changes.join("; ");
        const text = `config reloaded: ${count(servers, "server")}; ${what}`;
        return makeLogRecord("info", text, { time, outcome, servers, added, changed, removed });
      }
      const text = "the changed config has errors: the hub keeps the old one";
      return makeLogRecord("error", text, { time, outcome, problems: event.problems.split("\n") });
    }
  }
}

const SERVER_CHANGES = {
  added: "added",
  changed: "its settings changed",
  removed: "removed",
} as const;

function recordOfState(event: StateEvent, time: number): LogRecord {
  const { kind: _, cause, retryAt, isRepeated, ...move } = event;
  const base = {
    ...move,
    ...(retryAt !== undefined && { retryAt: new Date(retryAt).toISOString() }),
    time,
  };
  const record = (level: LogLevel, message: string): LogRecord =>
    makeLogRecord(level, message, base);
  const errorRecord = (level: LogLevel, error: HubError, more = ""): LogRecord =>
    makeLogRecord(level, error.message + more, { ...base, error });
  const wait = retryAt === undefined ? "soon" : `in ${formatWait(retryAt - time)}`;
  switch (event.to) {
    case "connecting": {
      const { attempt = 1 } = event;
      return record("info", attempt > 1 ? `connecting (attempt ${attempt})` : "connecting");
    }
    case "connected":
      return record("info", "connected");
    case "stopping": {
      // A `stopping` event with an attempt number but without a retry time comes before the state `failed`. The failure
      // is logged with the state `failed`, not here.
      const isFinal = event.attempt !== undefined && retryAt === undefined;
      if (cause === undefined || isFinal) return record("debug", "stopping");
      return errorRecord("warn", cause, retryAt === undefined ? "" : ` Next attempt ${wait}.`);
    }
    case "reconnecting":
      return record("debug", `next attempt ${wait}`);
    case "failed": {
      const level = isRepeated === true ? "debug" : "error";
      return cause === undefined ? record(level, "failed") : errorRecord(level, cause);
    }
    case "authenticating":
      // The alert that comes with this event tells the user what to do.
      return record("debug", "authorization is needed");
    case "idle":
      return record("info", "stopped while idle; the next call starts it");
    case "disconnected":
      return record("info", "stopped");
  }
}

function recordOfCall(event: CallEvent, time: number): LogRecord {
  const { call, server, tool } = event;
  const what = `call ${call} of ${tool}`;
  const base = { server, time, call, tool };
  if (event.kind === "callStarted") {
    return makeLogRecord("debug", `${what} started`, { ...base, name: event.name });
  }
  const ms = Math.round(event.duration);
  const after = `after ${formatDuration(event.duration)}`;
  if (event.kind === "callCancelled") {
    const { by } = event;
    return makeLogRecord("debug", `${what} cancelled ${after}: ${by}`, { ...base, ms, by });
  }
  const { outcome } = event;
  if (outcome === "answered") {
    return makeLogRecord("debug", `${what} answered ${after}`, { ...base, ms, outcome });
  }
  const error = event.cause;
  const text = `${what} ${outcome} ${after}: ${error.message}`;
  return makeLogRecord("debug", text, { ...base, ms, outcome, error });
}

function recordOfApproval(event: ApprovalEvent, time: number): LogRecord {
  const { id, call, server, tool, name, client, agent, change } = event;
  const base = { server, time, change, approval: id, call, tool, name, client, agent };
  const what = `call ${call} of ${tool}`;
  if (change === "asked")
    return makeLogRecord("info", `${what} waits for an approval (toolmux approvals)`, base);
  if (change === "withdrawn")
    return makeLogRecord("info", `${what} does not need its approval any more`, base);
  const { decision, by, remembered } = event;
  const level = by === "rule" ? "debug" : "info";
  const verb = decision === "deny" ? "was not allowed" : `was allowed (${decision})`;
  return makeLogRecord(level, `${what} ${verb}: ${by}`, { ...base, decision, by, remembered });
}

function recordOfAlert(raised: boolean, alert: Alert, time: number): LogRecord | undefined {
  const { kind, server, text, dismissed, repeated } = alert;
  if (raised && repeated === true) return undefined;
  // The cause of a client's refusal is logged when the tokens are read.
  if (dismissed === true || kind === "clientRefused") return undefined;
  if (kind === "connectionFailed" || kind === "disconnected") return undefined;
  const base = { server, time, alert: kind, raised };
  return raised
    ? makeLogRecord("warn", text, base)
    : makeLogRecord("info", `resolved: ${text}`, base);
}

function recordOfClient(event: ClientEvent, time: number): LogRecord {
  const { client, change, name, version, principal } = event;
  const ownName = name === undefined ? undefined : [name, version].join(" ").trim();
  const who = nameAndIdOfClient({ id: client, name: ownName, principal });
  const texts = { joined: "connected", left: "disconnected", changed: "is initialized" };
  const base = { time, client, change, name, version, principal };
  // A client without a name has sent nothing yet; when it does, that is told.
  const level = change === "joined" && name === undefined ? "debug" : "info";
  return makeLogRecord(level, `client ${who} ${texts[change]}`, base);
}

function describeTools(event: Extract<HubEvent, { kind: "catalog" }>): string {
  const parts = (["added", "removed", "altered"] as const)
    .filter((change) => event[change].length > 0)
    .map((change) => `${event[change].length} ${change} (${describeNames(event[change])})`);
  return `the list of tools changed: ${parts.join(", ")}`;
}

function describeNames(names: readonly string[]): string {
  const rest = names.length - MAX_NAMES;
  return [...names.slice(0, MAX_NAMES), ...(rest > 0 ? [`${rest} more`] : [])].join(", ");
}

/** The formats of lines on stderr. */
export const LOG_FORMATS = ["text", "json"] as const;

export type LogFormat = (typeof LOG_FORMATS)[number];

/* Everything printed to stderr uses `console.warn`, because some runtimes print console.error in red. */

/** Maximum length of one text in a log line, in characters, and of one list, in items. */
const MAX_TEXT = 8000;
const MAX_ITEMS = 100;

/** A line for stderr, without the line break. */
export function prefixLine(text: string): string {
  return `${MESSAGE_PREFIX}${sanitizeLine(text)}`;
}

/** Prints a log record to stderr. */
export function printLogRecord(record: LogRecord, format: LogFormat): void {
  printToStderr(formatLogRecord(record, format));
}

/**
 * Formats a record as text or as one line of JSON, without the last line break. In text, each problem of a manifest
 * and each line of a server's stderr has a line of its own.
 */
export function formatLogRecord(record: LogRecord, format: LogFormat): string {
  return format === "json" ? formatRecordJson(record) : formatRecordText(record);
}

function formatRecordText({ level, category, message, properties }: LogRecord): string {
  const [, part, server] = category;
  const about = part === SERVER_CATEGORY && server !== undefined ? `${server}: ` : "";
  const { error, problems = [] } = properties;
  const stderr = error?.stderr ?? [];
  const line = `${level} ${about}${message}${stderr.length > 0 ? " Its last stderr lines:" : ""}`;
  return [
    prefixLine(truncateText(line)),
    ...stderrLines(stderr).map(truncateText),
    ...truncateList(problems).map((problem) => sanitizeLine(truncateText(problem))),
  ].join("\n");
}

/**
 * Formats a record as `{"time":"ISO","level","category":[…],"message", …fields}`. The field `error` is
 * `{code, message, step?, stderr?}`.
 */
function formatRecordJson({ time, level, category, message, properties }: LogRecord): string {
  const { error, ...rest } = properties;
  const fields = {
    time: new Date(time).toISOString(),
    level,
    category,
    message,
    ...rest,
    ...(error !== undefined && { error: errorToJson(error) }),
  };
  const text = JSON.stringify(fields, (_key, value: unknown) => {
    if (typeof value === "string") return truncateText(value);
    return Array.isArray(value) ? truncateList(value) : value;
  });
  return escapeJsonForTerminal(text);
}

/**
 * Converts an error to JSON with these four members only, because its `cause` may contain anything, such as a command's
 * arguments.
 */
function errorToJson({ code, message, step, stderr }: HubError): object {
  const said = stderr.length > 0 ? { stderr } : {};
  return { code, message, ...(step !== undefined && { step }), ...said };
}

function truncateText(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`;
}

/** The first `MAX_ITEMS` items of a list, and a text with the number of omitted items. */
function truncateList<T>(items: readonly T[]): readonly (T | string)[] {
  const rest = items.length - MAX_ITEMS;
  return rest <= 0 ? items : [...items.slice(0, MAX_ITEMS), `… and ${rest} more`];
}

/** The codes of errors that the help of the command may explain, unless they come with a hint. */
const CALLERS_ERRORS: ReadonlySet<ErrorCode> = new Set(["usage", "notFound", "conflict"]);

/**
 * Formats an error for people: the message, the server's last stderr lines, and a hint. Problems of a file are on
 * lines of their own, in the format that editors parse.
 * @param topic the command whose help to suggest
 */
export function describeError(error: HubError, topic = ""): string {
  const { code, message, stderr, hint } = error;
  if (listsProblems(error)) return sanitizeLines(message);
  const more = stderr.map((line) => `  ${sanitizeLine(line)}`);
  if (hint !== undefined) more.push(sanitizeLines(hint));
  else if (CALLERS_ERRORS.has(code)) more.push(`Try: toolmux help ${topic}`.trimEnd());
  return [`toolmux: ${sanitizeLine(message)}`, ...more].join("\n");
}

/** Lines of a server's stderr, as they are below a message: `  | Traceback (most recent call last):`. */
export function stderrLines(stderr: readonly string[]): readonly string[] {
  return stderr.map((line) => `  | ${sanitizeLine(line)}`);
}

/**
 * Makes the records of events (see `recordOfEvent`). The last stderr lines of a server are in the record of its first
 * failure, and again when they change in more than numbers: a server that is tried every minute writes the same each
 * time.
 */
export function openEventRecorder(): (event: HubEvent, time: number) => LogRecord | undefined {
  const told = new Map<string, string>();
  return (event, time) => {
    const record = recordOfEvent(event, time);
    if (event.kind === "server" && event.change === "removed") told.delete(event.server);
    const error = record?.properties.error;
    if (record === undefined || error === undefined || error.stderr.length === 0) return record;
    const server = error.server ?? "";
    const text = error.stderr.join("\n").replace(/\d+/g, "0");
    if (told.get(server) !== text) {
      told.set(server, text);
      return record;
    }
    return { ...record, properties: { ...record.properties, error: error.withoutStderr() } };
  };
}
