import { textOf } from "../base/bytes.ts";
import type { RunningHub } from "../control/running-hubs.ts";
import { loadManifest } from "../manifest/load.ts";
import { FULL_MODE, type Manifest } from "../manifest/manifest.ts";
import { isTable } from "../manifest/table.ts";
import type { CommandContext } from "./command.ts";
import { readSavedCatalog } from "../hub/saved-catalog.ts";

/** Kinds of words whose values come from the manifest, or from what servers listed in earlier runs. */
type KnownWords = "servers" | "modes" | "agents" | "tools" | "prompts" | "resources";

/** For each command, the kinds of its arguments by position; the last kind holds for all further arguments. */
const WORDS: Readonly<
  Record<string, readonly (KnownWords | "lists" | "verbs" | "arguments" | "alerts")[]>
> = {
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
  alerts: ["verbs", "alerts"],
};

/** How long a hub may take to answer, in ms. */
const HUB_TIMEOUT = 500;

/** Commands that also take servers that are in a running hub but not in the manifest. */
const OF_HUBS: ReadonlySet<string> = new Set(
  "status list remove start stop reconnect refresh cancel logs".split(" "),
);

/**
 * The words that may come next on a command line, for the completion scripts of shells. Reads the manifest and the
 * saved listings of servers, asks running hubs, and starts nothing.
 * @param typed the words after `toolmux`, without the one that is being completed
 */
export async function completeWords(
  typed: readonly string[],
  context: CommandContext,
): Promise<readonly string[]> {
  const option = typed.at(-1);
  const { files, words, hub } = readTyped(typed);
  if (option === "--hub") return (await matchingHubs(undefined, undefined, context)).map(pidOf);
  if (option === "--call")
    return listIds("calls", await matchingHubs(hub, undefined, context), context);
  const [command = "", ...args] = words;
  const kinds = Object.hasOwn(WORDS, command) ? (WORDS[command] ?? []) : [];
  const kind = kinds[Math.min(args.length, kinds.length - 1)];
  if (kind === undefined || kind === "verbs") return [];
  const { env, cwd, platform } = context;
  const loaded = await loadManifest({ files, env, cwd, platform });
  const isOpen = (name: string): boolean => !args.includes(name);
  const sources = loaded.ok ? loaded.manifest.sources : [];
  const hubs = (): Promise<readonly RunningHub[]> => matchingHubs(hub, sources, context);
  if (kind === "alerts") return (await listIds("alerts", await hubs(), context)).filter(isOpen);
  if (kind === "servers" || kind === "lists") {
    const known = loaded.ok ? serverNames(loaded.manifest, command) : [];
    const running = OF_HUBS.has(command) ? await listIds("servers", await hubs(), context) : [];
    return [...new Set([...known, ...running])].filter(isOpen);
  }
  if (!loaded.ok) return [];
  const { manifest } = loaded;
  if (kind === "modes") {
    const names = [FULL_MODE, ...(manifest.modes ?? []).map(({ name }) => name)];
    return args.length === 0 ? ["show", ...names] : args[0] === "show" ? names : [];
  }
  if (kind === "agents") return agentNames(command, args, manifest, context);
  const { catalog } = await readSavedCatalog(manifest, context);
  if (kind !== "arguments") return catalog[kind].entries.map(({ name }) => name);
  const [name = "", ...given] = args;
  const item = catalog[command === "get" ? "prompts" : "tools"].find(name)?.item;
  if (item === undefined) return [];
  // Readline (bash) splits words at `=`, so the key of a given argument may be a word of its own.
  const isGiven = (key: string): boolean =>
    given.some((word) => word === key || word.startsWith(`${key}=`));
  return argumentNames(JSON.parse(textOf(item.bytes)))
    .filter((key) => !isGiven(key))
    .map((key) => `${key}=`);
}

/** The agents that may come next: only pulled agents for `agents remove`, otherwise all. */
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
  const { openAgentLibrary } = await import("../operations/agent-library.ts");
  const library = openAgentLibrary(manifest, context, context.cwd);
  const sources = ["manifest", "files", "store"] as const;
  const listed = await library.list(verb === "remove" ? ["store"] : sources);
  return listed.map(({ name, spec, source }) => (source === "store" ? spec : name));
}

const pidOf = ({ pid }: RunningHub): string => String(pid);

/**
 * The running hubs that a command line is about: the hub that `--hub` names, or else the hubs that serve the
 * manifest.
 * @param hub the process id that `--hub` gives
 * @param sources the files of the manifest; undefined: the hubs may serve any manifest
 */
async function matchingHubs(
  hub: string | undefined,
  sources: readonly string[] | undefined,
  context: CommandContext,
): Promise<readonly RunningHub[]> {
  const { findRunningHubs } = await import("../control/running-hubs.ts");
  const matches = (one: RunningHub): boolean =>
    hub === undefined
      ? sources === undefined || one.manifest.join("\0") === sources.join("\0")
      : pidOf(one) === hub;
  return (await findRunningHubs(context)).filter(matches);
}

/** The numbers of running calls, the ids of alerts, or the names of servers in these hubs. */
async function listIds(
  what: "calls" | "alerts" | "servers",
  hubs: readonly RunningHub[],
  { signal }: CommandContext,
): Promise<readonly string[]> {
  const { askHub } = await import("../control/running-hubs.ts");
  const key = { calls: "call", alerts: "id", servers: "name" }[what];
  const lists = await Promise.all(
    hubs.map(async (hub) => {
      try {
        const { document } = await askHub(hub, { path: `/${what}`, signal, timeout: HUB_TIMEOUT });
        return (document as Record<string, readonly Record<string, unknown>[]>)[what] ?? [];
      } catch {
        return [];
      }
    }),
  );
  return lists.flat().map((one) => String(one[key]));
}

/** The values of `--config`, the last one of `--hub`, and the words that are neither options nor their values. */
function readTyped(typed: readonly string[]): {
  readonly files: readonly string[];
  readonly words: readonly string[];
  readonly hub: string | undefined;
} {
  const files: string[] = [];
  const words: string[] = [];
  let hub: string | undefined;
  for (const [at, word] of typed.entries()) {
    const before = typed[at - 1] ?? "";
    if (before === "--config") files.push(word);
    else if (before === "--hub") hub = word;
    else if (word.startsWith("--hub=")) hub = word.slice("--hub=".length);
    else if (word.startsWith("--config=")) files.push(word.slice("--config=".length));
    else if (
      !word.startsWith("-") &&
      !/^--(?:log-level|log-format|client|call|level|since|lines|kinds|after|timeout|model|mode|approval)$/.test(
        before,
      )
    )
      words.push(word);
  }
  return { files, words, hub };
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
