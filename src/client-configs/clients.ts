/**
 * Configuration files of MCP clients: reading, importing from and installing into them.
 * `ClientApp` describes one client: where its files are, their format, and how its entries look; `CLIENTS` is the table
 * of all. Start here, then read `read.ts` (files), `entry.ts` (entries to the manifest's schema), `import-plan.ts` and
 * `install.ts`.
 */

import { join } from "node:path";
import type { Table } from "../manifest/table.ts";
import type { Client, Home, Limit, Spot } from "./client.ts";
import type { ClientName } from "./client-names.ts";

/*
 * All supported clients. Goose and Continue are missing: their files are YAML, which cannot be edited here without
 * losing comments and formatting.
 */

type Entry = Pick<Client, "name" | "title" | "user"> & Partial<Client>;

const RESTART = "Restart it to take the change.";
const MS = (key: string, limit: Limit["limit"]): Limit => ({ key, unit: 1, limit });
const SECONDS = (key: string, limit: Limit["limit"]): Limit => ({ key, unit: 1000, limit });

/** Fills in what most clients have in common. */
function define(entry: Entry): Client {
  return {
    format: "json",
    forms: "none",
    project: [],
    limits: [],
    command: (command, args) => ({ command, args }),
    remote: () => undefined,
    advice: RESTART,
    ...entry,
  };
}

const at = (file: string, ...keys: readonly string[]): Spot => ({
  file,
  keys: keys.length > 0 ? keys : ["mcpServers"],
});

/** An entry with the URL under that key and the token in an Authorization header, as a placeholder of the client. */
function goTo(
  key: string,
  form: ((name: string) => string) | undefined,
  more: Table = {},
): Client["remote"] {
  return (url, variable) => {
    if (variable === undefined) return { ...more, [key]: url };
    if (form === undefined) return undefined;
    return { ...more, [key]: url, headers: { Authorization: `Bearer ${form(variable)}` } };
  };
}
const bare = (name: string): string => `\${${name}}`;
const spelled = (name: string): string => `\${env:${name}}`;

const code = ({ support }: Home, edition: string): string => join(support, edition, "User");

const vscode = (name: ClientName, title: string, edition: string): Client =>
  define({
    name,
    title,
    forms: "editor",
    user: (home) => [
      at(join(code(home, edition), "mcp.json"), "servers"),
      at(join(code(home, edition), "settings.json"), "mcp", "servers"),
    ],
    project: [at(".vscode/mcp.json", "servers")],
    command: (command, args) => ({ type: "stdio", command, args }),
    remote: goTo("url", spelled, { type: "http" }),
    advice: 'Run "MCP: List Servers" in it and start toolmux there.',
  });

const gemini = (name: ClientName, title: string, folder: string): Client =>
  define({
    name,
    title,
    forms: "dollar",
    user: ({ home }) => [at(join(home, folder, "settings.json"))],
    project: [at(`${folder}/settings.json`)],
    limits: [MS("timeout", "callTimeout")],
    remote: goTo("httpUrl", bare),
  });

