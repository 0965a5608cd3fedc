import { LOG_FORMATS, type LogFormat } from "../terminal/log.ts";
import { parseArgs } from "@std/cli/parse-args";
import { type HubError, usageError } from "../base/errors.ts";
import type { LogLevel } from "../base/hub-events.ts";
import { suggestName } from "../manifest/problems.ts";
import type { Command, Invocation } from "./command.ts";
import {
  flag,
  type NamedOption,
  namedOptions,
  oneOf,
  type OptionTable,
  type OptionValues,
  takesValue,
  texts,
} from "./options.ts";

/** The command that runs if none is named. */
export const DEFAULT_COMMAND = "serve";

export const LOG_LEVELS: readonly LogLevel[] = ["error", "warn", "info", "debug"];

/** Options of every command. They may come before the command's name, as may the options of the default command. */
export const GLOBAL_OPTIONS = {
  config: texts(
    "FILE",
    "use this manifest; repeat it to use several: the last one that has a server wins",
    {
      choices: "file",
    },
  ),
  "log-level": oneOf("LEVEL", LOG_LEVELS, "messages on stderr: error, warn (default), info, debug"),
  "log-format": oneOf(
    "FORMAT",
    LOG_FORMATS,
    "format of these messages: text (default), json (one object per line)",
  ),
  help: flag("show help", { letter: "h" }),
  version: flag("show the version", { letter: "V", otherLetter: "v" }),
};

/** The parsed command line: help (for one command or all), the version, or a command to run. */
export type CommandRequest =
  | { readonly kind: "help"; readonly command: Command | undefined }
  | { readonly kind: "version" }
  | {
      readonly kind: "run";
      readonly command: Command;
      readonly invocation: Invocation<Readonly<Record<string, unknown>>>;
    };

/** Parses a command line (without the executable). @throws {HubError} usage */
export function parseCommandLine(
  argv: readonly string[],
  commands: readonly Command[],
): CommandRequest {
  const at = findCommandWord(argv, commands);
  const named = at === -1 ? undefined : readCommand(argv, at, commands);
  const command = named ?? commandNamed(DEFAULT_COMMAND, commands);
  const rest = at === -1 ? argv : argv.toSpliced(at, 1);
  const { words, given } = splitArguments(
    rest,
    namedOptions(command.options, GLOBAL_OPTIONS),
    named,
  );
  const global = readValues(GLOBAL_OPTIONS, given);
  if (global.help) return { kind: "help", command: named };
  if (global.version) return { kind: "version" };
  checkWords(words, command);
  const invocation = {
    args: words,
    config: global.config,
    logLevel: global["log-level"] ?? "warn",
    ...(global["log-level"] === undefined && { hasDefaultLogLevel: true as const }),
    logFormat: global["log-format"] ?? "text",
    options: readValues(command.options, given),
  };
  return { kind: "run", command, invocation };
}

/** The log format that a command line asks for, even if other parts of it are invalid. */
export function logFormatIn(argv: readonly string[]): LogFormat {
  const end = argv.indexOf("--");
  const words = end === -1 ? argv : argv.slice(0, end);
  const at = words.findLastIndex((word) => /^--log-format(?:=|$)/.test(word));
  const value = words[at]?.split("=")[1] ?? words[at + 1];
  return LOG_FORMATS.find((format) => at !== -1 && format === value) ?? "text";
}

function readValues<Table extends OptionTable>(
  options: Table,
  given: ReadonlyMap<string, readonly string[]>,
): OptionValues<Table> {
  const values = Object.entries(options).map(([name, option]) => [
    name,
    option.read(given.get(name) ?? [], name),
  ]);
  return Object.fromEntries(values) as OptionValues<Table>;
}

/**
 * The command at index `at`. If the word there is unknown and follows an unknown option, it is probably that option's
 * value, so the error names the option.
 */
