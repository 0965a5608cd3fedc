import { chooseTools } from "../agent/agent.ts";
import { agentToolSettings, exposureOf } from "../agent/tool-search.ts";
import type { AgentTool } from "../agent/toolbox.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { AgentDocument } from "../control/schemas.ts";
import type { AgentSpec, InvalidAgent } from "../manifest/agents.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { validAgents } from "../manifest/modes.ts";
import { formatProblem } from "../manifest/problems.ts";
import { modelCheck } from "./agent-models.ts";

/**
 * Describes the agents of a manifest as documents, with the problem of each agent that cannot be used. Sends no
 * request to a model.
 * @param tools all tools of the hub; undefined: no hub runs, and the documents list no tools
 */
export async function describeAgents(
  manifest: Manifest,
  context: SystemEnvironment,
  tools?: readonly AgentTool[],
): Promise<readonly AgentDocument[]> {
  const valid = validAgents(manifest);
  const problemOf = modelCheck(manifest, context);
  const { budget } = agentToolSettings(manifest);
  const describe = async (spec: AgentSpec | InvalidAgent): Promise<AgentDocument> => {
    const { name } = spec;
    if ("problems" in spec)
      return { name, usable: false, problem: spec.problems.map(formatProblem).join("\n") };
    const { model, description, instruction, expose, subAgents, handoffs } = spec;
    const own = tools && chooseTools(valid.get(name) ?? spec, tools);
    const line = {
      name,
      model,
      ...(description !== undefined && { description }),
      instruction,
      ...(own && { tools: own.map((tool) => tool.name) }),
      expose,
      ...(own && { exposure: exposureOf(spec, own, budget) }),
      ...(subAgents.length > 0 && { subAgents }),
      ...(handoffs.length > 0 && { handoffs }),
    };
    return { ...line, ...usability(await problemOf(model)) };
  };
  return Promise.all([...(manifest.agents?.values() ?? [])].map(describe));
}

/** The fields of a document that say whether an agent can be used. */
export function usability(problem: string | undefined): Pick<AgentDocument, "usable" | "problem"> {
  return problem === undefined ? { usable: true } : { usable: false, problem };
}
