import { attachClient, type AttachOptions, type AttachOutcome } from "../host/attach.ts";
import { clientFlags } from "./client-flags.ts";
import type { CommandContext, Invocation } from "./command.ts";
import type { ServeCommandOptions } from "./commands/serve.ts";

/**
 * Attaches the client of a command to the shared hub until the client leaves.
 * @returns the exit code; or why the client was not attached, of which nothing was read
 * @throws {HubError} as `attachClient`
 */
export async function attachCommand(
  { options, config }: Invocation<ServeCommandOptions>,
  context: CommandContext,
  more: Pick<AttachOptions, "sources" | "mustRun" | "log">,
): Promise<number | Extract<AttachOutcome, { readonly kind: "refused" | "private" }>> {
  const areNamed = config.length > 0;
  const outcome = await attachClient({ ...more, context, areNamed, flags: clientFlags(options) });
  switch (outcome.kind) {
    case "left":
      return 0;
    case "lost":
      return 3;
    case "private":
    case "refused":
      return outcome;
  }
}
