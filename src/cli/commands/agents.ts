import { toHubError } from "../../base/errors.ts";
import type { AgentSpec, InvalidAgent } from "../../manifest/agents.ts";
import { formatProblem } from "../../manifest/problems.ts";
import { modelOpener } from "../agent-team.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { loadManifestOnly, openLog } from "../load-manifest.ts";

/** An agent, as `toolmux agents --json` prints it. */
interface AgentLine {
  readonly name: string;
  readonly model?: string;
  readonly description?: string;
  readonly usable: boolean;
  /** Why it is not usable, and what to do. */
  readonly problem?: string;
}

/** `toolmux agents`: lists the agents of the manifest, and says which of them cannot be used and why. */
export async function listAgents(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const manifest = await loadManifestOnly(invocation, context, openLog(invocation));
  const openModel = modelOpener(manifest, context, new Set());
  const describe = async (spec: AgentSpec | InvalidAgent): Promise<AgentLine> => {
    const { name } = spec;
    if ("problems" in spec)
      return { name, usable: false, problem: spec.problems.map(formatProblem).join("\n") };
    const { model, description } = spec;
    const line = { name, model, ...(description !== undefined && { description }) };
    try {
      await openModel(model);
      return { ...line, usable: true };
    } catch (error) {
      const { message, hint } = toHubError(error);
      const problem = hint === undefined ? message : `${message} ${hint}`;
      return { ...line, usable: false, problem };
    }
  };
  const agents = await Promise.all([...(manifest.agents?.values() ?? [])].map(describe));
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
