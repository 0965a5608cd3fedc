import { ANNOTATION_KEYWORDS, DEFINITION_KEYWORDS, isObject, type Schema } from "./keywords.ts";
import type { ChangeNotes } from "./notes.ts";
import { resolveReference } from "./references.ts";
import { isPropertyName } from "./repairer.ts";

/** The schema of arbitrary arguments. */
export const ANY_ARGUMENTS: Schema = { type: "object", properties: {} };

/** Maximum length of the text for the model, in UTF-16 units. */
const MAX_TEXT = 2000;

/** A root schema of type object, with a text to add to the tool's description; or the reason why there is none. */
export type RootResult =
  { readonly schema: Schema; readonly text?: string } | { readonly fault: string };

export function setObjectType(
  schema: Schema,
  notes: ChangeNotes,
  isForModels: boolean,
): RootResult {
  const names = [schema["type"]].flat();
  if (schema["type"] === "object") return { schema };
  const isOpen = schema["type"] === undefined && (isForModels || isObject(schema["properties"]));
  if (!isOpen && !names.includes("object")) return { fault: "it is not the schema of an object" };
  notes.add("the type of the whole set to object");
  return { schema: { ...schema, type: "object" } };
}

/** Replaces a `$ref` at the root by the schema that it refers to. */
export function resolveRootReference(schema: Schema, notes: ChangeNotes): Schema {
  const target = Object.hasOwn(schema, "$ref")
    ? resolveReference(schema, schema["$ref"])
    : undefined;
  if (!isObject(target)) return schema;
  const isOwn = (keyword: string): boolean =>
    keyword === "$ref" || [...ANNOTATION_KEYWORDS, ...DEFINITION_KEYWORDS].includes(keyword);
  notes.add("the reference at its root resolved");
  const { $ref: _, ...own } = schema;
  if (!Object.keys(schema).every(isOwn)) {
    const all = (own["allOf"] as unknown[] | undefined) ?? [];
    return { ...own, allOf: [...all, { $ref: schema["$ref"] }] };
  }
  // Keep the root's own definitions, because `#/$defs/…` references resolve against the root.
  const entries = Object.entries(target).filter(([key]) => !DEFINITION_KEYWORDS.includes(key));
  return { ...Object.fromEntries(entries), ...own };
}

/** Keywords that providers reject at the root. */
const COMBINING_KEYWORDS = ["allOf", "anyOf", "oneOf", "not", "enum", "const"] as const;

/**
 * Removes the combining keywords at the root. The arguments that they name are added to `properties`, and those that
 * are required in every case to `required`. If this loses constraints, the removed keywords become a text for the
 * model.
 */
export function flatten(schema: Schema, notes: ChangeNotes): RootResult {
  const found = COMBINING_KEYWORDS.filter((keyword) => Object.hasOwn(schema, keyword));
  if (found.length === 0) return { schema };
  const properties = new Map(
    Object.entries(isObject(schema["properties"]) ? schema["properties"] : {}),
  );
  const required = new Set(namesIn(schema["required"]));
  const isClosed = schema["additionalProperties"] === false;
  let isLossless = found.length === 1 && found[0] === "allOf";
  const add = (shapes: readonly ObjectShape[], mode: "all" | "any"): void => {
    const open = shapes.filter((shape) => !shape.isClosed).length;
    for (const [name, uses] of argumentSchemasOf(shapes)) {
      // If an alternative does not mention this argument, but allows unmentioned arguments, it accepts any value for
      // it.
      const isFree = mode === "any" && uses.open < open;
      if (isClosed || properties.has(name)) isLossless = false;
      else properties.set(name, isFree ? descriptionOnly(uses) : combineSchemas(uses, mode));
    }
    const needed = shapes.flatMap((shape) => [...shape.required]);
    for (const [name, count] of countEach(needed)) {
      if (mode === "all" || count === shapes.length) required.add(name);
    }
  };
  for (const keyword of ["allOf", "anyOf", "oneOf"] as const) {
    const list = schema[keyword];
    if (!Array.isArray(list)) continue;
    const shapes = list.map((part) => shapeOf(schema, part)).filter((shape) => shape !== undefined);
    const isEmpty = keyword === "allOf" ? shapes.length < list.length : shapes.length === 0;
    if (isEmpty) return { fault: "it accepts no arguments at all" };
    isLossless &&= shapes.every((shape) => shape.isLossless);
    add(shapes, keyword === "allOf" ? "all" : "any");
  }
  notes.add(`${found.join(", ")} at its root left out`);
  // Without the removed keywords, it is unknown which members count as evaluated, so `unevaluated…` is removed, too.
  const removed: readonly string[] = [...found, "unevaluatedItems", "unevaluatedProperties"];
  const kept = Object.entries(schema).filter(([key]) => !removed.includes(key));
  const whole = {
    ...Object.fromEntries(kept),
    ...(properties.size > 0 && { properties: Object.fromEntries(properties) }),
    ...(required.size > 0 && { required: [...required] }),
  };
  const rest = JSON.stringify(Object.fromEntries(found.map((key) => [key, schema[key]])));
  if (isLossless || rest.length > MAX_TEXT) return { schema: whole };
  return { schema: whole, text: `The arguments also have to match this JSON Schema: ${rest}` };
}

