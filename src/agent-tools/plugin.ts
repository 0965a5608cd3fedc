/**
 * agent-tools/: agents as MCP tools, the built-in plugin `agents` with its server of that name. `plugin.ts` is the
 * plugin and its options, `definitions.ts` the list of its tools; all other files are loaded when one of the tools is
 * first called. Main type: `AgentTools` (agent-tools.ts), which answers the calls. Start here, then read
 * agent-tools.ts.
 */
import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import type { Agents } from "../manifest/agents.ts";
import { suggestName } from "../manifest/problems.ts";
import { definePlugin, limit, type Plugin } from "../plugin/plugin.ts";
import { AgentsServer } from "./agents-server.ts";
import type { AgentTools, ClientAgents } from "./agent-tools.ts";
import { OFFERS, OWN_TOOL_NAMES, toolDefinitions } from "./definitions.ts";

/** The name of the plugin and of its server. */
export const AGENTS_PLUGIN = "agents";

const COUNT = "a whole number, at least 1";
const count = v.pipe(v.number(COUNT), v.integer(COUNT), v.minValue(1, COUNT));
const NAMES = "an array of names of agents of the manifest";
const flag = v.boolean("true or false");

/** @param names the names of the agents of the manifest */
function makeOptions(names: () => readonly string[]) {
  const agentName = v.pipe(
    v.string("the name of an agent of the manifest"),
    v.rawCheck<string>(({ dataset, addIssue }) => {
      if (!dataset.typed || names().includes(dataset.value)) return;
      const near = suggestName(dataset.value, names());
      const known = names().join(", ") || "none";
      const advice = near === "" ? ` Its agents: ${known}.` : near;
      // Without an input, the name is not hidden as a value that may be a secret.
      const message = `There is no agent "${dataset.value}" in the manifest.${advice}`;
      addIssue({ message, input: undefined });
    }),
  );
  const ownName = v.check(
    (name: string) => !OWN_TOOL_NAMES.has(name),
    "another name: toolmux has a tool of this name",
  );
  return v.strictObject({
    /**
     * The tools that clients are offered. `invoke`: `list_agents`, `invoke_agent` and the agents of `expose`;
     * `sessions`: those of conversations, too; `all`: also `pull_agent`. Each tool costs the models of clients tokens.
     */
    offer: v.optional(v.picklist(OFFERS, OFFERS.map((offer) => `"${offer}"`).join(", ")), "invoke"),
    /**
     * Agents of the manifest that get a tool of their own, `agents__NAME(message)`. If there are any, clients can start
     * no other agents of the manifest, with any tool.
     */
    expose: v.optional(v.array(v.pipe(agentName, ownName), NAMES), []),
    /**
     * Which events of the run an answer contains. `full`: all; `summary`: no texts, and calls without their arguments;
     * `none`: no events.
     */
    events: v.optional(
      v.picklist(["full", "summary", "none"], `"full", "summary" or "none"`),
      "full",
    ),
    /** Whether clients may describe agents themselves (`invoke_with_config`). */
    inlineConfig: v.optional(flag, false),
    /**
     * Whether clients that cannot be told apart may have sessions. Whoever knows the id of such a session can use it.
     */
    anonymous: v.optional(flag, false),
    /**
     * Agents to which every session may be transferred, besides the `subAgents` and `handoffs` of its present agent.
     */
    transferTo: v.optional(v.array(agentName, NAMES), []),
    maxSessions: v.optional(count, 100),
    maxSessionsPerClient: v.optional(count, 20),
    /**
     * What happens if a new session would exceed a limit. `refuse`: it is refused; `lru`: it replaces the least
     * recently used session among those that are idle.
     */
    eviction: v.optional(v.picklist(["refuse", "lru"], `"refuse" or "lru"`), "refuse"),
    /** How long a session stays open after its last use, in ms. */
    sessionTimeout: v.optional(limit, "1h"),
    /** Maximum number of tokens, and of tool calls, of one session. */
    maxTokens: v.exactOptional(count),
    maxToolCalls: v.exactOptional(count),
  });
}

export type AgentsOptions = v.InferOutput<ReturnType<typeof makeOptions>>;

/** The parts of the hub that the plugin needs. */
export interface AgentsPluginContext {
  readonly clock: Clock;
  /** The agents of the manifest in force. */
  agents(): Agents;
  /** Opens the agents for clients. Called when a tool is first called. */
  open(): Promise<ClientAgents>;
}

export function makeAgentsPlugin(context: AgentsPluginContext): Plugin<AgentsOptions> {
  return definePlugin<AgentsOptions>({
    name: AGENTS_PLUGIN,
    options: makeOptions(() => [...context.agents().keys()]),
    setup(options, host) {
      const describe = (name: string): string | undefined => {
        const spec = context.agents().get(name);
        return spec === undefined || "problems" in spec ? undefined : spec.description;
      };
      const server = new AgentsServer(() => toolDefinitions(options, describe), context.clock);
      let opening: Promise<AgentTools> | undefined;
      const open = async (): Promise<AgentTools> => {
        const [{ AgentTools: Tools }, agents] = await Promise.all([
          import("./agent-tools.ts"),
          context.open(),
        ]);
        return new Tools({ options, host, agents, clock: context.clock });
      };
      return {
        servers: {
          [AGENTS_PLUGIN]: {
            isolation: "shared",
            approval: { pull_agent: "always" },
            open: () => {
              const [hubEnd, serverEnd] = host.pair();
              server.connect(serverEnd);
              return hubEnd;
            },
          },
        },
        call: (next, tool) =>
          tool.server === AGENTS_PLUGIN
            ? async (call) => {
                const tools = await (opening ??= open());
                return server.runAsTask(call, next, (signal) =>
                  tools.answer(tool.name, call, signal),
                );
              }
            : next,
        // If the manifest changes, the descriptions of exposed agents may change.
        events: options.expose.length > 0 ? ["manifest"] : [],
        event: () => server.toolsChanged(),
        dispose: async () => {
          (await opening?.catch(() => undefined))?.close();
        },
      };
    },
  });
}
