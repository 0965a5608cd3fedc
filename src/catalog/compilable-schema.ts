/**
 * Whether version 1 of the TypeScript SDK can compile an output schema. That SDK compiles all output schemas of a list
 * with Ajv (JSON Schema draft-07), and one failure makes the whole list fail. Pure.
 */

import { isJsonObject, propertyOf } from "../base/json.ts";

type Schema = Readonly<Record<string, unknown>>;

const isSchema = (value: unknown): boolean => isJsonObject(value) || typeof value === "boolean";
const isNumber = (value: unknown): boolean => typeof value === "number";
const isString = (value: unknown): boolean => typeof value === "string";
const isBoolean = (value: unknown): boolean => typeof value === "boolean";

/**
 * JSON Schema keywords whose value is one schema. `SCHEMA_ARRAY_KEYWORDS`: keywords whose value is an array of schemas.
 * `SCHEMA_MAP_KEYWORDS`: keywords whose value is an object whose members are schemas.
 */
const SINGLE_SCHEMA_KEYWORDS = [
  "not",
  "if",
  "then",
  "else",
  "contains",
  "propertyNames",
  "additionalProperties",
];
const SCHEMA_ARRAY_KEYWORDS = ["allOf", "anyOf", "oneOf"];
const SCHEMA_MAP_KEYWORDS = ["properties", "patternProperties"];

const KEYWORD_TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  ...Object.fromEntries(SINGLE_SCHEMA_KEYWORDS.map((key) => [key, isSchema])),
  ...Object.fromEntries(SCHEMA_ARRAY_KEYWORDS.map((key) => [key, Array.isArray])),
  ...Object.fromEntries(SCHEMA_MAP_KEYWORDS.map((key) => [key, isJsonObject])),
  items: (value) => isSchema(value) || Array.isArray(value),
  additionalItems: isSchema,
  dependencies: isJsonObject,
  minimum: isNumber,
  maximum: isNumber,
  exclusiveMinimum: isNumber,
  exclusiveMaximum: isNumber,
  multipleOf: isNumber,
  minLength: isNumber,
  maxLength: isNumber,
  minItems: isNumber,
  maxItems: isNumber,
  minProperties: isNumber,
  maxProperties: isNumber,
  uniqueItems: isBoolean,
  nullable: isBoolean,
  required: Array.isArray,
  enum: (value) => Array.isArray(value) && value.length > 0,
  format: (value) => isString(value) || isNumber(value),
  pattern: (value) => typeof value === "string" && isPattern(value),
  $ref: isString,
  $id: isString,
  // The draft-04 name of `$id`; Ajv refuses it.
  id: () => false,
};

const TYPE_NAMES: ReadonlySet<unknown> = new Set(
  "string number integer boolean null object array".split(" "),
);

/** References to the meta-schema, which Ajv always resolves. */
const KNOWN_REFERENCES = /^http:\/\/json-schema\.org\/(?:draft-07\/)?schema#?$/;

/** Whether the schema can be compiled. @param root a parsed output schema */
export function isCompilable(root: unknown): boolean {
  if (!isJsonObject(root)) return false;
  let hasIdentifiers: boolean | undefined;
  const seen = new Set<unknown>();
  const pending: unknown[] = [root];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (typeof next === "boolean" || seen.has(next)) continue;
    if (!isJsonObject(next)) return false;
    seen.add(next);
    if (!hasValidKeywords(next)) return false;
    pending.push(...subschemasOf(next));
    const { $ref } = next;
    if (typeof $ref !== "string" || KNOWN_REFERENCES.test($ref)) continue;
    // If the schema identifies subschemas (`$id`, `$anchor`), every reference counts as resolvable, because it may lead
    // to one of them.
    hasIdentifiers ??= /"\$(?:id|anchor)":/.test(JSON.stringify(root));
    if (hasIdentifiers) continue;
    const target = resolveReference(root, $ref);
    if (target === undefined || isCircular(root, next)) return false;
    pending.push(target);
  }
  return true;
}

function hasValidKeywords(schema: Schema): boolean {
  for (const [key, value] of Object.entries(schema)) {
    const isValid = Object.hasOwn(KEYWORD_TYPES, key) ? KEYWORD_TYPES[key] : undefined;
    if (isValid?.(value) === false) return false;
  }
  const { type, nullable, patternProperties } = schema;
  if (isJsonObject(patternProperties) && !Object.keys(patternProperties).every(isPattern))
    return false;
  const types = type === undefined ? [] : [type].flat();
  if (!types.every((one) => TYPE_NAMES.has(one))) return false;
  if (nullable === false && types.includes("null")) return false;
  return nullable === undefined || types.length > 0;
}

function subschemasOf(schema: Schema): unknown[] {
  const { items, additionalItems, dependencies } = schema;
  const subschemas = SINGLE_SCHEMA_KEYWORDS.map((key) => schema[key]);
  for (const key of SCHEMA_ARRAY_KEYWORDS) subschemas.push(...((schema[key] ?? []) as unknown[]));
  for (const key of SCHEMA_MAP_KEYWORDS)
    subschemas.push(...Object.values(schema[key] ?? {}).map(orNull));
  if (Array.isArray(items)) subschemas.push(...(items as unknown[]));
  else subschemas.push(items);
  subschemas.push(additionalItems);
  for (const value of Object.values(dependencies ?? {})) {
    if (!Array.isArray(value)) subschemas.push(orNull(value));
  }
  return subschemas.filter((subschema) => subschema !== undefined);
}

function orNull(value: unknown): unknown {
  return value ?? null;
}

function isPattern(text: string): boolean {
  try {
    return new RegExp(text, "u") instanceof RegExp;
  } catch {
    return false;
  }
}

/**
 * Whether following `$ref`s from the schema leads into a loop. Ajv never finishes such a loop, unless the root is part
 * of it.
 */
function isCircular(root: Schema, schema: Schema): boolean {
  const passed = new Set<unknown>();
  for (let next: unknown = schema; isJsonObject(next) && next !== root;) {
    if (passed.has(next)) return true;
    passed.add(next);
    const { $ref } = next;
    if (typeof $ref !== "string") return false;
    next = resolveReference(root, $ref);
  }
  return false;
}

/** The schema that a JSON Pointer reference leads to (RFC 6901); undefined if there is none. */
function resolveReference(root: Schema, ref: string): unknown {
  if (ref === "#" || ref === "#/") return root;
  if (!ref.startsWith("#/")) return undefined;
  let at: unknown = root;
  for (const part of ref.slice(2).split("/")) {
    const key = decode(part)?.replaceAll("~1", "/").replaceAll("~0", "~");
    if (key === undefined) return undefined;
    at = propertyOf(at, key);
  }
  return isSchema(at) ? at : undefined;
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
