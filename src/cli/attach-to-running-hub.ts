import { HubError } from "../base/errors.ts";
import { findManifests } from "../manifest/files/discover.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import { parseCommandLine } from "./args.ts";
import { attachCommand } from "./attach-command.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { openLog } from "./command-log.ts";
import type { ServeCommandOptions } from "./commands/serve.ts";
import { clientFlags, ownOptionIn } from "./client-flags.ts";
import { ATTACH, SERVE } from "./serve-commands.ts";

/**
 * Runs `toolmux attach` and `toolmux serve --shared` if their shared hub runs: without the table of all commands, and
 * without reading what is in the manifest, because the hub knows that.
 * @returns the exit code; undefined if it is another command or no hub has accepted the client, of which nothing was read
 */
export async function attachToRunningHub(
  argv: readonly string[],
  context: CommandContext,
): Promise<number | undefined> {
  const { env, cwd, platform } = context;
  // A client in a chain of hubs needs the identity of the manifest.
  if (platform === "win32" || env[HUBS_VARIABLE] !== undefined) return undefined;
  const invocation = readInvocation(argv);
  if (invocation === undefined) return undefined;
  const found = await findManifests({ files: invocation.config, env, cwd, platform });
  const { files, problems } = found;
  if (files.length === 0 || problems.length > 0) return undefined;
  const sources = files.map(({ path }) => path);
  const log = openLog(invocation);
  const ended = await attachCommand(invocation, context, { sources, mustRun: true, log });
  return typeof ended === "number" ? ended : undefined;
}

/** Reads a command line that attaches a client, and has no fault. */
function readInvocation(argv: readonly string[]): Invocation<ServeCommandOptions> | undefined {
  try {
    const request = parseCommandLine(argv, [SERVE, ATTACH]);
    if (request.kind !== "run") return undefined;
    // The casts are safe: these are the options of the two commands.
    const invocation = request.invocation as unknown as Invocation<ServeCommandOptions>;
    const { options } = invocation;
    const isShared = request.command === ATTACH || (options.shared && !options.private);
    if (!isShared || ownOptionIn(options) !== undefined) return undefined;
    clientFlags(options);
    return invocation;
  } catch (error) {
    // The command itself reports it.
    if (error instanceof HubError) return undefined;
    throw error;
  }
}
