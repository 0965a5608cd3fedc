import {
  type AgentFile,
  describeRestrictions,
  shellWord,
  restrictUntrusted,
} from "../../agent-files/agent-file.ts";
import type { AgentLibrary, FoundAgent } from "../../agent-files/agent-library.ts";
import { HubError, usageError } from "../../base/errors.ts";
import type { AgentSpec } from "../../manifest/agents.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { Filter } from "../../manifest/filter.ts";
import { formatProblem, suggestName } from "../../manifest/problems.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { Terminal } from "../../terminal/terminal.ts";
import {
  findTrustable,
  offersFor,
  openLibrary,
  registryOptions,
  type ToolsetOffer,
  type TrustableAgent,
  type TrustedAgent,
} from "../../operations/agent-library.ts";
import { formatEntry, OWN_PREFIX, SHELLS } from "../../agent-files/toolsets.ts";
import type { Table } from "../../manifest/table.ts";
import { isYes, withPrompt } from "../prompt.ts";
import { AGENT_VERBS as VERBS, type CommandContext, type Invocation } from "../command.ts";
import { usability } from "../../host/agent-documents.ts";
import { modelCheck } from "../../host/agent-models.ts";
import { listAgents } from "./agents.ts";
import type { AgentsServeOptions } from "./agents-serve.ts";
import { describeServer } from "../../operations/server-description.ts";

/** The problems of models, by their names; undefined: a model has none. */
type ModelProblems = ReadonlyMap<string, string | undefined>;

interface AgentFilesOptions extends AgentsServeOptions {
  readonly json: boolean;
  readonly yes: boolean;
}

const SERVE_OPTIONS = [
  "http",
  "http-token-env",
  "token",
  "agents-dir",
  "max-sessions",
  "session-timeout",
] as const satisfies readonly (keyof AgentsServeOptions)[];

/** `toolmux agents`: lists agents, shows one, pulls one from a registry, removes it, or serves all as tools. */
export async function agentFiles(
  invocation: Invocation<AgentFilesOptions>,
  context: CommandContext,
): Promise<number> {
  const [word = "list", ...rest] = invocation.args;
  const verb = VERBS.find((one) => one === word);
  if (verb === undefined) {
    const names = VERBS.join(", ");
    throw usageError(`"toolmux agents" needs one of: ${names}.${suggestName(word, VERBS)}`);
  }
  if (verb === "serve") {
    if (rest.length > 0)
      throw usageError("toolmux agents serve takes no name: it serves all agents.");
    if (invocation.options.json) throw usageError("toolmux agents serve prints no JSON.");
    const { serveAgents } = await import("./agents-serve.ts");
    return serveAgents(invocation, context);
  }
  const unused = SERVE_OPTIONS.find((name) => invocation.options[name] !== undefined);
  if (unused !== undefined) throw usageError(`--${unused} is an option of "toolmux agents serve".`);
  if (verb === "list") {
    if (rest.length > 0) throw usageError("toolmux agents list takes no name.");
    return listAgents(invocation, context);
  }
  if (invocation.options.yes && verb !== "add")
    throw usageError('--yes is an option of "toolmux agents add".');
  const { library, manifest } = await openLibrary(invocation, context);
  const { terminal, signal } = context;
  const { json } = invocation.options;
  const [name] = rest;
  if (name === undefined) throw usageError(`Which agent? toolmux agents ${verb} NAME`);
  switch (verb) {
    case "show":
      await showAgent(await library.find(name), json, manifest ?? {}, context);
      return 0;
    case "pull": {
      const { reference, digest } = await library.pull(
        name,
        registryOptions(manifest, context),
        signal,
      );
      if (json) terminal.printJson({ reference, digest });
      else {
        terminal.printWrapped(`pulled ${reference} (${digest})`);
        const found = await library.find(reference);
        if (found.source !== "manifest") noteFile(found.file, terminal);
      }
      return 0;
    }
    case "add":
      return addAgent(name, invocation, manifest, context);
    case "remove":
      return removeAgent(name, library, json, context);
  }
}

/** `toolmux agents add`: trusts an agent's file once a person has seen what its agents may do, and chosen their servers. */
async function addAgent(
  name: string,
  invocation: Invocation<AgentFilesOptions>,
  manifest: Manifest | undefined,
  context: CommandContext,
): Promise<number> {
  const { terminal, signal } = context;
  const { yes, json } = invocation.options;
  const found = await findTrustable(name, invocation, context);
  if (found === undefined) {
    const text = `There is no file of agents ${JSON.stringify(name)}.`;
    throw new HubError("agentNotFound", text);
  }
  const offers = offersFor(found, manifest);
  const all = {
    ...found.toolsets,
    ...Object.fromEntries(
      offers.flatMap(({ type, settings }) => (settings ? [[type, settings]] : [])),
    ),
  };
  if (!json) {
    terminal.printWrapped(`If you add ${sanitizeLine(found.file.source)}, its agents may use:`);
    printUses(found.provide(all), terminal);
  }
  const chosen = yes ? all : await confirmAgent(found, offers, signal);
  if (chosen === undefined) {
    throw usageError("Nothing was added: to confirm, add --yes.");
  }
  if (chosen === "no") {
    terminal.note("Nothing was added.");
    return 2;
  }
  const trusted = await found.trust(chosen);
  if (json) {
    const { source, servers, permissions } = trusted.file;
    terminal.printJson({
      file: source,
      toolsets: chosen,
      servers: servers.map(describeServer),
      allows: permissions?.allow.map(({ text }) => text) ?? [],
    });
  }
  if (!json) printTrustedAgent(trusted, terminal);
  for (const problem of trusted.file.unsupported)
    terminal.note(sanitizeLine(formatProblem(problem)));
  return 0;
}

