import {
  DEFINITIONS,
  isObject,
  isSchema,
  LISTS,
  MAPS,
  type Schema,
  SINGLE,
  TYPES,
} from "./keywords.ts";

/** Nested deeper than this, schemas overflow the stacks of those who read them. */
const MAX_DEPTH = 200;
/** What takes longer to read is no description of a tool. */
const MAX_VALUES = 200_000;
/** What references may unfold to: some clients, and some providers, put what they lead to in their place. */
const MAX_UNFOLDED = 100_000;

/** Where a reference leads that has to go; in a circle, to what `type`, if that is known. */
export type Cut =
  { readonly to: "nowhere" } | { readonly to: "itself"; readonly type: string | undefined };

/** What has to be known of a whole schema before its parts can be looked at. */
export interface Survey {
  /** Schemas whose `$ref` has to go. */
  readonly cuts: ReadonlyMap<Schema, Cut>;
  readonly hasReferences: boolean;
  /** Whether anything asks what other keywords have looked at. */
  readonly hasUnevaluated: boolean;
}

/** What is too deep or too long to be looked at; undefined if nothing is. */
export function findExcess(value: unknown): string | undefined {
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

/** @returns why nothing can be made of it, if that is so. */
export function survey(root: Schema): Survey | string {
  const parts = collect(root);
  const cuts = new Map<Schema, Cut>();
  const targets = new Map<Schema, Schema | boolean>();
  for (const [schema, isEmbedded] of parts) {
    if (!Object.hasOwn(schema, "$ref")) continue;
    const target = isEmbedded ? undefined : resolve(root, schema["$ref"]);
    const isKnown = typeof target === "boolean" || (target !== undefined && parts.has(target));
    if (isKnown && target !== undefined) targets.set(schema, target);
    else cuts.set(schema, { to: "nowhere" });
  }
  const size = targets.size === 0 ? 0 : unfold(root, targets, cuts);
  if (size > MAX_UNFOLDED) {
    return `what its references lead to would be more than ${MAX_UNFOLDED} schemas, each in its place`;
  }
  const hasUnevaluated = [...parts.keys()].some(
    (schema) => "unevaluatedItems" in schema || "unevaluatedProperties" in schema,
  );
  return { cuts, hasReferences: targets.size + cuts.size > 0, hasUnevaluated };
}

/** The schemas directly in a schema, those apart that count only where a reference leads to them. */
function partsOf(schema: Schema): { readonly used: Schema[]; readonly defined: Schema[] } {
  const used: Schema[] = [];
  const defined: Schema[] = [];
  for (const keyword of Object.keys(schema)) {
    const to = DEFINITIONS.includes(keyword) ? defined : used;
    const value = schema[keyword];
    const isList = keyword === "items" && Array.isArray(value);
    if ((isList || HOLDERS.has(keyword)) && typeof value === "object" && value !== null) {
      for (const part of Object.values(value)) if (isObject(part)) to.push(part);
    }
    if (SINGLES.has(keyword) && isObject(value)) to.push(value);
  }
  return { used, defined };
}

// Together with what there was before 2020-12.
const HOLDERS: ReadonlySet<string> = new Set([...LISTS, ...MAPS, "dependencies"]);
const SINGLES: ReadonlySet<string> = new Set([...SINGLE, "additionalItems"]);

/** All schemas in a schema, itself included, and whether references in them do not start at the root. */
function collect(root: Schema): Map<Schema, boolean> {
  const parts = new Map<Schema, boolean>([[root, false]]);
  // A map is gone through in the order in which it grows.
  for (const [schema, isEmbedded] of parts) {
    const { used, defined } = partsOf(schema);
    for (const child of [...used, ...defined]) {
      if (parts.has(child)) continue;
      parts.set(child, isEmbedded || typeof child["$id"] === "string");
    }
  }
  return parts;
}

/** What a reference within the same schema leads to: `#`, or `#/` and a path. */
export function resolve(root: Schema, reference: unknown): Schema | boolean | undefined {
  if (typeof reference !== "string" || !/^#(?:\/|$)/.test(reference)) return undefined;
  let at: unknown = root;
  for (const step of reference.split("/").slice(1)) {
    const key = decode(step);
    if (key === undefined || typeof at !== "object" || at === null || !Object.hasOwn(at, key)) {
      return undefined;
    }
    at = (at as Readonly<Record<string, unknown>>)[key];
  }
  return isSchema(at) ? at : undefined;
}

function decode(step: string): string | undefined {
  try {
    return decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
  } catch {
    return undefined;
  }
}

interface Visit {
  readonly schema: Schema;
  /** What it holds or leads to and has not been visited yet. */
  readonly open: Step[];
  size: number;
}

interface Step {
  readonly to: Schema;
  readonly by: "part" | "definition" | "reference";
}

/**
 * How many schemas there are if each reference is replaced by what it leads to. References that close a circle are added to
 * `cuts`. With a stack of its own: references may form long chains.
 */
function unfold(
  root: Schema,
  targets: ReadonlyMap<Schema, Schema | boolean>,
  cuts: Map<Schema, Cut>,
): number {
  const sizes = new Map<Schema, number>();
  const running = new Set<Schema>();
  const visits: Visit[] = [];
  const enter = (schema: Schema): void => {
    const { used, defined } = partsOf(schema);
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
      cuts.set(visit.schema, { to: "itself", type: isKnown ? (type as string) : undefined });
    } else {
      enter(step.to);
    }
  }
  return sizes.get(root) ?? Infinity;
}