export const CLIENTS: readonly Client[] = [
  define({
    name: "claude-desktop",
    title: "Claude Desktop",
    user: ({ support }) => [at(join(support, "Claude", "claude_desktop_config.json"))],
    advice: "Quit it and start it again.",
  }),
  define({
    name: "claude-code",
    title: "Claude Code",
    forms: "editor",
    user: ({ home, env }) => {
      const file = join(env["CLAUDE_CONFIG_DIR"] || home, ".claude.json");
      return [at(file), at(file, "projects", "*", "mcpServers")];
    },
    project: [at(".mcp.json")],
    limits: [MS("timeout", "callTimeout")],
    command: (command, args) => ({ type: "stdio", command, args, env: {} }),
    remote: goTo("url", bare, { type: "http" }),
    advice: "It takes the change when it is started next.",
  }),
  define({
    name: "cursor",
    title: "Cursor",
    forms: "editor",
    user: ({ home }) => [at(join(home, ".cursor", "mcp.json"))],
    project: [at(".cursor/mcp.json")],
    remote: goTo("url", spelled),
    advice: "Switch toolmux on in its settings (MCP), or restart it.",
  }),
  vscode("vscode", "VS Code", "Code"),
  vscode("vscode-insiders", "VS Code Insiders", "Code - Insiders"),
  define({
    name: "windsurf",
    title: "Windsurf",
    forms: "editor",
    user: ({ home }) => [at(join(home, ".codeium", "windsurf", "mcp_config.json"))],
    remote: goTo("serverUrl", spelled),
    advice: "Refresh the list of servers in its Cascade panel.",
  }),
  define({
    name: "codex",
    title: "Codex",
    format: "toml",
    user: ({ home, env }) => [
      at(join(env["CODEX_HOME"] || join(home, ".codex"), "config.toml"), "mcp_servers"),
    ],
    project: [at(".codex/config.toml", "mcp_servers")],
    limits: [
      SECONDS("startup_timeout_sec", "connectTimeout"),
      MS("startup_timeout_ms", "connectTimeout"),
      SECONDS("tool_timeout_sec", "callTimeout"),
    ],
    remote: (url, variable) =>
      variable === undefined ? { url } : { url, bearer_token_env_var: variable },
    advice: "It takes the change when it is started next.",
  }),
  define({
    name: "zed",
    title: "Zed",
    user: ({ config, support, platform }) => {
      const folder = platform === "win32" ? join(support, "Zed") : join(config, "zed");
      return [at(join(folder, "settings.json"), "context_servers")];
    },
    project: [at(".zed/settings.json", "context_servers")],
    command: (command, args) => ({ source: "custom", command, args, env: {} }),
    remote: goTo("url", undefined),
    advice: "It takes the change at once.",
  }),
  gemini("gemini-cli", "Gemini CLI", ".gemini"),
  gemini("qwen-code", "Qwen Code", ".qwen"),
  define({
    name: "antigravity",
    title: "Antigravity",
    forms: "editor",
    user: ({ home }) => [at(join(home, ".gemini", "antigravity", "mcp_config.json"))],
    remote: goTo("serverUrl", undefined),
    advice: "Refresh the list of servers in its MCP settings.",
  }),
  define({
    name: "cline",
    title: "Cline",
    forms: "editor",
    user: (home) => {
      const extension = join(code(home, "Code"), "globalStorage", "saoudrizwan.claude-dev");
      return [
        at(join(extension, "settings", "cline_mcp_settings.json")),
        at(join(home.home, ".cline", "data", "settings", "cline_mcp_settings.json")),
      ];
    },
    limits: [SECONDS("timeout", "callTimeout")],
    command: (command, args) => ({ type: "stdio", command, args, disabled: false }),
    remote: goTo("url", undefined, { type: "streamableHttp", disabled: false }),
    advice: "It takes the change at once.",
  }),
  define({
    name: "roo-code",
    title: "Roo Code",
    forms: "editor",
    user: (home) => {
      const extension = join(code(home, "Code"), "globalStorage", "rooveterinaryinc.roo-cline");
      return [at(join(extension, "settings", "mcp_settings.json"))];
    },
    project: [at(".roo/mcp.json")],
    limits: [SECONDS("timeout", "callTimeout")],
    remote: goTo("url", spelled, { type: "streamable-http" }),
    advice: "It takes the change at once.",
  }),
  define({
    name: "lm-studio",
    title: "LM Studio",
    forms: "editor",
    user: ({ home }) => [at(join(home, ".lmstudio", "mcp.json"))],
    limits: [MS("timeout", "callTimeout")],
    remote: goTo("url", undefined),
    advice: "It takes the change at once.",
  }),
  define({
    name: "opencode",
    title: "opencode",
    forms: "braces",
    user: ({ config }) =>
      ["opencode.json", "opencode.jsonc"].map((file) => at(join(config, "opencode", file), "mcp")),
    project: [at("opencode.json", "mcp"), at("opencode.jsonc", "mcp")],
    limits: [MS("timeout", "connectTimeout")],
    command: (command, args) => ({ type: "local", command: [command, ...args], enabled: true }),
    remote: goTo("url", (name) => `{env:${name}}`, { type: "remote", enabled: true }),
    advice: "It takes the change when it is started next.",
  }),
  define({
    name: "amazon-q",
    title: "Amazon Q",
    forms: "editor",
    user: ({ home }) => [at(join(home, ".aws", "amazonq", "mcp.json"))],
    project: [at(".amazonq/mcp.json")],
    limits: [MS("timeout", "callTimeout")],
    remote: goTo("url", spelled, { type: "http" }),
  }),
  define({
    name: "kiro",
    title: "Kiro",
    forms: "editor",
    user: ({ home }) => [at(join(home, ".kiro", "settings", "mcp.json"))],
    project: [at(".kiro/settings/mcp.json")],
    remote: goTo("url", bare),
    advice: "It takes the change at once.",
  }),
  define({
    name: "copilot-cli",
    title: "Copilot CLI",
    forms: "dollar",
    user: ({ home }) => [at(join(home, ".copilot", "mcp-config.json"))],
    command: (command, args) => ({ type: "local", command, args, tools: ["*"] }),
    remote: goTo("url", bare, { type: "http", tools: ["*"] }),
    advice: "It takes the change when it is started next.",
  }),
  define({
    name: "amp",
    title: "Amp",
    forms: "editor",
    user: ({ config }) => [at(join(config, "amp", "settings.json"), "amp.mcpServers")],
    remote: goTo("url", bare),
  }),
];

/** @returns undefined if there is no such client */
export function findClient(name: string): Client | undefined {
  return CLIENTS.find((client) => client.name === name);
}
