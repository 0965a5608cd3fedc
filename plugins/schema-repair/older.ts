import type { Draft } from "./draft.ts";
import { MARK } from "./notes.ts";
import { FORMS, isObject, isSchema, TYPES } from "./keywords.ts";

export interface Dialect {
  /** Whether nothing beside a `$ref` counts, as it was up to draft-07. */
  readonly refStandsAlone: boolean;
  readonly isRoot: boolean;
  /** Called when something was done. */
  readonly note: (what?: string) => void;
}

/** Keywords that mean nothing up to draft-07. */
const NEWER = [
  "dependentRequired",
  "dependentSchemas",
  "maxContains",
  "minContains",
  "prefixItems",
  "unevaluatedItems",
  "unevaluatedProperties",
] as const;

/** Writes as in 2020-12 what was written otherwise before, or in OpenAPI. */
export function modernize(draft: Draft, dialect: Dialect): void {
  const { note } = dialect;
  for (const keyword of dialect.refStandsAlone ? NEWER : []) {
    if (draft.has(keyword)) note();
    draft.delete(keyword);
  }
  const [type, items, required] = ["type", "items", "required"].map((key) => draft.get(key));
  if (draft.has("type") && !FORMS["type"]?.(type)) {
    const names = new Set([type].flat().map(lower));
    if (names.size > 0 && [...names].every((name) => TYPES.includes(name))) {
      note();
      draft.set("type", Array.isArray(type) ? [...names] : [...names][0]);
    }
  }
  for (const [flag, bound] of [
    ["exclusiveMinimum", "minimum"],
    ["exclusiveMaximum", "maximum"],
  ] as const) {
    const isExclusive = draft.get(flag);
    if (typeof isExclusive !== "boolean") continue;
    note();
    draft.delete(flag);
    if (!isExclusive || typeof draft.get(bound) !== "number") continue;
    draft.set(flag, draft.get(bound));
    draft.delete(bound);
  }
  if (required === null || required === false) draft.delete("required");
  if (required === true) draft.widen("required");
  if (Array.isArray(required)) {
    const strings = [...new Set(required.filter((name) => typeof name === "string"))];
    if (strings.length < required.length) draft.set("required", strings);
  }
  if (required !== draft.get("required")) note();
  if (Array.isArray(items)) {
    note();
    const rest = draft.get("additionalItems");
    draft.delete("additionalItems");
    draft.delete("items");
    // With both, it cannot be said what was meant.
    if (draft.has("prefixItems")) draft.widen("prefixItems");
    else if (items.length > 0) draft.set("prefixItems", items);
    if (isSchema(rest)) draft.set("items", rest);
  }
  if (draft.has("$schema") && !(dialect.isRoot && isModern(draft.get("$schema")))) {
    note(MARK);
    draft.delete("$schema");
  }
  splitDependencies(draft, dialect);
}

/** `dependencies` counted up to draft-07, and has two names since. */
function splitDependencies(draft: Draft, { note, refStandsAlone }: Dialect): void {
  const dependencies = draft.get("dependencies");
  if (dependencies === undefined) return;
  note();
  // It depends on the reader whether it counts in the present one, so it may be missed or not.
  draft.widen("dependencies");
  if (!refStandsAlone || !isObject(dependencies)) return;
  for (const keyword of ["dependentRequired", "dependentSchemas"]) {
    const isWanted = keyword === "dependentRequired" ? Array.isArray : isSchema;
    const entries = Object.entries(dependencies).filter(([, value]) => isWanted(value));
    if (entries.length > 0 && !draft.has(keyword)) draft.set(keyword, Object.fromEntries(entries));
  }
}

function lower(name: unknown): unknown {
  return typeof name === "string" ? name.toLowerCase() : name;
}

/** Whether a `$schema` says what holds without it. */
function isModern(dialect: unknown): boolean {
  return typeof dialect === "string" && /\/2020-12\/schema#?$/.test(dialect);
}
