import { describeAgents } from "../agent-team.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { loadManifestOnly, openLog } from "../load-manifest.ts";

/** `toolmux agents`: lists the agents of the manifest, and says which of them cannot be used and why. */
export async function listAgents(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const manifest = await loadManifestOnly(invocation, context, openLog(invocation));
  const agents = await describeAgents(manifest, context);
  if (invocation.options.json) {
    terminal.printJson({ agents });
    return 0;
  }
  if (agents.length === 0) {
    terminal.note("The manifest has no agents. Describe one under [agents.NAME].");
    return 0;
  }
  const { colors } = terminal.stdout;
  terminal.printTable(
    ["AGENT", "MODEL", "STATE", "DESCRIPTION"],
    agents.map(({ name, model = "", usable, problem = "", description = "" }) => [
      name,
      model,
      { text: usable ? "usable" : "not usable", color: usable ? colors.green : colors.red },
      usable ? description : problem,
    ]),
  );
  return 0;
}
