import { textOf } from "../base/bytes.ts";
import type { CallDocument } from "../control/schemas.ts";
import { loadManifest } from "../manifest/load.ts";
import { FULL_MODE, type Manifest } from "../manifest/manifest.ts";
import { isTable } from "../manifest/table.ts";
import type { CommandContext } from "./command.ts";
import { readSavedCatalog } from "./saved-catalog.ts";

/** Kinds of words whose values come from the manifest, or from what servers listed in earlier runs. */
type KnownWords = "servers" | "modes" | "agents" | "tools" | "prompts" | "resources";

/** For each command, the kinds of its arguments by position; the last kind holds for all further arguments. */
const WORDS: Readonly<Record<string, readonly (KnownWords | "lists" | "verbs" | "arguments")[]>> = {
  status: ["servers"],
  list: ["lists", "servers"],
  call: ["tools", "arguments"],
  describe: ["tools"],
  get: ["prompts", "arguments"],
  read: ["resources"],
  remove: ["servers"],
  start: ["servers"],
  stop: ["servers"],
  reconnect: ["servers"],
  refresh: ["servers"],
  cancel: ["servers"],
  logs: ["servers"],
  mode: ["modes"],
  run: ["agents", "verbs"],
  chat: ["agents"],
  agents: ["verbs", "agents"],
  auth: ["verbs", "servers"],
};

/**
 * The words that may come next on a command line, for the completion scripts of shells. Reads the manifest and what
 * servers listed last, and starts nothing.
 * @param typed the words after `toolmux`, without the one that is being completed
 */
export async function completeWords(
  typed: readonly string[],
  context: CommandContext,
): Promise<readonly string[]> {
  const option = typed.at(-1);
  if (option === "--hub" || option === "--call") return runningWords(option, context);
  const { files, words } = readTyped(typed);
  const [command = "", ...args] = words;
  const kinds = Object.hasOwn(WORDS, command) ? (WORDS[command] ?? []) : [];
  const kind = kinds[Math.min(args.length, kinds.length - 1)];
  if (kind === undefined || kind === "verbs") return [];
  const { env, cwd, platform } = context;
  const loaded = await loadManifest({ files, env, cwd, platform });
  if (!loaded.ok) return [];
  const { manifest } = loaded;
  if (kind === "modes") {
    const names = [FULL_MODE, ...(manifest.modes ?? []).map(({ name }) => name)];
    return args.length === 0 ? ["show", ...names] : args[0] === "show" ? names : [];
  }
  if (kind === "agents") return agentNames(command, args, manifest, context);
  if (kind === "servers" || kind === "lists")
    return serverNames(manifest, command).filter((name) => !args.includes(name));
  const { catalog } = await readSavedCatalog(manifest, context);
  if (kind !== "arguments") return catalog[kind].entries.map(({ name }) => name);
  const [name = "", ...given] = args;
  const item = catalog[command === "get" ? "prompts" : "tools"].find(name)?.item;
  if (item === undefined) return [];
  // Readline (bash) splits words at `=`, so the key of a given argument may be a word of its own.
  const isOpen = (key: string): boolean =>
    !given.some((word) => word === key || word.startsWith(`${key}=`));
  return argumentNames(JSON.parse(textOf(item.bytes)))
    .filter(isOpen)
    .map((key) => `${key}=`);
}

/** The agents that may come next: for `agents remove` those that were pulled, otherwise all. */
async function agentNames(
  command: string,
  args: readonly string[],
  manifest: Manifest,
  context: CommandContext,
): Promise<readonly string[]> {
  const [verb = ""] = args;
  const isAgents = command === "agents";
  if (args.length !== (isAgents ? 1 : 0) || (isAgents && !["show", "remove"].includes(verb)))
    return [];
  const { openAgentLibrary } = await import("./agent-library.ts");
  const library = openAgentLibrary(manifest, context, context.cwd);
  const sources = ["manifest", "files", "store"] as const;
  const listed = await library.list(verb === "remove" ? ["store"] : sources);
  return listed.map(({ name, spec, source }) => (source === "store" ? spec : name));
}

/** The process ids of running hubs, or the numbers of their running calls. */
async function runningWords(
  option: "--hub" | "--call",
  context: CommandContext,
): Promise<readonly string[]> {
  const { askHub, findRunningHubs } = await import("../control/running-hubs.ts");
  const hubs = await findRunningHubs(context);
  if (option === "--hub") return hubs.map(({ pid }) => String(pid));
  const { signal } = context;
  const answers = await Promise.all(hubs.map((hub) => askHub(hub, { path: "/calls", signal })));
  return answers.flatMap(({ document }) =>
    (document as { calls: CallDocument[] }).calls.map(({ call }) => String(call)),
  );
}

/** Splits the typed words into the values of `--config`, and the words that are neither options nor their values. */
function readTyped(typed: readonly string[]): {
  readonly files: readonly string[];
  readonly words: readonly string[];
} {
  const files: string[] = [];
  const words: string[] = [];
  for (const [at, word] of typed.entries()) {
    const before = typed[at - 1] ?? "";
    if (before === "--config") files.push(word);
    else if (word.startsWith("--config=")) files.push(word.slice("--config=".length));
    else if (
      !word.startsWith("-") &&
      !/^--(?:log-level|log-format|hub|client|call|level|since|lines|model|mode|approval)$/.test(
        before,
      )
    )
      words.push(word);
  }
  return { files, words };
}

/** The servers that a command may name; `auth` takes only HTTP servers. */
function serverNames({ servers }: Manifest, command: string): readonly string[] {
  const named = command === "auth" ? servers.filter(({ kind }) => kind === "remote") : servers;
  return named.map(({ name }) => name);
}

/** The names of the arguments of a tool (`inputSchema`) or of a prompt (`arguments`). */
function argumentNames(item: unknown): readonly string[] {
  if (!isTable(item)) return [];
  const { inputSchema, arguments: declared } = item;
  const properties = isTable(inputSchema) ? inputSchema["properties"] : undefined;
  if (isTable(properties)) return Object.keys(properties);
  if (!Array.isArray(declared)) return [];
  return declared.flatMap((one: unknown) =>
    isTable(one) && typeof one["name"] === "string" ? [one["name"]] : [],
  );
}
