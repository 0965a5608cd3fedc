import { formatAge } from "../../base/format.ts";
import { textOf } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import { isTable, type Table } from "../../manifest/table.ts";
import { sanitizeLine, sanitizeLines } from "../../terminal/log.ts";
import { type TerminalStyle, wrapText } from "../../terminal/terminal.ts";
import type { HubReader } from "../../control/hub-reader.ts";
import type { EntryFinding } from "../../scan/checks.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { type FoundItem, type LookupChoice, withItem } from "../item-lookup.ts";
import {
  choiceText,
  describeForms,
  formsOfSchema,
  type JsonSchema,
  type ValueForm,
} from "../json-schema.ts";

interface DescribeOptions extends LookupChoice {
  readonly json: boolean;
}

/** A tool as clients get it (`Tool` in the MCP schema). Not validated, because a server may send anything. */
interface Tool {
  readonly title?: unknown;
  readonly description?: unknown;
  readonly inputSchema?: unknown;
  readonly outputSchema?: unknown;
  readonly annotations?: unknown;
}

/**
 * `toolmux describe`: prints what a tool does, its arguments and an example call: as a running hub has it, or as a
 * saved listing (what a server listed in an earlier run) has it. Starts the tool's server only with `--fresh`, or if
 * neither has the tool.
 */
export function describe(
  invocation: Invocation<DescribeOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { fresh, json } = invocation.options;
  const [name = ""] = invocation.args;
  const use = async ({ reader, server = "", listedAt }: FoundItem): Promise<number> => {
    const item = (await reader.list("tools")).find((one) => one.key === name);
    if (item === undefined) throw new HubError("unknownTool", `There is no tool "${name}".`);
    const text = textOf(item.bytes);
    if (json) {
      terminal.printJsonText(text);
      return 0;
    }
    const style = terminal.stdout;
    terminal.print(formatTool(name, server, JSON.parse(text) as Tool, style));
    const found = await findingsOf(reader, name, server);
    if (found.length > 0) terminal.print(["", style.colors.bold("Suspicious text:")].join("\n"));
    for (const { check, hard, where, excerpt } of found) {
      const line = `${check} (${hard ? "hard" : "soft"}), ${where}: ${excerpt}`;
      terminal.print(wrapText(sanitizeLine(line), Math.min(style.width, MAX_PROSE), INDENT));
    }
    if (listedAt !== undefined) {
      const age = formatAge(Date.now() - listedAt);
      const hint = `listed ${age}; --fresh asks the server now`;
      terminal.print(`\n${style.colors.dim(hint)}`);
    }
    return 0;
  };
  return withItem({ kind: "tools", name, startsServer: fresh, use }, invocation, context);
}

/** What the scan has found in a tool. @param name the name that clients see */
async function findingsOf(
  reader: HubReader,
  name: string,
  server: string,
): Promise<readonly EntryFinding[]> {
  if (server === "") return [];
  const { tools } = await reader.catalog();
  const own = tools.find((tool) => tool.name === name)?.own;
  const [scanned] = await reader.findings(server);
  return scanned?.findings.filter((one) => one.kind === "tool" && one.name === own) ?? [];
}

const INDENT = "  ";
/** Maximum width of a line of prose, in columns, even if the terminal is wider. */
const MAX_PROSE = 100;

/** Describes a tool for people; without the last line break. */
function formatTool(
  name: string,
  server: string,
  { title, description, inputSchema, outputSchema, annotations }: Tool,
  { width, colors }: TerminalStyle,
): string {
  const prose = (text: string, indent = ""): string =>
    wrapText(sanitizeLines(text.trim()), Math.min(width, MAX_PROSE), indent);
  const hints = isTable(annotations) ? describeAnnotations(annotations) : [];
  const titleText = [title, isTable(annotations) ? annotations["title"] : undefined].find(
    (text) => typeof text === "string",
  );
  const args = argumentsOf(inputSchema);
  const results = argumentsOf(outputSchema);
  const section = (heading: string, lines: readonly string[]): string[] =>
    lines.length === 0 ? [] : ["", colors.bold(heading), ...lines];
  return [
    `${colors.bold(sanitizeLine(name))}  ${colors.dim(`of server ${sanitizeLine(server)}`)}`,
    ...(titleText === undefined ? [] : [prose(sanitizeLine(titleText))]),
    ...(typeof description === "string" && description.trim() !== ""
      ? ["", prose(description)]
      : []),
    ...section("Arguments:", args.length === 0 ? [`${INDENT}none`] : formatArguments(args, prose)),
    ...section("Structured result:", formatArguments(results, prose)),
    ...section(
      "The server says:",
      hints.map((hint) => INDENT + hint),
    ),
    ...section("Example:", [INDENT + sanitizeLine(formatExample(name, args))]),
  ].join("\n");
}

/** One argument of a tool, or one member of its result. */
interface Argument {
  readonly name: string;
  readonly schema: JsonSchema;
  readonly forms: readonly ValueForm[];
  readonly isRequired: boolean;
}

