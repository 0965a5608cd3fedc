import { type Agent, agentNotFound, AgentSet } from "../agent/agent.ts";
import { fileOrigin } from "../agent/conversation-file.ts";
import { agentToolSettings } from "../agent/tool-search.ts";
import { expandMessage } from "../agent-files/named-prompts.ts";
import { MemoryFile } from "../agent-files/memory-file.ts";
import { AgentFileToolbox, type AgentFileRules } from "../agent/agent-file-toolbox.ts";
import { specsOfFile } from "../agent/file-agents.ts";
import type { Toolbox } from "../agent/toolbox.ts";
import { type AgentFile, describeRestrictions } from "../agent-files/agent-file.ts";
import type { Clock } from "../base/clock.ts";
import { toHubError, usageError } from "../base/errors.ts";
import type { ServerDocument } from "../control/schemas.ts";
import type { AgentSpec } from "../manifest/agents.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { filterOfMode, validAgents } from "../manifest/modes.ts";
import { formatProblem, manifestError } from "../manifest/problems.ts";
import { manifestOrigin } from "../operations/conversations.ts";
import type { ManifestChoice, OperationContext } from "../operations/context.ts";
import { type CommandLog, loadManifestLogged } from "../operations/load-manifest.ts";
import { type AgentRedactor, modelFactory, modelsFor } from "./agent-models.ts";
import type { Tracer } from "../telemetry/tracer.ts";
import type { HostContext } from "./context.ts";
import { type AskedPerson, openFileTools } from "./hub-toolbox.ts";

export interface OpenAgentsOptions {
  readonly manifest: Manifest;
  /** The agent file whose agents are opened instead of those of the manifest. */
  readonly file?: AgentFile | undefined;
  /** Agents that are opened instead of those of the manifest. */
  readonly specs?: ReadonlyMap<string, AgentSpec>;
  /** The hub's tools. */
  readonly toolbox: Toolbox;
  /** Who is asked about calls of the servers that the file contains. */
  readonly person: AskedPerson;
  readonly redactor: AgentRedactor;
  readonly clock: Clock;
  readonly context: HostContext;
  readonly log: CommandLog;
  /** The approval level of calls for which the manifest sets none. */
  readonly approval?: AgentSpec["approval"];
  /** Makes the spans of runs; absent: none are made. */
  readonly tracer?: (() => Tracer | undefined) | undefined;
}

/** The agents of a manifest or of an agent file, ready to run in this process. */
export interface OpenedAgents {
  /** The hub's tools, and those of the servers that the file contains. */
  readonly toolbox: Toolbox;
  /** Sentences about the parts of the file that have no effect. They may have secrets, and paths of this user. */
  readonly notes: readonly string[];
  /**
   * Prepares an agent.
   * @param name undefined selects the only agent. For an agent file, the name is ignored, because the file has an entry
   * agent
   * @param model the model to use instead of the agent's own
   * @throws {HubError} see `chooseAgent`; agentInvalid or valueMissing if its model cannot be opened
   */
  agent(name: string | undefined, signal: AbortSignal, model?: string): Promise<Agent>;
  /**
   * Narrows the tools of all agents to those of a mode, from their next turn on.
   * @param manifest the manifest that has the mode, if it has changed
   * @throws {HubError} usage if there is no such mode
   */
  setMode(name: string, manifest?: Manifest): void;
  /** The servers that the file contains, by their names there; none before an agent has needed their tools. */
  ownServers(): Promise<readonly ServerDocument[]>;
  /** Removes from a text the keys of models, and the secrets of the servers that the file contains. */
  redact(text: string): string;
  /** Ends the servers that the file contains. Never rejects. */
  close(): Promise<void>;
}

/**
 * Opens the agents of a manifest or of an agent file: those that a person at a terminal runs, those that clients use as
 * tools, and those of the control API. They differ only in the toolbox, and in who is asked.
 */
export function openAgents(options: OpenAgentsOptions): OpenedAgents {
  const { manifest, file, toolbox: hubTools, person, redactor, clock, context, log } = options;
  const own = file && openFileTools(file, manifest, context, log, person);
  const redact = (text: string): string =>
    own?.redact(redactor.apply(text)) ?? redactor.apply(text);
  const ofFile =
    file &&
    new AgentFileToolbox(
      hubTools,
      own?.toolbox,
      rulesOf(file, options, redact, (name, signal) => agentSet.model(name, signal)),
    );
  const toolbox = ofFile ?? hubTools;
  const models = file === undefined ? manifest.models : modelsFor(file, manifest.models);
  const agentSet: AgentSet = new AgentSet({
    specs: options.specs ?? specsOf(options),
    toolbox,
    clock,
    createModel: modelFactory({ ...(models && { models }) }, context, redactor.keys, file),
    toolSettings: agentToolSettings(manifest),
    approval: options.approval,
    tracer: options.tracer,
    redact: redactor.apply,
    watchPauses: person.questions?.watchPauses,
    pickedModel: (name) => ofFile?.pickedModel(name),
  });
  return {
    toolbox,
    notes: file === undefined ? [] : notesOn(file),
    agent(name, signal, model) {
      const chosen = file?.entry ?? (options.specs ? name : chooseAgent(name, manifest));
      return agentSet.agent(chosen ?? "", signal, model);
    },
    setMode(name, latest = manifest) {
      agentSet.toolFilter = filterOfMode(name, latest);
    },
    ownServers: async () => own?.servers() ?? [],
    redact,
    close: async () => own?.close().catch(() => {}),
  };
}

