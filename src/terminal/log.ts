import { HubError } from "../base/errors.ts";
import type {
  Alert,
  CallEvent,
  EventKind,
  HubEvent,
  LogLevel,
  StateEvent,
} from "../base/events.ts";

/** One thing to tell, before it has the form of a line. */
export interface LogRecord {
  /** ms since the epoch. */
  readonly time: number;
  readonly level: LogLevel;
  /** What it is about, from the whole to the part; of a server: `["toolmux", "server", NAME]`. */
  readonly category: readonly string[];
  /** For people; the server's name is left to the category. */
  readonly message: string;
  readonly properties: LogFields;
}

/** What programs want to know beside the message. Times of day are ISO texts, durations are ms. */
export interface LogFields {
  /** Its message stands in the record's message already. */
  readonly error?: HubError;
  /** What is wrong with a manifest, a line each. */
  readonly problems?: readonly string[];
  readonly [name: string]: unknown;
}

/** The category of what concerns the hub as a whole. */
export const ROOT_CATEGORY = "toolmux";

/** The second part of a server's category. */
export const SERVER_CATEGORY = "server";

const SEVERITY: Readonly<Record<LogLevel, number>> = { error: 0, warn: 1, info: 2, debug: 3 };

/** The gravest level at which an event of each kind can be told. */
const GRAVEST: Readonly<Record<EventKind, LogLevel>> = {
  server: "info",
  state: "error",
  log: "error",
  callStarted: "debug",
  callFinished: "debug",
  callCancelled: "debug",
  catalog: "info",
  alert: "warn",
  manifest: "error",
};

/** So many names stand in a message. */
const NAMED = 5;

/** Whether something of that level is told if all is told down to `least`. */
export function isLevelEnabled(level: LogLevel, least: LogLevel): boolean {
  return SEVERITY[level] <= SEVERITY[least];
}

/** The kinds of events that can be told at that level; listening for others would cost for nothing. */
export function eventKindsAtLevel(least: LogLevel): readonly EventKind[] {
  const kinds = Object.keys(GRAVEST) as EventKind[];
  return kinds.filter((kind) => isLevelEnabled(GRAVEST[kind], least));
}

/** A record of the hub as a whole, or of one server. */
export function makeLogRecord(
  level: LogLevel,
  message: string,
  { server, time = Date.now(), ...properties }: Origin = {},
): LogRecord {
  const category =
    server === undefined ? [ROOT_CATEGORY] : [ROOT_CATEGORY, SERVER_CATEGORY, server];
  return { time, level, category, message, properties };
}

/** The same record with other texts, wherever they are in it. */
export function redactRecord(record: LogRecord, change: (text: string) => string): LogRecord {
  const revise = (value: unknown): unknown => {
    if (typeof value === "string") return change(value);
    if (value instanceof HubError) return value.mapTexts(change);
    return Array.isArray(value) ? value.map(revise) : value;
  };
  const entries = Object.entries(record.properties).map(([name, value]) => [name, revise(value)]);
  const properties = Object.fromEntries(entries) as LogFields;
  return { ...record, message: change(record.message), properties };
}

interface Origin extends LogFields {
  readonly server?: string | undefined;
  readonly time?: number;
}

/** What to tell of an error that ends a command: of a manifest, a record for each of its problems. */
export function recordsOfError(error: HubError): readonly LogRecord[] {
  if (error.code !== "manifestInvalid") {
    return [makeLogRecord("error", error.message, { server: error.server, error })];
  }
  return error.message.split("\n").map((problem) => makeLogRecord("error", problem));
}

/**
 * What to tell of an event, if anything. What a state says is not said again by the alert that goes with it: of a
 * loss, when it comes; of a failure for good, when that is where it ends.
 * @param time now, in ms since the epoch.
 */
export function recordOfEvent(event: HubEvent, time: number): LogRecord | undefined {
  switch (event.kind) {
    case "server": {
      const { server, change } = event;
      return makeLogRecord("info", SERVER_CHANGES[change], { server, time, change });
    }
    case "state":
      return describeMove(event, time);
    case "log": {
      const { level, source, server, text } = event;
      return makeLogRecord(level, text, { server, time, source });
    }
    case "callStarted":
    case "callFinished":
    case "callCancelled":
      return describeCall(event, time);
    case "catalog": {
      const { added, removed, altered } = event;
      return makeLogRecord("info", describeTools(event), { time, added, removed, altered });
    }
    case "alert":
      return describeAlert(event.raised, event.alert, time);
    case "manifest": {
      const { outcome } = event;
      if (outcome === "reloaded") {
        const { servers } = event;
        const text = `the manifest was read again: ${servers} ${servers === 1 ? "server" : "servers"}`;
        return makeLogRecord("info", text, { time, outcome, servers });
      }
      const text = "the manifest was changed, but is not taken: the hub goes on with the old one";
      return makeLogRecord("error", text, { time, outcome, problems: event.problems.split("\n") });
    }
  }
}

