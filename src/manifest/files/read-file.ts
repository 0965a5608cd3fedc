import { basename } from "node:path";
import { readClientFile } from "./client-file.ts";
import { formatPath, type Problem } from "../problems.ts";
import type { DuplicateKey } from "../syntax/parse.ts";
import type { FileConfig, FileNote, ServerConfig, SourceFile } from "./file-config.ts";
import { readManifestFile, readServers } from "./manifest-file.ts";
import { MAIN_KEYS } from "../schema.ts";
import { createTable, isTable, type Table } from "../table.ts";

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
