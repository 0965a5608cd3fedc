import process from "node:process";
import { utf8 } from "../base/bytes.ts";
import type { LogLevel } from "../base/events.ts";
import { ownStderr } from "../base/runtime.ts";

/** What this program itself prints with, whatever plugins' console is. */
export const ownConsole = {
  log: console.log.bind(console),
  warn: console.warn.bind(console),
} as const;

/** The methods that programs write with, and what level that is. */
const LEVELS = {
  log: "info",
  info: "info",
  debug: "debug",
  trace: "debug",
  dir: "info",
  table: "info",
  warn: "warn",
  error: "error",
} as const satisfies Partial<Record<keyof Console, LogLevel>>;

/**
 * Sends what plugins write with `console` to the log: stdout is for answers, and on stderr some runtimes' consoles wait
 * for ever for somebody who reads it. @returns the undo
 */
export function redirectConsole(log: (level: LogLevel, text: string) => void): () => void {
  const names = Object.keys(LEVELS) as (keyof typeof LEVELS)[];
  const before = names.map((name) => [name, console[name]] as const);
  for (const name of names) {
    console[name] = (...values: unknown[]) => {
      const { format } = process.getBuiltinModule("node:util");
      log(LEVELS[name], format(...values));
    };
  }
  return () => Object.assign(console, Object.fromEntries(before));
}

/** So many characters wait for a reader of stderr; later lines are counted and dropped. */
const MAX_WAITING = 256 * 1024;

/** Takes text; gives a promise that never rejects when its reader is slow. */
export type TextSink = (text: string) => Promise<void> | undefined;

/** Lines on stderr from a hub that must not stand still because nobody reads them, as clients often do not. */
export class StderrWriter {
  readonly #describeGap: (missing: number) => string;
  #outlet: TextSink | undefined;
  /** Settles when the reader has taken what it was given; there while it is slow. */
  #reading: Promise<void> | undefined;
  #waiting: string[] = [];
  #size = 0;
  #dropped = 0;

  /**
   * @param describeGap the line that stands where so many lines are missing.
   * @param outlet stderr, if there is none given.
   */
  constructor(describeGap: (missing: number) => string, outlet?: TextSink) {
    this.#describeGap = describeGap;
    this.#outlet = outlet;
  }

  /** Prints a line, or several, given without the last line end. */
  print(line: string): void {
    if (this.#reading === undefined) {
      this.#write([line]);
    } else if (this.#dropped === 0 && this.#size + line.length <= MAX_WAITING) {
      this.#waiting.push(line);
      this.#size += line.length;
    } else {
      this.#dropped++;
    }
  }

  /** Settles when nothing waits any more; never, if nobody reads. */
  async drained(): Promise<void> {
    while (this.#reading !== undefined) await this.#reading;
  }

  #write(lines: readonly string[]): void {
    this.#outlet ??= openStderr();
    const taken = this.#outlet(lines.map((line) => `${line}\n`).join(""));
    this.#reading = taken?.then(() => this.#resume());
  }

  #resume(): void {
    const lines = this.#waiting;
    if (this.#dropped > 0) lines.push(this.#describeGap(this.#dropped));
    this.#waiting = [];
    this.#size = 0;
    this.#dropped = 0;
    this.#reading = undefined;
    if (lines.length > 0) this.#write(lines);
  }
}

/** Files and terminals take all that is written to them; what is no pipe may be printed without a thought. */
function openStderr(): TextSink {
  if (isPipe(2)) {
    const stderr = ownStderr();
    return (text) => stderr.write(utf8(text));
  }
  return (text) => {
    ownConsole.warn(text.slice(0, -1));
    return undefined;
  };
}

function isPipe(fd: number): boolean {
  try {
    const stats = process.getBuiltinModule("node:fs").fstatSync(fd);
    return stats.isFIFO() || stats.isSocket();
  } catch {
    return false;
  }
}
