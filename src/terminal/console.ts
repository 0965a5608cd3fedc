import process from "node:process";
import type { LogLevel } from "../base/events.ts";

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
