/**
 * Whether version 1 of the TypeScript SDK can compile an output schema. It compiles all output schemas of a list with
 * Ajv (JSON Schema draft-07), and one failure makes the whole list fail. Pure.
 */

type Schema = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Schema =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isSchema = (value: unknown): boolean => isObject(value) || typeof value === "boolean";
const isNumber = (value: unknown): boolean => typeof value === "number";
const isText = (value: unknown): boolean => typeof value === "string";
const isFlag = (value: unknown): boolean => typeof value === "boolean";

/** Keywords whose value is one schema, an array of schemas, or an object of schemas. */
const SINGLE = ["not", "if", "then", "else", "contains", "propertyNames", "additionalProperties"];
const LISTED = ["allOf", "anyOf", "oneOf"];
const NAMED = ["properties", "patternProperties"];

/** The types that keyword values must have. */
const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  ...Object.fromEntries(SINGLE.map((key) => [key, isSchema])),
  ...Object.fromEntries(LISTED.map((key) => [key, Array.isArray])),
  ...Object.fromEntries(NAMED.map((key) => [key, isObject])),
  items: (value) => isSchema(value) || Array.isArray(value),
  additionalItems: isSchema,
  dependencies: isObject,
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
  uniqueItems: isFlag,
  nullable: isFlag,
  required: Array.isArray,
  enum: (value) => Array.isArray(value) && value.length > 0,
  format: (value) => isText(value) || isNumber(value),
  pattern: (value) => typeof value === "string" && isPattern(value),
  $ref: isText,
  $id: isText,
  // The draft-04 name of `$id`; Ajv refuses it.
  id: () => false,
};

const NAMES: ReadonlySet<unknown> = new Set(
  "string number integer boolean null object array".split(" "),
);

/** References that Ajv always resolves. */
const KNOWN = /^http:\/\/json-schema\.org\/(?:draft-07\/)?schema#?$/;

/** @param root a parsed output schema */
export function isCompilable(root: unknown): boolean {
  if (!isObject(root)) return false;
  let hasNames: boolean | undefined;
  const seen = new Set<unknown>();
  const open: unknown[] = [root];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next === "boolean" || seen.has(next)) continue;
    if (!isObject(next)) return false;
    seen.add(next);
    if (!hasFittingValues(next)) return false;
    open.push(...partsOf(next));
    const { $ref } = next;
    if (typeof $ref !== "string" || KNOWN.test($ref)) continue;
    // References may lead to named subschemas (`$id`, `$anchor`); whether those resolve is not checked here.
    hasNames ??= /"\$(?:id|anchor)":/.test(JSON.stringify(root));
    if (hasNames) continue;
    const target = resolve(root, $ref);
    if (target === undefined) return false;
    open.push(target);
  }
  return true;
}

function hasFittingValues(schema: Schema): boolean {
  for (const [key, value] of Object.entries(schema)) {
    const isFit = Object.hasOwn(TYPES, key) ? TYPES[key] : undefined;
    if (isFit?.(value) === false) return false;
  }
  const { type, nullable, patternProperties } = schema;
  if (isObject(patternProperties) && !Object.keys(patternProperties).every(isPattern)) return false;
  const types = Array.isArray(type) ? (type as unknown[]) : type === undefined ? [] : [type];
  if (!types.every((one) => NAMES.has(one))) return false;
  if (nullable === false && types.includes("null")) return false;
  return nullable === undefined || types.length > 0;
}

function partsOf(schema: Schema): unknown[] {
  const { items, additionalItems, dependencies } = schema;
  const parts = SINGLE.map((key) => schema[key]);
  for (const key of LISTED) parts.push(...((schema[key] ?? []) as unknown[]));
  for (const key of NAMED) parts.push(...Object.values(schema[key] ?? {}).map(orNull));
  if (Array.isArray(items)) parts.push(...(items as unknown[]));
  else parts.push(items);
  parts.push(additionalItems);
  for (const value of Object.values(dependencies ?? {})) {
    if (!Array.isArray(value)) parts.push(orNull(value));
  }
  return parts.filter((part) => part !== undefined);
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

/** The schema that a JSON Pointer reference leads to (RFC 6901); undefined if there is none. */
function resolve(root: Schema, ref: string): unknown {
  if (ref === "#" || ref === "#/") return root;
  if (!ref.startsWith("#/")) return undefined;
  let at: unknown = root;
  for (const part of ref.slice(2).split("/")) {
    const key = decode(part)?.replaceAll("~1", "/").replaceAll("~0", "~");
    if (key === undefined || typeof at !== "object" || at === null) return undefined;
    at = Object.getOwnPropertyDescriptor(at, key)?.value;
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
