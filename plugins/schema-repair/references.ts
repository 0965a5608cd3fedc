import {
  DEFINITION_KEYWORDS,
  isObject,
  isSchema,
  SCHEMA_LIST_KEYWORDS,
  SCHEMA_MAP_KEYWORDS,
  type Schema,
  SCHEMA_KEYWORDS,
  TYPES,
} from "./keywords.ts";

/** Maximum nesting of a schema: deeper ones overflow the stack of common parsers. */
const MAX_DEPTH = 200;
/** Maximum number of values in a schema. */
const MAX_VALUES = 200_000;
/**
 * Maximum number of schemas after each reference is replaced by its target. Some clients and providers do this
 * replacement.
 */
const MAX_UNFOLDED = 100_000;

/**
 * The reason why a `$ref` has to be removed: it has no target, or it is part of a cycle. `type` is the `type` of the
 * target, if known.
 */
export type InvalidReference =
  { readonly to: "missing" } | { readonly to: "cycle"; readonly type: string | undefined };

export interface SchemaAnalysis {
  readonly invalidReferences: ReadonlyMap<Schema, InvalidReference>;
  readonly hasReferences: boolean;
  /** Whether any schema uses `unevaluatedItems` or `unevaluatedProperties`. */
  readonly hasUnevaluated: boolean;
}

/** The reason why the schema is too deep or too large to be processed; undefined if it is neither. */
export function findLimitViolation(value: unknown): string | undefined {
  let count = 0;
  let level = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) return `it is nested more than ${MAX_DEPTH} deep`;
    const next: unknown[] = [];
    for (const item of level) {
      if (typeof item !== "object" || item === null) continue;
      for (const inner of Object.values(item)) next.push(inner);
    }
    count += next.length;
    if (count > MAX_VALUES) return `it has more than ${MAX_VALUES} parts`;
    level = next;
  }
  return undefined;
}

/**
 * Analyzes the references in a schema. @returns the analysis, or a text that says why the schema cannot be repaired
 */
export function analyze(root: Schema): SchemaAnalysis | string {
  const schemas = collectSchemas(root);
  const invalidReferences = new Map<Schema, InvalidReference>();
  const targets = new Map<Schema, Schema | boolean>();
  for (const [schema, isEmbedded] of schemas) {
    if (!Object.hasOwn(schema, "$ref")) continue;
    const target = isEmbedded ? undefined : resolveReference(root, schema["$ref"]);
    const isKnown = typeof target === "boolean" || (target !== undefined && schemas.has(target));
    if (isKnown && target !== undefined) targets.set(schema, target);
    else invalidReferences.set(schema, { to: "missing" });
  }
  const size = targets.size === 0 ? 0 : countUnfolded(root, targets, invalidReferences);
  if (size > MAX_UNFOLDED) {
    return `what its references lead to would be more than ${MAX_UNFOLDED} schemas, each in its place`;
  }
  const hasUnevaluated = [...schemas.keys()].some(
    (schema) => "unevaluatedItems" in schema || "unevaluatedProperties" in schema,
  );
  return {
    invalidReferences,
    hasReferences: targets.size + invalidReferences.size > 0,
    hasUnevaluated,
  };
}

/** The direct subschemas: `defined` are those in `$defs` and `definitions`, `used` all others. */
function subschemasOf(schema: Schema): { readonly used: Schema[]; readonly defined: Schema[] } {
  const used: Schema[] = [];
  const defined: Schema[] = [];
  for (const keyword of Object.keys(schema)) {
    const list = DEFINITION_KEYWORDS.includes(keyword) ? defined : used;
    const value = schema[keyword];
    const isList = keyword === "items" && Array.isArray(value);
    if (
      (isList || CONTAINER_KEYWORDS.has(keyword)) &&
      typeof value === "object" &&
      value !== null
    ) {
      for (const part of Object.values(value)) if (isObject(part)) list.push(part);
    }
    if (SINGLE_SCHEMA_KEYWORDS.has(keyword) && isObject(value)) list.push(value);
  }
  return { used, defined };
}