function readCommand(argv: readonly string[], at: number, commands: readonly Command[]): Command {
  const word = argv[at] ?? "";
  const option = argv[at - 1] ?? "";
  if (option.startsWith("--") && !commands.some(({ name }) => name === word)) {
    const tables = [GLOBAL_OPTIONS, ...commands.map(({ options }) => options)];
    const known = namedOptions(...tables).map(({ name }) => name);
    if (!known.some((name) => option === `--${name}`)) throw unknownOptionError(option, known);
  }
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

/** Finds a command by its name. @throws {HubError} usage if there is none */
export function commandNamed(name: string, commands: readonly Command[]): Command {
  const command = commands.find((one) => one.name === name);
  if (command !== undefined) return command;
  const names = commands.map((one) => one.name);
  const hint = /[./]/.test(name) ? ` To use a manifest: toolmux --config ${name}` : "";
  throw usageError(`There is no command "${name}".${suggestName(name, names)}${hint}`);
}

/** Index of the command's name in `argv`, after leading options and their values; -1 if there is none. */
function findCommandWord(argv: readonly string[], commands: readonly Command[]): number {
  const leading = namedOptions(GLOBAL_OPTIONS, commandNamed(DEFAULT_COMMAND, commands).options);
  const valued = leading.filter(takesValue).map(({ name }) => `--${name}`);
  return argv.findIndex((word, i) => !word.startsWith("-") && !valued.includes(argv[i - 1] ?? ""));
}

/** Splits a command line into its arguments and the texts that are given for each option. @throws {HubError} usage */
function splitArguments(
  argv: readonly string[],
  options: readonly NamedOption[],
  command: Command | undefined,
): { words: readonly string[]; given: ReadonlyMap<string, readonly string[]> } {
  const unknown: { readonly word: string; readonly key: string }[] = [];
  const namesOf = (list: readonly NamedOption[]) => list.map(({ name }) => name);
  const valued = namesOf(options.filter(takesValue));
  const args = joinEmpty(argv, valued);
  const { _: words, ...values } = parseArgs(args, {
    string: ["_", ...valued],
    boolean: namesOf(options.filter((option) => !takesValue(option))),
    collect: namesOf(options.filter(({ repeats }) => repeats)),
    alias: Object.fromEntries(
      options.flatMap(({ name, letter, otherLetter }) =>
        [letter, otherLetter].flatMap((one) => (one === undefined ? [] : [[one, name]])),
      ),
    ),
    unknown: (word, key) => {
      if (key !== undefined) unknown.push({ word, key });
      return key === undefined;
    },
  });
  const [first] = unknown;
  if (first !== undefined) {
    const line = command && lineWithCommand(args, first.word, command, valued);
    if (line !== undefined) throw usageError(`Put -- before the command: ${line}`);
    const option = first.word.startsWith("--") ? `--${first.key}` : `-${first.key}`;
    const pair = command?.takesPairs && pairOf(first.word, args);
    throw unknownOptionError(option, namesOf(options), command, pair);
  }
  const given = new Map<string, readonly string[]>();
  for (const { name, value, empty, choices } of options) {
    const provided = [values[name]].flat().flatMap((one) => {
      if (typeof one === "string") return [one];
      return one === true ? [""] : [];
    });
    given.set(name, provided);
    if (value === undefined) continue;
    const isEmptyAllowed = empty === true && args.includes(`--${name}=`);
    if (provided.includes("") && !isEmptyAllowed)
      throw usageError(`--${name} needs a value: ${value}`);
    if (!Array.isArray(choices)) continue;
    for (const one of provided) checkChoice(name, choices, one);
  }
  return { words: words.map(String), given };
}

/** Rewrites `--prefix ''` as `--prefix=`, because the parser would take the empty value for an argument. */
function joinEmpty(argv: readonly string[], valued: readonly string[]): readonly string[] {
  const end = argv.includes("--") ? argv.indexOf("--") : argv.length;
  const isEmpty = (at: number): boolean =>
    at > 0 && at < end && argv[at] === "" && valued.includes((argv[at - 1] ?? "").slice(2));
  return argv.flatMap((word, at) => {
    if (isEmpty(at)) return [];
    return isEmpty(at + 1) ? [`${word}=`] : [word];
  });
}

/**
 * Suggests the command line with `--` in front of the server's command, as in `toolmux add NAME -- COMMAND`.
 * @returns undefined if the command takes no `--`, if the command line has one already, or if the unknown option
 * comes before the server's command
 */
function lineWithCommand(
  args: readonly string[],
  unknown: string,
  { name, usage, argumentCount: [least] }: Command,
  valued: readonly string[],
): string | undefined {
  if (!usage.includes("[-- ") || args.includes("--")) return undefined;
  const isWord = (at: number): boolean =>
    !(args[at] ?? "").startsWith("-") && !valued.some((option) => args[at - 1] === `--${option}`);
  const at = args.flatMap((_, index) => (isWord(index) ? [index] : []))[least];
  if (at === undefined || at > args.indexOf(unknown)) return undefined;
  return ["toolmux", name, ...args.slice(0, at), "--", ...args.slice(at)]
    .map(quoteForShell)
    .join(" ");
}

/** The KEY=VALUE argument that the message for an unknown option suggests: `a=1` for `--a 1` and for `--a=1`. */
function pairOf(word: string, args: readonly string[]): string {
  const [, key = "", value] = /^-+([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
  const next = args[args.indexOf(word) + 1];
  const given = value ?? (next === undefined || next.startsWith("-") ? "true" : next);
  return quoteForShell(`${key}=${given}`);
}

function quoteForShell(text: string): string {
  return /^[\w.,:/=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * The error for an unknown option.
 * @param pair the KEY=VALUE argument that the message suggests instead of the option
 */
function unknownOptionError(
  option: string,
  known: readonly string[],
  command?: Command,
  pair?: string,
): HubError {
  const owner = command === undefined ? "There is" : `Command "${command.name}" has`;
  const names = known.map((name) => `--${name}`);
  const hint = pair === undefined ? "" : ` Write an argument without dashes: ${pair}`;
  return usageError(`${owner} no option "${option}".${suggestName(option, names)}${hint}`);
}

function checkWords(
  words: readonly string[],
  { name, usage: usageText, argumentCount: [min, max] }: Command,
) {
  const surplus = words[max];
  if (surplus !== undefined)
    throw usageError(`Command "${name}" does not take the argument "${surplus}".`);
  if (words.length < min)
    throw usageError(`Command "${name}" needs more arguments: toolmux ${name} ${usageText}`);
}

function checkChoice(option: string, choices: readonly string[], value: string): void {
  if (choices.includes(value)) return;
  throw usageError(`--${option} must be one of ${choices.join(", ")}, not "${value}".`);
}

/** Whether a command line asks for JSON on stdout, even if other parts of it are invalid. */
export function wantsJson(argv: readonly string[], commands: readonly Command[]): boolean {
  const name = commandNameIn(argv, commands);
  const option = commands.find((one) => one.name === name)?.options["json"];
  if (option === undefined || takesValue(option)) return false;
  const end = argv.indexOf("--");
  return (end === -1 ? argv : argv.slice(0, end)).includes("--json");
}
