import { LOG_FORMATS } from "../terminal/log.ts";
import { parseArgs } from "@std/cli/parse-args";
import { HubError } from "../base/errors.ts";
import type { LogLevel } from "../base/events.ts";
import { findNearest } from "../manifest/problems.ts";
import { type Command, type Invocation, type Option, STORES } from "./command.ts";

/** The command that runs if none is named. */
export const DEFAULT_COMMAND = "serve";

const LEVELS: readonly LogLevel[] = ["error", "warn", "info", "debug"];

/**
 * Options that every command accepts. They, and the options of the default command, may come before the command's name.
 */
export const GLOBAL_OPTIONS: readonly Option[] = [
  {
    name: "config",
    value: "FILE",
    choices: "file",
    repeats: true,
    summary: "use this manifest; of several, the later wins by server",
  },
  {
    name: "log-level",
    value: "LEVEL",
    choices: LEVELS,
    summary: "told on stderr: error, warn (default), info, debug",
  },
  {
    name: "log-format",
    value: "FORMAT",
    choices: LOG_FORMATS,
    summary: "its form: text (default), or json, one object a line",
  },
  { name: "help", letter: "h", summary: "show this" },
  { name: "version", summary: "show the version" },
];

/** The parsed command line: help (for one command or all), the version, or a command to run. */
export type CommandRequest =
  | { readonly kind: "help"; readonly command: Command | undefined }
  | { readonly kind: "version" }
  | { readonly kind: "run"; readonly invocation: Invocation };

/** Parses a command line (without the executable). @throws {HubError} usage */
export function parseCommandLine(
  argv: readonly string[],
  commands: readonly Command[],
): CommandRequest {
  const at = findCommandWord(argv, commands);
  const named = at === -1 ? undefined : readCommand(argv, at, commands);
  const command = named ?? commandNamed(DEFAULT_COMMAND, commands);
  const rest = at === -1 ? argv : argv.toSpliced(at, 1);
  const options = [...command.options, ...GLOBAL_OPTIONS];
  const { words, values } = readOptions(rest, options, named);
  if (values["help"] === true) return { kind: "help", command: named };
  if (values["version"] === true) return { kind: "version" };
  checkWords(words, command);
  const { json, config = [], output, http } = values;
  return {
    kind: "run",
    invocation: {
      command,
      words,
      config: config as string[],
      logLevel: readChoice("log-level", LEVELS, values["log-level"] ?? "warn"),
      logFormat: readChoice("log-format", LOG_FORMATS, values["log-format"] ?? "text"),
      json: json === undefined ? false : (json as boolean | string),
      raw: values["raw"] === true,
      all: values["all"] === true,
      structured: values["structured"] === true,
      output: output as string | undefined,
      http: http as string | undefined,
      store:
        values["store"] === undefined ? undefined : readChoice("store", STORES, values["store"]),
      httpTokenEnv: values["http-token-env"] as string | undefined,
      stdio: values["stdio"] === true,
      switches: new Set(Object.keys(values).filter((name) => values[name] === true)),
      noBrowser: values["no-browser"] === true,
      scope: values["scope"] as string | undefined,
      values: new Map(
        options.filter(takesValue).flatMap(({ name }) => {
          const texts = [values[name]].flat().filter((value) => typeof value === "string");
          return texts.length === 0 ? [] : [[name, texts] as const];
        }),
      ),
    },
  };
}

/**
 * The command at index `at`. If the word there is no command and follows an unknown option, it is probably that
 * option's value: the error then names the option.
 */
function readCommand(argv: readonly string[], at: number, commands: readonly Command[]): Command {
  const word = argv[at] ?? "";
  const option = argv[at - 1] ?? "";
  const known = [...GLOBAL_OPTIONS, ...commands.flatMap(({ options }) => options)];
  const isValue = option.startsWith("--") && !known.some(({ name }) => option === `--${name}`);
  if (isValue && !commands.some(({ name }) => name === word))
    throw unknownOptionError(option, known);
  return commandNamed(word, commands);
}

/** The command named in a command line, if there is one; used to suggest its help. */
export function commandNameIn(
  argv: readonly string[],
  commands: readonly Command[],
): string | undefined {
  const word = argv[findCommandWord(argv, commands)];
  return commands.find(({ name }) => name === word)?.name;
}

