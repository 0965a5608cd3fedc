import type { Bus, LogLevel, LogSource } from "./events.ts";

/** A log line; `at` is in ms since the epoch. */
export interface LogEntry {
  readonly at: number;
  readonly level: LogLevel;
  readonly source: LogSource;
  readonly text: string;
}

/** Limits per server. */
const MEMORY = { entries: 1000, characters: 1024 * 1024 };

/** The last log lines of each server. */
export class Logbook {
  readonly #entries = new Map<string, { kept: LogEntry[]; size: number }>();

  constructor(bus: Bus) {
    bus.subscribe(
      (event) => {
        if (event.kind === "log") {
          const { level, source, text } = event;
          if (event.server !== undefined) this.#keep(event.server, { level, source, text });
        } else if (event.kind === "server" && event.change !== "changed") {
          // A server that is added again starts with an empty log; late lines of a removed one are dropped.
          if (event.change === "added") this.#entries.set(event.server, { kept: [], size: 0 });
          else this.#entries.delete(event.server);
        }
      },
      ["log", "server"],
    );
  }

  /** Oldest first. */
  of(server: string): readonly LogEntry[] {
    return [...(this.#entries.get(server)?.kept ?? [])];
  }

  #keep(server: string, entry: Omit<LogEntry, "at">): void {
    const book = this.#entries.get(server);
    if (book === undefined) return;
    book.kept.push({ at: Date.now(), ...entry });
    book.size += entry.text.length;
    while (book.kept.length > MEMORY.entries || book.size > MEMORY.characters) {
      book.size -= book.kept.shift()?.text.length ?? 0;
    }
  }
}
