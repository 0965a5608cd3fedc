import { PLAIN_STYLE, type TerminalStyle, wrapText } from "../terminal/terminal.ts";
import { GLOBAL_OPTIONS } from "./args.ts";
import { type Command, COMMAND_GROUPS } from "./command.ts";
import { namedOptions, type OptionTable } from "./options.ts";

/** Maximum width of a line, in columns: wider lines are hard to read. */
const MAX_WIDTH = 100;

/** Minimum width of explanations beside their terms, in columns. With less space, each goes below its term. */
const MIN_EXPLANATION_WIDTH = 24;

/** The commands that a new user should run first, with explanations. */
const QUICK_START = [
  ["toolmux import", "add the servers of your MCP clients"],
  ["toolmux add NAME -- COMMAND", "add one server by its command"],
  ["toolmux status", "check that every server starts"],
  ["toolmux install cursor", "connect a client: cursor, claude-code, vscode, …"],
] as const;

/**
 * The help for one command, or for all; without the last line break.
 * @param style gives the line width: that of the terminal, at most 100 columns; without a terminal, 80 columns
 */
export function formatHelp(
  commands: readonly Command[],
  command: Command | undefined,
  { isTerminal, width, colors }: TerminalStyle = PLAIN_STYLE,
): string {
  const style = { isTerminal, width: isTerminal ? Math.min(width, MAX_WIDTH) : 80, colors };
  return (command === undefined ? describeAll(commands, style) : describeOne(command, style)).join(
    "\n",
  );
}

function describeAll(commands: readonly Command[], style: TerminalStyle): string[] {
  const { bold } = style.colors;
  const rows = COMMAND_GROUPS.map((group) => ({
    group,
    rows: commands
      .filter((command) => command.group === group)
      .map(({ name, summary }): Row => [name, summary]),
  }));
  const termWidth = widthOf(rows.flatMap((group) => group.rows));
  return [
    ...wrap("toolmux makes all of your MCP servers look like one.", style).map(bold),
    "",
    ...wrap("Usage: toolmux [COMMAND] [OPTIONS]", style),
    "",
    bold("Quick start:"),
    ...align(QUICK_START, style),
    ...rows.flatMap((group) => [
      "",
      bold(`${group.group}:`),
      ...align(group.rows, style, termWidth),
    ]),
    "",
    bold("Options of every command:"),
    ...alignOptions(GLOBAL_OPTIONS, style),
    "",
    ...wrap(
      "The manifest is the configuration file with your servers. Without --config, toolmux uses the one in your config directory and, if you trust it, the one in the current directory.",
      style,
    ),
    "",
    ...wrap(
      'With --json, a command that fails prints {"error": {"code", "message", …}} to stdout.',
      style,
    ),
    "",
    ...wrap(
      "Exit codes: 0 ok, 1 the tool or server reported an error, 2 wrong usage or invalid manifest, 3 could not connect, 124 timed out, 130 interrupted.",
      style,
    ),
    "",
    ...wrap("Details and examples of a command: toolmux help COMMAND", style),
  ];
}

function describeOne(
  { name, summary, usage, details, options, examples }: Command,
  style: TerminalStyle,
): string[] {
  const { bold } = style.colors;
  const title = `toolmux ${name}`;
  const [heading = "", ...rest] = wrap(`${title}: ${summary}`, style);
  const section = (sectionTitle: string, lines: readonly string[]): string[] =>
    lines.length === 0 ? [] : ["", ...(sectionTitle === "" ? [] : [bold(sectionTitle)]), ...lines];
  const shared = namedOptions(GLOBAL_OPTIONS).map((option) => `--${option.name}`);
  // In the usage line, `[OPTIONS]` stands before `--`, because the words after `--` belong to the server's command.
  const [words = "", ...started] = usage.split(/(?=\[-- )/);
  const synopsis = ["toolmux", name, words.trim(), "[OPTIONS]", ...started].filter(Boolean);
  return [
    heading.replace(title, () => bold(title)),
    ...rest,
    "",
    ...wrap(`Usage: ${synopsis.join(" ")}`, style),
    ...section("", formatDetails(details, style)),
    ...section("Options:", alignOptions(options, style)),
    ...section(
      "Examples:",
      examples.map((line) => `  ${line}`),
    ),
    "",
    ...wrap(`Options of every command (${shared.slice(0, 2).join(", ")}, …): toolmux help`, style),
  ];
}

/**
 * Formats a command's details: adjacent lines form a paragraph; an indented line is a row with a term, two or more
 * spaces, and its explanation.
 */
function formatDetails(details: readonly string[], style: TerminalStyle): string[] {
  const lines: string[] = [];
  let paragraph: string[] = [];
  let rows: Row[] = [];
  const flush = (): void => {
    if (paragraph.length > 0) lines.push(...wrap(paragraph.join(" "), style));
    lines.push(...align(rows, style));
    paragraph = [];
    rows = [];
  };
  for (const line of [...details, ""]) {
    const [, term, explanation] = /^ {2}(\S.*?) {2,}(\S.*)$/.exec(line) ?? [];
    const isRow = line.startsWith("  ");
    if (isRow ? paragraph.length > 0 : rows.length > 0 || line === "") flush();
    if (isRow) rows.push([term ?? line.trim(), explanation ?? ""]);
    else if (line !== "") paragraph.push(line);
    else lines.push("");
  }
  return lines.slice(0, -1);
}

type Row = readonly [term: string, explanation: string];

function alignOptions(options: OptionTable, style: TerminalStyle): string[] {
  const rows = namedOptions(options).map(({ name, letter, value, summary }): Row => {
    const short = letter === undefined ? "" : `-${letter}, `;
    return [`${short}--${name}${value === undefined ? "" : ` ${value}`}`, summary];
  });
  return align(rows, style);
}

function widthOf(rows: readonly Row[]): number {
  return Math.max(0, ...rows.map(([term]) => term.length));
}

/** Aligns rows, with explanations in one column; on a narrow terminal each explanation is below its term. */
function align(
  rows: readonly Row[],
  { width, colors }: TerminalStyle,
  termWidth = widthOf(rows),
): string[] {
  const column = termWidth + 4;
  const isNarrow = width - column < MIN_EXPLANATION_WIDTH;
  const indent = " ".repeat(isNarrow ? 6 : column);
  return rows.flatMap(([term, explanation]) => {
    const lines = explanation === "" ? [] : wrapText(explanation, width, indent).split("\n");
    const [first = "", ...rest] = lines;
    const head = `  ${colors.cyan(term)}`;
    if (isNarrow || first === "") return [head, ...lines];
    return [head + " ".repeat(column - 2 - term.length) + first.slice(column), ...rest];
  });
}

function wrap(text: string, { width }: TerminalStyle): string[] {
  return wrapText(text, width).split("\n");
}
