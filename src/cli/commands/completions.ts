import { usageError } from "../../base/errors.ts";
import { suggestName } from "../../manifest/problems.ts";
import type { Command, CommandContext, Invocation } from "../command.ts";
import { SHELLS } from "../command.ts";
import { GLOBAL_OPTIONS } from "../args.ts";
import { type NamedOption, namedOptions, takesValue, type ValueChoices } from "../options.ts";

type Shell = (typeof SHELLS)[number];

/** `toolmux completions`: prints the completion script for a shell. */
export function printCompletions(
  { args: [word = ""] }: Invocation,
  commands: readonly Command[],
  { terminal }: CommandContext,
): Promise<number> {
  const shell = SHELLS.find((one) => one === word);
  if (shell === undefined)
    throw usageError(
      `There are completions for ${SHELLS.join(", ")}, not "${word}".${suggestName(word, SHELLS)}`,
    );
  terminal.print(formatCompletions(shell, commands));
  return Promise.resolve(0);
}

/** The completion script of a shell, without the last line break. */
export function formatCompletions(shell: Shell, commands: readonly Command[]): string {
  return FORMATTERS[shell](commands).join("\n");
}

const FORMATTERS: Readonly<Record<Shell, (commands: readonly Command[]) => readonly string[]>> = {
  bash: formatBash,
  zsh: formatZsh,
  fish: formatFish,
};

function formatBash(commands: readonly Command[]): string[] {
  const complete = (choices: ValueChoices | undefined): string => {
    if (choices === "file") return "_toolmux_paths -f";
    if (choices === "folder") return "_toolmux_paths -d";
    if (choices === "known") return "_toolmux_known ''";
    const words = choices === "command" ? namesOf(commands) : (choices ?? []);
    return words.length === 0 ? ":" : `_toolmux_words ${quote(words.join(" "))}`;
  };
  return [
    "# bash completion for toolmux",
    "_toolmux_words() {",
    "  local IFS=$' \\t\\n'",
    '  COMPREPLY=($(compgen -W "$1" -- "$cur"))',
    "}",
    "_toolmux_paths() {",
    "  local IFS=$'\\n'",
    "  compopt -o filenames 2>/dev/null",
    '  COMPREPLY=($(compgen "$1" -- "$cur"))',
    "}",
    "# The words $1, and those that depend on the manifest and on what servers list.",
    "_toolmux_known() {",
    "  local IFS=$'\\n'",
    '  COMPREPLY=($(compgen -W "$1$IFS$(toolmux internal complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "$cur"))',
    "  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi",
    "}",
    "_toolmux() {",
    "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= skip= count=0 i",
    "  COMPREPLY=()",
    "  # Readline makes --config=FILE three words.",
    "  if [[ $cur == = ]]; then cur=",
    "  elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}",
    "  fi",
    "  for ((i = 1; i < COMP_CWORD; i++)); do",
    "    if [[ -n $skip && ${COMP_WORDS[i]} == = ]]; then continue; fi",
    "    if [[ -n $skip ]]; then skip=; continue; fi",
    "    case $command:${COMP_WORDS[i]} in",
    `      ${patternsWithValue(commands).join("|")}) skip=1 ;;`,
    "      *:-*) ;;",
    "      *) if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else count=$((count + 1)); fi ;;",
    "    esac",
    "  done",
    "  case $command:$prev in",
    ...optionsWithValue(commands).map(
      ({ patterns, choices }) => `    ${patterns.join("|")}) ${complete(choices)}; return ;;`,
    ),
    "  esac",
    "  if [[ $cur == -* ]]; then",
    "    case $command in",
    ...commands.map(({ name, options }) => {
      const words = namedOptions(options, GLOBAL_OPTIONS).flatMap(optionNames).join(" ");
      return `      ${name}) _toolmux_words ${quote(words)} ;;`;
    }),
    `      '') _toolmux_words ${quote(namedOptions(GLOBAL_OPTIONS).flatMap(optionNames).join(" "))} ;;`,
    "    esac",
    "    return",
    "  fi",
    "  case $command:$count in",
    `    :*) ${complete("command")} ;;`,
    ...commands
      .filter(({ choices, completesAtRuntime }) => choices !== undefined && !completesAtRuntime)
      .map(({ name, choices }) => `    ${name}:0) ${complete(choices)} ;;`),
    ...commands
      .filter(({ completesAtRuntime }) => completesAtRuntime)
      .flatMap((command) => [
        `    ${command.name}:0) _toolmux_known ${quote(fixedWordsOf(command).join("\n"))} ;;`,
        `    ${command.name}:*) _toolmux_known '' ;;`,
      ]),
    "  esac",
    "}",
    "complete -F _toolmux toolmux",
  ];
}

