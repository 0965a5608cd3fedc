import { usageError } from "../../base/errors.ts";
import type { LogLevel } from "../../base/hub-events.ts";
import { followEvents, type RunningHub } from "../../control/running-hubs.ts";
import type {
  CallDetail,
  EventDocument,
  LogDocument,
  LogEntryDocument,
} from "../../control/schemas.ts";
import { parseDuration } from "../../manifest/fields.ts";
import { isLevelEnabled, sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  askFor,
  chosenHubs,
  findServers,
  followHubs,
  type HubOptions,
  untilInterrupted,
} from "../running-hub.ts";

interface LogsOptions extends HubOptions {
  readonly follow: boolean;
  readonly lines: number;
  readonly level: LogLevel | undefined;
  readonly since: string | undefined;
}

/** The kinds of events for which the hub's log may have an entry. */
const LOG_KINDS = "log,state,alert,server,manifest";

interface Line {
  readonly hub: RunningHub;
  readonly entry: LogEntryDocument;
}

/**
 * `toolmux logs`: prints the log entries of servers and of the hub since its start; with `-f`, new entries as well.
 */
export async function logs(
  invocation: Invocation<LogsOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const names = new Set(args);
  const [first, ...others] =
    args.length === 0
      ? await chosenHubs(invocation, context)
      : [...new Set((await findServers(args, invocation, context)).map(({ hub }) => hub))];
  if (first === undefined) return 0;
  const hubs = [first, ...others] as const;
  const since = sinceOf(options.since);
  const level = options.level ?? "debug";
  const isWanted = ({ at, server, level: own }: LogEntryDocument): boolean =>
    at >= since &&
    isLevelEnabled(own, level) &&
    (names.size === 0 || (server !== undefined && names.has(server)));
  const print = ({ hub, entry }: Line): void => {
    const { terminal } = context;
    if (options.json) terminal.printJsonText(JSON.stringify({ hub: hub.pid, ...entry }));
    else terminal.print(describeEntry(entry, hubs.length > 1 ? hub : undefined, context));
  };
  const past = await Promise.all(
    hubs.map(async (hub) => ({ hub, log: await readLog(hub, 0, context) })),
  );
  const lines = past.flatMap(({ hub, log }) => log.entries.map((entry) => ({ hub, entry })));
  const wanted = lines.filter(({ entry }) => isWanted(entry));
  const ordered = wanted.toSorted((a, b) => a.entry.at - b.entry.at || a.entry.seq - b.entry.seq);
  for (const line of options.lines === 0 ? [] : ordered.slice(-options.lines)) print(line);
  if (!options.follow) return 0;
  const positions = new Map(past.map(({ hub, log }) => [hub, log.next]));
  return untilInterrupted(context, () =>
    followHubs(invocation, context, hubs, (hub) =>
      followLog(hub, positions, context, (entry) => {
        if (isWanted(entry)) print({ hub, entry });
      }),
    ),
  );
}

function readLog(hub: RunningHub, after: number, context: CommandContext): Promise<LogDocument> {
  return askFor(hub, "GET /log", context, { query: { after, limit: 100_000 } });
}

/**
 * Passes each later log entry to `onEntry`, once and in order, until the connection to the hub is lost. After a lost
 * connection, or a gap in the events, the missing entries are read from the hub's log.
 * @param positions the number of the last entry that was read, by hub; it is moved
 */
async function followLog(
  hub: RunningHub,
  positions: Map<RunningHub, number>,
  context: CommandContext,
  onEntry: (entry: LogEntryDocument) => void,
): Promise<void> {
  const last = (): number => positions.get(hub) ?? 0;
  const catchUp = async (): Promise<void> => {
    const { entries, next } = await readLog(hub, last(), context);
    for (const entry of entries) onEntry(entry);
    positions.set(hub, Math.max(last(), next));
  };
  await catchUp();
  const query = `kinds=${LOG_KINDS}&after=${last()}`;
  for await (const item of followEvents(hub, query, context.signal)) {
    if (item.kind === "gap") {
      await catchUp();
      continue;
    }
    const { event } = item;
    if (event.seq <= last()) continue;
    positions.set(hub, event.seq);
    const entry = entryOf(event);
    if (entry !== undefined) onEntry(entry);
  }
}

/** Converts an event to the log entry that the hub made of it; undefined if the hub made none. */
function entryOf({
  seq,
  at,
  kind,
  level,
  text,
  ...fields
}: EventDocument): LogEntryDocument | undefined {
  if (level === undefined || text === undefined) return undefined;
  const { source, server, alert } = fields;
  const about = server ?? (alert as { readonly server?: string } | undefined)?.server;
  return {
    seq,
    at,
    level,
    source: kind === "log" ? (source as LogEntryDocument["source"]) : "hub",
    ...(typeof about === "string" && { server: about }),
    text,
  };
}

/** The earliest time that `--since` allows, in ms since the epoch. */
function sinceOf(text: string | undefined): number {
  if (text === undefined) return 0;
  const duration = parseDuration(text);
  if (duration !== undefined) return Date.now() - duration;
  throw usageError(`--since must be a duration such as 10m or 2h, not "${text}".`);
}

const LEVEL_COLORS = { error: "red", warn: "yellow", info: "reset", debug: "dim" } as const;

function describeEntry(
  { at, level, source, server, text }: LogEntryDocument,
  hub: RunningHub | undefined,
  { terminal }: CommandContext,
): string {
  const { colors } = terminal.stdout;
  const time = new Date(at).toTimeString().slice(0, 8);
  const from = source === "hub" ? "" : ` ${source}`;
  const about = `${hub === undefined ? "" : `${hub.pid} `}${server ?? "toolmux"}${from}`;
  const head = `${colors.dim(time)} ${level.padEnd(5)} ${colors.bold(sanitizeLine(about))}: `;
  return head + colors[LEVEL_COLORS[level]](sanitizeLine(text));
}

interface EventsOptions extends HubOptions {
  readonly kinds: string | undefined;
  readonly after: string | undefined;
  readonly calls: CallDetail | undefined;
}

/** `toolmux events`: prints the events of running hubs when they happen, one JSON document per line. */
export async function events(
  invocation: Invocation<EventsOptions>,
  context: CommandContext,
): Promise<number> {
  const { kinds, after, calls } = invocation.options;
  const query = new URLSearchParams({
    ...(kinds !== undefined && { kinds }),
    ...(after !== undefined && { after }),
    ...(calls !== undefined && { calls }),
  });
  const hubs = await chosenHubs(invocation, context);
  const { terminal, signal } = context;
  const last = new Map<RunningHub, number>();
  const follow = async (hub: RunningHub, isLater: boolean): Promise<void> => {
    const own = new URLSearchParams(query);
    // Of a hub that has started since, no event is left out.
    const known = last.get(hub) ?? (isLater ? 0 : undefined);
    if (known !== undefined) own.set("after", String(known));
    for await (const item of followEvents(hub, own.toString(), signal)) {
      const document = item.kind === "gap" ? item : item.event;
      if (item.kind === "event") last.set(hub, item.event.seq);
      terminal.printJsonText(JSON.stringify({ hub: hub.pid, ...document }));
    }
  };
  return untilInterrupted(context, () => followHubs(invocation, context, hubs, follow));
}
