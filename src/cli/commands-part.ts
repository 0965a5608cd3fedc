import { CLIENT_NAMES } from "../client-configs/client-names.ts";
import type { Command } from "./command.ts";

const CLIENTS = [
  "Clients: claude-desktop, claude-code, cursor, vscode, vscode-insiders, windsurf,",
  "codex, zed, gemini-cli, qwen-code, antigravity, cline, roo-code, lm-studio,",
  "opencode, amazon-q, kiro, copilot-cli, amp.",
];

const DRY_RUN = { name: "dry-run", summary: "only show what would be written" } as const;

export const IMPORT: Command = {
  name: "import",
  summary: "take over the servers of other MCP clients",
  usage: "[CLIENT …]",
  words: [0, Number.POSITIVE_INFINITY],
  choices: CLIENT_NAMES,
  details: [
    "Looks at the files of all clients, or of those that are named, shows which of",
    "their servers would be added to the manifest and which not, and adds them",
    "when you say so. The files of the clients stay as they are.",
    "",
    ...CLIENTS,
    "",
    "Files in the folder that one stands in are looked at only with --project.",
    "What the manifest has already is not added again; toolmux itself never is.",
    "Values that look like secrets are masked; with --secrets they are moved into",
    "the secret store, and the manifest has ${secret:SERVER/NAME} in their place.",
    "",
    "Exit codes: 0 added, or nothing to add; 2 not confirmed, wrong usage, or",
    "there is something wrong with the manifest.",
  ],
  options: [
    { name: "project", summary: "the files in this folder, not those of the user" },
    { name: "secrets", summary: "move values that look like secrets into the secret store" },
    { name: "yes", letter: "y", summary: "add them without asking" },
    DRY_RUN,
    { name: "json", summary: "print one JSON document, for programs" },
  ],
  examples: ["toolmux import", "toolmux import cursor codex --secrets --yes"],
  load: async () => (await import("./commands/import.ts")).importServers,
};

export const INSTALL: Command = {
  name: "install",
  summary: "write toolmux into an MCP client's file, or take it out again",
  usage: "CLIENT",
  words: [1, 1],
  choices: CLIENT_NAMES,
  details: [
    "Adds one entry, called toolmux, to the servers of a client, and leaves all",
    "else in its file as it is, comments included. A copy of the file as it was is",
    "kept beside it. --undo puts that back if nobody has changed the file since,",
    "and else takes out the entry alone.",
    "",
    ...CLIENTS,
    "",
    "With --http the client goes to a hub that runs (`toolmux serve --http`) and",
    "does not start one; not every client can. With --replace its other servers",
    "are moved into the manifest first, as `toolmux import` does.",
  ],
  options: [
    { name: "project", summary: "the client's file in this folder" },
    { name: "http", value: "URL", summary: "go to the hub there: http://127.0.0.1:8700/mcp" },
    {
      name: "http-token-env",
      value: "NAME",
      summary: "the client's variable with the token for that",
    },
    { name: "replace", summary: "move its servers into the manifest" },
    { name: "secrets", summary: "with --replace: move secrets into the secret store" },
    { name: "undo", summary: "take it out again" },
    DRY_RUN,
    { name: "json", summary: "print one JSON document, for programs" },
  ],
  examples: [
    "toolmux install cursor",
    "toolmux install claude-code --replace --dry-run",
    "toolmux install vscode --http http://127.0.0.1:8700/mcp",
    "toolmux install cursor --undo",
  ],
  load: async () => (await import("./commands/install.ts")).install,
};