/**
 * Asks for each toolset without a server whether it gets the one that is offered, then whether to trust the file.
 * @returns the chosen servers by toolset; undefined without a terminal
 */
function confirmAgent(
  { file, toolsets }: TrustableAgent,
  offers: readonly ToolsetOffer[],
  signal: AbortSignal,
): Promise<Table | "no" | undefined> {
  return withPrompt(signal, async (ask) => {
    const chosen: Record<string, unknown> = { ...toolsets };
    for (const { type, settings } of offers) {
      if (settings === undefined) continue;
      const how = sanitizeLine(formatEntry(settings));
      if (isYes(await ask(`Provide the toolset ${sanitizeLine(type)} with ${how}? [y/N]`)))
        chosen[type] = settings;
    }
    const answer = await ask(`Trust ${sanitizeLine(file.source)} as it is now? [y/N]`);
    return isYes(answer) ? chosen : "no";
  });
}

async function removeAgent(
  name: string,
  library: AgentLibrary,
  json: boolean,
  { terminal, signal }: CommandContext,
): Promise<number> {
  const stored = await library.store.find(name);
  if (stored === undefined) {
    const text = `No agent that was pulled is named ${JSON.stringify(name)}. To see all: toolmux agents list`;
    throw new HubError("agentNotFound", text);
  }
  await library.store.remove(stored, signal);
  const { reference, digest } = stored;
  if (json) terminal.printJson({ reference, digest });
  else terminal.printWrapped(`removed ${reference}`);
  return 0;
}

/** Prints what is known about an agent, or about all agents of its file, with the problems of their models. */
async function showAgent(
  found: FoundAgent,
  json: boolean,
  manifest: Pick<Manifest, "models">,
  context: CommandContext,
): Promise<void> {
  const { terminal } = context;
  const file = found.source === "manifest" ? undefined : found.file;
  const problemOf = modelCheck(manifest, context, file);
  const problems = new Map<string, string | undefined>();
  const specs = found.source === "manifest" ? [found.spec] : specsOf(found.file);
  for (const { model } of specs) problems.set(model, await problemOf(model));
  if (json) {
    terminal.printJson(documentOf(found, problems));
    return;
  }
  if (found.source === "manifest") {
    printSpec(found.spec, problems, terminal);
    return;
  }
  terminal.print(sanitizeLine(found.file.source));
  if (found.source === "store") terminal.printWrapped(`digest: ${found.stored.digest}`);
  for (const { spec, ownTools, builtIns, prompts } of found.file.agents.values()) {
    terminal.print();
    const suffix = spec.name === found.file.entry ? " (entry)" : "";
    printSpec(spec, problems, terminal, ownTools, suffix);
    if (builtIns.length > 0) terminal.printWrapped(`  built-in tools: ${builtIns.join(", ")}`);
    const commands = [...(prompts?.keys() ?? [])].map((name) => sanitizeLine(`/${name}`));
    if (commands.length > 0) terminal.printWrapped(`  prompts: ${commands.join(", ")}`);
  }
  if (found.file.servers.length > 0) {
    terminal.print();
    terminal.printWrapped("servers of each session:");
    for (const spec of found.file.servers)
      terminal.print(`  ${sanitizeLine(spec.name)}: ${sanitizeLine(describeServer(spec))}`);
  }
  noteFile(found.file, terminal);
}

const specsOf = ({ agents }: AgentFile): readonly AgentSpec[] =>
  [...agents.values()].map(({ spec }) => spec);

