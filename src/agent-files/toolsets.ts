import { dirname, isAbsolute, resolve, sep } from "node:path";
import { ownCommand } from "../base/runtime.ts";
import type { Filter } from "../manifest/filter.ts";
import type { SourceFile } from "../manifest/files/file-config.ts";
import { readServers } from "../manifest/files/manifest-file.ts";
import { type ExternalServer, isExternal } from "../manifest/manifest.ts";
import { mergeConfigs } from "../manifest/merge/merge.ts";
import type { Problem } from "../manifest/problems.ts";
import { createTable, isTable, type Table } from "../manifest/table.ts";
import type { ToolsetMappings } from "../manifest/toolsets.ts";
import type { AgentDefinition, AgentFile, ToolsetUse } from "./agent-file.ts";

/** The toolset that runs the commands that a model writes. */
export const SHELL = "shell";

/** The toolsets that run commands: a person has to allow each of their calls. */
export const SHELLS: readonly string[] = [SHELL, "script"];

/** The toolsets that work on files, and so need a folder. */
const NEEDS_FOLDER = ["filesystem", SHELL];

/** A command of a toolset `script`. */
export interface Script {
  /** The name of its tool. */
  readonly name: string;
  readonly cmd: string;
  readonly description?: string | undefined;
  /** The JSON Schemas of its arguments, which the command gets as environment variables. */
  readonly args: Table;
  readonly required: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly workingDir?: string | undefined;
}

/** The argument that stands for the roots, each as an argument of its own. */
export const ROOTS_ARGUMENT = "${roots}";

/**
 * What `agents add` offers for a toolset that the manifest does not map. Each was tried; the versions are those that the
 * package's registry gives.
 */
export const OFFERED_TOOLSETS: Readonly<Record<string, Table>> = {
  filesystem: {
    command: "npx",
    args: ["-y", "@modelcontextprotocol/server-filesystem", ROOTS_ARGUMENT],
  },
  fetch: { command: "uvx", args: ["mcp-server-fetch"] },
  shell: { command: "npx", args: ["-y", "mcp-server-commands"] },
};

/** The settings that apply to the toolsets of a file. */
export interface ToolsetSettings {
  readonly mappings: ToolsetMappings;
  /** Whether a person has trusted this content of the file, knowing that it asks for a shell. */
  readonly mayUseShell: boolean;
  /** Folders that no server of a toolset may work in by default, because what is in them is trusted. */
  readonly ownFolders: readonly string[];
}

/**
 * The file with servers for its toolsets, as the settings say. Toolsets without one are named in `unsupported`, with the
 * line that would add it; a shell that is not trusted is named in `forbiddenActions`.
 */
export function provideToolsets(file: AgentFile, settings: ToolsetSettings): AgentFile {
  const { toolsets = [] } = file;
  if (toolsets.length === 0) return file;
  const provided = new Map<string, Provider>();
  const unsupported: Problem[] = [...file.unsupported];
  const forbiddenActions: string[] = [...file.forbiddenActions];
  const servers: ExternalServer[] = [...file.servers];
  const agents = new Map(file.agents);
  const toolsetsByServer = new Map<string, string[]>();
  for (const use of toolsets) {
    const { agent, type, place } = use;
    const key = use.scripts === undefined ? type : JSON.stringify([type, use.scripts]);
    let provider = provided.get(key);
    if (provider === undefined) {
      provider = providerOf(use, file, settings, servers);
      if (SHELLS.includes(type) && !settings.mayUseShell && provider.kind !== "none") {
        forbiddenActions.push(`run commands in a shell (toolset ${type})`);
        provider = { kind: "none", message: undefined };
      }
      provided.set(key, provider);
      if (provider.kind === "own") servers.push(provider.server);
      const name = nameOf(provider);
      if (name !== undefined)
        toolsetsByServer.set(name, [...(toolsetsByServer.get(name) ?? []), type]);
    }
    if (provider.kind === "none") {
      const { message } = provider;
      if (message !== undefined) unsupported.push({ ...place, message });
      continue;
    }
    const definition = agents.get(agent);
    if (definition !== undefined) agents.set(agent, withToolset(definition, provider, use));
  }
  return { ...file, agents, servers, unsupported, forbiddenActions, toolsetsByServer };
}

