import type { EditableSchema } from "./editable-schema.ts";
import { SCHEMA_KEYWORD_REMOVED } from "./notes.ts";
import { VALUE_CHECKS, isObject, isSchema, TYPES } from "./keywords.ts";

export interface DialectOptions {
  /** Whether keywords beside a `$ref` are ignored, as in drafts up to draft-07. */
  readonly ignoresRefSiblings: boolean;
  readonly isRoot: boolean;
  /** Called for each change. */
  readonly note: (what?: string) => void;
}

/** Keywords unknown to draft-07 and earlier. */
const KEYWORDS_SINCE_2019 = [
  "dependentRequired",
  "dependentSchemas",
  "maxContains",
  "minContains",
  "prefixItems",
  "unevaluatedItems",
  "unevaluatedProperties",
] as const;

/** Rewrites keywords of earlier drafts and of OpenAPI to 2020-12. */
export function rewriteOlderKeywords(draft: EditableSchema, dialect: DialectOptions): void {
  const { note } = dialect;
  for (const keyword of dialect.ignoresRefSiblings ? KEYWORDS_SINCE_2019 : []) {
    if (draft.has(keyword)) note();
    draft.delete(keyword);
  }
  const [type, items, required] = ["type", "items", "required"].map((key) => draft.get(key));
  if (draft.has("type") && !VALUE_CHECKS["type"]?.(type)) {
    const names = new Set([type].flat().map(toLowerCase));
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
    // It is unclear what an array-valued `items` means beside `prefixItems`, so `prefixItems` is dropped, too.
    if (draft.has("prefixItems")) draft.widen("prefixItems");
    else if (items.length > 0) draft.set("prefixItems", items);
    if (isSchema(rest)) draft.set("items", rest);
  }
  if (draft.has("$schema") && !(dialect.isRoot && isModern(draft.get("$schema")))) {
    note(SCHEMA_KEYWORD_REMOVED);
    draft.delete("$schema");
  }
  splitDependencies(draft, dialect);
}

/** Replaces `dependencies` (up to draft-07) by `dependentRequired` and `dependentSchemas` (since 2019-09). */
function splitDependencies(
  draft: EditableSchema,
  { note, ignoresRefSiblings }: DialectOptions,
): void {
  const dependencies = draft.get("dependencies");
  if (dependencies === undefined) return;
  note();
  // Only some 2020-12 validators apply `dependencies`, so it is dropped.
  draft.widen("dependencies");
  if (!ignoresRefSiblings || !isObject(dependencies)) return;
  for (const keyword of ["dependentRequired", "dependentSchemas"]) {
    const isWanted = keyword === "dependentRequired" ? Array.isArray : isSchema;
    const entries = Object.entries(dependencies).filter(([, value]) => isWanted(value));
    if (entries.length > 0 && !draft.has(keyword)) draft.set(keyword, Object.fromEntries(entries));
  }
}

function toLowerCase(name: unknown): unknown {
  return typeof name === "string" ? name.toLowerCase() : name;
}

/** Whether `$schema` names 2020-12, which is the default. */
function isModern(dialect: unknown): boolean {
  return typeof dialect === "string" && /\/2020-12\/schema#?$/.test(dialect);
}
