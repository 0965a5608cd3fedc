import { textOf } from "../base/bytes.ts";
import type { RunningHub } from "../control/running-hubs.ts";
import { loadManifest } from "../manifest/load.ts";
import { FULL_MODE, type Manifest } from "../manifest/manifest.ts";
import { isTable } from "../manifest/table.ts";
import { GLOBAL_OPTIONS } from "./args.ts";
import type { Command, CommandContext } from "./command.ts";
import {
  type KnownWords,
  type NamedOption,
  namedOptions,
  takesValue,
  type ValueChoices,
} from "./options.ts";
import { readSavedCatalog } from "../operations/saved-catalog.ts";

/** What may stand where the cursor is: words, or the path of a file or of a folder, which the shell completes. */
export type Completion =
  | { readonly kind: "words"; readonly words: readonly CompletedWord[] }
  | { readonly kind: "file" | "folder" };

/** `summary`: a short text about the word, for shells that show one. A word that ends with `=` wants a value. */
export interface CompletedWord {
  readonly word: string;
  readonly summary?: string;
}

/** How long a hub may take to answer, in ms. */
const HUB_TIMEOUT = 500;

/** Commands that also take servers that are in a running hub but not in the manifest. */
const OF_HUBS: ReadonlySet<string> = new Set(
  "status list remove start stop reconnect refresh cancel logs".split(" "),
);

/**
 * What may stand at the end of a command line, for the completion scripts of shells. Reads the manifest and the saved
 * listings of servers, asks running hubs, and starts nothing. Words that do not begin like the last one are included.
 * @param words the words after `toolmux`. The last one is the one that is being completed; it may be empty
 */
export async function completeLine(
  words: readonly string[],
  commands: readonly Command[],
  context: CommandContext,
): Promise<Completion> {
  const line = readLine(words, commands);
  const offered: CompletedWord[] = [];
  if (line.cursor === "option") offered.push(...optionWords(line.command));
  for (const choices of choicesAt(line)) {
    if (choices === "file" || choices === "folder") return { kind: choices };
    if (choices === "command")
      offered.push(...commands.map(({ name, summary }) => ({ word: name, summary })));
    else {
      const known =
        typeof choices === "string" ? await knownWords(choices, line, context) : choices;
      offered.push(...known.map((word) => ({ word })));
    }
  }
  return { kind: "words", words: offered };
}

/** The words of a command line before the cursor, and what is at the cursor. */
interface TypedLine {
  /** Undefined: the command is not typed yet, or the table has none of that name. */
  readonly command: Command | undefined;
  readonly args: readonly string[];
  /** The values of `--config`. */
  readonly files: readonly string[];
  /** The last value of `--hub`. */
  readonly hub: string | undefined;
  /** An option's value, an option, the command's name, an argument, or an argument of an unknown command. */
  readonly cursor: NamedOption | "option" | "command" | "argument" | "unknown";
}

function choicesAt({ cursor, command, args }: TypedLine): readonly ValueChoices[] {
  if (typeof cursor === "object") return cursor.choices === undefined ? [] : [cursor.choices];
  if (cursor === "command") return ["command"];
  if (cursor !== "argument" || command === undefined) return [];
  const { completes = [], argumentCount } = command;
  if (args.length >= argumentCount[1]) return [];
  return completes[Math.min(args.length, completes.length - 1)] ?? [];
}

