import type {
  EventBus,
  EventKind,
  EventStamp,
  HubEvent,
  LogLevel,
  LogSource,
} from "./hub-events.ts";

/** A line of the log: what a server or the hub has logged, or an event in words. */
export interface LogEntry extends EventStamp {
  readonly level: LogLevel;
  readonly source: LogSource;
  /** The server that the line is about; absent if the line is about the hub. */
  readonly server?: string;
  readonly text: string;
}

/** Puts an event into words. Returns undefined if the event is not kept in the log. */
export type DescribeEvent = (
  event: HubEvent,
  at: number,
) => Pick<LogEntry, "level" | "text"> | undefined;

/** Maximum size of the log of one server, and of the log of the hub itself. */
const LOG_LIMITS = { entries: 1000, characters: 1024 * 1024 };
/** The kinds of events that are kept in the log besides log lines. */
const KEPT_KINDS: readonly EventKind[] = ["state", "alert", "server", "manifest"];

/** Keeps the log of each server, and of the hub itself, since the start of the hub. */
export class Logbook {
  readonly #describe: DescribeEvent;
  /** The logs by server; the log of the hub itself has the key undefined. */
  readonly #logs = new Map<string | undefined, { entries: LogEntry[]; size: number }>();

  /** @param describe makes the texts for events that are not log lines; by default, such events are not kept */
  constructor(bus: EventBus, describe: DescribeEvent = () => undefined) {
    this.#describe = describe;
    this.#logs.set(undefined, { entries: [], size: 0 });
    bus.subscribe((event, stamp) => this.#add(event, stamp), ["log", ...KEPT_KINDS]);
  }

  /** The log of one server, or of the hub itself (undefined), oldest entry first. */
  of(server: string | undefined): readonly LogEntry[] {
    return [...(this.#logs.get(server)?.entries ?? [])];
  }

  #add(event: HubEvent, stamp: EventStamp): void {
    // A server that is added again starts with an empty log; lines that arrive after its removal are dropped.
    if (event.kind === "server" && event.change === "added") {
      this.#logs.set(event.server, { entries: [], size: 0 });
    }
    if (event.kind === "log") {
      const { level, source, server, text } = event;
      this.#append({ ...stamp, level, source, ...(server !== undefined && { server }), text });
    } else {
      const described = this.#describe(event, stamp.at);
      if (described !== undefined) {
        const server = serverOf(event);
        this.#append({
          ...stamp,
          ...described,
          source: "hub",
          ...(server !== undefined && { server }),
        });
      }
    }
    if (event.kind === "server" && event.change === "removed") this.#logs.delete(event.server);
  }

  #append(entry: LogEntry): void {
    const log = this.#logs.get(entry.server);
    if (log === undefined) return;
    log.entries.push(entry);
    log.size += entry.text.length;
    while (log.entries.length > LOG_LIMITS.entries || log.size > LOG_LIMITS.characters) {
      log.size -= log.entries.shift()?.text.length ?? 0;
    }
  }
}

/** The server that an event is about; undefined: the hub. */
function serverOf(event: HubEvent): string | undefined {
  if (event.kind === "alert") return event.alert.server;
  return "server" in event ? event.server : undefined;
}
