import { describeValue } from "../manifest/problems.ts";
import { isTable, type Table } from "../manifest/table.ts";

/** One kind of value that a JSON Schema allows. */
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
  /** Schema of additional properties; undefined if they are forbidden. */
  readonly rest: JsonSchema | undefined;
}

/** A JSON Schema, and the root schema in which its `$ref`s are looked up. Unvalidated: a server may send anything. */
export interface JsonSchema {
  readonly schema: unknown;
  readonly root: unknown;
}

/**
 * The kinds of values that a schema allows. Unknown constructs of JSON Schema allow anything.
 * @param visitedRefs the `$ref`s followed so far; a circular one adds nothing
 */
export function formsOfSchema(
  { schema, root }: JsonSchema,
  visitedRefs: readonly string[] = [],
): readonly ValueForm[] {
  if (schema === false) return [];
  if (!isTable(schema)) return [ANY_FORM];
  const { $ref, allOf, anyOf, oneOf, ...ownKeywords } = schema;
  const formsOf = (inner: Table, refs = visitedRefs): readonly ValueForm[] =>
    formsOfSchema({ schema: inner, root }, refs);
  if (typeof $ref === "string") {
    if (visitedRefs.includes($ref)) return [];
    const target = resolveRef($ref, root);
    if (!isTable(target)) return [ANY_FORM];
    return formsOf(mergeSchemas({ allOf, anyOf, oneOf, ...ownKeywords }, target), [
      ...visitedRefs,
      $ref,
    ]);
  }
  if (Array.isArray(allOf))
    return formsOf(allOf.filter(isTable).reduce(mergeSchemas, { anyOf, oneOf, ...ownKeywords }));
  const alternatives = [anyOf, oneOf].find((list) => Array.isArray(list));
  if (alternatives !== undefined)
    return alternatives.flatMap((one: unknown) =>
      isTable(one) ? formsOf(mergeSchemas(ownKeywords, one)) : [ANY_FORM],
    );
  return formsOfType(ownKeywords, root);
}

const ANY_FORM: ValueForm = { kind: "any" };

function formsOfType(schema: Table, root: unknown): readonly ValueForm[] {
  if (Object.hasOwn(schema, "const")) return [{ kind: "choice", values: [schema["const"]] }];
  if (Array.isArray(schema["enum"])) return [{ kind: "choice", values: schema["enum"] }];
  return [schema["type"] ?? guessType(schema)].flat().map((type) => formOfType(type, schema, root));
}

function guessType(schema: Table): string | undefined {
  if (isTable(schema["properties"])) return "object";
  return isTable(schema["items"]) ? "array" : undefined;
}

function formOfType(type: unknown, schema: Table, root: unknown): ValueForm {
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
      return objectFormOf(schema, root);
    default:
      return ANY_FORM;
  }
}

function objectFormOf(schema: Table, root: unknown): ObjectValueForm {
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

/** Merges two schemas: unites their properties and required keys. For any other keyword, `other` takes precedence. */
function mergeSchemas(one: Table, other: Table): Table {
  const both = { ...one, ...other };
  const [properties, required] = ["properties", "required"].map((key) => [one[key], other[key]]);
  return {
    ...both,
    ...(properties?.every(isTable) && { properties: Object.assign({}, ...properties) as Table }),
    ...(required?.every(Array.isArray) && { required: required.flat() }),
  };
}

/** The schema that a `$ref` such as `#/$defs/Filter` points to; undefined if it is not in the same document. */
function resolveRef(ref: string, root: unknown): unknown {
  if (!ref.startsWith("#")) return undefined;
  let value = root;
  for (const part of ref.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Table)[key];
  }
  return value;
}

