import { basename } from "node:path";
import { readClientFile } from "./client-file.ts";
import type { TemplateSyntax } from "./interpolate.ts";
import type { PackageSpec, Runner } from "./package.ts";
import { formatPath, type KeyPath, type Problem } from "./problems.ts";
import type { HttpToken } from "./manifest.ts";
import type { ModeConfig } from "./modes.ts";
import type { NamedClientConfig } from "./named-clients.ts";
import type { DuplicateKey } from "./parse.ts";
import { readManifestFile, readServers } from "./read.ts";
import {
  type AgentFilesInput,
  type AgentInput,
  type HubInput,
  type DefaultsInput,
  type ModelInput,
  type PluginInput,
  type SecretSettings,
  type ServerInput,
  MAIN_KEYS,
} from "./schema.ts";
import { createTable, isTable, type Table } from "./table.ts";

/** The file that settings come from. */
export interface SourceFile {
  /** The absolute path of the file, or the name of the environment variable that holds the settings. */
  readonly file: string;
  /** The folder where relative paths start; absolute. */
  readonly baseDir: string;
}

/** A server as configured in one file, before defaults and other files are applied. */
export type ServerConfig = SourceFile & {
  readonly name: string;
  readonly path: KeyPath;
} & (
    | {
        readonly kind: "stdio";
        readonly syntax: TemplateSyntax;
        readonly launch: LaunchConfig;
        readonly input: ServerInput;
      }
    | {
        readonly kind: "remote";
        readonly syntax: TemplateSyntax;
        readonly url: string;
        readonly input: ServerInput;
      }
    | {
        readonly kind: "plugin";
        /** The name of the plugin that provides the server. */
        readonly plugin: string;
        readonly input: ServerInput;
      }
    | { readonly kind: "unsupported"; readonly enabled: boolean; readonly reason: string }
  );

/** The program that a server starts: a command, or the runner of a package. */
export type LaunchConfig =
  | { readonly kind: "command"; readonly command: string }
  | {
      readonly kind: "package";
      readonly package: PackageSpec;
      readonly runner: Runner | undefined;
    };

/** A plugin as configured in one file. */
export interface PluginConfig {
  readonly path: KeyPath;
  readonly input: PluginInput;
}

/** A model as configured in one file. */
export interface ModelConfig extends SourceFile {
  readonly name: string;
  readonly path: KeyPath;
  /** The validated table; undefined if it has problems. */
  readonly input: ModelInput | undefined;
}

/** The places of agent files, as configured in one file. Relative paths start at the folder of that file. */
export interface AgentFilesConfig extends SourceFile, AgentFilesInput {}

/** An agent as configured in one file. */
export interface AgentConfig extends SourceFile {
  readonly name: string;
  readonly path: KeyPath;
  /** The validated table; undefined if it has problems. */
  readonly input: AgentInput | undefined;
}

/**
 * The validated content of one file, or of the environment variable `TOOLMUX_SERVERS`, without the parts that have
 * problems.
 */
export interface FileConfig extends SourceFile {
  readonly hub: HubInput;
  /** `hub.httpToken`: the token that HTTP clients must send. */
  readonly httpToken?: HttpToken | undefined;
  readonly defaults: DefaultsInput;
  readonly registries?: readonly string[] | undefined;
  /** The settings of the table `secrets`; absent in files that are not manifests. */
  readonly secrets?: SecretSettings;
  /** The servers by name. */
  readonly servers: ReadonlyMap<string, ServerConfig>;
  /** The models by name; absent in files that are not manifests. */
  readonly models?: ReadonlyMap<string, ModelConfig>;
  /** The agents by name; absent in files that are not manifests. */
  readonly agents?: ReadonlyMap<string, AgentConfig>;
  /** The places of agent files; undefined if the file does not set them. */
  readonly agentFiles?: AgentFilesConfig | undefined;
  readonly plugins: readonly PluginConfig[];
  /** The modes by name; absent in files that are not manifests. */
  readonly modes?: ReadonlyMap<string, ModeConfig>;
  /** The clients of the array `clients`; absent in files that are not manifests. */
  readonly clients?: readonly NamedClientConfig[];
  readonly problems: readonly Problem[];
  /**
   * The problems of placeholders with unknown schemes. They count only if the manifest has no plugins, because a plugin
   * may know the scheme.
   */
  readonly schemeProblems: readonly Problem[];
  /** Notes for the user that do not make anything invalid. */
  readonly notes: readonly FileNote[];
}

/** A note about a file, or about the place at `path` in it. */
export interface FileNote {
  /** Empty: the whole file. */
  readonly path: KeyPath;
  /** Without the file's name and a final period. */
  readonly text: string;
}

/**
 * Reads the content of `source`: a manifest, or a client's file if it looks like one. Null is an absent key.
 * `duplicates`: the keys that occur twice.
 */
