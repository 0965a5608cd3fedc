import { filterOfMode, validAgents } from "../manifest/modes.ts";
import { abortable, systemClock } from "../base/clock.ts";
import { HubError, toHubError, usageError } from "../base/errors.ts";
import { VERSION } from "../base/version.ts";
import { type AgentFile, shellWord } from "../agent-files/agent-file.ts";
import { type Agent, agentNotFound, chooseTools, AgentSet } from "../agent/agent.ts";
import { createModel } from "../agent/create-model.ts";
import { OpenQuestions } from "../agent/open-questions.ts";
import type { Model } from "../agent/model.ts";
import { type AgentTool, McpToolbox, type Toolbox, type ToolOrigin } from "../agent/toolbox.ts";
import { connectToHub, type RunningHub } from "../control/running-hubs.ts";
import type { AgentDocument, ServerDocument, ToolsDocument } from "../control/schemas.ts";
import { type AnswerElicitation, HubClient } from "../frontend/hub-client.ts";
import { type AgentSpec, findModel, type InvalidAgent, type Models } from "../manifest/agents.ts";
import type { Hub } from "../hub/hub.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS, type Manifest } from "../manifest/manifest.ts";
import { formatProblem, manifestError, suggestName } from "../manifest/problems.ts";
import { sanitizeLine } from "../terminal/log.ts";
import { Redactor } from "../transport/redact.ts";
import type { Transport } from "../transport/transport.ts";
import { bestConnectionOf } from "../upstream/status.ts";
import type { CommandContext, Invocation } from "../cli/command.ts";
import { type CommandLog, loadManifestLogged } from "../operations/load-manifest.ts";
import { IN_A_TERMINAL, openHub, openSnapshots } from "./open-hub.ts";
import { ask, hubToUse } from "../cli/running-hub.ts";
import { openSchemeResolvers } from "../hub/transport-factory.ts";

/** The options of commands that run agents. */
export interface AgentOptions {
  /** Whether to start the servers in this process, even if a hub is running. */
  readonly fresh: boolean;
  readonly hub: string | undefined;
  readonly model: string | undefined;
  readonly mode: string | undefined;
  readonly approval: AgentSpec["approval"];
}

/** A server, as the command `/servers` of a chat prints it. `tools`: the number of its tools. */
export interface ServerLine {
  readonly name: string;
  readonly state: string;
  readonly tools: number;
}

/** The tools and servers of a hub. `close` disconnects from it; a hub in this process is closed, too. */
interface OpenedTools {
  readonly toolbox: Toolbox;
  servers(): Promise<readonly ServerLine[]>;
  close(): Promise<void>;
}

/** The agents of a manifest or of an agent file, ready to run in this process. */
export interface OpenedAgents {
  readonly agentSet: AgentSet;
  /** The running hub whose servers the agents use; undefined if the servers run in this process. */
  readonly hub: RunningHub | undefined;
  /**
   * Prepares an agent.
   * @param name undefined selects the only agent. For an agent file, the name is ignored, because the file has an entry
   * agent
   */
  agent(name: string | undefined): Promise<Agent>;
  servers(): Promise<readonly ServerLine[]>;
  /** Narrows the tools of all agents to those of a mode. @throws {HubError} usage if there is no such mode */
  setMode(name: string): void;
}

/** How a hub in this process asks a person about the calls of its only client. */
interface AskedPerson {
  /** Answers elicitations; undefined if nobody can be asked. */
  readonly elicit: AnswerElicitation | undefined;
  /** Counts the approvals that calls wait for. */
  readonly questions?: OpenQuestions;
  /** See `HubOptions`. */
  readonly howToBeAsked?: string;
}

export interface OpenAgentsOptions {
  readonly manifest: Manifest;
  readonly log: CommandLog;
  /** Answers elicitations by asking the person at the terminal; undefined if nobody can be asked. */
  readonly elicit: AnswerElicitation | undefined;
  /** The agent file whose agents are opened instead of those of the manifest. */
  readonly file?: AgentFile | undefined;
}

/**
 * Opens the agents of a manifest or of an agent file and passes them to `use`. The connection to a running hub is
 * opened, or the servers are started, only when an agent first needs its tools.
 */
