import { describeValue } from "../manifest/problems.ts";
import { isTable, type Table } from "../manifest/table.ts";

/** One alternative that a JSON Schema allows, as far as the command line needs it. */
export type ValueForm =
  | { readonly kind: "any" | "null" | "boolean" | "integer" | "number" }
  | { readonly kind: "string"; readonly base64: boolean }
  | { readonly kind: "choice"; readonly values: readonly unknown[] }
  | { readonly kind: "array"; readonly items: JsonSchema }
  | ObjectValueForm;

export interface ObjectValueForm {
  readonly kind: "object";
  readonly properties: ReadonlyMap<string, JsonSchema>;
  readonly required: readonly string[];
  /** Schema of additional properties; undefined: there must be none. */
  readonly rest: JsonSchema | undefined;
}

/** A JSON Schema, and its root for `$ref`. Unvalidated: a server may send anything. */
export interface JsonSchema {
  readonly schema: unknown;
  readonly root: unknown;
}

/**
 * The alternatives that a schema allows; unknown constructs allow anything.
 * @param trail the `$ref`s followed so far; a circular one adds nothing
 */
export function formsOfSchema(
  { schema, root }: JsonSchema,
  trail: readonly string[] = [],
): readonly ValueForm[] {
  if (schema === false) return [];
  if (!isTable(schema)) return [ANY];
  const { $ref, allOf, anyOf, oneOf, ...own } = schema;
  const again = (inner: Table, refs = trail): readonly ValueForm[] =>
    formsOfSchema({ schema: inner, root }, refs);
  if (typeof $ref === "string") {
    if (trail.includes($ref)) return [];
    const target = follow($ref, root);
    if (!isTable(target)) return [ANY];
    return again(merge({ allOf, anyOf, oneOf, ...own }, target), [...trail, $ref]);
  }
  if (Array.isArray(allOf))
    return again(allOf.filter(isTable).reduce(merge, { anyOf, oneOf, ...own }));
  const alternatives = [anyOf, oneOf].find((list) => Array.isArray(list));
  if (alternatives !== undefined)
    return alternatives.flatMap((one: unknown) => (isTable(one) ? again(merge(own, one)) : [ANY]));
  return readOwn(own, root);
}

const ANY: ValueForm = { kind: "any" };

function readOwn(schema: Table, root: unknown): readonly ValueForm[] {
  if (Object.hasOwn(schema, "const")) return [{ kind: "choice", values: [schema["const"]] }];
  if (Array.isArray(schema["enum"])) return [{ kind: "choice", values: schema["enum"] }];
  return [schema["type"] ?? guessType(schema)].flat().map((type) => readType(type, schema, root));
}

function guessType(schema: Table): string | undefined {
  if (isTable(schema["properties"])) return "object";
  return isTable(schema["items"]) ? "array" : undefined;
}

function readType(type: unknown, schema: Table, root: unknown): ValueForm {
  switch (type) {
    case "null":
    case "boolean":
    case "integer":
    case "number":
      return { kind: type };
    case "string":
      return { kind: type, base64: schema["contentEncoding"] === "base64" };
    case "array":
      return { kind: type, items: { schema: schema["items"], root } };
    case "object":
      return readObject(schema, root);
    default:
      return ANY;
  }
}

function readObject(schema: Table, root: unknown): ObjectValueForm {
  const { properties, required, additionalProperties, patternProperties } = schema;
  const known = Object.entries(isTable(properties) ? properties : {});
  const isClosed = additionalProperties === false && patternProperties === undefined;
  const rest = additionalProperties === false ? undefined : additionalProperties;
  return {
    kind: "object",
    properties: new Map(known.map(([key, inner]) => [key, { schema: inner, root }])),
    required: (Array.isArray(required) ? required : []).filter((key) => typeof key === "string"),
    rest: isClosed ? undefined : { schema: rest, root },
  };
}

/** Approximates `allOf`: properties and required keys of both; otherwise `other` wins. */
function merge(one: Table, other: Table): Table {
  const both = { ...one, ...other };
  const [properties, required] = ["properties", "required"].map((key) => [one[key], other[key]]);
  return {
    ...both,
    ...(properties?.every(isTable) && { properties: Object.assign({}, ...properties) as Table }),
    ...(required?.every(Array.isArray) && { required: required.flat() }),
  };
}

