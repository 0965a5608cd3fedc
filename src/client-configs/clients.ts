/**
 * Configuration files of MCP clients: reading them, importing servers from them, and installing toolmux into them.
 * `ClientApp` describes one client (where its files are, their format, and how its entries look), and `CLIENTS` lists
 * all clients. Start here, then read `read.ts` (files), `entry-to-manifest.ts` (entries to the manifest's schema),
 * `import-plan.ts` and `install.ts`.
 */
import { isAbsolute, join } from "node:path";
import { type Env, homeFolder } from "../base/paths.ts";
import { type ClientTimeout, timeoutsOfClient } from "../manifest/files/client-timeouts.ts";
import type { Table } from "../manifest/table.ts";
import type { ClientName } from "./client-names.ts";

type ClientDefinition = Pick<ClientApp, "name" | "title" | "user"> & Partial<ClientApp>;

const RESTART_HINT = "Restart it to take the change.";
/** Completes the definition of a client with defaults that are right for most clients. */
function defineClient(entry: ClientDefinition): ClientApp {
  return {
    format: "json",
    placeholders: "none",
    project: [],
    userBase: "workspace",
    limits: timeoutsOfClient(entry.name),
    command: (command, args) => ({ command, args }),
    remote: () => undefined,
    restartHint: RESTART_HINT,
    ...entry,
  };
}

const serverTable = (file: string, ...keys: readonly string[]): ServerTable => ({
  file,
  keys: keys.length > 0 ? keys : ["mcpServers"],
});

/**
 * Makes the function for `ClientApp.remote`. The entries have the URL under `key`, and an Authorization header whose
 * token is a placeholder that the client fills in.
 */
function remoteEntry(
  key: string,
  formatVariable: ((name: string) => string) | undefined,
  fields: Table = {},
): ClientApp["remote"] {
  return (url, variable) => {
    if (variable === undefined) return { ...fields, [key]: url };
    if (formatVariable === undefined) return undefined;
    return {
      ...fields,
      [key]: url,
      headers: { Authorization: `Bearer ${formatVariable(variable)}` },
    };
  };
}
const shellVariable = (name: string): string => `\${${name}}`;
const editorVariable = (name: string): string => `\${env:${name}}`;

const codeUserFolder = ({ support }: ClientFolders, edition: string): string =>
  join(support, edition, "User");

const defineVsCode = (name: ClientName, title: string, edition: string): ClientApp =>
  defineClient({
    name,
    title,
    placeholders: "editor",
    user: (home) => [
      serverTable(join(codeUserFolder(home, edition), "mcp.json"), "servers"),
      serverTable(join(codeUserFolder(home, edition), "settings.json"), "mcp", "servers"),
    ],
    project: [serverTable(".vscode/mcp.json", "servers")],
    userBase: "home",
    command: (command, args) => ({ type: "stdio", command, args }),
    remote: remoteEntry("url", editorVariable, { type: "http" }),
    restartHint: 'Run "MCP: List Servers" in it and start toolmux there.',
  });

const defineGemini = (name: ClientName, title: string, folder: string): ClientApp =>
  defineClient({
    name,
    title,
    placeholders: "shell",
    user: ({ home }) => [serverTable(join(home, folder, "settings.json"))],
    project: [serverTable(`${folder}/settings.json`)],
    remote: remoteEntry("httpUrl", shellVariable),
  });

/**
 * All supported clients. Goose and Continue are missing: their files are YAML, which toolmux cannot edit without losing
 * comments and formatting.
 */
