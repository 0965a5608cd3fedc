import {
  type AgentFile,
  type AgentDefinition,
  type InstructionEnvironment,
  renderInstruction,
} from "../agent-files/agent-file.ts";
import type { AgentSpec } from "../manifest/agents.ts";
import type { Filter } from "../manifest/filter.ts";
import { BUILT_IN, builtInTools, ownServerName } from "./agent-file-toolbox.ts";

/**
 * The specifications of a file's agents, as an `AgentSet` needs them: with the complete instruction, and with a filter
 * that selects tools of the hub and of the file's own servers.
 * @param filterOfMode returns the tool filter of a mode of the manifest; throws if there is no such mode
 */
export function specsOfFile(
  { agents }: AgentFile,
  environment: InstructionEnvironment,
  filterOfMode: (name: string) => Filter,
): ReadonlyMap<string, AgentSpec> {
  return new Map(
    [...agents].map(([name, agent]) => {
      const instruction = renderInstruction(agent, environment);
      return [name, { ...agent.spec, instruction, tools: toolsOf(agent, filterOfMode) }];
    }),
  );
}

function toolsOf(
  { spec, ownTools, builtIns }: AgentDefinition,
  filterOfMode: (name: string) => Filter,
): Filter | undefined {
  const own: Filter = { servers: [ownServerName("*")] };
  const parts: Filter[] = [];
  const tools = spec.mode === undefined ? spec.tools : filterOfMode(spec.mode);
  if (tools !== undefined) parts.push({ and: [tools, { not: own }] });
  if (ownTools !== undefined) {
    const others: Filter = { not: { servers: [BUILT_IN] } };
    parts.push({ and: [own, others, withOwnServers(ownTools)] });
  }
  const names = builtInTools({ builtIns });
  if (names.length > 0) parts.push({ ids: names.map(({ name }) => `${BUILT_IN}.${name}`) });
  return parts.length === 0 ? undefined : { or: parts };
}

/** The filter with the file's own servers named as in the agent set, that is, with the prefix `own/`. */
function withOwnServers(filter: Filter): Filter {
  if (filter === "all") return filter;
  if ("servers" in filter) return { servers: filter.servers.map(ownServerName) };
  if ("ids" in filter) return { ids: filter.ids.map(ownServerName) };
  if ("and" in filter) return { and: filter.and.map(withOwnServers) };
  if ("or" in filter) return { or: filter.or.map(withOwnServers) };
  return "not" in filter ? { not: withOwnServers(filter.not) } : filter;
}