// The keywords that contain schemas, including those of earlier drafts.
const CONTAINER_KEYWORDS: ReadonlySet<string> = new Set([
  ...SCHEMA_LIST_KEYWORDS,
  ...SCHEMA_MAP_KEYWORDS,
  "dependencies",
]);
const SINGLE_SCHEMA_KEYWORDS: ReadonlySet<string> = new Set([
  ...SCHEMA_KEYWORDS,
  "additionalItems",
]);

/**
 * Collects the schema and all its subschemas. The value of an entry is true if references in this subschema are
 * resolved against the `$id` of a subschema instead of the root.
 */
function collectSchemas(root: Schema): Map<Schema, boolean> {
  const schemas = new Map<Schema, boolean>([[root, false]]);
  // The loop adds entries to the Map: iterating a Map also visits entries that are added during the iteration.
  for (const [schema, isEmbedded] of schemas) {
    const { used, defined } = subschemasOf(schema);
    for (const child of [...used, ...defined]) {
      if (schemas.has(child)) continue;
      schemas.set(child, isEmbedded || typeof child["$id"] === "string");
    }
  }
  return schemas;
}

/** Resolves a reference within the schema: `#`, or `#/` and a JSON Pointer. */
export function resolveReference(root: Schema, reference: unknown): Schema | boolean | undefined {
  if (typeof reference !== "string" || !/^#(?:\/|$)/.test(reference)) return undefined;
  let value: unknown = root;
  for (const token of reference.split("/").slice(1)) {
    const key = decodePointerToken(token);
    if (
      key === undefined ||
      typeof value !== "object" ||
      value === null ||
      !Object.hasOwn(value, key)
    ) {
      return undefined;
    }
    value = (value as Readonly<Record<string, unknown>>)[key];
  }
  return isSchema(value) ? value : undefined;
}

function decodePointerToken(step: string): string | undefined {
  try {
    return decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
  } catch {
    return undefined;
  }
}

interface Visit {
  readonly schema: Schema;
  /** Subschemas and reference targets that are still to be visited. */
  readonly open: Step[];
  size: number;
}

interface Step {
  readonly to: Schema;
  readonly by: "part" | "definition" | "reference";
}

/**
 * Counts the schemas after replacing each reference by its target. References that close a cycle are added to
 * `invalidReferences`. Uses an explicit stack, as references may form long chains.
 */
function countUnfolded(
  root: Schema,
  targets: ReadonlyMap<Schema, Schema | boolean>,
  invalidReferences: Map<Schema, InvalidReference>,
): number {
  const sizes = new Map<Schema, number>();
  const running = new Set<Schema>();
  const visits: Visit[] = [];
  const enter = (schema: Schema): void => {
    const { used, defined } = subschemasOf(schema);
    const open: Step[] = defined.map((to) => ({ to, by: "definition" }));
    for (const to of used) open.push({ to, by: "part" });
    const target = targets.get(schema);
    if (isObject(target)) open.push({ to: target, by: "reference" });
    running.add(schema);
    visits.push({ schema, open, size: 1 });
  };
  enter(root);
  for (let visit = visits.at(-1); visit !== undefined; visit = visits.at(-1)) {
    const step = visit.open.at(-1);
    const known = step === undefined ? undefined : sizes.get(step.to);
    if (step === undefined) {
      visits.pop();
      running.delete(visit.schema);
      sizes.set(visit.schema, visit.size);
    } else if (known !== undefined) {
      visit.open.pop();
      if (step.by !== "definition") visit.size += known;
    } else if (running.has(step.to)) {
      visit.open.pop();
      const { type } = step.to;
      const isKnown = TYPES.includes(type);
      invalidReferences.set(visit.schema, {
        to: "cycle",
        type: isKnown ? (type as string) : undefined,
      });
    } else {
      enter(step.to);
    }
  }
  return sizes.get(root) ?? Infinity;
}