export const CLIENTS: readonly ClientApp[] = [
  defineClient({
    name: "claude-desktop",
    title: "Claude Desktop",
    user: ({ support }) => [serverTable(join(support, "Claude", "claude_desktop_config.json"))],
    restartHint: "Quit it and start it again.",
  }),
  defineClient({
    name: "claude-code",
    title: "Claude Code",
    placeholders: "editor",
    user: ({ home, env }) => {
      const file = join(env["CLAUDE_CONFIG_DIR"] || home, ".claude.json");
      return [serverTable(file), serverTable(file, "projects", "*", "mcpServers")];
    },
    project: [serverTable(".mcp.json")],
    command: (command, args) => ({ type: "stdio", command, args, env: {} }),
    remote: remoteEntry("url", shellVariable, { type: "http" }),
    restartHint: "It takes the change when it is started next.",
  }),
  defineClient({
    name: "cursor",
    title: "Cursor",
    placeholders: "editor",
    user: ({ home }) => [serverTable(join(home, ".cursor", "mcp.json"))],
    project: [serverTable(".cursor/mcp.json")],
    remote: remoteEntry("url", editorVariable),
    restartHint: "Switch toolmux on in its settings (MCP), or restart it.",
  }),
  defineVsCode("vscode", "VS Code", "Code"),
  defineVsCode("vscode-insiders", "VS Code Insiders", "Code - Insiders"),
  defineClient({
    name: "windsurf",
    title: "Windsurf",
    placeholders: "editor",
    user: ({ home }) => [serverTable(join(home, ".codeium", "windsurf", "mcp_config.json"))],
    remote: remoteEntry("serverUrl", editorVariable),
    restartHint: "Refresh the list of servers in its Cascade panel.",
  }),
  defineClient({
    name: "codex",
    title: "Codex",
    format: "toml",
    user: ({ home, env }) => [
      serverTable(join(env["CODEX_HOME"] || join(home, ".codex"), "config.toml"), "mcp_servers"),
    ],
    project: [serverTable(".codex/config.toml", "mcp_servers")],
    remote: (url, variable) =>
      variable === undefined ? { url } : { url, bearer_token_env_var: variable },
    restartHint: "It takes the change when it is started next.",
  }),
  defineClient({
    name: "zed",
    title: "Zed",
    user: ({ config, support, platform }) => {
      const folder = platform === "win32" ? join(support, "Zed") : join(config, "zed");
      return [serverTable(join(folder, "settings.json"), "context_servers")];
    },
    project: [serverTable(".zed/settings.json", "context_servers")],
    command: (command, args) => ({ source: "custom", command, args, env: {} }),
    remote: remoteEntry("url", undefined),
    restartHint: "It applies the change at once.",
  }),
  defineGemini("gemini-cli", "Gemini CLI", ".gemini"),
  defineGemini("qwen-code", "Qwen Code", ".qwen"),
  defineClient({
    name: "antigravity",
    title: "Antigravity",
    placeholders: "editor",
    user: ({ home }) => [serverTable(join(home, ".gemini", "antigravity", "mcp_config.json"))],
    remote: remoteEntry("serverUrl", undefined),
    restartHint: "Refresh the list of servers in its MCP settings.",
  }),
  defineClient({
    name: "cline",
    title: "Cline",
    placeholders: "editor",
    user: (home) => {
      const extension = join(
        codeUserFolder(home, "Code"),
        "globalStorage",
        "saoudrizwan.claude-dev",
      );
      return [
        serverTable(join(extension, "settings", "cline_mcp_settings.json")),
        serverTable(join(home.home, ".cline", "data", "settings", "cline_mcp_settings.json")),
      ];
    },
    command: (command, args) => ({ type: "stdio", command, args, disabled: false }),
    remote: remoteEntry("url", undefined, { type: "streamableHttp", disabled: false }),
    restartHint: "It applies the change at once.",
  }),
  defineClient({
    name: "roo-code",
    title: "Roo Code",
    placeholders: "editor",
    user: (home) => {
      const extension = join(
        codeUserFolder(home, "Code"),
        "globalStorage",
        "rooveterinaryinc.roo-cline",
      );
      return [serverTable(join(extension, "settings", "mcp_settings.json"))];
    },
    project: [serverTable(".roo/mcp.json")],
    remote: remoteEntry("url", editorVariable, { type: "streamable-http" }),
    restartHint: "It applies the change at once.",
  }),
  defineClient({
    name: "lm-studio",
    title: "LM Studio",
    placeholders: "editor",
    user: ({ home }) => [serverTable(join(home, ".lmstudio", "mcp.json"))],
    remote: remoteEntry("url", undefined),
    restartHint: "It applies the change at once.",
  }),
  defineClient({
    name: "opencode",
    title: "opencode",
    placeholders: "braces",
    user: ({ config }) =>
      ["opencode.json", "opencode.jsonc"].map((file) =>
        serverTable(join(config, "opencode", file), "mcp"),
      ),
    project: [serverTable("opencode.json", "mcp"), serverTable("opencode.jsonc", "mcp")],
    command: (command, args) => ({ type: "local", command: [command, ...args], enabled: true }),
    remote: remoteEntry("url", (name) => `{env:${name}}`, { type: "remote", enabled: true }),
    restartHint: "It takes the change when it is started next.",
  }),
  defineClient({
    name: "amazon-q",
    title: "Amazon Q",
    placeholders: "editor",
    user: ({ home }) => [serverTable(join(home, ".aws", "amazonq", "mcp.json"))],
    project: [serverTable(".amazonq/mcp.json")],
    remote: remoteEntry("url", editorVariable, { type: "http" }),
  }),
  defineClient({
    name: "kiro",
    title: "Kiro",
    placeholders: "editor",
    user: ({ home }) => [serverTable(join(home, ".kiro", "settings", "mcp.json"))],
    project: [serverTable(".kiro/settings/mcp.json")],
    remote: remoteEntry("url", shellVariable),
    restartHint: "It applies the change at once.",
  }),
  defineClient({
    name: "copilot-cli",
    title: "Copilot CLI",
    placeholders: "shell",
    user: ({ home }) => [serverTable(join(home, ".copilot", "mcp-config.json"))],
    command: (command, args) => ({ type: "local", command, args, tools: ["*"] }),
    remote: remoteEntry("url", shellVariable, { type: "http", tools: ["*"] }),
    restartHint: "It takes the change when it is started next.",
  }),
  defineClient({
    name: "amp",
    title: "Amp",
    placeholders: "editor",
    user: ({ config }) => [serverTable(join(config, "amp", "settings.json"), "amp.mcpServers")],
    remote: remoteEntry("url", shellVariable),
  }),
];

