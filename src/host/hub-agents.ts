import { dirname } from "node:path";
import type { ConversationStore } from "../agent/conversation-store.ts";
import type { AgentLibrary } from "../agent-files/agent-library.ts";
import type { AgentRedactor } from "./agent-models.ts";
import { systemClock } from "../base/clock.ts";
import type { HubAgents } from "../control/agents-api.ts";
import type { AgentDocument } from "../control/schemas.ts";
import type { Hub } from "../hub/hub.ts";
import { loadManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { manifestError } from "../manifest/problems.ts";
import type { ManifestChoice } from "../operations/context.ts";
import type { HostContext } from "./context.ts";
import { type CommandLog, loadOptions } from "../operations/load-manifest.ts";

export interface HubAgentsOptions {
  readonly hub: Hub;
  /** The manifests of the hub. */
  readonly choice: ManifestChoice;
  readonly context: HostContext;
  readonly log: CommandLog;
  /** Removes the secrets of servers from a text. */
  redact(text: string): string;
}

/**
 * The agents of a running hub's manifest, and those in files and in the store. The code of agents is loaded on first use. The manifest is read for every
 * use, so that changes apply from the next run.
 */
export function makeHubAgents(options: HubAgentsOptions): HubAgents {
  const { hub, choice, context, log } = options;
  const load = async (): Promise<Manifest> => {
    const loaded = await loadManifest(loadOptions(choice, context));
    if (!loaded.ok) throw manifestError(loaded.problems);
    return loaded.manifest;
  };
  /** Closes the agents that are open. */
  const opened = new Set<() => Promise<void>>();
  let redactor: AgentRedactor | undefined;
  let store: (() => Promise<ConversationStore>) | undefined;
  let from: (() => Promise<string>) | undefined;
  /** Removes the secrets of servers, and the keys of the models of all conversations. */
  const openRedactor = async (): Promise<AgentRedactor> => {
    const { AgentRedactor: Loaded } = await import("./agent-models.ts");
    return (redactor ??= new Loaded((text) => options.redact(text)));
  };
  const openLibrary = async (manifest: Manifest): Promise<AgentLibrary> => {
    const { openAgentLibrary } = await import("../operations/agent-library.ts");
    const [first] = manifest.sources;
    return openAgentLibrary(manifest, context, first === undefined ? context.cwd : dirname(first));
  };
  return {
    async list(): Promise<readonly AgentDocument[]> {
      const [{ describeAgents, describeFileAgents }, { readCatalog }, { apply }] =
        await Promise.all([
          import("./agent-documents.ts"),
          import("../agent/toolbox.ts"),
          openRedactor(),
        ]);
      const manifest = await load();
      const tools = readCatalog(hub.catalog);
      const [own, others] = await Promise.all([
        describeAgents(manifest, context, tools),
        describeFileAgents(manifest, await openLibrary(manifest), context, tools),
      ]);
      // What a file asks for may hold secrets.
      const redacted = others.map(({ notes, ...rest }) => ({
        ...rest,
        ...(notes && { notes: notes.map(apply) }),
      }));
      return [...own, ...redacted];
    },
    async open(name, { model, mode }) {
      const manifest = await load();
      const [
        { expandForAgent, openAgents, originOf },
        redactorOfAll,
        { connectInside },
        { OpenQuestions },
        { forwardApprovals },
      ] = await Promise.all([
        import("./agents.ts"),
        openRedactor(),
        import("./hub-toolbox.ts"),
        import("../agent/question-pauses.ts"),
        import("./forwarded-approvals.ts"),
      ]);
      const isOwn = manifest.agents?.has(name) === true;
      const found = isOwn ? undefined : await (await openLibrary(manifest)).find(name);
      const file = found === undefined || found.source === "manifest" ? undefined : found.file;
      const questions = new OpenQuestions();
      const { signal } = context;
      const { toolbox, client, id } = await connectInside(hub, signal, undefined, questions);
      const agents = openAgents({
        manifest,
        file,
        toolbox,
        person: {
          elicit: undefined,
          questions,
          howToBeAsked: "open the page of toolmux",
          forward: (own) => forwardApprovals(own, hub.approvals, id),
        },
        redactor: redactorOfAll,
        clock: systemClock,
        context,
        log,
        tracer: () => hub.tracer,
      });
      try {
        const setMode = async (chosen: string): Promise<void> =>
          agents.setMode(chosen, await load());
        if (mode !== undefined) await setMode(mode);
        const agent = await agents.agent(name, signal, model);
        const { notes } = agents;
        const close = async (): Promise<void> => {
          opened.delete(close);
          await Promise.all([agents.close(), client.close()]);
        };
        opened.add(close);
        return {
          agent,
          notes,
          client: id,
          mode,
          opener: file?.source ?? agent.spec.name,
          from: originOf(manifest, file),
          file: file?.source,
          expand: (message, answering) => expandForAgent(message, answering, file, context),
          promptsOf: (answering) => [...(file?.agents.get(answering)?.prompts?.keys() ?? [])],
          setMode,
          close,
        };
      } catch (error) {
        await Promise.all([agents.close(), client.close()]);
        throw error;
      }
    },
    async conversations() {
      if (store === undefined) {
        const [{ openConversations, reused }, { apply: mask }] = await Promise.all([
          import("./conversations.ts"),
          openRedactor(),
        ]);
        const warn = (text: string): void => log("warn", text);
        store ??= reused(async () => openConversations(await load(), context, { mask, warn }));
      }
      return store();
    },
    async from() {
      if (from === undefined) {
        const [{ reused }, { originOf }] = await Promise.all([
          import("./conversations.ts"),
          import("./agents.ts"),
        ]);
        from ??= reused(async () => originOf(await load()));
      }
      return from();
    },
    async close() {
      await Promise.all([...opened].map((close) => close()));
    },
  };
}
