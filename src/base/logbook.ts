import type { EventBus, LogLevel, LogSource } from "./events.ts";

/** A log line; `at` is in ms since the epoch. */
export interface LogEntry {
  readonly at: number;
  readonly level: LogLevel;
  readonly source: LogSource;
  readonly text: string;
}

/** Maximum size of the log of one server. */
const LOG_LIMITS = { entries: 1000, characters: 1024 * 1024 };

export class Logbook {
  readonly #logs = new Map<string, { entries: LogEntry[]; size: number }>();

  constructor(bus: EventBus) {
    bus.subscribe(
      (event) => {
        if (event.kind === "log") {
          const { level, source, text } = event;
          if (event.server !== undefined) this.#append(event.server, { level, source, text });
        } else if (event.kind === "server" && event.change !== "changed") {
          // A server that is added again starts with an empty log; lines that arrive after its removal are dropped.
          if (event.change === "added") this.#logs.set(event.server, { entries: [], size: 0 });
          else this.#logs.delete(event.server);
        }
      },
      ["log", "server"],
    );
  }

  /** Oldest first. */
  of(server: string): readonly LogEntry[] {
    return [...(this.#logs.get(server)?.entries ?? [])];
  }

  #append(server: string, entry: Omit<LogEntry, "at">): void {
    const log = this.#logs.get(server);
    if (log === undefined) return;
    log.entries.push({ at: Date.now(), ...entry });
    log.size += entry.text.length;
    while (log.entries.length > LOG_LIMITS.entries || log.size > LOG_LIMITS.characters) {
      log.size -= log.entries.shift()?.text.length ?? 0;
    }
  }
}