function formatZsh(commands: readonly Command[]): string[] {
  const action = (choices: ValueChoices | undefined): string => {
    if (choices === "file") return "_files";
    if (choices === "folder") return "_files -/";
    if (choices === "known") return " _toolmux_known";
    const words = choices === "command" ? namesOf(commands) : (choices ?? []);
    return words.length === 0 ? " " : `(${words.join(" ")})`;
  };
  const argument = (option: NamedOption): string => {
    const { summary, value, choices, repeats } = option;
    const words = optionNames(option);
    const rest = `[${summary.replace(/[[\]:\\]/g, "\\$&")}]`;
    const valuePart = value === undefined ? "" : `:${value}:${action(choices)}`;
    if (words.length === 1)
      return quote(`${repeats ? "*" : ""}${words.join("")}${rest}${valuePart}`);
    return `${quote(`(${words.join(" ")})`)}{${words.join(",")}}${quote(rest + valuePart)}`;
  };
  const argumentsOf = (
    command: Pick<Command, "argumentCount" | "choices" | "completesAtRuntime">,
  ): string[] => {
    const { argumentCount, choices, completesAtRuntime } = command;
    const [, most] = argumentCount;
    const many = most > 1 ? "*" : "1";
    if (most === 0) return [];
    if (!completesAtRuntime) return [`${many}:argument:${action(choices)}`];
    const fixed = fixedWordsOf(command);
    const first = `1:argument: _toolmux_known ${fixed.join(" ")}`.trimEnd();
    return most > 1 ? [first, "*:argument: _toolmux_known"] : [first];
  };
  const list = (lines: readonly string[]) => lines.map((line) => `        ${line}`).join(" \\\n");
  return [
    "#compdef toolmux",
    "# The words $@, and those that depend on the manifest and on what servers list.",
    "_toolmux_known() {",
    '  local -a known=("$@" ${(f)"$(toolmux internal complete $typed 2>/dev/null)"})',
    "  compadd -- ${known:#*=}",
    "  compadd -S '' -- ${(M)known:#*=}",
    "}",
    "_toolmux() {",
    "  local curcontext=$curcontext state line ret=1",
    "  local -a typed=(${words[2,CURRENT-1]})",
    "  typeset -A opt_args",
    "  local -a commands",
    "  commands=(",
    ...commands.map(
      ({ name, summary }) => `    ${quote(`${name}:${summary.replaceAll(":", "\\:")}`)}`,
    ),
    "  )",
    "  _arguments -C \\",
    ...namedOptions(GLOBAL_OPTIONS).map((option) => `    ${argument(option)} \\`),
    "    '1:command:->command' '*::argument:->argument' && ret=0",
    "  case $state in",
    "    command) _describe -t commands command commands && ret=0 ;;",
    "    argument)",
    "      case $words[1] in",
    ...commands.flatMap(({ name, options, ...command }) => [
      `      ${name})`,
      "        _arguments \\",
      `${list([
        ...namedOptions(options, GLOBAL_OPTIONS).map(argument),
        ...argumentsOf(command).map(quote),
      ])} && ret=0`,
      "        ;;",
    ]),
    "      esac",
    "      ;;",
    "  esac",
    "  return ret",
    "}",
    "# Either a folder of $fpath holds this, or it is sourced.",
    'if [[ $funcstack[1] == _toolmux ]]; then _toolmux "$@"; else compdef _toolmux toolmux; fi',
  ];
}

