import { GLOBAL_OPTIONS } from "./args.ts";
import type { Command } from "./command.ts";
import { namedOptions, type OptionTable } from "./options.ts";

/** Help for one command, or for all; without the last line break. */
export function formatHelp(commands: readonly Command[], command: Command | undefined): string {
  return (command === undefined ? describeAll(commands) : describeOne(command)).join("\n");
}

function describeAll(commands: readonly Command[]): string[] {
  return [
    "toolmux makes all of your MCP servers look like one.",
    "",
    "Usage: toolmux [COMMAND] [OPTIONS]",
    "",
    "Commands:",
    ...align(commands.map(({ name, summary }) => [name, summary])),
    "",
    "Options of every command:",
    ...alignOptions(GLOBAL_OPTIONS),
    "",
    "Without --config the manifest is looked for in your config folder and, if you",
    "trust it, in the working directory.",
    "",
    "Exit codes: 0 ok, 1 the tool or server reported an error, 2 usage or manifest,",
    "3 could not connect, 124 timed out, 130 interrupted.",
    "",
    "More, with examples: toolmux help COMMAND",
  ];
}

function describeOne({ name, summary, usage, details, options, examples }: Command): string[] {
  const section = (title: string, lines: readonly string[]): string[] =>
    lines.length === 0 ? [] : ["", ...(title === "" ? [] : [title]), ...lines];
  return [
    `toolmux ${name}: ${summary}`,
    "",
    `Usage: ${["toolmux", name, usage, "[OPTIONS]"].filter(Boolean).join(" ")}`,
    ...section("", details),
    ...section("Options:", alignOptions(options, GLOBAL_OPTIONS)),
    ...section(
      "Examples:",
      examples.map((line) => `  ${line}`),
    ),
  ];
}

function alignOptions(...tables: readonly OptionTable[]): string[] {
  return align(
    namedOptions(...tables).map(({ name, letter, value, summary }) => {
      const short = letter === undefined ? "" : `-${letter}, `;
      return [`${short}--${name}${value === undefined ? "" : ` ${value}`}`, summary];
    }),
  );
}

function align(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
