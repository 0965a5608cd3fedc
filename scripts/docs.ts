/**
 * Writes the reference pages in docs, the table of endpoints in docs/control-api.md, that of guarding keys in docs/manifest.md and toolmux.schema.json, each
 * generated from the code that it describes: `npm run docs`.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { JsonSchema } from "@valibot/to-json-schema";
import { COMMANDS } from "../src/cli/commands.ts";
import { FINDING_CODES } from "../src/host/doctor/findings.ts";
import { formatHelp } from "../src/cli/help.ts";
import { type Endpoint, ENDPOINTS } from "../src/control/endpoints.ts";
import { API_PATH } from "../src/control/schemas.ts";
import { GUARD_KEYS } from "../src/manifest/files/guard-keys.ts";
import { isTable } from "../src/manifest/table.ts";
import { makeSchema, PATTERNS, writeSchema } from "./schema.ts";

/** The pages: their paths from the root of the repository, and their formatted texts. */
export function makePages(): ReadonlyMap<string, string> {
  return new Map([
    ["docs/configuration.md", describeConfiguration()],
    ["docs/cli.md", describeCommands()],
    ["docs/doctor-codes.md", describeCodes()],
    ["docs/control-api.md", describeEndpoints()],
    ["docs/manifest.md", describeGuards()],
  ]);
}

function makePage(source: string, lines: readonly string[]): string {
  return [`<!-- Written by \`npm run docs\` from ${source}. -->`, "", ...lines, ""].join("\n");
}

/** Links to the sections of a page, one a line. */
function makeContents(lines: readonly string[]): readonly string[] {
  const titles = lines.flatMap((line) => (line.startsWith("## ") ? [line.slice(3)] : []));
  return ["", ...titles.map((title) => `- [${title}](#${anchorOf(title)})`)];
}

/** The anchor of a heading, as GitHub makes it. */
export function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

/** docs/configuration.md: every key of a manifest. */
function describeConfiguration(): string {
  const { properties = {} } = makeSchema();
  const sections = Object.entries(properties).flatMap(([key, schema]) =>
    describeRoot(key, asSchema(schema)),
  );
  return makePage("src/manifest/schema.ts", [
    "# Configuration",
    "",
    'A manifest is a TOML file, or a JSON file with the same keys. This page lists every key. `toolmux schema` prints the same as a JSON Schema, with which editors complete and check keys. A duration is a text such as `"30s"`, `"500ms"` or `"5m"`, or a number of milliseconds. A size is a text such as `"64MiB"` or `"512KB"`, or a number of bytes.',
    ...makeContents(sections),
    ...sections,
  ]);
}

function describeRoot(key: string, schema: JsonSchema): string[] {
  switch (key) {
    case "servers":
      return describeTable("servers.NAME", {
        ...asSchema(schema.additionalProperties),
        description: `${schema.description} It has exactly one of \`command\`, \`package\`, \`url\` and \`plugin\`.`,
      });
    case "models":
      return describeTable("models.NAME", {
        ...asSchema(schema.additionalProperties),
        description: schema.description ?? "",
      });
    case "agents":
      return describeTable("agents.NAME", {
        ...asSchema(schema.additionalProperties),
        description: schema.description ?? "",
      });
    case "modes":
      return describeTable("modes.NAME", {
        ...asSchema(schema.additionalProperties),
        description: `${schema.description} A filter is \`"all"\`, or a table with one of \`servers\`, \`tools\`, \`ids\`, \`names\`, \`pattern\`, \`readOnly\`, \`and\`, \`or\` and \`not\`: [Modes](modes.md) describes each.`,
      });
    case "clients":
      return describeTable("[clients]", {
        ...asSchema(schema.items),
        description: schema.description ?? "",
      });
    case "plugins":
      return describeTable("[plugins]", {
        ...asSchema(schema.items),
        description: schema.description ?? "",
      });
    default:
      return schema.properties === undefined ? [] : describeTable(key, schema);
  }
}

/** The section about a table, followed by the sections about the tables in it. */
function describeTable(path: string, { description, properties = {} }: JsonSchema): string[] {
  const keys = Object.entries(properties).map(([key, schema]) => [key, asSchema(schema)] as const);
  // A server and the defaults have the same table `reconnect`, so it is described only in the section about the
  // defaults.
  const tables = keys.filter(
    ([key, { properties: inner }]) =>
      inner !== undefined && !(key === "reconnect" && path !== "defaults"),
  );
  return [
    "",
    `## \`[${path}]\``,
    "",
    escapeMarkdown(description ?? ""),
    "",
    ...keys.map(([key, schema]) => describeKey(key, schema)),
    ...tables.flatMap(([key, schema]) => describeTable(`${path}.${key}`, schema)),
    ...keys.flatMap(([key, { additionalProperties: inner }]) =>
      isTable(inner) && inner["properties"] !== undefined
        ? describeTable(`${path}.${key}.NAME`, {
            ...asSchema(inner),
            description: "One entry of the table, by its name.",
          })
        : [],
    ),
  ];
}

function describeKey(key: string, schema: JsonSchema): string {
  const { description = "", examples = [], default: usual } = schema;
  const facts = [
    describeType(schema),
    ...(usual === undefined ? [] : [`default ${printCode(usual)}`]),
  ].join("; ");
  const shown = (examples as readonly unknown[]).map(printCode).join(", ");
  const example = shown === "" ? "" : ` For example ${shown}.`;
  return `- \`${key}\` (${facts}): ${escapeMarkdown(description)}${example}`;
}

