import { type LogRecord, ROOT_CATEGORY } from "./log.ts";

/** So many records wait for LogTape; more are told without it. */
const MAX_WAITING = 1000;

export type LogSink = (record: LogRecord) => void;

/** Gives what takes records in, and hands them on to `print`. */
export type SinkLoader = (print: LogSink) => Promise<LogSink>;

/**
 * Tells records through LogTape, which is loaded when there is something to tell, and not before `open`: nothing
 * waits for it, and what comes before it is there is told in order, at the latest at the end.
 */
export class LogTapeLogger {
  readonly #print: LogSink;
  readonly #load: SinkLoader;
  readonly #waiting: LogRecord[] = [];
  #stage: "closed" | "open" | "loading" | "loaded" = "closed";
  #tell: LogSink;

  constructor(print: LogSink, load: SinkLoader = loadLogTape) {
    this.#print = print;
    this.#load = load;
    this.#tell = print;
  }

  write(record: LogRecord): void {
    if (this.#stage === "loaded") {
      this.#tell(record);
      return;
    }
    this.#waiting.push(record);
    if (this.#waiting.length >= MAX_WAITING) this.flush();
    if (this.#stage === "open") void this.#fetch();
  }

  /** From now on LogTape may be loaded. */
  open(): void {
    if (this.#stage !== "closed") return;
    this.#stage = "open";
    if (this.#waiting.length > 0) void this.#fetch();
  }

  /** Tells at once what waits for LogTape, without it. */
  flush(): void {
    for (const record of this.#waiting.splice(0)) this.#print(record);
  }

  async #fetch(): Promise<void> {
    this.#stage = "loading";
    // A log without it is better than none.
    this.#tell = await this.#load(this.#print).catch(() => this.#print);
    this.#stage = "loaded";
    for (const record of this.#waiting.splice(0)) this.#tell(record);
  }
}

/** LogTape, set up anew: what it takes in comes out of its one sink. */
async function loadLogTape(print: LogSink): Promise<LogSink> {
  const { configureSync, getLogger } = await import("@logtape/logtape");
  configureSync({
    reset: true,
    sinks: {
      stderr: ({ level, category, message, timestamp, properties }) => {
        print({
          time: timestamp,
          level: OURS[level],
          category,
          message: message.join(""),
          properties,
        });
      },
    },
    loggers: [
      { category: ROOT_CATEGORY, sinks: ["stderr"] },
      // What LogTape says of itself would go to the console, and so to stdout.
      { category: ["logtape", "meta"], sinks: [] },
    ],
  });
  const logger = getLogger(ROOT_CATEGORY);
  return ({ time, level, category, message, properties }) => {
    const record = {
      // The record's own category counts. A logger of its own for each server would be looked up in a plain object,
      // which a server called `constructor` breaks.
      category,
      level: THEIRS[level],
      // A finished text: braces in what a server says are no placeholders.
      message: [message],
      rawMessage: message,
      timestamp: time,
      properties,
    };
    logger.emit(record);
  };
}

/** LogTape's names of our levels. */
const THEIRS = { debug: "debug", info: "info", warn: "warning", error: "error" } as const;

const OURS = {
  trace: "debug",
  debug: "debug",
  info: "info",
  warning: "warn",
  error: "error",
  fatal: "error",
} as const;