type Provider =
  | { readonly kind: "none"; readonly message: string | undefined }
  | { readonly kind: "hub"; readonly name: string }
  | { readonly kind: "own"; readonly server: ExternalServer };

/** The name of the provider's server in `toolsetsByServer`. */
function nameOf(provider: Provider): string | undefined {
  if (provider.kind === "none") return undefined;
  return provider.kind === "hub" ? provider.name : OWN_PREFIX + provider.server.name;
}

/** The prefix that names of the file's own servers have beside those of the hub. */
export const OWN_PREFIX = "own/";

function providerOf(
  { type, scripts }: ToolsetUse,
  file: AgentFile,
  { mappings, ownFolders }: ToolsetSettings,
  servers: readonly ExternalServer[],
): Provider {
  const mapping = mappings.get(type);
  const none = (message: string): Provider => ({ kind: "none", message });
  if (mapping === undefined && scripts !== undefined) return scriptProvider(scripts, file, servers);
  if (mapping === undefined)
    return none(`no server provides the toolset "${type}"${adviceFor(type)}`);
  if ("server" in mapping) return { kind: "hub", name: mapping.server };
  const folder = isAbsolute(file.source) ? dirname(file.source) : undefined;
  const isOwn = folder !== undefined && ownFolders.some((own) => isRelated(folder, own));
  const defaultRoots = folder === undefined || isOwn ? undefined : [folder];
  const roots = mapping.roots ?? defaultRoots;
  const { args } = mapping.entry;
  const usesRoots = Array.isArray(args) && args.includes(ROOTS_ARGUMENT);
  if (roots === undefined && (usesRoots || NEEDS_FOLDER.includes(type))) {
    const why = isOwn ? "the file's folder belongs to toolmux" : "the file has no folder";
    return none(
      `the toolset "${type}" has no folder to work in, as ${why}; add to the manifest: [agentFiles.toolsets.${type}] with roots = ["/path/of/a/folder"]`,
    );
  }
  const name = freeName(type, servers);
  const cwd = mapping.entry["cwd"] ?? roots?.[0];
  const entry: Table = {
    ...mapping.entry,
    ...(mapping.entry["url"] === undefined && cwd !== undefined && { cwd: templateOf(cwd) }),
    ...(Array.isArray(args) && {
      args: args.flatMap((arg: unknown) =>
        arg === ROOTS_ARGUMENT ? (roots ?? []).map(templateOf) : [arg],
      ),
    }),
  };
  const source = { file: file.source, baseDir: mapping.baseDir };
  const { servers: read, problems } = readExternalServers({ [name]: entry }, source);
  const [server] = read;
  if (server === undefined || problems.length > 0)
    return none(
      `the server of agentFiles.toolsets.${type} cannot be used: ${problems[0]?.message ?? "it is disabled"}`,
    );
  return { kind: "own", server };
}

/** The server of the commands of a file, which toolmux itself is. */
function scriptProvider(
  scripts: readonly Script[],
  { source }: AgentFile,
  servers: readonly ExternalServer[],
): Provider {
  const name = freeName("script", servers);
  const folder = isAbsolute(source) ? dirname(source) : undefined;
  const [command, ...first] = ownCommand();
  const args = [...first, "internal", "script-server", JSON.stringify(scripts)];
  const entry = {
    command: templateOf(command),
    args: args.map(templateOf),
    ...(folder !== undefined && { cwd: templateOf(folder) }),
  };
  const [server] = readExternalServers(
    { [name]: entry },
    { file: source, baseDir: folder ?? "/" },
  ).servers;
  return server === undefined
    ? { kind: "none", message: "the commands of the toolset cannot be used" }
    : { kind: "own", server };
}