export function readConfigFile(
  document: unknown,
  source: SourceFile,
  duplicates: readonly DuplicateKey[] = [],
): FileConfig {
  const { file } = source;
  const root = isTable(document) ? withoutNullKeys(document) : document;
  const isClientFileName = /^\.?mcp\.json$/.test(basename(file));
  if (!isTable(root) || !(isClientFileName || "mcpServers" in root || "inputs" in root)) {
    const foreign = isTable(root) ? foreignProblem(root, file) : undefined;
    const { baseDir } = source;
    if (foreign !== undefined) return { ...EMPTY, file, baseDir, problems: [foreign] };
    const config = readManifestFile(root, source);
    return { ...config, problems: [...duplicateProblems(duplicates, file), ...config.problems] };
  }
  const config = readClientFile(root, source);
  const notes = [...config.notes, ...duplicates.flatMap(describeDuplicate)];
  if (isClientFileName || !("mcpServers" in root && "servers" in root)) return { ...config, notes };
  const message = `cannot be in the same file as "servers"; move all servers into one of the two`;
  const conflict: Problem = { file, path: ["mcpServers"], at: "key", message };
  return { ...config, problems: [conflict, ...config.problems], notes };
}

/** The table without its own keys whose value is null: they are absent. */
function withoutNullKeys(table: Table): Table {
  if (!Object.values(table).includes(null)) return table;
  const present = createTable<unknown>();
  for (const [key, value] of Object.entries(table)) if (value !== null) present[key] = value;
  return present;
}

const EMPTY = {
  hub: {},
  defaults: {},
  servers: new Map<string, ServerConfig>(),
  plugins: [],
  problems: [],
  schemeProblems: [],
  notes: [],
} as const;

/** A client whose own configuration file is not read as a manifest: only `toolmux import` knows its form. */
interface ForeignFile {
  /** The client's name for `toolmux import`. */
  readonly client: string;
  readonly title: string;
  /** The key of the table of servers that only this client's file has. */
  readonly key?: string;
  readonly path: RegExp;
}

const FOREIGN_FILES: readonly ForeignFile[] = [
  { client: "codex", title: "Codex", key: "mcp_servers", path: /\/\.codex\/config\.toml$/ },
  { client: "zed", title: "Zed", key: "context_servers", path: /\/\.?zed\/settings\.json$/i },
  { client: "amp", title: "Amp", key: "amp.mcpServers", path: /\/amp\/settings\.jsonc?$/ },
  { client: "opencode", title: "opencode", key: "mcp", path: /\/opencode\.jsonc?$/ },
  { client: "vscode", title: "VS Code", path: /\/(?:User|\.vscode)\/settings\.json$/ },
  { client: "claude-code", title: "Claude Code", path: /\/\.claude\.json$/ },
  { client: "claude-desktop", title: "Claude Desktop", path: /\/claude_desktop_config\.json$/ },
  { client: "gemini-cli", title: "Gemini CLI", path: /\/\.gemini\/settings\.json$/ },
  { client: "qwen-code", title: "Qwen Code", path: /\/\.qwen\/settings\.json$/ },
];

/** The problem of a file that is another client's, by its path or by its table of servers. */
function foreignProblem(root: Table, file: string): Problem | undefined {
  if ("servers" in root) return undefined;
  const found =
    FOREIGN_FILES.find(({ path }) => path.test(file)) ??
    FOREIGN_FILES.find(({ key }) => key !== undefined && isTable(root[key]));
  if (found === undefined) return undefined;
  const { client, title, key } = found;
  const isNamed = key !== undefined && key in root;
  const what = isNamed
    ? `a table of ${title}'s configuration file`
    : `${title}'s configuration file`;
  const message = `this is ${what}, not a manifest; to take over its servers, run: toolmux import ${client}`;
  return { file, path: isNamed ? [key] : [], at: "key", message };
}

/**
 * Reads the content of `TOOLMUX_SERVERS`: an object of servers in the manifest's schema, or an object that holds the
 * servers under `servers` or `mcpServers`.
 */
export function readConfigVariable(
  root: unknown,
  source: SourceFile,
  duplicates: readonly DuplicateKey[],
): FileConfig {
  if (isWrapped(root)) return readConfigFile(root, source, duplicates);
  const { file, baseDir } = source;
  const serverTable = readServers(root, source, []);
  const problems = [...duplicateProblems(duplicates, file), ...serverTable.problems];
  return { file, baseDir, hub: {}, defaults: {}, plugins: [], ...serverTable, problems, notes: [] };
}

/**
 * Whether the only key, `servers` or `mcpServers`, contains the servers and is not itself a server of that name: a
 * server has a text under `command`, `url`, …, and a table of servers has only tables.
 */
function isWrapped(root: unknown): boolean {
  if (!isTable(root)) return false;
  const [key = "", ...others] = Object.keys(root);
  const inner = root[key];
  const isKnown = key === "servers" || key === "mcpServers";
  const isServer =
    isTable(inner) && MAIN_KEYS.some((main) => main in inner && !isTable(inner[main]));
  return isKnown && others.length === 0 && isTable(inner) && !isServer;
}

function duplicateProblems(duplicates: readonly DuplicateKey[], file: string): readonly Problem[] {
  return duplicates.map((key) => ({
    file,
    ...key,
    at: "key",
    message: "is set twice; remove one of the two",
  }));
}

/**
 * A note about a server that occurs twice in a client's file. Other duplicate keys get no note, because MCP clients
 * silently use the last one.
 */
function describeDuplicate({ path }: DuplicateKey): readonly FileNote[] {
  const isServer = path[0] === "mcpServers" || path[0] === "servers";
  const text = `${formatPath(path)} is set twice; the last one counts`;
  return isServer ? [{ path: [], text }] : [];
}
