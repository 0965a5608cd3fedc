import { isTable, type Table } from "../../manifest/table.ts";
import type { FindingCode } from "./findings.ts";

/** Finding codes for schemas that clients or model providers reject. */
export type SchemaFlaw = Extract<
  FindingCode,
  "TM911" | "TM912" | "TM913" | "TM914" | "TM915" | "TM916" | "TM917" | "TM918"
>;

/** Maximum length of a description, in characters: OpenAI rejects longer ones; others truncate. */
const LONGEST = 1024;
/** Argument names that providers accept. */
const ARGUMENT = /^[a-zA-Z0-9_.-]{1,64}$/;
const OLD = /draft-0\d|2019-09/;
/** Maximum number of subschemas checked. */
const MOST = 20_000;
/** Keywords that are rejected at the top of a tool's arguments. */
const COMBINATORS = ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"];
const LISTS = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
const MAPS = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
const SINGLE = [
  "items",
  "additionalProperties",
  "not",
  "if",
  "then",
  "else",
  "contains",
  "propertyNames",
];

/** Checks the schema and description of one listed tool. */
export function lintTool(tool: Table): ReadonlySet<SchemaFlaw> {
  const { description, inputSchema: root } = tool;
  const flaws = new Set<SchemaFlaw>();
  if (typeof description === "string" && description.length > LONGEST) flaws.add("TM917");
  if (!isTable(root)) return flaws.add("TM918");
  if (root["type"] !== "object") flaws.add("TM912");
  if (COMBINATORS.some((keyword) => keyword in root)) flaws.add("TM915");
  const { properties } = root;
  const names = isTable(properties) ? Object.keys(properties) : [];
  if (names.some((name) => !ARGUMENT.test(name))) flaws.add("TM916");
  let left = MOST;
  const visit = (schema: unknown): void => {
    if (!isTable(schema) || left-- <= 0) return;
    inspect(schema, flaws);
    for (const inner of partsOf(schema)) visit(inner);
  };
  visit(root);
  for (const flaw of followReferences(root)) flaws.add(flaw);
  return flaws;
}

function inspect(schema: Table, flaws: Set<SchemaFlaw>): void {
  const { $schema, type, items, exclusiveMinimum, exclusiveMaximum } = schema;
  const isOld =
    (typeof $schema === "string" && OLD.test($schema)) ||
    Array.isArray(items) ||
    [exclusiveMinimum, exclusiveMaximum].some((it) => typeof it === "boolean") ||
    "dependencies" in schema ||
    "additionalItems" in schema;
  if (isOld) flaws.add("TM911");
  const isBare = type === undefined && ("enum" in schema || "const" in schema);
  const isOpen =
    [type].flat().includes("array") && items === undefined && !("prefixItems" in schema);
  if (isBare || isOpen) flaws.add("TM912");
}

function partsOf(schema: Table): readonly unknown[] {
  const lists = LISTS.flatMap((key) =>
    Array.isArray(schema[key]) ? (schema[key] as unknown[]) : [],
  );
  const maps = MAPS.flatMap((key) => (isTable(schema[key]) ? Object.values(schema[key]) : []));
  return [...lists, ...maps, ...SINGLE.map((key) => schema[key])];
}

/** Follows each `$ref` once, and finds circular and dangling ones. */
function followReferences(root: Table): ReadonlySet<SchemaFlaw> {
  const flaws = new Set<SchemaFlaw>();
  const done = new Set<unknown>();
  const open = new Set<unknown>();
  let left = MOST;
  const visit = (schema: unknown): void => {
    if (!isTable(schema) || done.has(schema) || left-- <= 0) return;
    if (open.has(schema)) {
      flaws.add("TM913");
      return;
    }
    open.add(schema);
    const { $ref } = schema;
    if (typeof $ref === "string") {
      const target = $ref.startsWith("#") ? resolvePointer(root, $ref.slice(1)) : undefined;
      if (target === undefined) flaws.add("TM914");
      visit(target);
    }
    for (const inner of partsOf(schema)) visit(inner);
    open.delete(schema);
    done.add(schema);
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
