import { isTable, type Table } from "../../manifest/table.ts";
import type { FindingCode } from "./findings.ts";

/** Finding codes for schemas that clients or model providers reject. */
export type SchemaFlaw = Extract<
  FindingCode,
  "TM911" | "TM912" | "TM913" | "TM914" | "TM915" | "TM916" | "TM917" | "TM918"
>;

/** Maximum length of a description, in characters: OpenAI rejects longer ones, others truncate them. */
const MAX_DESCRIPTION = 1024;
/** Argument names that model providers accept. */
const ARGUMENT_NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
const OLD_DRAFT = /draft-0\d|2019-09/;
/** Maximum number of subschemas checked. */
const MAX_SUBSCHEMAS = 20_000;
/** Schema keywords that model providers reject at the top level of a tool's `inputSchema`. */
const COMBINATORS = ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"];
const LIST_KEYWORDS = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
const MAP_KEYWORDS = [
  "properties",
  "patternProperties",
  "$defs",
  "definitions",
  "dependentSchemas",
];
const SCHEMA_KEYWORDS = [
  "items",
  "additionalProperties",
  "not",
  "if",
  "then",
  "else",
  "contains",
  "propertyNames",
];

/** Checks the schema and the description of one tool. @returns the codes of the findings */
export function lintTool(tool: Table): ReadonlySet<SchemaFlaw> {
  const { description, inputSchema: root } = tool;
  const flaws = new Set<SchemaFlaw>();
  if (typeof description === "string" && description.length > MAX_DESCRIPTION) flaws.add("TM917");
  if (!isTable(root)) return flaws.add("TM918");
  if (root["type"] !== "object") flaws.add("TM912");
  if (COMBINATORS.some((keyword) => keyword in root)) flaws.add("TM915");
  const { properties } = root;
  const names = isTable(properties) ? Object.keys(properties) : [];
  if (names.some((name) => !ARGUMENT_NAME.test(name))) flaws.add("TM916");
  let left = MAX_SUBSCHEMAS;
  const visit = (schema: unknown): void => {
    if (!isTable(schema) || left-- <= 0) return;
    checkKeywords(schema, flaws);
    for (const inner of subschemasOf(schema)) visit(inner);
  };
  visit(root);
  for (const flaw of checkReferences(root)) flaws.add(flaw);
  return flaws;
}

function checkKeywords(schema: Table, flaws: Set<SchemaFlaw>): void {
  const { $schema, type, items, exclusiveMinimum, exclusiveMaximum } = schema;
  const isOld =
    (typeof $schema === "string" && OLD_DRAFT.test($schema)) ||
    Array.isArray(items) ||
    [exclusiveMinimum, exclusiveMaximum].some((it) => typeof it === "boolean") ||
    "dependencies" in schema ||
    "additionalItems" in schema;
  if (isOld) flaws.add("TM911");
  const isUntyped = type === undefined && ("enum" in schema || "const" in schema);
  const hasNoItems =
    [type].flat().includes("array") && items === undefined && !("prefixItems" in schema);
  if (isUntyped || hasNoItems) flaws.add("TM912");
}

function subschemasOf(schema: Table): readonly unknown[] {
  const lists = LIST_KEYWORDS.flatMap((key) =>
    Array.isArray(schema[key]) ? (schema[key] as unknown[]) : [],
  );
  const maps = MAP_KEYWORDS.flatMap((key) =>
    isTable(schema[key]) ? Object.values(schema[key]) : [],
  );
  return [...lists, ...maps, ...SCHEMA_KEYWORDS.map((key) => schema[key])];
}

/** Follows each `$ref` once, and finds those that are circular (TM913) or lead to nothing (TM914). */
function checkReferences(root: Table): ReadonlySet<SchemaFlaw> {
  const flaws = new Set<SchemaFlaw>();
  const finished = new Set<unknown>();
  const visiting = new Set<unknown>();
  let left = MAX_SUBSCHEMAS;
  const visit = (schema: unknown): void => {
    if (!isTable(schema) || finished.has(schema) || left-- <= 0) return;
    if (visiting.has(schema)) {
      flaws.add("TM913");
      return;
    }
    visiting.add(schema);
    const { $ref } = schema;
    if (typeof $ref === "string") {
      const target = $ref.startsWith("#") ? resolvePointer(root, $ref.slice(1)) : undefined;
      if (target === undefined) flaws.add("TM914");
      visit(target);
    }
    for (const inner of subschemasOf(schema)) visit(inner);
    visiting.delete(schema);
    finished.add(schema);
  };
  visit(root);
  return flaws;
}

function resolvePointer(root: Table, pointer: string): unknown {
  if (pointer === "") return root;
  if (!pointer.startsWith("/")) return undefined;
  const keys = pointer
    .slice(1)
    .split("/")
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  return keys.reduce<unknown>((at, key) => {
    if (Array.isArray(at)) return (at as readonly unknown[])[Number(key)];
    return isTable(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }, root);
}
