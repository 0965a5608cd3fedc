import { type LogRecord, ROOT_CATEGORY } from "./log.ts";

/** Maximum number of records queued for LogTape; beyond that they are printed without it. */
const MAX_QUEUED = 1000;

export type LogSink = (record: LogRecord) => void;

/** Loads a sink that passes records on to `print`. */
export type SinkLoader = (print: LogSink) => Promise<LogSink>;

/**
 * Logs records through LogTape, which is loaded when there is a record, but not before `open`. Callers do not wait
 * for the load: records are queued and printed in order, at the latest by `flush`.
 */
export class LogTapeLogger {
  readonly #print: LogSink;
  readonly #load: SinkLoader;
  readonly #queue: LogRecord[] = [];
  #stage: "closed" | "open" | "loading" | "loaded" = "closed";
  #sink: LogSink;

  constructor(print: LogSink, load: SinkLoader = loadLogTape) {
    this.#print = print;
    this.#load = load;
    this.#sink = print;
  }

  write(record: LogRecord): void {
    if (this.#stage === "loaded") {
      this.#sink(record);
      return;
    }
    this.#queue.push(record);
    if (this.#queue.length >= MAX_QUEUED) this.flush();
    if (this.#stage === "open") void this.#loadSink();
  }

  /** Allows loading LogTape from now on. */
  open(): void {
    if (this.#stage !== "closed") return;
    this.#stage = "open";
    if (this.#queue.length > 0) void this.#loadSink();
  }

  /** Prints queued records at once, without LogTape. */
  flush(): void {
    for (const record of this.#queue.splice(0)) this.#print(record);
  }

  async #loadSink(): Promise<void> {
    this.#stage = "loading";
    // If LogTape cannot be loaded, records are printed directly.
    this.#sink = await this.#load(this.#print).catch(() => this.#print);
    this.#stage = "loaded";
    for (const record of this.#queue.splice(0)) this.#sink(record);
  }
}

/** A LogTape sink, configured as the only one, that calls `print`. */
async function loadLogTape(print: LogSink): Promise<LogSink> {
  const { configureSync, getLogger } = await import("@logtape/logtape");
  configureSync({
    reset: true,
    sinks: {
      stderr: ({ level, category, message, timestamp, properties }) => {
        print({
          time: timestamp,
          level: FROM_LOGTAPE_LEVEL[level],
          category,
          message: message.join(""),
          properties,
        });
      },
    },
    loggers: [
      { category: ROOT_CATEGORY, sinks: ["stderr"] },
      // Without this entry, LogTape would write its own messages to the console, and so to stdout.
      { category: ["logtape", "meta"], sinks: [] },
    ],
  });
  const logger = getLogger(ROOT_CATEGORY);
  return ({ time, level, category, message, properties }) => {
    const record = {
      // The record's own category is kept. A LogTape logger per server would be looked up in a plain object,
      // which breaks for a server called `constructor`.
      category,
      level: TO_LOGTAPE_LEVEL[level],
      // A single literal part, so that braces in a server's text are not taken for placeholders.
      message: [message],
      rawMessage: message,
      timestamp: time,
      properties,
    };
    logger.emit(record);
  };
}

/** LogTape's name of each log level. */
const TO_LOGTAPE_LEVEL = { debug: "debug", info: "info", warn: "warning", error: "error" } as const;

const FROM_LOGTAPE_LEVEL = {
  trace: "debug",
  debug: "debug",
  info: "info",
  warning: "warn",
  error: "error",
  fatal: "error",
} as const;
