import type { AgentDocument } from "../../control/schemas.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { openLibrary } from "../../operations/agent-library.ts";
import { describeAgents, usability } from "../../host/agent-documents.ts";
import { agentChecks } from "../../host/agent-models.ts";
import type { CommandContext, Invocation } from "../command.ts";

/** An agent, as `toolmux agents --json` prints it. */
interface AgentLine extends AgentDocument {
  readonly source: "manifest" | "files" | "store";
  /** The argument that names the agent in commands: the agent's name, the path of its file, or its reference. */
  readonly spec: string;
  /** Digest of an agent from a registry. */
  readonly digest?: string;
  /** Whether the agent may run the commands and reach the URLs that its file names. */
  readonly trusted: boolean;
}

/**
 * `toolmux agents`: lists the agents of the manifest, agents in files, and agents pulled from registries. Shows the
 * reason for each agent that cannot be used.
 */
export async function listAgents(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { library, manifest } = await openLibrary(invocation, context);
  const own = (manifest === undefined ? [] : await describeAgents(manifest, context)).map(
    (line): AgentLine => ({ ...line, source: "manifest", spec: line.name, trusted: true }),
  );
  const checks = agentChecks(manifest ?? {}, context);
  const others = (await library.list(["files", "store"], checks)).map(
    ({ description, model, digest, problem, ...line }): AgentLine => ({
      ...line,
      ...(model !== undefined && { model }),
      ...(description !== undefined && { description }),
      ...(digest !== undefined && { digest }),
      ...usability(problem),
    }),
  );
  const agents = [...own, ...others];
  if (invocation.options.json) {
    terminal.printJson({ agents });
    return 0;
  }
  if (agents.length === 0) {
    terminal.note(
      "There are no agents. Describe one under [agents.NAME] in the manifest, or get one: toolmux agents pull REF",
    );
    return 0;
  }
  const { colors } = terminal.stdout;
  terminal.printTable(
    ["AGENT", "FROM", "MODEL", "STATE", "DESCRIPTION"],
    agents.map(({ name, source, model = "", problem, description = "", trusted }) => [
      sanitizeLine(name),
      source,
      sanitizeLine(model),
      problem !== undefined
        ? { text: "not usable", color: colors.red }
        : trusted
          ? { text: "usable", color: colors.green }
          : { text: "not trusted", color: colors.yellow },
      sanitizeLine(problem ?? description),
    ]),
  );
  return 0;
}
