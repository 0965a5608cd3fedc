import { HubError } from "../base/errors.ts";
import { type CommandRequest, parseCommandLine } from "./args.ts";
import type { CommandContext } from "./command.ts";
import { SERVE } from "./serve-commands.ts";

/**
 * Runs what clients start, `toolmux serve`, and `toolmux --version`, without the table of all commands.
 * @returns the exit code; undefined if it is another command, or the command line has a fault
 * @throws {HubError} what the command throws
 */
export async function serveFirst(
  argv: readonly string[],
  context: CommandContext,
): Promise<number | undefined> {
  const request = readRequest(argv);
  switch (request?.kind) {
    case "version":
      return (await import("./commands/version.ts")).printVersion(context.terminal);
    case "run":
      return (await SERVE.load())(request.invocation, context);
    default:
      return undefined;
  }
}

/** Reads a command line that has no fault, and no other command than `serve`. */
function readRequest(argv: readonly string[]): CommandRequest | undefined {
  try {
    return parseCommandLine(argv, [SERVE]);
  } catch (error) {
    // The table of all commands has the command, or is needed to report the fault.
    if (error instanceof HubError) return undefined;
    throw error;
  }
}