const SERVER_CHANGES = {
  added: "added",
  changed: "its specification was changed",
  removed: "removed",
} as const;

function describeMove(event: StateEvent, time: number): LogRecord {
  const { kind: _, cause, retryAt, ...move } = event;
  const base = {
    ...move,
    ...(retryAt !== undefined && { retryAt: new Date(retryAt).toISOString() }),
    time,
  };
  const tell = (level: LogLevel, message: string): LogRecord => makeLogRecord(level, message, base);
  const complain = (level: LogLevel, error: HubError, more = ""): LogRecord =>
    makeLogRecord(level, error.message + more, { ...base, error });
  const wait = retryAt === undefined ? "soon" : `in ${describeTime(retryAt - time)}`;
  switch (event.to) {
    case "connecting": {
      const { attempt = 1 } = event;
      return tell("info", attempt > 1 ? `connecting (attempt ${attempt})` : "connecting");
    }
    case "connected":
      return tell("info", "connected");
    case "stopping": {
      // On the way to `failed` there is an attempt, but no time for the next one: that is told on arrival.
      const isFinal = event.attempt !== undefined && retryAt === undefined;
      if (cause === undefined || isFinal) return tell("debug", "stopping");
      return complain("warn", cause, retryAt === undefined ? "" : ` It is tried again ${wait}.`);
    }
    case "reconnecting":
      return tell("debug", `the next attempt comes ${wait}`);
    case "failed":
      return cause === undefined ? tell("error", "failed") : complain("error", cause);
    case "authenticating":
      // The alert that goes with it says what is to be done.
      return tell("debug", "authorization is wanted");
    case "idle":
      return tell("info", "stopped until it is called");
    case "disconnected":
      return tell("info", "stopped");
  }
}

function describeCall(event: CallEvent, time: number): LogRecord {
  const { call, server, tool } = event;
  const what = `call ${call} of ${tool}`;
  const base = { server, time, call, tool };
  if (event.kind === "callStarted") {
    return makeLogRecord("debug", `${what} started`, { ...base, name: event.name });
  }
  const ms = Math.round(event.duration);
  const after = `after ${describeTime(event.duration)}`;
  if (event.kind === "callCancelled") {
    const { by } = event;
    return makeLogRecord("debug", `${what} cancelled ${after}: ${by}`, { ...base, ms, by });
  }
  const { outcome } = event;
  if (outcome === "answered") {
    return makeLogRecord("debug", `${what} answered ${after}`, { ...base, ms, outcome });
  }
  const error = event.cause;
  const text = `${what} failed ${after}: ${error.message}`;
  return makeLogRecord("debug", text, { ...base, ms, outcome, error });
}

function describeAlert(raised: boolean, alert: Alert, time: number): LogRecord | undefined {
  const { kind, server, text } = alert;
  if (kind === "connectionFailed" || kind === "disconnected") return undefined;
  const base = { server, time, alert: kind, raised };
  return raised ? makeLogRecord("warn", text, base) : makeLogRecord("info", `over: ${text}`, base);
}

function describeTools(event: Extract<HubEvent, { kind: "catalog" }>): string {
  const parts = (["added", "removed", "altered"] as const)
    .filter((change) => event[change].length > 0)
    .map((change) => `${event[change].length} ${change} (${describeNames(event[change])})`);
  return `the list of tools has changed: ${parts.join(", ")}`;
}

function describeNames(names: readonly string[]): string {
  const rest = names.length - NAMED;
  return [...names.slice(0, NAMED), ...(rest > 0 ? [`${rest} more`] : [])].join(", ");
}

/** A duration in ms, for people. */
function describeTime(ms: number): string {
  const whole = Math.max(0, ms);
  return whole < 1000 ? `${Math.round(whole)} ms` : `${(whole / 1000).toFixed(1)} s`;
}
