/*
 * The keywords of JSON Schema (2020-12), by the form of their values. Providers reject a request if a keyword in one of
 * its schemas has a value of another form.
 */

export type Schema = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether the value can be a schema: an object, true or false. */
export function isSchema(value: unknown): value is Schema | boolean {
  return typeof value === "boolean" || isObject(value);
}

export const SCHEMA_KEYWORDS = [
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

/** Keywords for which providers accept boolean schemas. */
export const BOOLEAN_SCHEMA_KEYWORDS: readonly string[] = [
  "additionalProperties",
  "unevaluatedItems",
  "unevaluatedProperties",
];

/** Keywords whose value is a non-empty array of schemas. */
export const SCHEMA_LIST_KEYWORDS = ["allOf", "anyOf", "oneOf", "prefixItems"] as const;

/** Keywords whose value is an object with a schema for each name. */
export const SCHEMA_MAP_KEYWORDS = [
  "$defs",
  "definitions",
  "dependentSchemas",
  "patternProperties",
  "properties",
] as const;

/** Keywords that only define schemas. The defined schemas have no effect unless a reference names them. */
export const DEFINITION_KEYWORDS: readonly string[] = ["$defs", "definitions"];

/** Keywords that do not affect which values a schema accepts. */
export const ANNOTATION_KEYWORDS: readonly string[] = [
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

/** The checks of all keywords whose values are not schemas: each function returns whether a value is valid. */
export const VALUE_CHECKS: Readonly<Record<string, (value: unknown) => boolean>> = {
  $anchor: (value) => isString(value) && /^[A-Za-z_][-A-Za-z0-9._]*$/.test(value),
  $comment: isString,
  // The meaning of the `$dynamic…` and `$recursive…` keywords depends on the dynamic scope, which no client supports.
  $dynamicAnchor: isNeverValid,
  $dynamicRef: isNeverValid,
  $recursiveAnchor: isNeverValid,
  $recursiveRef: isNeverValid,
  $vocabulary: isNeverValid,
  $id: (value) => isString(value) && /^[^#]*#?$/.test(value),
  contentEncoding: isString,
  contentMediaType: isString,
  dependentRequired: (value) => isObject(value) && Object.values(value).every(isNameList),
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
  required: isNameList,
  title: isString,
  type: (value) =>
    Array.isArray(value)
      ? value.length > 0 && hasNoDuplicates(value) && value.every((name) => TYPES.includes(name))
      : TYPES.includes(value),
  uniqueItems: isFlag,
  writeOnly: isFlag,
};

function isNeverValid(): boolean {
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

function hasNoDuplicates(list: readonly unknown[]): boolean {
  return new Set(list).size === list.length;
}

/** Whether the value is an array of different names. */
function isNameList(value: unknown): boolean {
  return Array.isArray(value) && value.every(isString) && hasNoDuplicates(value);
}

/**
 * Whether JavaScript accepts the regular expression without the `u` flag. The flag would require a strict syntax that
 * not all JSON Schema implementations require.
 */
export function isPattern(value: unknown): boolean {
  if (!isString(value)) return false;
  try {
    void new RegExp(value);
    return true;
  } catch {
    return false;
  }
}
