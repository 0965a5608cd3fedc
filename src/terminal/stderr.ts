import type { Stats } from "node:fs";
import process from "node:process";
import { utf8 } from "../base/bytes.ts";
import type { LogLevel } from "../base/hub-events.ts";
import { ownStderr, statsOfDescriptor } from "../base/runtime.ts";
import { wrapText } from "./columns.ts";
import { removeMarks, sanitizeForTerminal } from "./visible.ts";

/** The original console method, unaffected by `redirectConsole`. */
const warn = console.warn.bind(console);

/**
 * The text as it is written to stdout or stderr. On a terminal, everything that is not plain text is made visible, except
 * for line breaks, tabs, and the colors of `makeColors` (see `sanitizeForTerminal`). All output for people goes through
 * here, so that no text of others reaches a terminal as it is.
 */
export function visibleText(stream: "stdout" | "stderr", text: string): string {
  return terminalOf(stream) === undefined ? removeMarks(text) : sanitizeForTerminal(text);
}

/** Prints text and a line break to stderr; see `visibleText`. */
export function printLine(text: string): void {
  warn(visibleText("stderr", text));
}

/** Writes text to stderr, without a line break; see `visibleText`. Settles when it is written. */
export function writeText(text: string): Promise<void> {
  const shown = visibleText("stderr", text);
  return new Promise((resolve) => void process.stderr.write(shown, () => resolve()));
}

/** Prefix of every message that the program prints to stderr. */
export const MESSAGE_PREFIX = "toolmux: ";

/**
 * stdout or stderr if it is a terminal. `process.stdout` and `process.stderr` are used for terminals alone: creating
 * one takes up to 8 ms.
 */
export function terminalOf(name: "stdout" | "stderr"): NodeJS.WriteStream | undefined {
  if (!mayBeTerminal(name === "stdout" ? 1 : 2)) return undefined;
  const stream = process[name];
  return stream.isTTY ? stream : undefined;
}

/** Prints text and a line break to stderr. On a terminal, messages are wrapped at words, with an indent. */
export function printToStderr(text: string): void {
  const columns = terminalOf("stderr")?.columns;
  printLine(columns ? wrapMessages(text, columns) : text);
}

/**
 * Wraps the lines that begin with `MESSAGE_PREFIX`. Other lines, such as JSON and lines in an editor's format, stay as
 * they are.
 */
export function wrapMessages(text: string, width: number): string {
  const indent = " ".repeat(MESSAGE_PREFIX.length);
  const wrap = (line: string): string =>
    line.startsWith(MESSAGE_PREFIX) ? wrapText(line, width, indent, "") : line;
  return text.split("\n").map(wrap).join("\n");
}

/** Console methods and their log levels. */
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
 * Redirects `console` output (of plugins, for example) to the log: stdout is for results and protocol messages, and
 * in some runtimes a console write to stderr blocks while nobody reads stderr.
 * @returns a function that restores the methods
 */
export function redirectConsole(log: (level: LogLevel, text: string) => void): () => void {
  const names = Object.keys(LEVELS) as (keyof typeof LEVELS)[];
  const originals = names.map((name) => [name, console[name]] as const);
  for (const name of names) {
    console[name] = (...values: unknown[]) => {
      const { format } = process.getBuiltinModule("node:util");
      log(LEVELS[name], format(...values));
    };
  }
  return () => Object.assign(console, Object.fromEntries(originals));
}

/** Maximum number of characters queued for a slow reader of stderr; further lines are counted and dropped. */
const MAX_QUEUED = 256 * 1024;

/**
 * Writes text. Returns a promise that resolves when a slow reader has taken the text, and never rejects; undefined if
 * there is nothing to wait for.
 */
export type WriteText = (text: string) => Promise<void> | undefined;

/** Prints lines to the program's stderr without blocking: many MCP clients do not read the stderr of a server. */
export class StderrWriter {
  readonly #formatGap: (missing: number) => string;
  #sink: WriteText | undefined;
  /** Resolves when the slow reader has taken the last write; undefined while there is nothing to wait for. */
  #draining: Promise<void> | undefined;
  #queue: string[] = [];
  #size = 0;
  #dropped = 0;

  /**
   * @param formatGap formats the line that replaces dropped lines; `missing` is their number
   * @param sink the sink; by default stderr
   */
  constructor(formatGap: (missing: number) => string, sink?: WriteText) {
    this.#formatGap = formatGap;
    this.#sink = sink;
  }

  /** Prints one or more lines, given without the last line break. */
  print(line: string): void {
    if (this.#draining === undefined) {
      this.#write([line]);
    } else if (this.#dropped === 0 && this.#size + line.length <= MAX_QUEUED) {
      this.#queue.push(line);
      this.#size += line.length;
    } else {
      this.#dropped++;
    }
  }

  /** Resolves when the queue is empty; never resolves if nobody reads stderr. */
  async drained(): Promise<void> {
    while (this.#draining !== undefined) await this.#draining;
  }

  #write(lines: readonly string[]): void {
    this.#sink ??= openStderr();
    const drained = this.#sink(lines.map((line) => `${line}\n`).join(""));
    this.#draining = drained?.then(() => this.#resume());
  }

  #resume(): void {
    const lines = this.#queue;
    if (this.#dropped > 0) lines.push(this.#formatGap(this.#dropped));
    this.#queue = [];
    this.#size = 0;
    this.#dropped = 0;
    this.#draining = undefined;
    if (lines.length > 0) this.#write(lines);
  }
}

/**
 * Opens stderr for `StderrWriter`. Only writes to a pipe need the queue, because writes to files and terminals do not
 * block for long.
 */
function openStderr(): WriteText {
  if (isPipe(2)) {
    const stderr = ownStderr();
    return (text) => stderr.write(utf8(text));
  }
  return (text) => {
    printToStderr(text.slice(0, -1));
    return undefined;
  };
}

function isPipe(fd: number): boolean {
  const stats = statsOfDescriptor(fd);
  return stats !== undefined && (stats.isFIFO() || stats.isSocket());
}

/**
 * Whether a file descriptor is of a terminal. Node's code that asks the system is only loaded for what may be one: with
 * the streams that it loads, it takes 2 ms at the start of every hub.
 */
export async function isTerminal(fd: number): Promise<boolean> {
  return mayBeTerminal(fd) && (await import("node:tty")).isatty(fd);
}

function mayBeTerminal(fd: number): boolean {
  if (process.platform === "win32") return true;
  const stats = statsOfDescriptor(fd);
  return stats !== undefined && stats.isCharacterDevice() && !isNullDevice(stats);
}

function isNullDevice({ rdev }: Stats): boolean {
  const { statSync } = process.getBuiltinModule("node:fs");
  return statSync("/dev/null", { throwIfNoEntry: false })?.rdev === rdev;
}