function specsOf({
  manifest,
  file,
  context: { cwd, platform },
}: OpenAgentsOptions): ReadonlyMap<string, AgentSpec> {
  if (file === undefined) return validAgents(manifest);
  const environment = { now: Date.now(), cwd, platform };
  return specsOfFile(file, environment, (mode) => filterOfMode(mode, manifest));
}

/**
 * The text that an agent of a file gets for a message of a person at a terminal; see `expandMessage`. Environment
 * variables are replaced only if the file is trusted.
 */
export function expandForAgent(
  message: string,
  agent: string,
  file: AgentFile | undefined,
  { env }: Pick<OperationContext, "env">,
): string {
  const definition = file?.agents.get(agent);
  const isTrusted = file?.allows !== undefined;
  return expandMessage(message, definition?.prompts, isTrusted ? env : undefined);
}

/**
 * What the toolbox of a file's agents has to know of the file.
 * @param redact removes the secrets of models and of the file's servers
 */
function rulesOf(
  { source, agents, permissions, allows, toolsetsByServer }: AgentFile,
  { manifest, context, person }: OpenAgentsOptions,
  redact: (text: string) => string,
  openModel: AgentFileRules["openModel"],
): AgentFileRules {
  const kinds = new Set([...agents.values()].flatMap(({ builtIns }) => builtIns));
  return {
    builtIns: (["think", "todo", "memory", "user_prompt", "model_picker"] as const).filter((kind) =>
      kinds.has(kind),
    ),
    pickableModels: (name) => agents.get(name)?.spec.pickableModels ?? [],
    openModel,
    permissions,
    ...(allows !== undefined && { allows }),
    toolsetsByServer,
    sharesTodos: (name) => agents.get(name)?.sharesTodos === true,
    memoryOf(name) {
      const agent = agents.get(name);
      if (agent?.builtIns.includes("memory") !== true) return undefined;
      return new MemoryFile(source, agent.memory ?? name, context);
    },
    async redact(text) {
      const { knownSecrets } = await import("./conversations.ts");
      const redactKnown = await knownSecrets(manifest, context);
      return redact(redactKnown(text));
    },
    ask: person.elicit,
  };
}

/** The parts of a file that are not supported or not trusted. */
export function notesOn(file: AgentFile): readonly string[] {
  const restrictions = describeRestrictions(file);
  const unsupported = file.unsupported.map(formatProblem);
  return restrictions === undefined ? unsupported : [...unsupported, restrictions];
}

/** The manifest or the file that agents are of, as `ConversationHeader.from` has it. */
export function originOf(manifest: Pick<Manifest, "sources">, file?: AgentFile): string {
  return file === undefined ? manifestOrigin(manifest) : fileOrigin(file.source);
}

/** Whether this is the empty manifest that stands for a missing one. */
export function isEmptyManifest({ sources, servers }: Manifest): boolean {
  return sources.length === 0 && servers.length === 0;
}

/**
 * Loads the manifest and, if the manifest does not have the named agent, the agent's file. An agent from a file needs
 * no manifest, unless `--config` names one.
 * @throws {HubError} manifestInvalid, and what `AgentLibrary.find` throws
 */
export async function loadAgents(
  name: string | undefined,
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
): Promise<Pick<OpenAgentsOptions, "manifest" | "file">> {
  const mayBeAbsent = name !== undefined && choice.config.length === 0;
  const { manifest } = await loadManifestLogged(choice, context, log, mayBeAbsent);
  try {
    return { manifest, file: await findAgentFile(name, manifest, context, log) };
  } catch (error) {
    // If there is no manifest at all, an error that says so is more helpful. Loading the manifest again throws that
    // error.
    const { code } = toHubError(error);
    if (code === "agentNotFound" && isEmptyManifest(manifest))
      await loadManifestLogged(choice, context, () => {});
    throw error;
  }
}

/**
 * Finds the file of an agent that the manifest does not have. `name` is a path, or the name of a pulled agent. Logs
 * which parts of the file are not supported or not trusted.
 * @returns undefined if no agent is named, or if the manifest has it
 * @throws {HubError} what `AgentLibrary.find` throws
 */
async function findAgentFile(
  name: string | undefined,
  manifest: Manifest,
  context: OperationContext,
  log: CommandLog,
): Promise<AgentFile | undefined> {
  if (name === undefined || manifest.agents?.has(name) === true) return undefined;
  const { openAgentLibrary } = await import("../operations/agent-library.ts");
  const found = await openAgentLibrary(manifest, context, context.cwd).find(name);
  if (found.source === "manifest") return undefined;
  for (const note of notesOn(found.file)) log("warn", note);
  return found.file;
}

/**
 * Chooses the agent to run: the named one, or else the only one.
 * @returns its name
 * @throws {HubError} usage if no agent is named and there are several; agentNotFound; manifestInvalid with the
 * problems of the agent's table
 */
function chooseAgent(name: string | undefined, { agents }: Manifest): string {
  const names = [...(agents?.keys() ?? [])];
  const chosen = name ?? (names.length === 1 ? names[0] : undefined);
  if (chosen === undefined && names.length > 0)
    throw usageError(`Which agent? There are ${names.join(", ")}.`);
  const spec = agents?.get(chosen ?? "");
  if (spec === undefined) throw agentNotFound(chosen ?? "", names);
  if ("problems" in spec) throw manifestError(spec.problems);
  return spec.name;
}