/** The value of a `$ref` within the same schema, such as `#/$defs/Filter`. */
function follow(ref: string, root: unknown): unknown {
  if (!ref.startsWith("#")) return undefined;
  let value = root;
  for (const part of ref.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Table)[key];
  }
  return value;
}

/** The text after "expected". */
export function describeForms(forms: readonly ValueForm[]): string {
  return forms.length === 0 ? "nothing" : [...new Set(forms.map(describeForm))].join(" or ");
}

function describeForm(form: ValueForm): string {
  switch (form.kind) {
    case "any":
      return "anything";
    case "null":
      return "null";
    case "boolean":
      return "true or false";
    case "integer":
      return "a whole number";
    case "number":
      return "a number";
    case "string":
      return "a text";
    case "choice": {
      const values = form.values.map((value) => JSON.stringify(value));
      return values.length === 1 ? values.join("") : `one of ${values.join(", ")}`;
    }
    case "array": {
      const items = formsOfSchema(form.items);
      return items.some(({ kind }) => kind === "any")
        ? "an array"
        : `an array, each element ${describeForms(items)}`;
    }
    case "object":
      return "an object";
  }
}

/** Where a value does not match. */
export interface SchemaMismatch {
  /** Such as `.name` or `[0].name`; empty for the value itself. */
  readonly path: string;
  readonly expected: string;
  readonly found: string;
}

function describeFound(value: unknown): string {
  return isTable(value) ? "an object" : describeValue(value, true);
}

/** The first mismatch of a JSON value; undefined if it matches. Lengths and ranges are left to the server. */
export function findMismatch(
  value: unknown,
  forms: readonly ValueForm[],
): SchemaMismatch | undefined {
  let inner: SchemaMismatch | undefined;
  for (const form of forms) {
    const misfit = findFault(value, form);
    if (misfit === undefined) return undefined;
    if (misfit.path !== "") inner ??= misfit;
  }
  return inner ?? { path: "", expected: describeForms(forms), found: describeFound(value) };
}

function findFault(value: unknown, form: ValueForm): SchemaMismatch | undefined {
  switch (form.kind) {
    case "any":
      return undefined;
    case "null":
      return demand(value === null, value, form);
    case "boolean":
    case "number":
    case "string":
      return demand(typeof value === form.kind, value, form);
    case "integer":
      return demand(Number.isInteger(value), value, form);
    case "choice": {
      const text = JSON.stringify(value);
      return demand(
        form.values.some((one) => JSON.stringify(one) === text),
        value,
        form,
      );
    }
    case "array": {
      if (!Array.isArray(value)) return demand(false, value, form);
      const items = formsOfSchema(form.items);
      return firstOf(
        value.entries(),
        (i) => `[${i}]`,
        () => items,
      );
    }
    case "object":
      return isTable(value) ? findObjectFault(value, form) : demand(false, value, form);
  }
}

function findObjectFault(value: Table, { properties, required, rest }: ObjectValueForm) {
  const missing = required.find((key) => !Object.hasOwn(value, key));
  if (missing !== undefined) {
    const expected = describeForms(formsOfSchema(properties.get(missing) ?? ANYTHING));
    return { path: `.${missing}`, expected, found: "nothing" };
  }
  const formsOf = (key: string): readonly ValueForm[] => {
    const schema = properties.get(key) ?? rest;
    return schema === undefined ? [] : formsOfSchema(schema);
  };
  return firstOf(Object.entries(value), (key) => `.${key}`, formsOf);
}

const ANYTHING: JsonSchema = { schema: true, root: true };

function firstOf<Key>(
  entries: Iterable<readonly [Key, unknown]>,
  print: (key: Key) => string,
  formsOf: (key: Key) => readonly ValueForm[],
): SchemaMismatch | undefined {
  for (const [key, value] of entries) {
    const misfit = findMismatch(value, formsOf(key));
    if (misfit !== undefined) return { ...misfit, path: print(key) + misfit.path };
  }
  return undefined;
}

function demand(holds: boolean, value: unknown, form: ValueForm): SchemaMismatch | undefined {
  if (holds) return undefined;
  return { path: "", expected: describeForm(form), found: describeFound(value) };
}