/** A text in which `${` stands for itself. */
function templateOf(text: unknown): unknown {
  return typeof text === "string" ? text.replaceAll("${", () => "$${") : text;
}

/** The line that would provide a toolset, as the end of a message. */
function adviceFor(type: string): string {
  const offered = Object.hasOwn(OFFERED_TOOLSETS, type) ? OFFERED_TOOLSETS[type] : undefined;
  const line = `${/^[\w-]+$/.test(type) ? type : JSON.stringify(type)} = ${offered === undefined ? '{ server = "NAME" }' : formatEntry(offered)}`;
  return `; add to [agentFiles.toolsets] of the manifest: ${line}`;
}

/** Settings of a server as an inline table of TOML. */
export function formatEntry(entry: Table): string {
  const members = Object.entries(entry).map(([key, value]) => {
    const list = Array.isArray(value) ? (value as readonly unknown[]) : undefined;
    const text = list
      ? `[${list.map((item) => JSON.stringify(item)).join(", ")}]`
      : isTable(value)
        ? formatEntry(value)
        : JSON.stringify(value);
    return `${key} = ${text}`;
  });
  return `{ ${members.join(", ")} }`;
}

/** Whether one of two folders contains the other, or they are the same. */
function isRelated(a: string, b: string): boolean {
  const [one, other] = [a, b].map((path) => resolve(path) + sep);
  return (
    one !== undefined && other !== undefined && (one.startsWith(other) || other.startsWith(one))
  );
}

function freeName(type: string, servers: readonly ExternalServer[]): string {
  const base = type.replaceAll(/[^A-Za-z0-9]+/g, "-").replaceAll(/^-|-$/g, "") || "toolset";
  let free = base;
  for (let number = 2; servers.some(({ name }) => name === free); number++)
    free = `${base}-${number}`;
  return free;
}

/** The agent with the tools of a toolset. */
function withToolset(
  agent: AgentDefinition,
  provider: Exclude<Provider, { readonly kind: "none" }>,
  { tools, model }: ToolsetUse,
): AgentDefinition {
  const server = nameOf(provider) ?? "";
  const toolModels =
    model === undefined
      ? agent.spec.toolModels
      : new Map([...(agent.spec.toolModels ?? []), [server, model]]);
  const spec = { ...agent.spec, ...(toolModels && { toolModels }) };
  const name = provider.kind === "hub" ? provider.name : provider.server.name;
  const filter: Filter =
    tools === undefined ? { servers: [name] } : { ids: tools.map((tool) => `${name}.${tool}`) };
  if (provider.kind === "own") return { ...agent, spec, ownTools: either(agent.ownTools, filter) };
  return { ...agent, spec: { ...spec, tools: either(spec.tools, filter) } };
}

function either(filter: Filter | undefined, other: Filter): Filter {
  if (filter === undefined) return other;
  return filter === "all" ? filter : { or: [filter, other] };
}

/**
 * Reads servers that only one session runs.
 * @returns the servers without problems; the paths of the problems begin with the name of the server
 */
export function readExternalServers(
  table: Table,
  source: SourceFile,
): { readonly servers: readonly ExternalServer[]; readonly problems: readonly Problem[] } {
  const copy = Object.assign(createTable<unknown>(), table);
  const { servers, problems, schemeProblems } = readServers(copy, source, []);
  const all = [...problems, ...schemeProblems];
  const usable = new Map(servers);
  for (const { path } of all) usable.delete(String(path[0]));
  const config = { ...source, hub: {}, defaults: {}, plugins: [], notes: [], servers: usable };
  const merged = mergeConfigs([{ ...config, problems: [], schemeProblems: [] }]);
  return { servers: merged.servers.filter(isExternal), problems: all };
}