function formatFish(commands: readonly Command[]): string[] {
  const completeChoices = (choices: ValueChoices | undefined): string => {
    if (choices === "file") return " -F";
    if (choices === "folder") return ' -a "(__fish_complete_directories (commandline -ct))"';
    if (choices === "known") return ' -a "(__toolmux_known)"';
    const words = choices === "command" ? namesOf(commands) : (choices ?? []);
    return words.length === 0 ? "" : ` -a ${quote(words.join(" "))}`;
  };
  const option = (
    condition: string,
    { name, letter, value, choices, summary }: NamedOption,
  ): string => {
    const short = letter === undefined ? "" : ` -s ${letter}`;
    const valuePart =
      value === undefined ? "" : ` -x${completeChoices(choices)}`.replace("-x -F", "-r -F");
    return `complete -c toolmux${condition}${short} -l ${name}${valuePart} -d ${quote(summary)}`;
  };
  const at = (name: string): string => ` -n ${quote(`__toolmux_at ${name}`)}`;
  return [
    "# fish completion for toolmux",
    "# Prints the command, and after it the words that it was given.",
    "function __toolmux_words",
    "    set -l skip 1",
    "    set -l command",
    "    for word in (commandline -opc)",
    "        if test $skip = 1",
    "            set skip 0",
    "            continue",
    "        end",
    '        switch "$command:$word"',
    `            case ${patternsWithValue(commands).map(quote).join(" ")}`,
    "                set skip 1",
    "            case '*:-*'",
    "            case '*'",
    '                test -z "$command"; and set command $word',
    "                echo $word",
    "        end",
    "    end",
    "end",
    "function __toolmux_at",
    "    set -l words (__toolmux_words)",
    '    test (count $words) -ge 1; and test "$words[1]" = "$argv[1]"',
    "end",
    "function __toolmux_first",
    "    __toolmux_at $argv; and test (count (__toolmux_words)) -eq 1",
    "end",
    "# The words that depend on the manifest and on what servers list.",
    "function __toolmux_known",
    "    set -l words (commandline -opc)",
    "    toolmux internal complete $words[2..] 2>/dev/null",
    "end",
    "complete -c toolmux -f",
    ...namedOptions(GLOBAL_OPTIONS).map((one) => option("", one)),
    ...commands.flatMap(({ name, summary, options, choices, completesAtRuntime }) => [
      `complete -c toolmux -n 'test (count (__toolmux_words)) -eq 0' -a ${name} -d ${quote(summary)}`,
      ...namedOptions(options).map((one) => option(at(name), one)),
      ...(choices === undefined
        ? []
        : [
            `complete -c toolmux -n ${quote(`__toolmux_first ${name}`)}${completeChoices(choices)}`,
          ]),
      ...(completesAtRuntime ? [`complete -c toolmux${at(name)} -a "(__toolmux_known)"`] : []),
    ]),
  ];
}

/** The words of a command's first argument that do not depend on the manifest. */
function fixedWordsOf({ choices }: Pick<Command, "choices">): readonly string[] {
  return Array.isArray(choices) ? (choices as readonly string[]) : [];
}

function namesOf(commands: readonly Command[]): readonly string[] {
  return commands.map(({ name }) => name);
}

/** The options that take a value, as shell patterns `command:option`, with their possible values. */
function optionsWithValue(
  commands: readonly Command[],
): { patterns: readonly string[]; choices: ValueChoices | undefined }[] {
  return [...commands, { name: "*", options: GLOBAL_OPTIONS }].flatMap(({ name, options }) =>
    namedOptions(options)
      .filter(takesValue)
      .map((option) => ({
        patterns: optionNames(option).map((word) => `${name}:${word}`),
        choices: option.choices,
      })),
  );
}

function patternsWithValue(commands: readonly Command[]): readonly string[] {
  return optionsWithValue(commands).flatMap(({ patterns }) => patterns);
}

/** The spellings of an option, such as `-o` and `--output`. */
function optionNames({ name, letter }: NamedOption): string[] {
  return [...(letter === undefined ? [] : [`-${letter}`]), `--${name}`];
}

/** Quotes a text as one word. All three shells accept `'\''` for a single quote. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
