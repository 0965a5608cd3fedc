import type { CommandContext } from "../../src/cli/command.ts";
import { Terminal } from "../../src/terminal/terminal.ts";

/** What a command is run with, which nothing interrupts. */
export function contextOf<Env extends CommandContext["env"]>(
  env: Env,
  cwd: string,
  platform = "linux",
): Omit<CommandContext, "env"> & { readonly env: Env } {
  return {
    env,
    cwd,
    platform,
    terminal: new Terminal({}),
    signal: new AbortController().signal,
    uncaughtErrorHandlers: new Set(),
    hangupHandlers: new Set(),
  };
}