export async function withAgents<T>(
  options: OpenAgentsOptions,
  invocation: Invocation<AgentOptions>,
  context: CommandContext,
  use: (agents: OpenedAgents) => Promise<T>,
): Promise<T> {
  const { manifest, log, file } = options;
  const { signal } = context;
  const { mode, model, approval } = invocation.options;
  const secrets = new Set<string>();
  const questions = new OpenQuestions();
  const elicit = options.elicit && countQuestions(options.elicit, questions);
  const isAlone = isEmpty(manifest) && invocation.options.hub === undefined;
  let hub = isAlone ? undefined : await hubToUse(invocation, context);
  let opened: Promise<OpenedTools> | undefined;
  const open = (): Promise<OpenedTools> => {
    if (opened !== undefined) return opened;
    const opening =
      hub === undefined
        ? openOwnHub(manifest, context, log, { elicit, questions, howToBeAsked: IN_A_TERMINAL })
        : openRunningHub(hub, context, elicit);
    opened = opening;
    // If opening fails, the next turn of the conversation tries again.
    opening.catch(() => {
      if (opened === opening) opened = undefined;
    });
    return opening;
  };
  const close = async (): Promise<void> => {
    const closing = opened;
    opened = undefined;
    await closing?.then(
      (tools) => tools.close(),
      () => {},
    );
  };
  const toolbox: Toolbox = {
    tools: async (run) => {
      try {
        return await (await abortable(open(), run)).toolbox.tools(run);
      } catch (error) {
        run.throwIfAborted();
        // No running hub was used, so the error comes from starting the servers in this process.
        if (hub === undefined) throw error;
        // The running hub has ended. Use another running hub if there is one, or else start the servers in this
        // process.
        void close();
        hub = await hubToUse(invocation, context).catch(() => undefined);
        return (await abortable(open(), run)).toolbox.tools(run);
      }
    },
    call: async (name, args, call) =>
      (await abortable(open(), call.signal)).toolbox.call(name, args, call),
  };
  const fileAgents = file && (await import("../agent/file-agents.ts"));
  const own =
    file && openFileTools(file, manifest, context, log, { elicit, howToBeAsked: IN_A_TERMINAL });
  const models = file && modelsFor(file, manifest.models);
  const agentSet = new AgentSet({
    specs:
      file === undefined || fileAgents === undefined
        ? validAgents(manifest)
        : fileAgents.specsOfFile(
            file,
            { now: Date.now(), cwd: context.cwd, platform: context.platform },
            (modeName) => filterOfMode(modeName, manifest),
          ),
    toolbox:
      fileAgents === undefined ? toolbox : new fileAgents.AgentFileToolbox(toolbox, own?.toolbox),
    clock: systemClock,
    createModel: modelFactory({ ...manifest, ...(models && { models }) }, context, secrets, file),
    approval,
    redact: (text) => new Redactor([...secrets]).apply(text),
    watchPauses: questions.watchPauses,
  });
  const setMode = (name: string): void => void (agentSet.toolFilter = filterOfMode(name, manifest));
  if (mode !== undefined) setMode(mode);
  try {
    return await use({
      agentSet,
      hub,
      setMode,
      servers: async () => (await open()).servers(),
      agent: (name) => agentSet.agent(file?.entry ?? chooseAgent(name, manifest), signal, model),
    });
  } finally {
    await Promise.all([own?.close(), close()]);
  }
}

/**
 * The tools of the servers that an agent file contains. The servers run for this conversation only, and start when an
 * agent first needs its tools.
 * @param userManifest the manifest whose approval settings apply to these servers, too
 */
export function openFileTools(
  { servers }: AgentFile,
  userManifest: Pick<Manifest, "approval">,
  context: CommandContext,
  log: CommandLog,
  person: AskedPerson,
): { readonly toolbox: Toolbox | undefined; close(): Promise<void> } {
  if (servers.length === 0) return { toolbox: undefined, close: () => Promise.resolve() };
  const manifest: Manifest = {
    hub: HUB_DEFAULTS,
    defaults: LIMIT_DEFAULTS,
    servers: servers.map((spec) => ({ ...spec, lazy: true })),
    approval: userManifest.approval,
    plugins: [],
    sources: [],
  };
  let opened: Promise<OpenedTools> | undefined;
  const open = (): Promise<OpenedTools> => (opened ??= openOwnHub(manifest, context, log, person));
  return {
    toolbox: {
      tools: async (run) => (await abortable(open(), run)).toolbox.tools(run),
      call: async (name, args, options) =>
        (await abortable(open(), options.signal)).toolbox.call(name, args, options),
    },
    async close() {
      await opened?.then(
        (tools) => tools.close(),
        () => {},
      );
    },
  };
}

/** Whether this is the empty manifest that stands for a missing one. */
function isEmpty({ sources, servers }: Manifest): boolean {
  return sources.length === 0 && servers.length === 0;
}

/**
 * Loads the manifest and, if the manifest does not have the named agent, the agent's file. An agent from a file needs
 * no manifest, unless `--config` names one.
 * @throws {HubError} manifestInvalid, and what `AgentLibrary.find` throws
 */