export function findClientApp(name: string): ClientApp | undefined {
  return CLIENTS.find((client) => client.name === name);
}

/** The folders, absolute, in which clients keep their files. */
export interface ClientFolders {
  readonly home: string;
  /** XDG_CONFIG_HOME or `~/.config`; on macOS, too, because some clients use this folder there. */
  readonly config: string;
  /** The platform's folder for application data: XDG_CONFIG_HOME, `~/Library/Application Support`, or `%APPDATA%`. */
  readonly support: string;
  readonly env: Env;
  readonly platform: string;
}

/** A table in a client's file that lists its servers. */
export interface ServerTable {
  /** Absolute path; in `ClientApp.project` relative to the project's folder. */
  readonly file: string;
  /** The keys that lead to the table of servers in the file; `*` matches any key at its level. */
  readonly keys: readonly string[];
}

/**
 * The form of the placeholders that a client fills in. `editor`: `${env:NAME}`, `${input:…}`, `${workspaceFolder}`.
 * `shell`: `${NAME}`, `${NAME:-default}`, `$NAME`. `braces`: `{env:NAME}`.
 */
export type PlaceholderStyle = "none" | "editor" | "shell" | "braces";

/** A program that starts MCP servers from a configuration file. */
export interface ClientApp {
  readonly name: ClientName;
  readonly title: string;
  readonly format: "json" | "toml";
  readonly placeholders: PlaceholderStyle;
  /**
   * The tables in files of this user. toolmux is installed into the first table whose file exists or, if no file
   * exists, into the first table.
   */
  readonly user: (home: ClientFolders) => readonly ServerTable[];
  /**
   * The tables in files of a project's folder. As with `user`, the first table whose file exists is used, or else the
   * first table.
   */
  readonly project: readonly ServerTable[];
  /**
   * Where relative paths in a file of the user start: in the home folder, or in the folder that the client works in. In
   * a project's file they start at the project's folder.
   */
  readonly userBase: "home" | "workspace";
  readonly limits: readonly ClientTimeout[];
  /** Makes the entry with which the client starts a program. */
  readonly command: (command: string, args: readonly string[]) => Table;
  /**
   * Makes the entry with which the client connects to a URL, with the bearer token from an environment variable if one
   * is given. Returns undefined if the client's file cannot express this.
   */
  readonly remote: (url: string, variable: string | undefined) => Table | undefined;
  /** The step that the user must take for the client to load the change: a whole sentence. */
  readonly restartHint: string;
}

export function clientFoldersOf(env: Env, platform: string): ClientFolders {
  const home = homeFolder(env);
  const xdg = env["XDG_CONFIG_HOME"];
  const config = xdg !== undefined && isAbsolute(xdg) ? xdg : join(home, ".config");
  const roaming = env["APPDATA"] || join(home, "AppData", "Roaming");
  const library = join(home, "Library", "Application Support");
  const support = platform === "darwin" ? library : platform === "win32" ? roaming : config;
  return { home, config, support, env, platform };
}

/** A change of a table of servers in a client's file: the entries that are removed, added or replaced. */
export interface ServerTableChange {
  readonly keys: readonly string[];
  readonly remove: readonly string[];
  readonly set: Readonly<Record<string, Table>>;
}
