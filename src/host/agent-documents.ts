import { chooseTools } from "../agent/agent.ts";
import { specsOfFile } from "../agent/file-agents.ts";
import { agentToolSettings, exposureOf } from "../agent/tool-search.ts";
import { builtInTools } from "../agent/agent-file-toolbox.ts";
import type { AgentTool } from "../agent/toolbox.ts";
import type { AgentLibrary } from "../agent-files/agent-library.ts";
import type { NamedPrompt } from "../agent-files/named-prompts.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { AgentDocument } from "../control/schemas.ts";
import type { AgentSpec, InvalidAgent } from "../manifest/agents.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { filterOfMode, validAgents } from "../manifest/modes.ts";
import { formatProblem } from "../manifest/problems.ts";
import { agentChecks, modelCheck } from "./agent-models.ts";
import { notesOn } from "./agents.ts";

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

/**
 * Describes the agents in files and in the store as documents, with the problem of each that cannot be used.
 * @param tools all tools of the hub; those of the files' own servers are not listed
 */
export async function describeFileAgents(
  manifest: Manifest,
  library: AgentLibrary,
  context: SystemEnvironment,
  tools: readonly AgentTool[],
): Promise<readonly AgentDocument[]> {
  const names = new Set(manifest.agents?.keys());
  const listed = await library.list(["files", "store"], agentChecks(manifest, context));
  const { cwd, platform } = context;
  const environment = { now: Date.now(), cwd, platform };
  return Promise.all(
    listed.map(async ({ name: short, spec: source, source: from, problem, ...rest }) => {
      // In files, an agent of a later folder is found by its path alone.
      const name = from === "files" && !names.has(short) ? short : source;
      names.add(name);
      const { model, description } = rest;
      const line = {
        name,
        file: source,
        ...(model !== undefined && { model }),
        ...(description !== undefined && { description }),
        ...usability(problem),
      };
      const found = await library.find(source).catch(() => undefined);
      if (found === undefined || found.source === "manifest") return line;
      const { file } = found;
      const definition = file.agents.get(file.entry);
      const specs = specsOfFile(file, environment, (mode) => filterOfMode(mode, manifest));
      const agent = specs.get(file.entry);
      if (definition === undefined || agent === undefined) return line;
      const { welcomeMessage, prompts = new Map<string, NamedPrompt>() } = definition;
      const { instruction, subAgents, handoffs } = agent;
      const notes = notesOn(file);
      return {
        ...line,
        instruction,
        tools: [...chooseTools(agent, tools), ...builtInTools(definition)].map((tool) => tool.name),
        ...(file.servers.length > 0 && { servers: file.servers.map((server) => server.name) }),
        ...(subAgents.length > 0 && { subAgents }),
        ...(handoffs.length > 0 && { handoffs }),
        ...(welcomeMessage !== undefined && { welcome: welcomeMessage.trim() }),
        ...(prompts.size > 0 && {
          prompts: [...prompts].map(([called, { description: about, instruction: text }]) => ({
            name: called,
            ...(about !== undefined && { description: about }),
            instruction: text,
          })),
        }),
        ...(notes.length > 0 && { notes }),
      };
    }),
  );
}

/** The fields of a document that say whether an agent can be used. */
export function usability(problem: string | undefined): Pick<AgentDocument, "usable" | "problem"> {
  return problem === undefined ? { usable: true } : { usable: false, problem };
}