/** The constraints of a schema on its arguments, in a form that can be combined with other shapes. */
interface ObjectShape {
  readonly properties: Schema;
  readonly required: ReadonlySet<string>;
  /** Whether arguments that are not in `properties` are rejected. */
  readonly isClosed: boolean;
  /** Whether the schema has no constraints other than those in this shape. */
  readonly isLossless: boolean;
}

const SHAPE_KEYWORDS = [
  "type",
  "properties",
  "required",
  ...ANNOTATION_KEYWORDS,
  ...DEFINITION_KEYWORDS,
];

/** The shape of a schema, after its references are resolved; undefined if the schema accepts no object. */
function shapeOf(root: Schema, part: unknown): ObjectShape | undefined {
  let schema = part;
  // The loop ends because cyclic references were removed earlier.
  while (isObject(schema) && Object.hasOwn(schema, "$ref") && !isObject(schema["properties"])) {
    schema = resolveReference(root, schema["$ref"]);
  }
  if (schema === false) return undefined;
  if (!isObject(schema))
    return { properties: {}, required: new Set(), isClosed: false, isLossless: true };
  const { type: types, properties, required } = schema;
  if (types !== undefined && ![types].flat().includes("object")) return undefined;
  return {
    properties: isObject(properties) ? properties : {},
    required: new Set(namesIn(required)),
    isClosed: schema["additionalProperties"] === false && !isObject(schema["patternProperties"]),
    isLossless: Object.keys(schema).every((keyword) => SHAPE_KEYWORDS.includes(keyword)),
  };
}

/** The schemas that a set of shapes has for one argument. */
interface ArgumentSchemas {
  readonly schemas: unknown[];
  /** Number of shapes that mention this argument and also accept arguments that they do not mention. */
  open: number;
}

function argumentSchemasOf(shapes: readonly ObjectShape[]): ReadonlyMap<string, ArgumentSchemas> {
  const uses = new Map<string, ArgumentSchemas>();
  for (const { properties, isClosed } of shapes) {
    for (const [name, schema] of Object.entries(properties)) {
      const known = uses.get(name) ?? { schemas: [], open: 0 };
      uses.set(name, known);
      known.schemas.push(schema);
      if (!isClosed) known.open++;
    }
  }
  return uses;
}

function combineSchemas({ schemas }: ArgumentSchemas, mode: "all" | "any"): unknown {
  const each = distinct(schemas);
  return each.length === 1 ? each[0] : { [`${mode}Of`]: each };
}

/** A schema without constraints that has the first description among these schemas. */
function descriptionOnly({ schemas }: ArgumentSchemas): Schema {
  const descriptions = schemas.filter(isObject).map(({ description }) => description);
  const description = descriptions.find((text) => typeof text === "string");
  return description === undefined ? {} : { description };
}

function countEach(names: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

function distinct(schemas: readonly unknown[]): unknown[] {
  return [...new Map(schemas.map((schema) => [JSON.stringify(schema), schema])).values()];
}

function namesIn(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((name) => typeof name === "string") : [];
}

/** Moves arguments whose names providers reject to `patternProperties`, with the same meaning. */
export function moveInvalidNames(schema: Schema, notes: ChangeNotes): Schema {
  const { properties, patternProperties } = schema;
  if (!isObject(properties)) return schema;
  const invalid = Object.entries(properties).filter(([name]) => !isPropertyName(name));
  if (invalid.length === 0) return schema;
  const patterns = new Map(Object.entries(isObject(patternProperties) ? patternProperties : {}));
  for (const [name, value] of invalid) {
    notes.add("arguments with unusual names moved to patternProperties", {
      name,
      parent: undefined,
    });
    const pattern = `^${name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")}$`;
    patterns.set(
      pattern,
      patterns.has(pattern) ? { allOf: [patterns.get(pattern), value] } : value,
    );
  }
  const valid = Object.entries(properties).filter(([name]) => isPropertyName(name));
  return {
    ...schema,
    properties: Object.fromEntries(valid),
    patternProperties: Object.fromEntries(patterns),
  };
}
