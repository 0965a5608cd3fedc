/** The names of the supported clients on the command line. */
export const CLIENT_NAMES = [
  "claude-desktop",
  "claude-code",
  "cursor",
  "vscode",
  "vscode-insiders",
  "windsurf",
  "codex",
  "zed",
  "gemini-cli",
  "qwen-code",
  "antigravity",
  "cline",
  "roo-code",
  "lm-studio",
  "opencode",
  "amazon-q",
  "kiro",
  "copilot-cli",
  "amp",
] as const;

export type ClientName = (typeof CLIENT_NAMES)[number];
