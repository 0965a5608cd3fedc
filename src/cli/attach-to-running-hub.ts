import { HubError } from "../base/errors.ts";
import { attachClient } from "../host/attach.ts";
import { findManifests } from "../manifest/files/discover.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import { parseCommandLine } from "./args.ts";
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
  const { options, config } = invocation;
  const { files, problems } = await findManifests({ files: config, env, cwd, platform });
  if (files.length === 0 || problems.length > 0) return undefined;
  const log = openLog(invocation);
  const outcome = await attachClient({
    context,
    sources: files.map(({ path }) => path),
    areNamed: config.length > 0,
    mustRun: true,
    flags: clientFlags(options),
    log,
  });
  switch (outcome.kind) {
    case "left":
      return 0;
    case "lost":
      return 3;
    case "private":
    case "refused":
      return undefined;
  }
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