function argumentsOf(schema: unknown): readonly Argument[] {
  if (schema === undefined) return [];
  const form = formsOfSchema({ schema, root: schema }).find(({ kind }) => kind === "object");
  if (form?.kind !== "object") return [];
  const all = [...form.properties].map(([name, inner]) => ({
    name,
    schema: inner,
    forms: formsOfSchema(inner),
    isRequired: form.required.includes(name),
  }));
  return [...all.filter((one) => one.isRequired), ...all.filter((one) => !one.isRequired)];
}

function formatArguments(
  args: readonly Argument[],
  prose: (text: string, indent: string) => string,
): readonly string[] {
  const width = Math.max(0, ...args.map(({ name }) => name.length));
  return args.flatMap(({ name, schema: { schema }, forms, isRequired }) => {
    const details = isTable(schema) ? schema : {};
    const fallback = details["default"];
    const parts = [
      describeForms(forms),
      ...(isRequired ? ["required"] : []),
      ...(fallback === undefined ? [] : [`default ${choiceText(fallback)}`]),
    ];
    const head = `${INDENT}${sanitizeLine(name).padEnd(width)}  ${sanitizeLine(parts.join(", "))}`;
    const { description } = details;
    const indent = " ".repeat(width + 2 * INDENT.length);
    const members = describeMembers(forms);
    return [
      head,
      ...(members === undefined ? [] : [prose(members, indent)]),
      ...(typeof description === "string" && description.trim() !== ""
        ? [prose(description, indent)]
        : []),
    ];
  });
}

/** The members of an object, or of the objects in an array: `members: path (a text, required), depth (a number)`. */
function describeMembers(forms: readonly ValueForm[]): string | undefined {
  for (const form of forms) {
    if (form.kind === "array") return describeMembers(formsOfSchema(form.items));
    if (form.kind !== "object" || form.properties.size === 0) continue;
    const members = [...form.properties].map(([name, schema]) => {
      const required = form.required.includes(name) ? ", required" : "";
      return `${name} (${describeForms(formsOfSchema(schema))}${required})`;
    });
    return `members: ${members.join(", ")}`;
  }
  return undefined;
}

/** Phrases for the annotations of a tool (`ToolAnnotations` in the MCP schema) that are of use to the user. */
function describeAnnotations(annotations: Table): readonly string[] {
  const {
    readOnlyHint: isReadOnly,
    destructiveHint: isDestructive,
    idempotentHint: isIdempotent,
    openWorldHint: isOpenWorld,
  } = annotations;
  return [
    ...(isReadOnly === true ? ["the tool only reads"] : []),
    ...(isReadOnly !== true && isDestructive === true ? ["the tool may delete or overwrite"] : []),
    ...(isReadOnly !== true && isDestructive === false ? ["the tool only adds"] : []),
    ...(isReadOnly !== true && isIdempotent === true
      ? ["another call with the same arguments changes nothing more"]
      : []),
    ...(isOpenWorld === true ? ["the tool reaches the outside world, such as the web"] : []),
  ];
}

/**
 * An example of a command line that calls the tool with its required arguments or, if none is required, with the first
 * one.
 */
function formatExample(name: string, args: readonly Argument[]): string {
  const required = args.filter((one) => one.isRequired);
  const shown = required.length > 0 ? required : args.slice(0, 1);
  return ["toolmux call", name, ...shown.map((one) => quoteWord(formatPair(one)))].join(" ");
}

function formatPair({ name, schema, forms }: Argument): string {
  const value = exampleOf(schema, forms, 0);
  const isPlain = typeof value === "string" && value !== "" && !value.startsWith("@");
  if (isPlain || typeof value === "number" || typeof value === "boolean") return `${name}=${value}`;
  return `${name}:=${JSON.stringify(value)}`;
}

/** Deepest level of objects and arrays in an example. */
const MAX_EXAMPLE_DEPTH = 3;

/** A JSON value that the schema allows: the schema's example or default, or else the simplest value. */
function exampleOf({ schema }: JsonSchema, forms: readonly ValueForm[], depth: number): unknown {
  const { examples, default: fallback } = isTable(schema) ? schema : {};
  const own: unknown = Array.isArray(examples) ? examples[0] : fallback;
  if (own !== undefined && own !== null && own !== "") return own;
  const [form] = forms;
  switch (form?.kind) {
    case "integer":
    case "number":
      return 1;
    case "boolean":
      return true;
    case "null":
      return null;
    case "choice":
      return form.values[0];
    case "array":
      if (depth >= MAX_EXAMPLE_DEPTH) return [];
      return [exampleOf(form.items, formsOfSchema(form.items), depth + 1)];
    case "object": {
      if (depth >= MAX_EXAMPLE_DEPTH) return {};
      const members = form.required.flatMap((key) => {
        const inner = form.properties.get(key);
        if (inner === undefined) return [];
        return [[key, exampleOf(inner, formsOfSchema(inner), depth + 1)] as const];
      });
      return Object.fromEntries(members);
    }
    default:
      return "TEXT";
  }
}

/** Quotes a word for POSIX shells. */
function quoteWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
