import { realpathSync } from "node:fs";
import { basename, dirname, sep } from "node:path";
import { filterOfMode, validAgents } from "../manifest/modes.ts";
import { AgentSet } from "../agent/agent.ts";
import { AgentFileToolbox, specsOfFile } from "../agent/file-agents.ts";
import type { Toolbox } from "../agent/toolbox.ts";
import { type AgentFile, describeRestrictions } from "../agent-files/agent-file.ts";
import { readInlineAgent } from "../agent-files/inline-agent.ts";
import type { OpenedAgent } from "../agent-tools/sessions.ts";
import type { ClientAgents } from "../agent-tools/agent-tools.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { configFolders, stateFolder } from "../base/paths.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { formatProblem } from "../manifest/problems.ts";
import type { ToolCall } from "../plugin/plugin.ts";
import { Redactor } from "../transport/redact.ts";
import { openAgentLibrary, registryOptions } from "../operations/agent-library.ts";
import { modelFactory, modelsFor, openFileTools } from "./agents.ts";
import type { CommandContext } from "../cli/command.ts";
import type { CommandLog } from "../operations/load-manifest.ts";

export interface ClientAgentsOptions {
  /** The manifest in force. */
  manifest(): Manifest;
  readonly context: CommandContext;
  readonly log: CommandLog;
  readonly clock: Clock;
  /** Removes the secrets of servers from a text. */
  redact(text: string): string;
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
  const { context, log, clock } = options;
  /** The API keys of models, which must be redacted. */
  const secrets = new Set<string>();
  const redact = (text: string): string => options.redact(new Redactor([...secrets]).apply(text));
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
    return removeFolders(redact(text), folders);
  };
  const makeAgentSet = (
    { models }: Pick<Manifest, "models">,
    specs: AgentSet["options"]["specs"],
    toolbox: Toolbox = NO_TOOLS,
    file?: AgentFile,
  ): AgentSet => {
    const createModel = modelFactory({ models }, context, secrets, file);
    return new AgentSet({ specs, toolbox, clock, createModel, redact });
  };
  let made: ReturnType<typeof makeForManifest> | undefined;
  const makeForManifest = (manifest: Manifest) => {
    const [first] = manifest.sources;
    const baseDir = first === undefined ? context.cwd : dirname(first);
    return {
      manifest,
      library: openAgentLibrary(manifest, context, baseDir),
      agentSet: makeAgentSet(manifest, validAgents(manifest)),
    };
  };
  /** The library and the agents of the current manifest. They are cached until the manifest changes. */
  const present = (): ReturnType<typeof makeForManifest> => {
    const manifest = options.manifest();
    if (made?.manifest !== manifest) made = makeForManifest(manifest);
    return made;
  };
  const openFile = async (file: AgentFile, signal: AbortSignal): Promise<OpenedAgent> => {
    const { manifest } = present();
    let call: ToolCall | undefined;
    let hubTools = NO_TOOLS;
    const hub: Toolbox = {
      tools: (run) => hubTools.tools(run),
      call: (...args) => hubTools.call(...args),
    };
    // Elicitations of the file's own servers go to the client whose call runs the agent.
    const own = openFileTools(file, manifest, context, log, {
      elicit: async (form, withdrawn) =>
        call === undefined ? { action: "cancel" } : call.elicit(form, withdrawn),
    });
    const toolbox = new AgentFileToolbox(hub, own.toolbox);
    const { cwd, platform } = context;
    const models = modelsFor(file, manifest.models);
    const environment = { now: Date.now(), cwd, platform };
    const specs = specsOfFile(file, environment, (mode) => filterOfMode(mode, manifest));
    const restrictions = describeRestrictions(file);
    const notes = [
      ...file.unsupported.map(formatProblem),
      ...(restrictions === undefined ? [] : [restrictions]),
    ];
    try {
      return {
        agent: await makeAgentSet({ models }, specs, toolbox, file).agent(file.entry, signal),
        notes: notes.map(redactForClients),
        toolboxFor(outer, tools) {
          call = outer;
          hubTools = tools;
          return toolbox;
        },
        close: () => own.close().catch(() => {}),
      };
    } catch (error) {
      await own.close();
      throw error;
    }
  };
  const simple = (agent: OpenedAgent["agent"]): OpenedAgent => ({
    agent,
    notes: [],
    toolboxFor: (_, tools) => tools,
    close: () => Promise.resolve(),
  });
  return {
    redact: redactForClients,
    async open(text, signal) {
      const { library, agentSet } = present();
      const found = await library.find(text);
      return found.source === "manifest"
        ? simple(await agentSet.agent(found.spec.name, signal))
        : openFile(found.file, signal);
    },
    async openInline(config, signal) {
      const { manifest } = present();
      const { models = new Map<string, never>() } = manifest;
      const spec = readInlineAgent(config, { models });
      return simple(
        await makeAgentSet(manifest, new Map([[spec.name, spec]])).agent(spec.name, signal),
      );
    },
    list: (sources) => present().library.list(sources),
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
