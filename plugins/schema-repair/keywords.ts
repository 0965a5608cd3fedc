/*
 * The keywords of JSON Schema (2020-12), by what may stand behind them. Providers refuse a request with a schema in which
 * something else does.
 */

/** A schema that is not just true or false. */
export type Schema = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Something that can be a schema: an object, true or false. */
export function isSchema(value: unknown): value is Schema | boolean {
  return typeof value === "boolean" || isObject(value);
}

/** Hold one schema. */
export const SINGLE = [
  "additionalProperties",
  "contains",
  "contentSchema",
  "else",
  "if",
  "items",
  "not",
  "propertyNames",
  "then",
  "unevaluatedItems",
  "unevaluatedProperties",
] as const;

/** Where true and false are common, and understood. */
export const SWITCHES: readonly string[] = [
  "additionalProperties",
  "unevaluatedItems",
  "unevaluatedProperties",
];

/** Hold a list of schemas, at least one. */
export const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"] as const;

/** Hold schemas by name. */
export const MAPS = [
  "$defs",
  "definitions",
  "dependentSchemas",
  "patternProperties",
  "properties",
] as const;

/** Hold schemas that count only where a reference leads to them. */
export const DEFINITIONS: readonly string[] = ["$defs", "definitions"];

/** Change nothing of what a schema accepts. */
export const ANNOTATIONS: readonly string[] = [
  "$anchor",
  "$comment",
  "$id",
  "$schema",
  "contentEncoding",
  "contentMediaType",
  "contentSchema",
  "default",
  "deprecated",
  "description",
  "examples",
  "readOnly",
  "title",
  "writeOnly",
];

export const TYPES: readonly unknown[] = [
  "array",
  "boolean",
  "integer",
  "null",
  "number",
  "object",
  "string",
];

/** What may stand behind the others. */
export const FORMS: Readonly<Record<string, (value: unknown) => boolean>> = {
  $anchor: (value) => isString(value) && /^[A-Za-z_][-A-Za-z0-9._]*$/.test(value),
  $comment: isString,
  // What follows these depends on the way to them; no client goes it.
  $dynamicAnchor: isNothing,
  $dynamicRef: isNothing,
  $recursiveAnchor: isNothing,
  $recursiveRef: isNothing,
  $vocabulary: isNothing,
  $id: (value) => isString(value) && /^[^#]*#?$/.test(value),
  contentEncoding: isString,
  contentMediaType: isString,
  dependentRequired: (value) => isObject(value) && Object.values(value).every(areNames),
  deprecated: isFlag,
  description: isString,
  enum: (value) => Array.isArray(value) && value.length > 0,
  examples: Array.isArray,
  exclusiveMaximum: isNumber,
  exclusiveMinimum: isNumber,
  format: isString,
  maxContains: isCount,
  maxItems: isCount,
  maxLength: isCount,
  maxProperties: isCount,
  maximum: isNumber,
  minContains: isCount,
  minItems: isCount,
  minLength: isCount,
  minProperties: isCount,
  minimum: isNumber,
  multipleOf: (value) => isNumber(value) && value > 0,
  pattern: isPattern,
  readOnly: isFlag,
  required: areNames,
  title: isString,
  type: (value) =>
    Array.isArray(value)
      ? value.length > 0 && isSet(value) && value.every((name) => TYPES.includes(name))
      : TYPES.includes(value),
  uniqueItems: isFlag,
  writeOnly: isFlag,
};

function isNothing(): boolean {
  return false;
}

function isString(value: unknown): value is string {
  return typeof value === "string";
}

function isFlag(value: unknown): boolean {
  return typeof value === "boolean";
}

function isNumber(value: unknown): value is number {
  return typeof value === "number";
}

function isCount(value: unknown): boolean {
  return isNumber(value) && Number.isInteger(value) && value >= 0;
}

function isSet(list: readonly unknown[]): boolean {
  return new Set(list).size === list.length;
}

/** A list of different names. */
function areNames(value: unknown): boolean {
  return Array.isArray(value) && value.every(isString) && isSet(value);
}

/** A regular expression that some reader of this language takes: not all insist on the strict syntax. */
export function isPattern(value: unknown): boolean {
  if (!isString(value)) return false;
  try {
    void new RegExp(value);
    return true;
  } catch {
    return false;
  }
}