function readLine(words: readonly string[], commands: readonly Command[]): TypedLine {
  const args: string[] = [];
  const files: string[] = [];
  let command: Command | undefined;
  let hub: string | undefined;
  let isUnknown = false;
  let hasEnded = false;
  /** The option whose value comes next. */
  let valued: NamedOption | undefined;
  const findValued = (word: string): NamedOption | undefined =>
    optionsOf(command).find((one) => takesValue(one) && spellingsOf(one).includes(word));
  for (const word of words.slice(0, -1)) {
    const [name = word, value] = hasEnded ? [] : (/^(--[^=]+)=(.*)$/s.exec(word)?.slice(1) ?? []);
    // Readline (bash) splits words at `=`: `--config=FILE` is three words.
    if (valued !== undefined && word === "=") continue;
    const isValue = valued !== undefined;
    valued ??= hasEnded ? undefined : findValued(name);
    const text = isValue ? word : value;
    if (valued !== undefined) {
      if (valued.name === "config" && text !== undefined) files.push(text);
      if (valued.name === "hub") hub = text;
      if (text !== undefined) valued = undefined;
    } else if (word === "--") hasEnded = true;
    else if (hasEnded || !word.startsWith("-")) {
      if (command !== undefined || isUnknown) args.push(word);
      command ??= commands.find((one) => one.name === word);
      isUnknown = command === undefined;
    }
  }
  const current = words.at(-1) ?? "";
  const attached = hasEnded ? undefined : /^(--[^=]+)=/.exec(current)?.[1];
  valued ??= attached === undefined ? undefined : findValued(attached);
  const atWord = isUnknown ? "unknown" : command === undefined ? "command" : "argument";
  const cursor = valued ?? (!hasEnded && current.startsWith("-") ? "option" : atWord);
  return { command, args, files, hub, cursor };
}

function optionsOf(command: Command | undefined): readonly NamedOption[] {
  return namedOptions(command?.options ?? {}, GLOBAL_OPTIONS);
}

/** The spellings of an option, such as `-o` and `--output`. */
function spellingsOf({ name, letter }: NamedOption): readonly string[] {
  return [...(letter === undefined ? [] : [`-${letter}`]), `--${name}`];
}

function optionWords(command: Command | undefined): readonly CompletedWord[] {
  return optionsOf(command).flatMap((option) =>
    spellingsOf(option).map((word) => ({ word, summary: option.summary })),
  );
}

/** The words of a kind that may stand at the cursor: from the manifest, from saved listings, and from running hubs. */
async function knownWords(
  kind: KnownWords,
  { command, args, files, hub }: TypedLine,
  context: CommandContext,
): Promise<readonly string[]> {
  if (kind === "hubs") return (await matchingHubs(undefined, undefined, context)).map(pidOf);
  if (kind === "calls")
    return listIds("calls", await matchingHubs(hub, undefined, context), context);
  const { env, cwd, platform } = context;
  const name = command?.name ?? "";
  const loaded = await loadManifest({ files, env, cwd, platform });
  const isOpen = (word: string): boolean => !args.includes(word);
  const sources = loaded.ok ? loaded.manifest.sources : [];
  const hubs = (): Promise<readonly RunningHub[]> => matchingHubs(hub, sources, context);
  if (kind === "alerts") return (await listIds("alerts", await hubs(), context)).filter(isOpen);
  if (kind === "servers") {
    const known = loaded.ok ? serverNames(loaded.manifest, name) : [];
    const running = OF_HUBS.has(name) ? await listIds("servers", await hubs(), context) : [];
    return [...new Set([...known, ...running])].filter(isOpen);
  }
  if (!loaded.ok) return [];
  const { manifest } = loaded;
  if (kind === "modes") {
    const isSecond = args.length === 1 && args[0] === "show";
    if (name === "mode" && args.length > 0 && !isSecond) return [];
    return [FULL_MODE, ...(manifest.modes ?? []).map((mode) => mode.name)];
  }
  if (kind === "agents") return agentNames(name, args, manifest, context);
  const { catalog } = await readSavedCatalog(manifest, context);
  if (kind !== "arguments") return catalog[kind].entries.map((entry) => entry.name);
  const [itemName = "", ...given] = args;
  const item = catalog[name === "get" ? "prompts" : "tools"].find(itemName)?.item;
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
  const { clientOfHub } = await import("../control/running-hubs.ts");
  const lists = await Promise.all(
    hubs.map(async (hub) => {
      try {
        const ask = clientOfHub(hub, { signal, timeout: HUB_TIMEOUT });
        switch (what) {
          case "calls":
            return (await ask("GET /calls")).value.calls.map(({ call }) => String(call));
          case "alerts":
            return (await ask("GET /alerts")).value.alerts.map(({ id }) => id);
          case "servers":
            return (await ask("GET /servers")).value.servers.map(({ name }) => name);
        }
      } catch {
        return [];
      }
    }),
  );
  return lists.flat();
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