function describeType({ type, anyOf, enum: choices, items, ...schema }: JsonSchema): string {
  if (schema.$ref !== undefined) return "filter";
  if (choices !== undefined) return choices.map(printCode).join(", ");
  if (anyOf !== undefined) {
    const patterns = anyOf.map((choice) => asSchema(choice).pattern);
    return patterns.includes(PATTERNS.bytes) ? "size" : "duration";
  }
  switch (type) {
    case "string":
      return "text";
    case "boolean":
      return "`true` or `false`";
    case "integer":
      return "whole number";
    case "array":
      return `array of: ${describeType(asSchema(items))}`;
    case "object": {
      const inner = schema.additionalProperties;
      return isTable(inner) && Object.keys(inner).length > 0
        ? `table of: ${describeType(asSchema(inner))}`
        : "table";
    }
    default:
      return typeof type === "string" ? type : "any value";
  }
}

function printCode(value: unknown): string {
  return `\`${printToml(value)}\``;
}

/** Formats a value as TOML, in one line. */
function printToml(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(printToml).join(", ")}]`;
  if (!isTable(value)) return JSON.stringify(value);
  const entries = Object.entries(value).map(
    ([key, inner]) => `${/^[\w-]+$/.test(key) ? key : JSON.stringify(key)} = ${printToml(inner)}`,
  );
  return entries.length === 0 ? "{}" : `{ ${entries.join(", ")} }`;
}

/** Escapes characters that Markdown would read as emphasis or as HTML. */
function escapeMarkdown(text: string): string {
  return text.replaceAll("*", String.raw`\*`).replaceAll("<", "&lt;");
}

function asSchema(schema: unknown): JsonSchema {
  return isTable(schema) ? schema : {};
}

/** docs/cli.md: the help of every command. */
function describeCommands(): string {
  const block = (text: string): string[] => ["", "```text", text, "```"];
  const sections = COMMANDS.flatMap((command) => [
    "",
    `## toolmux ${command.name}`,
    ...block(formatHelp(COMMANDS, command)),
  ]);
  return makePage("src/cli/commands.ts", [
    "# Command line",
    ...block(formatHelp(COMMANDS, undefined)),
    ...makeContents(sections),
    ...sections,
  ]);
}

/** docs/doctor-codes.md: every code of a finding. */
function describeCodes(): string {
  const rows = Object.entries(FINDING_CODES).map(([code, { severity, title }]) => [
    code,
    severity,
    title,
  ]);
  return makePage("src/host/doctor/findings.ts", [
    "# Codes of toolmux doctor",
    "",
    "Each finding of `toolmux doctor` has a code. A code keeps its meaning, and the code of a finding that no longer exists is not used again.",
    "",
    ...alignTable([["code", "severity", "what"], ...rows]),
  ]);
}

/** docs/control-api.md, of which only the table of endpoints between two comments is generated. */
function describeEndpoints(): string {
  const rows = Object.entries<Endpoint>(ENDPOINTS).map(([route, endpoint]) => {
    const path = route.replaceAll(/:\w+/g, (name) => name.slice(1).toUpperCase());
    const { query = {}, body, says } = endpoint;
    return [
      `\`${path.replace(" ", ` ${API_PATH}`)}\``,
      Object.keys(query)
        .map((name) => `\`${name}\``)
        .join(", "),
      body === undefined ? "" : `\`${body}\``,
      describeAnswer(endpoint),
      says,
    ];
  });
  const header = ["request", "query", "body", "answer", "what it does"];
  return replaceTable("docs/control-api.md", "endpoints", [header, ...rows]);
}

/** docs/manifest.md with its table of the keys that guard a server in a client's file. */
function describeGuards(): string {
  const rows = GUARD_KEYS.map(({ clients, key, values, meaning, becomes }) => [
    clients,
    `\`${key}\``,
    values,
    meaning,
    becomes,
  ]);
  const header = ["client", "key", "values", "meaning", "in toolmux"];
  return replaceTable("docs/manifest.md", "guarding keys", [header, ...rows]);
}

/** A page with another table between its marks, `<!-- NAME: … -->` and `<!-- end of NAME -->`. */
function replaceTable(path: string, name: string, rows: readonly (readonly string[])[]): string {
  const page = readFileSync(fileURLToPath(new URL(`../${path}`, import.meta.url)), "utf8");
  const between = new RegExp(`(?<=<!-- ${name}: .* -->\\n)[^]*(?=<!-- end of ${name} -->)`);
  return page.replace(between, () => `\n${alignTable(rows).join("\n")}\n\n`);
}

function describeAnswer({ answer, events }: Endpoint): string {
  if (events !== undefined) return `\`${events}\`, as server-sent events`;
  if (answer === undefined) return "nothing";
  if (answer === "object") return "an object";
  if (typeof answer === "string") return `\`${answer}\``;
  return Object.values(answer)
    .map((name) => (name === "names" ? "names" : `\`${name}[]\``))
    .join(", ");
}

/** Formats a Markdown table; the first row is its header. */
function alignTable(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  const [head, ...body] = rows.map(
    (row) => `| ${row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(" | ")} |`,
  );
  const line = `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`;
  return [head ?? "", line, ...body];
}

if (import.meta.main) {
  writeSchema();
  for (const [path, text] of makePages())
    writeFileSync(fileURLToPath(new URL(`../${path}`, import.meta.url)), text);
  spawnSync(process.execPath, ["fmt", "--check", "docs"], { stdio: "inherit" });
}