/** @throws {HubError} usage */
export function commandNamed(name: string, commands: readonly Command[]): Command {
  const command = commands.find((one) => one.name === name);
  if (command !== undefined) return command;
  const names = commands.map((one) => one.name);
  const hint = /[./]/.test(name) ? ` To serve a manifest: toolmux --config ${name}` : "";
  throw usageError(`There is no command "${name}".${suggestName(name, names)}${hint}`);
}

/**
 * Index of the first word that is neither an option nor the value of an option that may precede the command; -1 if
 * there is none.
 */
function findCommandWord(argv: readonly string[], commands: readonly Command[]): number {
  const leading = [...GLOBAL_OPTIONS, ...commandNamed(DEFAULT_COMMAND, commands).options];
  const valued = leading.filter(takesValue).map(({ name }) => `--${name}`);
  return argv.findIndex((word, i) => !word.startsWith("-") && !valued.includes(argv[i - 1] ?? ""));
}

export function takesValue({ value }: Option): boolean {
  return value !== undefined;
}

function readOptions(
  argv: readonly string[],
  options: readonly Option[],
  command: Command | undefined,
): { words: string[]; values: Record<string, unknown> } {
  const unknown: string[] = [];
  const namesOf = (list: readonly Option[]) => list.map(({ name }) => name);
  const letters = options.flatMap(({ name, letter }) =>
    letter === undefined ? [] : [[letter, name] as const],
  );
  const valued = namesOf(options.filter(takesValue));
  const args = joinEmpty(argv, valued);
  const { _: words, ...values } = parseArgs(args, {
    string: ["_", ...valued],
    boolean: namesOf(options.filter((option) => !takesValue(option))),
    collect: namesOf(options.filter(({ repeats }) => repeats)),
    alias: Object.fromEntries(letters),
    unknown: (_word, key) => {
      if (key !== undefined) unknown.push(key);
      return key === undefined;
    },
  });
  const [key] = unknown;
  if (key !== undefined)
    throw unknownOptionError(key.length === 1 ? `-${key}` : `--${key}`, options, command);
  for (const { name, value, empty, choices } of options) {
    if (value === undefined) continue;
    const provided = [values[name]].flat();
    const isEmptyAllowed = empty === true && args.includes(`--${name}=`);
    if (provided.includes("") && !isEmptyAllowed)
      throw usageError(`--${name} needs a value: ${value}`);
    if (!Array.isArray(choices)) continue;
    for (const one of provided) if (one !== undefined) readChoice(name, choices, one);
  }
  return { words: words.map(String), values };
}

/**
 * Joins an empty value to its option, because the parser would take it for an argument: `--prefix ''` becomes
 * `--prefix=`.
 */
function joinEmpty(argv: readonly string[], valued: readonly string[]): readonly string[] {
  const end = argv.includes("--") ? argv.indexOf("--") : argv.length;
  const isEmpty = (at: number): boolean =>
    at > 0 && at < end && argv[at] === "" && valued.includes((argv[at - 1] ?? "").slice(2));
  return argv.flatMap((word, at) => {
    if (isEmpty(at)) return [];
    return isEmpty(at + 1) ? [`${word}=`] : [word];
  });
}

function unknownOptionError(option: string, known: readonly Option[], command?: Command): HubError {
  const owner = command === undefined ? "" : ` of command "${command.name}"`;
  const names = known.map(({ name }) => `--${name}`);
  return usageError(`There is no option "${option}"${owner}.${suggestName(option, names)}`);
}

function checkWords(
  words: readonly string[],
  { name, usage: usageText, words: [min, max] }: Command,
) {
  const surplus = words[max];
  if (surplus !== undefined) throw usageError(`Command "${name}" does not take "${surplus}".`);
  if (words.length < min)
    throw usageError(`Command "${name}" needs more: toolmux ${name} ${usageText}`);
}

function readChoice<T extends string>(option: string, choices: readonly T[], value: unknown): T {
  const choice = choices.find((one) => one === value);
  if (choice !== undefined) return choice;
  throw usageError(`--${option} is one of ${choices.join(", ")}, not "${String(value)}".`);
}

/** A "did you mean" sentence with a leading space; empty if no name is similar. */
export function suggestName(name: string, known: readonly string[]): string {
  const nearest = findNearest(name, known);
  return nearest === undefined ? "" : ` Did you mean "${nearest}"?`;
}

export function usageError(message: string): HubError {
  return new HubError("usage", message);
}
