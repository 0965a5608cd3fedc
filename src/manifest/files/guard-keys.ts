/**
 * Keys by which the entries of clients guard a server: which of its tools may be used, and which calls a person has to
 * allow. A guard that is not understood makes its server fail: without the guard it would be open.
 */

import type { ApprovalLevel } from "../manifest.ts";
import type { KeyPath } from "../problems.ts";
import { APPROVAL_LEVELS } from "../approval-levels.ts";
import { isTable, type Table } from "../table.ts";

/** The effect of a guarding key in the manifest's terms. */
export type GuardEffect =
  /** A list of tools: only these, `tools.allow`. */
  | "allow"
  /** A list of tools: not these, `tools.deny`. */
  | "deny"
  /** A word for the level of `approval`; `null`: the word asks for nothing. */
  | { readonly levels: Readonly<Record<string, ApprovalLevel | null>> }
  /** `true`, a word, a list of tools, or `{ always, never }` of tools. */
  | "requireApproval";

export interface GuardKey {
  /** The programs that have the key. */
  readonly clients: string;
  /** The key as they write it; `tools.NAME.` stands for the table of one tool. */
  readonly key: string;
  /** The usable values, in Markdown. */
  readonly values: string;
  /** The meaning of the key in these programs, and so here, in Markdown. */
  readonly meaning: string;
  /** The settings that toolmux makes of it, in Markdown. */
  readonly becomes: string;
  readonly effect: GuardEffect;
}

/** Codex: `auto` and `writes` ask for tools that may change something, `approve` asks for none. */
const CODEX_MODES = { prompt: "always", auto: "auto", writes: "auto", approve: null } as const;
const CODEX_VALUES = '`"prompt"`, `"auto"`, `"writes"`, `"approve"`';
const LEVELS = Object.fromEntries(APPROVAL_LEVELS.map((level) => [level, level]));
const LIST = "a list of names, or a text with commas";

const allowed = (clients: string, key: string, values = LIST): GuardKey => ({
  clients,
  key,
  values,
  meaning: "only these tools may be used; an empty list allows none",
  becomes: "`tools.allow`",
  effect: "allow",
});
const denied = (clients: string, key: string): GuardKey => ({
  clients,
  key,
  values: LIST,
  meaning: "these tools may not be used",
  becomes: "`tools.deny`",
  effect: "deny",
});

/** All guarding keys of known meaning. In a client's entry, case, `_` and `-` make no difference. */
export const GUARD_KEYS: readonly GuardKey[] = [
  allowed("Copilot CLI", "tools", `${LIST}; \`"*"\` is all`),
  allowed("Gemini CLI, Qwen Code, Amp", "includeTools"),
  denied("Gemini CLI, Qwen Code", "excludeTools"),
  allowed("Codex, mcpproxy", "enabled_tools"),
  denied("Codex, mcpproxy", "disabled_tools"),
  denied("Kiro, Roo Code, Windsurf, Amazon Q, Deep Agents", "disabledTools"),
  allowed("Deep Agents, OpenAI's API", "allowedTools"),
  allowed("Erato", "allow_tools"),
  {
    ...allowed("Hermes Agent", "tools.include"),
    meaning: "only these tools may be used, and `tools.exclude` does not count",
  },
  denied("Hermes Agent", "tools.exclude"),
  {
    clients: "Codex",
    key: "default_tools_approval_mode",
    values: CODEX_VALUES,
    meaning: "whether each call, or one that may change something, is asked for",
    becomes:
      '`approval`: `"always"` for `"prompt"`, `"auto"` for `"auto"` and `"writes"`; `"approve"` is a permission',
    effect: { levels: CODEX_MODES },
  },
  {
    clients: "Codex",
    key: "tools.NAME.approval_mode",
    values: CODEX_VALUES,
    meaning: "the same for one tool",
    becomes: "`tools.approval`, likewise",
    effect: { levels: CODEX_MODES },
  },
  {
    clients: "OpenAI's API, Agent Express",
    key: "require_approval",
    values: '`"always"`, `"never"`, true, false, a list of names, `{ always, never }`',
    meaning: "which calls are asked for; with a table all but those of `never`",
    becomes:
      '`approval = "always"`, or `tools.approval` for a list; `"never"`, false and `never` are permissions',
    effect: "requireApproval",
  },
  {
    clients: "toolmux",
    key: "approval",
    values: APPROVAL_LEVELS.map((level) => `\`"${level}"\``).join(", "),
    meaning: "as in a manifest",
    becomes: "`approval`",
    effect: { levels: LEVELS },
  },
];

/** A key without what does not count in it: its letters and digits in lower case. */
export function plainKey(key: string): string {
  return key.toLowerCase().replaceAll(/[_-]/g, "");
}

const BY_PLAIN_KEY = new Map(GUARD_KEYS.map((guard) => [plainKey(guard.key), guard]));

/**
 * The guard of this name, however it is spelled; undefined if none is known.
 * @param key with `tools.` in front if it is a key of that table, and `tools.NAME.` for a key of one tool
 */
export function findGuardKey(key: string): GuardKey | undefined {
  return BY_PLAIN_KEY.get(plainKey(key));
}

const GUARD_WORDS =
  /approv|confirm|deny|block|exclude|disabledtool|enabledtool|allowedtool|includetool/;

/** Whether a key of unknown meaning may guard the server, by the words in it, whatever characters are between letters. */
export function looksLikeGuard(key: string): boolean {
  return GUARD_WORDS.test(
    key
      .normalize("NFKC")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}]/gu, ""),
  );
}

/** The stricter of two levels; undefined is none. */
export function stricterLevel(
  a: ApprovalLevel | undefined,
  b: ApprovalLevel | undefined,
): ApprovalLevel | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return APPROVAL_LEVELS.indexOf(a) >= APPROVAL_LEVELS.indexOf(b) ? a : b;
}

/**
 * Lists of servers, beside the table of servers, that a client does or does not start: Gemini CLI and Qwen Code, and
 * Claude Code for a project.
 */
const SERVER_LISTS: readonly { readonly path: KeyPath; readonly effect: "allow" | "deny" }[] = [
  { path: ["mcp", "allowed"], effect: "allow" },
  { path: ["mcp", "excluded"], effect: "deny" },
  { path: ["allowMCPServers"], effect: "allow" },
  { path: ["excludeMCPServers"], effect: "deny" },
  { path: ["disabledMcpServers"], effect: "deny" },
];

/**
 * The test whether a client's settings switch a server off by its name. A list that cannot be read switches all off.
 * @param settings the table that has the table of servers
 */
export function makeServerSwitch(settings: Table): (name: string) => boolean {
  const lists = SERVER_LISTS.flatMap(({ path, effect }) => {
    let value: unknown = settings;
    for (const key of path) value = isTable(value) ? value[String(key)] : undefined;
    return value === undefined || value === null ? [] : [{ value, effect }];
  });
  return (name) =>
    lists.some(({ value, effect }) => {
      if (!Array.isArray(value)) return true;
      return effect === "allow" ? !value.includes(name) : value.includes(name);
    });
}