function printSpec(
  { name, model, description, tools, subAgents, handoffs }: AgentSpec,
  problems: ModelProblems,
  terminal: Terminal,
  ownTools?: Filter,
  suffix = "",
): void {
  terminal.printWrapped(
    `${sanitizeLine(name)}${suffix}: ${sanitizeLine(description ?? "")}`.trimEnd(),
  );
  terminal.printWrapped(`  model: ${sanitizeLine(model)}`);
  const problem = problems.get(model);
  if (problem !== undefined) terminal.printWrapped(`  not usable: ${sanitizeLine(problem)}`);
  // In TOML and JSON, one filter selects from both; in YAML, each has its own.
  const selections =
    tools !== undefined && tools === ownTools
      ? { "the hub and of its own servers": tools }
      : { "the hub": tools, "its own servers": ownTools };
  for (const [owner, filter] of Object.entries(selections)) {
    if (filter !== undefined)
      terminal.printWrapped(`  tools of ${owner}: ${sanitizeLine(JSON.stringify(filter))}`);
  }
  if (subAgents.length > 0)
    terminal.printWrapped(`  gives tasks to: ${sanitizeLine(subAgents.join(", "))}`);
  if (handoffs.length > 0)
    terminal.printWrapped(`  hands over to: ${sanitizeLine(handoffs.join(", "))}`);
}

/**
 * Prints notes about the parts of an agent file that toolmux does not support, or does not use until the user trusts
 * the file.
 */
function noteFile(file: AgentFile, terminal: Terminal): void {
  for (const problem of file.unsupported) terminal.note(sanitizeLine(formatProblem(problem)));
  const restrictions = describeRestrictions(file);
  if (restrictions !== undefined) terminal.note(restrictions);
}

function documentOf(found: FoundAgent, problems: ModelProblems): object {
  const describe = (spec: AgentSpec): object => ({
    ...spec,
    ...usability(problems.get(spec.model)),
  });
  if (found.source === "manifest") return { source: "manifest", agents: [describe(found.spec)] };
  const { file, source } = found;
  return {
    source,
    file: file.source,
    ...(found.source === "store" && { digest: found.stored.digest }),
    entry: file.entry,
    agents: [...file.agents.values()].map((agent) => ({
      ...describe(agent.spec),
      ownTools: agent.ownTools,
      builtIns: agent.builtIns,
      ...(agent.welcomeMessage !== undefined && { welcomeMessage: agent.welcomeMessage }),
      ...(agent.prompts && { prompts: [...agent.prompts.keys()] }),
    })),
    models: [...file.models.values()].map(({ name, provider, model }) => ({
      name,
      provider,
      model,
    })),
    servers: file.servers.map(({ name, kind }) => ({ name, kind })),
    unsupported: file.unsupported.map(({ path, position, message }) => {
      return { path, line: position?.line, column: position?.column, message };
    }),
    trusted: file.forbiddenActions.length === 0,
    withheld: file.forbiddenActions,
  };
}

/** Prints what an agent may do from now on. Commands are not masked: the user must see them in full. */
export function printTrustedAgent({ file, digest }: TrustedAgent, terminal: Terminal): void {
  const until = digest === undefined ? "Until its content changes" : "With this digest";
  terminal.printWrapped(
    `trusted: ${sanitizeLine(file.source)}${digest === undefined ? "" : ` (${digest})`}`,
  );
  if (restrictUntrusted(file).forbiddenActions.length === 0 && !usesToolsets(file)) {
    terminal.printWrapped("It runs no command, and reaches no URL of its own.");
    return;
  }
  terminal.printWrapped(`${until}, its agents may use:`);
  printUses(file, terminal);
}

const usesToolsets = ({ toolsetsByServer }: AgentFile): boolean =>
  toolsetsByServer !== undefined && toolsetsByServer.size > 0;

/** Prints the servers, models and rules of a file, one a line. */
function printUses(file: AgentFile, terminal: Terminal): void {
  for (const spec of file.servers) {
    const texts =
      spec.kind === "stdio" ? [spec.command, ...spec.args].map(shellWord).join(" ") : spec.url;
    terminal.printWrapped(`  server ${sanitizeLine(spec.name)}: ${sanitizeLine(texts)}`);
    const names = Object.entries(spec.kind === "stdio" ? spec.env : spec.headers);
    for (const [name, value] of names)
      terminal.printWrapped(`    ${sanitizeLine(name)}=${sanitizeLine(value)}`);
  }
  for (const { name, url, apiKey, script } of file.models.values()) {
    const parts = [url, apiKey, script].filter((part) => part !== undefined);
    if (parts.length > 0)
      terminal.printWrapped(`  model ${sanitizeLine(name)}: ${parts.map(sanitizeLine).join(" ")}`);
  }
  for (const [server, types] of file.toolsetsByServer ?? []) {
    const isOwn = server.startsWith(OWN_PREFIX);
    const name = isOwn ? server.slice(OWN_PREFIX.length) : `${server} of the manifest`;
    for (const type of types) {
      const each = SHELLS.includes(type) ? "; a person has to allow each call" : "";
      terminal.printWrapped(`  toolset ${sanitizeLine(type)}: server ${sanitizeLine(name)}${each}`);
    }
  }
  const { permissions } = file;
  for (const { text } of permissions?.allow ?? [])
    terminal.printWrapped(
      `  without asking, except for a shell: calls that match ${sanitizeLine(text)}`,
    );
  for (const { text } of permissions?.deny ?? [])
    terminal.printWrapped(`  never: calls that match ${sanitizeLine(text)}`);
}
