import { systemClock } from "../base/clock.ts";
import type { HubAgents } from "../control/agents-api.ts";
import type { AgentDocument } from "../control/schemas.ts";
import type { Hub } from "../hub/hub.ts";
import { loadManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { manifestError } from "../manifest/problems.ts";
import type { CommandContext, Invocation } from "../cli/command.ts";
import { loadOptions } from "../operations/load-manifest.ts";

export interface HubAgentsOptions {
  readonly hub: Hub;
  readonly invocation: Invocation;
  readonly context: CommandContext;
  /** Removes the secrets of servers from a text. */
  redact(text: string): string;
}

/**
 * The agents of a running hub's manifest. The code of agents is loaded on first use. The manifest is read for every
 * use, so that changes apply from the next run.
 */
export function makeHubAgents(options: HubAgentsOptions): HubAgents {
  const { hub, invocation, context } = options;
  const load = async (): Promise<Manifest> => {
    const loaded = await loadManifest(loadOptions(invocation, context));
    if (!loaded.ok) throw manifestError(loaded.problems);
    return loaded.manifest;
  };
  return {
    async list(): Promise<readonly AgentDocument[]> {
      const { describeAgents } = await import("./agents.ts");
      const { readCatalog } = await import("../agent/toolbox.ts");
      return describeAgents(await load(), context, readCatalog(hub.catalog));
    },
    async open(name, { model, mode }) {
      const manifest = await load();
      const { AgentSet } = await import("../agent/agent.ts");
      const { chooseAgent, connectInside, modelFactory } = await import("./agents.ts");
      const { filterOfMode, validAgents } = await import("../manifest/modes.ts");
      const { Redactor } = await import("../transport/redact.ts");
      const { OpenQuestions } = await import("../agent/open-questions.ts");
      const secrets = new Set<string>();
      const questions = new OpenQuestions();
      const { toolbox, client, id } = await connectInside(
        hub,
        context.signal,
        undefined,
        questions,
      );
      const agentSet = new AgentSet({
        specs: validAgents(manifest),
        toolbox,
        clock: systemClock,
        createModel: modelFactory(manifest, context, secrets),
        redact: (text) => options.redact(new Redactor([...secrets]).apply(text)),
        watchPauses: questions.watchPauses,
      });
      try {
        const setMode = async (chosen: string): Promise<void> =>
          void (agentSet.toolFilter = filterOfMode(chosen, await load()));
        if (mode !== undefined) await setMode(mode);
        const agent = await agentSet.agent(chooseAgent(name, manifest), context.signal, model);
        return { agent, client: id, mode, setMode, close: () => client.close() };
      } catch (error) {
        await client.close();
        throw error;
      }
    },
  };
}