export async function loadAgents(
  name: string | undefined,
  invocation: Invocation,
  context: CommandContext,
  log: CommandLog,
): Promise<Pick<OpenAgentsOptions, "manifest" | "file">> {
  const mayBeAbsent = name !== undefined && invocation.config.length === 0;
  const { manifest } = await loadManifestLogged(invocation, context, log, mayBeAbsent);
  try {
    return { manifest, file: await findAgentFile(name, manifest, context, log) };
  } catch (error) {
    // If there is no manifest at all, an error that says so is more helpful. Loading the manifest again throws that
    // error.
    const { code } = toHubError(error);
    if (code === "agentNotFound" && isEmpty(manifest))
      await loadManifestLogged(invocation, context, () => {});
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
  context: CommandContext,
  log: CommandLog,
): Promise<AgentFile | undefined> {
  if (name === undefined || manifest.agents?.has(name) === true) return undefined;
  const { openAgentLibrary } = await import("../operations/agent-library.ts");
  const found = await openAgentLibrary(manifest, context, context.cwd).find(name);
  if (found.source === "manifest") return undefined;
  const { describeRestrictions } = await import("../agent-files/agent-file.ts");
  const restrictions = describeRestrictions(found.file);
  for (const problem of found.file.unsupported) log("warn", formatProblem(problem));
  if (restrictions !== undefined) log("warn", restrictions);
  return found.file;
}

/**
 * Chooses the agent to run: the named one, or else the only one.
 * @returns its name
 * @throws {HubError} usage if no agent is named and there are several; agentNotFound; manifestInvalid with the
 * problems of the agent's table
 */
export function chooseAgent(name: string | undefined, { agents }: Manifest): string {
  const names = [...(agents?.keys() ?? [])];
  const chosen = name ?? (names.length === 1 ? names[0] : undefined);
  if (chosen === undefined && names.length > 0)
    throw usageError(`Which agent? There are ${names.join(", ")}.`);
  const spec = agents?.get(chosen ?? "");
  if (spec === undefined) throw agentNotFound(chosen ?? "", names);
  if ("problems" in spec) throw manifestError(spec.problems);
  return spec.name;
}

/**
 * Makes the function that opens a model by its name.
 * @param secrets receives the resolved secrets, so that the caller can redact them
 * @param file the agent file whose agents use the models
 */
export function modelFactory(
  manifest: Pick<Manifest, "models">,
  context: Pick<CommandContext, "env" | "platform" | "cwd">,
  secrets: Set<string>,
  file?: AgentFile,
): (name: string) => Promise<Model> {
  const { env, cwd } = context;
  const schemesFor = openSchemeResolvers(context);
  return async (name) => {
    const { models } = manifest;
    const spec = findModel(name, { models, baseDir: cwd });
    if (spec === undefined && file?.forbiddenModels?.includes(name)) {
      const source = sanitizeLine(file.source);
      const text = `There is no model "${name}" in the manifest, and the one in ${source} is used only if you trust that file.`;
      throw new HubError("agentInvalid", text, {
        hint: `To allow it: toolmux trust ${shellWord(source)}`,
      });
    }
    if (spec === undefined) {
      const more = suggestName(name, [...(models?.keys() ?? [])]);
      const text = `There is no model "${name}".${more}`;
      throw new HubError("agentInvalid", text, {
        hint: "Describe it in the manifest ([models.NAME]), or write PROVIDER/MODEL.",
      });
    }
    if ("problems" in spec) throw manifestError(spec.problems);
    const { baseDir, secretSources } = spec;
    const schemes = schemesFor({ baseDir, ...(secretSources && { secretSources }) }, new Map());
    return createModel(spec, { env, cwd, schemes, secrets });
  };
}

/** Connects to a running hub over MCP, through its control socket. */
async function openRunningHub(
  hub: RunningHub,
  context: CommandContext,
  elicit: AnswerElicitation | undefined,
): Promise<OpenedTools> {
  const info = { name: "toolmux", version: VERSION };
  const client = await connectToHub(hub, info, context.signal, { elicit });
  const origins = async (): Promise<ReadonlyMap<string, ToolOrigin>> => {
    const { tools } = await ask<ToolsDocument>(hub, { path: "/tools" }, context);
    return new Map(tools.map(({ name, server, tool }) => [name, { server, tool }]));
  };
  return {
    toolbox: new McpToolbox(client, origins),
    async servers() {
      const { servers } = await ask<{ readonly servers: readonly ServerDocument[] }>(
        hub,
        { path: "/servers" },
        context,
      );
      return servers.map(({ name, statusText, shown }) => ({
        name,
        state: statusText,
        tools: shown,
      }));
    },
    close: () => client.close(),
  };
}

/** Opens a hub in this process, which starts the servers, and connects to it. */
async function openOwnHub(
  manifest: Manifest,
  context: CommandContext,
  log: CommandLog,
  { elicit, questions, howToBeAsked }: AskedPerson,
): Promise<OpenedTools> {
  const { hub, close } = await openHub(manifest, context, log, {
    kinds: ["log", "alert"],
    snapshots: openSnapshots(context, log, "exact"),
    howToBeAsked,
  });
  try {
    const { toolbox, client } = await connectInside(hub, context.signal, elicit, questions);
    return {
      toolbox,
      servers: () => {
        const { routes } = hub.catalog.tools;
        const lines = hub.status().map(({ server, connections }) => ({
          name: server,
          state: bestConnectionOf(connections)?.state ?? "idle",
          tools: routes.filter((route) => route.server === server).length,
        }));
        return Promise.resolve(lines);
      },
      async close() {
        await client.close();
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Wraps `elicit` so that `questions` counts the elicitations that are not answered yet. */
function countQuestions(elicit: AnswerElicitation, questions: OpenQuestions): AnswerElicitation {
  return async (form, signal) => {
    const end = questions.add();
    try {
      return await elicit(form, signal);
    } finally {
      end();
    }
  };
}

/**
 * Connects agents to a hub in this process. The hub treats them as a client of its operator.
 * @param questions counts the approvals that the calls of this client wait for
 */
export async function connectInside(
  hub: Hub,
  signal: AbortSignal,
  elicit: AnswerElicitation | undefined,
  questions?: OpenQuestions,
): Promise<{
  readonly toolbox: Toolbox;
  readonly client: HubClient;
  /** The client's id in the hub. */
  readonly id: string;
}> {
  const { serverInfo } = hub;
  let id = "";
  const accept = (transport: Transport, ended: AbortSignal): Promise<void> => {
    const open = (): Promise<void> => hub.acceptOperator(transport, ended, (own) => (id = own));
    return questions === undefined ? open() : countApprovals(hub, questions, open);
  };
  const client = await HubClient.connect({ serverInfo, accept }, signal, { elicit });
  const origins = (): Promise<ReadonlyMap<string, ToolOrigin>> => {
    const { entries } = hub.catalog.tools;
    const known = entries.map(
      ({ name, server, remoteName: tool }) => [name, { server, tool }] as const,
    );
    return Promise.resolve(new Map(known));
  };
  return { toolbox: new McpToolbox(client, origins), client, id };
}

/**
 * Runs `accept`, which serves a client until it disconnects. Meanwhile counts the approvals that the client's calls
 * wait for.
 */
async function countApprovals(
  hub: Hub,
  questions: OpenQuestions,
  accept: () => Promise<void>,
): Promise<void> {
  let client: string | undefined;
  const open = new Map<string, () => void>();
  const unsubscribe = hub.subscribe(
    (event) => {
      // The client joins before `accept` returns, so the first client that joins is this one.
      if (event.kind === "client" && event.change === "joined") client ??= event.client;
      if (event.kind !== "approval" || event.client !== client) return;
      open.get(event.id)?.();
      open.delete(event.id);
      if (event.change === "asked") open.set(event.id, questions.add());
    },
    ["client", "approval"],
  );
  try {
    await accept();
  } finally {
    unsubscribe();
    for (const end of open.values()) end();
  }
}

/**
 * Describes the agents of a manifest as documents, with the problem of each agent that cannot be used. Sends no
 * request to a model.
 * @param tools all tools of the hub; undefined: no hub runs, and the documents list no tools
 */
export async function describeAgents(
  manifest: Manifest,
  context: CommandContext,
  tools?: readonly AgentTool[],
): Promise<readonly AgentDocument[]> {
  const valid = validAgents(manifest);
  const problemOf = modelCheck(manifest, context);
  const describe = async (spec: AgentSpec | InvalidAgent): Promise<AgentDocument> => {
    const { name } = spec;
    if ("problems" in spec)
      return { name, usable: false, problem: spec.problems.map(formatProblem).join("\n") };
    const { model, description, instruction, subAgents, handoffs } = spec;
    const own = tools && chooseTools(valid.get(name) ?? spec, tools);
    const line = {
      name,
      model,
      ...(description !== undefined && { description }),
      instruction,
      ...(own && { tools: own.map((tool) => tool.name) }),
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

/**
 * Makes the function that says why a model cannot be used, by its name; undefined: it can. Sends no request to it.
 * @param file the agent file whose agents use the models
 */
export function modelCheck(
  { models }: Pick<Manifest, "models">,
  context: CommandContext,
  file?: AgentFile,
): (name: string) => Promise<string | undefined> {
  const all = file === undefined ? models : modelsFor(file, models);
  const open = modelFactory({ ...(all && { models: all }) }, context, new Set(), file);
  return async (name) => {
    try {
      await open(name);
      return undefined;
    } catch (error) {
      const { message, hint } = toHubError(error);
      return hint === undefined ? message : `${message} ${hint}`;
    }
  };
}

/** The models of a file's agents: those of the file, and those of the manifest that the file does not define. */
export function modelsFor(file: AgentFile, models: Manifest["models"]): Models {
  return new Map([...(models ?? []), ...file.models]);
}