/** Describes what a value has to be: the text after "expected" in a message. */
export function describeForms(forms: readonly ValueForm[]): string {
  if (forms.length === 0) return "nothing";
  const texts = [...new Set(forms.slice(0, MAX_CHOICES).map(describeForm))].join(" or ");
  return forms.length <= MAX_CHOICES
    ? texts
    : `${texts} or … (${forms.length.toLocaleString("en-US")} forms)`;
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
      return form.values.length === 1
        ? choiceText(form.values[0])
        : `one of ${describeChoices(form.values)}`;
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

/** Maximum number of choices that are listed, and of characters of them; the number of the others is given. */
const MAX_CHOICES = 50;
const MAX_CHOICES_LENGTH = 1000;
/** Maximum length of one choice, in characters. */
const MAX_CHOICE_LENGTH = 200;

/** A value in words, cut if it is long. */
export function choiceText(
  value: unknown,
  format: (value: unknown) => string = formatJson,
): string {
  const text = format(value);
  return text.length <= MAX_CHOICE_LENGTH ? text : `${text.slice(0, MAX_CHOICE_LENGTH)}…`;
}

function formatJson(value: unknown): string {
  return JSON.stringify(value) ?? "nothing";
}

/** The choices of an `enum` in words. A server may list very many: only the first are shown, and how many there are. */
export function describeChoices(
  values: readonly unknown[],
  separator = ", ",
  format?: (value: unknown) => string,
): string {
  const shown: string[] = [];
  let length = 0;
  for (const value of values.slice(0, MAX_CHOICES)) {
    const text = choiceText(value, format);
    length += text.length;
    if (shown.length > 0 && length > MAX_CHOICES_LENGTH) break;
    shown.push(text);
  }
  const text = shown.join(separator);
  return shown.length === values.length
    ? text
    : `${text}${separator}… (${values.length.toLocaleString("en-US")} values)`;
}

/** The first place where a value does not match a schema. */
export interface SchemaMismatch {
  /** The path to the value that does not match, such as `.name` or `[0].name`; empty for the whole value. */
  readonly path: string;
  readonly expected: string;
  readonly found: string;
}

function describeActual(value: unknown): string {
  return isTable(value) ? "an object" : describeValue(value, true);
}

/**
 * The first mismatch of a JSON value; undefined if it matches. Lengths and ranges are not checked: the server does
 * that.
 */
export function findMismatch(
  value: unknown,
  forms: readonly ValueForm[],
): SchemaMismatch | undefined {
  let inner: SchemaMismatch | undefined;
  for (const form of forms) {
    const mismatch = findFormMismatch(value, form);
    if (mismatch === undefined) return undefined;
    if (mismatch.path !== "") inner ??= mismatch;
  }
  return inner ?? { path: "", expected: describeForms(forms), found: describeActual(value) };
}

function findFormMismatch(value: unknown, form: ValueForm): SchemaMismatch | undefined {
  switch (form.kind) {
    case "any":
      return undefined;
    case "null":
      return expectForm(value === null, value, form);
    case "boolean":
    case "number":
    case "string":
      return expectForm(typeof value === form.kind, value, form);
    case "integer":
      return expectForm(Number.isInteger(value), value, form);
    case "choice": {
      const text = JSON.stringify(value);
      return expectForm(
        form.values.some((one) => JSON.stringify(one) === text),
        value,
        form,
      );
    }
    case "array": {
      if (!Array.isArray(value)) return expectForm(false, value, form);
      const items = formsOfSchema(form.items);
      return firstMismatch(
        value.entries(),
        (i) => `[${i}]`,
        () => items,
      );
    }
    case "object":
      return isTable(value) ? findObjectMismatch(value, form) : expectForm(false, value, form);
  }
}

function findObjectMismatch(value: Table, { properties, required, rest }: ObjectValueForm) {
  const missing = required.find((key) => !Object.hasOwn(value, key));
  if (missing !== undefined) {
    const expected = describeForms(formsOfSchema(properties.get(missing) ?? ANY_SCHEMA));
    return { path: `.${missing}`, expected, found: "nothing" };
  }
  const formsOf = (key: string): readonly ValueForm[] => {
    const schema = properties.get(key) ?? rest;
    return schema === undefined ? [] : formsOfSchema(schema);
  };
  return firstMismatch(Object.entries(value), (key) => `.${key}`, formsOf);
}

const ANY_SCHEMA: JsonSchema = { schema: true, root: true };

function firstMismatch<Key>(
  entries: Iterable<readonly [Key, unknown]>,
  formatKey: (key: Key) => string,
  formsOf: (key: Key) => readonly ValueForm[],
): SchemaMismatch | undefined {
  for (const [key, value] of entries) {
    const mismatch = findMismatch(value, formsOf(key));
    if (mismatch !== undefined) return { ...mismatch, path: formatKey(key) + mismatch.path };
  }
  return undefined;
}

function expectForm(isMatch: boolean, value: unknown, form: ValueForm): SchemaMismatch | undefined {
  if (isMatch) return undefined;
  return { path: "", expected: describeForm(form), found: describeActual(value) };
}
