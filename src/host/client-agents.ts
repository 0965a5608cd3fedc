import { realpathSync } from "node:fs";
import { basename, dirname, sep } from "node:path";
import type { Toolbox } from "../agent/toolbox.ts";
import type { AgentFile } from "../agent-files/agent-file.ts";
import { readInlineAgent } from "../agent-files/client-described-agent.ts";
import type { ClientAgents } from "../agent-tools/agent-tools.ts";
import type { ClientAgent } from "../agent-tools/sessions.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { configFolders, stateFolder } from "../base/paths.ts";
import type { AgentSpec } from "../manifest/agents.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { openAgentLibrary, registryOptions } from "../operations/agent-library.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import type { ToolCall } from "../plugin/plugin.ts";
import { agentChecks, AgentRedactor } from "./agent-models.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import { openAgents, type OpenedAgents, originOf } from "./agents.ts";
import { conversationsOfClients, openConversations, reused } from "./conversations.ts";
import type { HostContext } from "./context.ts";
import type { AskedPerson } from "./hub-toolbox.ts";

export interface ClientAgentsOptions {
  /** The manifest in force. */
  manifest(): Manifest;
  readonly context: HostContext;
  readonly log: CommandLog;
  readonly clock: Clock;
  /** Removes the secrets of servers from a text. */
  redact(text: string): string;
  /** The token of a client over HTTP, by its name; absent: no client has one. */
  readonly tokenOf?: (principal: string) => string | undefined;
  /** Makes the spans of runs; undefined while none are made. */
  readonly tracer?: (() => Tracer | undefined) | undefined;
}

/** A toolbox without tools. It needs none, because each run in a hub gets the tools of the call that started it. */
const NO_TOOLS: Toolbox = {
  tools: () => Promise.resolve([]),
  call: () => Promise.reject(new HubError("unknownTool", "There are no tools.")),
};

/**
 * The agents that clients of a hub can use: those of its manifest, those in files, and those pulled from registries.
 */
export function openClientAgents(options: ClientAgentsOptions): ClientAgents {
  const { context, log, clock, tracer } = options;
  const redactor = new AgentRedactor((text) => options.redact(text));
  /** Removes secrets, and the folders of this user's files, which clients on other machines need not know. */
  const redactForClients = (text: string): string => {
    const { library, manifest } = present();
    const home = context.env["HOME"];
    const folders = [
      ...library.folders(),
      ...manifest.sources.map((source) => dirname(source)),
      ...configFolders(context.env, context.platform),
      stateFolder(context.env, context.platform),
      context.cwd,
      ...(home === undefined ? [] : [home]),
    ];
    return removeFolders(redactor.apply(text), folders);
  };
  const open = (
    manifest: Manifest,
    more: {
      readonly file?: AgentFile;
      readonly specs?: ReadonlyMap<string, AgentSpec>;
      readonly toolbox?: Toolbox;
      readonly person?: AskedPerson;
    } = {},
  ): OpenedAgents => {
    const person = { elicit: undefined };
    return openAgents({
      manifest,
      toolbox: NO_TOOLS,
      person,
      redactor,
      clock,
      context,
      log,
      tracer,
      ...more,
    });
  };
  let made: ReturnType<typeof makeForManifest> | undefined;
  const makeForManifest = (manifest: Manifest) => {
    const [first] = manifest.sources;
    const baseDir = first === undefined ? context.cwd : dirname(first);
    return {
      manifest,
      library: openAgentLibrary(manifest, context, baseDir),
      agents: open(manifest),
    };
  };
  /** The library and the agents of the current manifest. They are cached until the manifest changes. */
  const present = (): ReturnType<typeof makeForManifest> => {
    const manifest = options.manifest();
    if (made?.manifest !== manifest) made = makeForManifest(manifest);
    return made;
  };
  const openStore = reused(() => {
    const warn = (text: string): void => log("warn", text);
    return openConversations(options.manifest(), context, { mask: redactor.apply, warn });
  });
  const conversations = conversationsOfClients(
    openStore,
    context,
    (name) => options.tokenOf?.(name),
    log,
  );
  const openFile = async (file: AgentFile, signal: AbortSignal): Promise<ClientAgent> => {
    let call: ToolCall | undefined;
    let hubTools = NO_TOOLS;
    const agents = open(present().manifest, {
      file,
      toolbox: {
        tools: (run) => hubTools.tools(run),
        call: (...args) => hubTools.call(...args),
      },
      // Elicitations of the file's own servers go to the client whose call runs the agent.
      person: {
        elicit: async (form, withdrawn) =>
          call === undefined ? { action: "cancel" } : call.elicit(form, withdrawn),
      },
    });
    try {
      return {
        agent: await agents.agent(undefined, signal),
        from: originOf(options.manifest(), file),
        notes: agents.notes.map(redactForClients),
        toolboxFor(outer, tools) {
          call = outer;
          hubTools = tools;
          return agents.toolbox;
        },
        close: () => agents.close(),
      };
    } catch (error) {
      await agents.close();
      throw error;
    }
  };
  const openSimple = async (
    agents: OpenedAgents,
    name: string,
    signal: AbortSignal,
  ): Promise<ClientAgent> => ({
    agent: await agents.agent(name, signal),
    from: originOf(options.manifest()),
    notes: [],
    toolboxFor: (_, tools) => tools,
    close: () => Promise.resolve(),
  });
  return {
    redact: redactForClients,
    conversations,
    async open(text, signal) {
      const { library, agents } = present();
      const found = await library.find(text);
      return found.source === "manifest"
        ? openSimple(agents, found.spec.name, signal)
        : openFile(found.file, signal);
    },
    async openInline(config, signal) {
      const { manifest } = present();
      const { models = new Map<string, never>() } = manifest;
      const spec = readInlineAgent(config, { models });
      const agents = open(manifest, { specs: new Map([[spec.name, spec]]) });
      return openSimple(agents, spec.name, signal);
    },
    list(sources) {
      const { manifest, library } = present();
      return library.list(sources, agentChecks(manifest, context));
    },
    async pull(reference, signal) {
      const { manifest, library } = present();
      const stored = await library.pull(reference, registryOptions(manifest, context), signal);
      return { digest: stored.digest, reference: stored.reference };
    },
  };
}

/** Removes folders from a text: the paths of files become relative, and a folder itself becomes its last name. */
function removeFolders(text: string, folders: readonly string[]): string {
  const all = folders.flatMap((folder) => [folder, realPathOf(folder)]);
  // The longest come first: a folder may be within another one.
  const sorted = [...new Set(all)].toSorted((a, b) => b.length - a.length);
  let shown = text;
  for (const folder of sorted) {
    if (folder.length < 2) continue;
    shown = shown.replaceAll(`${folder}${sep}`, "").replaceAll(folder, basename(folder));
  }
  return shown;
}

function realPathOf(folder: string): string {
  try {
    return realpathSync(folder);
  } catch {
    return folder;
  }
}
