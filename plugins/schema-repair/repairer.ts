import {
  ANNOTATION_KEYWORDS,
  DEFINITION_KEYWORDS,
  VALUE_CHECKS,
  isObject,
  isPattern,
  isSchema,
  SCHEMA_LIST_KEYWORDS,
  SCHEMA_MAP_KEYWORDS,
  type Schema,
  SCHEMA_KEYWORDS,
  BOOLEAN_SCHEMA_KEYWORDS,
} from "./keywords.ts";
import { EditableSchema, type RepairedSchema } from "./editable-schema.ts";
import { rewriteOlderKeywords } from "./older-keywords.ts";
import type { SchemaAnalysis } from "./references.ts";
import type { ChangeNotes, SchemaLocation } from "./notes.ts";

export interface RepairerOptions extends SchemaAnalysis {
  /** Whether keywords beside a `$ref` are ignored, as in drafts up to draft-07. */
  readonly ignoresRefSiblings: boolean;
  /** Whether the targets of `$ref`s may accept more values than before the repair. */
  readonly areTargetsWider: boolean;
  /** Whether the schema is sent to models' providers, which require more than the standard. */
  readonly isForModels: boolean;
  readonly notes: ChangeNotes;
}

/**
 * Repairs a schema and its subschemas: every keyword gets a valid value, and dangling or cyclic references are
 * removed. The result accepts every value that the schema accepted. Keywords whose meaning is unclear are removed.
 */
export class SchemaRepairer {
  readonly #options: RepairerOptions;
  /** Whether any schema was widened, definitions included. */
  hasWidened = false;

  constructor(options: RepairerOptions) {
    this.#options = options;
  }

  /** @param location undefined for the root */
  repair(value: unknown, location: SchemaLocation | undefined): RepairedSchema {
    if (typeof value === "boolean") {
      this.#note("true and false written as schemas", location);
      return { schema: value ? {} : { not: {} }, isWider: false };
    }
    if (!isObject(value)) {
      this.#note("invalid schemas left out", location);
      this.hasWidened = true;
      return { schema: {}, isWider: true };
    }
    const draft = new EditableSchema(value);
    this.#removeInvalidReference(draft, value, location);
    rewriteOlderKeywords(draft, {
      ignoresRefSiblings: this.#options.ignoresRefSiblings,
      isRoot: location === undefined,
      note: (what = OLDER_KEYWORDS_REWRITTEN) => this.#note(what, location),
    });
    this.#checkValues(draft, location);
    this.#repairSubschemas(draft, location);
    if (this.#options.isForModels) this.#addImplied(draft, location);
    if (draft.isWider) this.hasWidened = true;
    if (draft.has("$ref") && this.#options.areTargetsWider) draft.isWider = true;
    this.#dropUnevaluated(draft);
    return draft.result;
  }

  #note(what: string, place: SchemaLocation | undefined): void {
    this.#options.notes.add(what, place);
  }

  #removeInvalidReference(
    draft: EditableSchema,
    schema: Schema,
    place: SchemaLocation | undefined,
  ): void {
    if (!draft.has("$ref")) return;
    const { invalidReferences, ignoresRefSiblings } = this.#options;
    // Implementations differ on whether keywords beside a `$ref` apply. Without these keywords, the schema means the
    // same to all of them.
    const ignored = ignoresRefSiblings ? draft.keywords().filter(isIgnored) : [];
    if (ignored.length > 0) {
      this.#note(OLDER_KEYWORDS_REWRITTEN, place);
      draft.widen(...ignored);
    }
    const invalid = invalidReferences.get(schema);
    if (invalid === undefined) return;
    const what = invalid.to === "missing" ? "references that lead nowhere" : "cyclic references";
    this.#note(`${what} left out`, place);
    draft.widen("$ref");
    if (invalid.to === "cycle" && invalid.type !== undefined && !draft.has("type")) {
      draft.set("type", invalid.type);
    }
  }

  #checkValues(draft: EditableSchema, place: SchemaLocation | undefined): void {
    const drop = (keyword: string, ...others: readonly string[]): void => {
      this.#note(`${keyword} left out, as it made no sense`, place);
      draft.delete(keyword);
      if (!ANNOTATION_KEYWORDS.includes(keyword)) draft.widen(...others);
    };
    for (const keyword of draft.keywords()) {
      const isForm = Object.hasOwn(VALUE_CHECKS, keyword) ? VALUE_CHECKS[keyword] : undefined;
      if (isForm === undefined || !draft.has(keyword) || isForm(draft.get(keyword))) continue;
      // Without `minContains` or `maxContains`, `contains` would mean something else, so all three are removed.
      if (keyword.endsWith("Contains")) drop(keyword, "contains", "minContains", "maxContains");
      else drop(keyword);
    }
    for (const keyword of SCHEMA_KEYWORDS) {
      if (draft.has(keyword) && !isSchema(draft.get(keyword))) drop(keyword);
    }
    for (const keyword of SCHEMA_LIST_KEYWORDS) {
      const list = draft.get(keyword);
      if (!draft.has(keyword) || (Array.isArray(list) && list.length > 0)) continue;
      // Without `prefixItems`, `items` would apply to all elements instead of the later ones, so it is removed, too.
      drop(keyword, ...(keyword === "prefixItems" ? ["items"] : []));
    }
    for (const keyword of SCHEMA_MAP_KEYWORDS) {
      const map = draft.get(keyword);
      const isValid =
        isObject(map) && (keyword !== "patternProperties" || Object.keys(map).every(isPattern));
      // Without this keyword, `additionalProperties` would apply to more names than before, so it is removed, too.
      if (draft.has(keyword) && !isValid) drop(keyword, "additionalProperties");
    }
  }

  #repairSubschemas(draft: EditableSchema, place: SchemaLocation | undefined): void {
    for (const keyword of SCHEMA_KEYWORDS) {
      const value = draft.get(keyword);
      if (value === undefined) continue;
      const isSwitch = BOOLEAN_SCHEMA_KEYWORDS.includes(keyword) || keyword === "items";
      if (typeof value === "boolean" && isSwitch && !(keyword === "items" && value)) continue;
      const { schema, isWider } = this.repair(value, { name: keyword, parent: place });
      draft.set(keyword, schema);
      if (isWider) this.#adjustToWidened(draft, keyword);
    }
    for (const keyword of SCHEMA_LIST_KEYWORDS) {
      const list = draft.get(keyword);
      if (!Array.isArray(list)) continue;
      const above: SchemaLocation = { name: keyword, parent: place };
      const results = list.map((item, i) => this.repair(item, { name: `${i}`, parent: above }));
      const isChanged = results.some(({ schema }, i) => schema !== list[i]);
      if (isChanged)
        draft.set(
          keyword,
          results.map(({ schema }) => schema),
        );
      if (results.some(({ isWider }) => isWider)) this.#adjustToWidened(draft, keyword);
    }
    for (const keyword of SCHEMA_MAP_KEYWORDS) {
      const map = draft.get(keyword);
      if (!isObject(map)) continue;
      const above: SchemaLocation = { name: keyword, parent: place };
      const results = Object.entries(map).map(
        ([name, item]) => [name, item, this.repair(item, { name, parent: above })] as const,
      );
      const isChanged = results.some(([, before, { schema }]) => schema !== before);
      if (isChanged) {
        draft.set(
          keyword,
          Object.fromEntries(results.map(([name, , { schema }]) => [name, schema])),
        );
      }
      const isWider = results.some(([, , outcome]) => outcome.isWider);
      if (isWider && !DEFINITION_KEYWORDS.includes(keyword)) draft.isWider = true;
    }
  }

  /**
   * Adjusts a schema after the subschema at `keyword` was widened. A wider `not`, for example, would make its parent
   * narrower, so such keywords are removed or replaced.
   */
  #adjustToWidened(draft: EditableSchema, keyword: string): void {
    draft.isWider = true;
    if (keyword === "not") draft.delete("not");
    if (keyword === "if") for (const each of ["if", "then", "else"]) draft.delete(each);
    if (keyword === "contains") draft.delete("maxContains");
    if (keyword !== "oneOf") return;
    const either = { anyOf: draft.get("oneOf") };
    draft.delete("oneOf");
    if (!draft.has("anyOf")) draft.set("anyOf", either.anyOf);
    else draft.set("allOf", [...((draft.get("allOf") as unknown[] | undefined) ?? []), either]);
  }

  /** Adds keywords that the standard implies, but that some providers require. */
  #addImplied(draft: EditableSchema, place: SchemaLocation | undefined): void {
    const values = draft.get("enum");
    if (!draft.has("type") && (values !== undefined || draft.has("const"))) {
      const types = new Set((Array.isArray(values) ? values : [draft.get("const")]).map(typeOf));
      if (types.has("number")) types.delete("integer");
      const [only] = types;
      if (types.size === 1) {
        this.#note("missing types added", place);
        draft.set("type", only);
      }
    }
    const isList = [draft.get("type")].flat().includes("array");
    if (isList && !draft.has("items") && !this.#options.hasUnevaluated) {
      this.#note("missing items added", place);
      draft.set("items", {});
    }
    const properties = draft.get("properties");
    const required = draft.get("required");
    if (!isObject(properties) || !Array.isArray(required)) return;
    const absent = (required as string[]).filter(
      (name) => !Object.hasOwn(properties, name) && isPropertyName(name),
    );
    if (absent.length === 0) return;
    this.#note("required properties added that were not described", place);
    const added = Object.fromEntries(absent.map((name) => [name, {}]));
    draft.set("properties", { ...properties, ...added });
    // `additionalProperties` and `unevaluatedProperties` no longer apply to the properties added here, so the schema
    // may accept more.
    if (draft.has("additionalProperties") || this.#options.hasUnevaluated) draft.isWider = true;
  }

  /** Removes the `unevaluated…` keywords if the schema was widened, because widening changes what they apply to. */
  #dropUnevaluated(draft: EditableSchema): void {
    if (draft.isWider) for (const each of UNEVALUATED_KEYWORDS) draft.delete(each);
  }
}

/** Whether the drafts up to draft-07 ignore the keyword beside a `$ref`. */
function isIgnored(keyword: string): boolean {
  return (
    keyword !== "$ref" &&
    !ANNOTATION_KEYWORDS.includes(keyword) &&
    !DEFINITION_KEYWORDS.includes(keyword)
  );
}

const OLDER_KEYWORDS_REWRITTEN = "keywords of older drafts rewritten";

const UNEVALUATED_KEYWORDS = ["unevaluatedItems", "unevaluatedProperties"] as const;

/** Whether providers accept this name for an argument. */
export function isPropertyName(name: string): boolean {
  return /^[a-zA-Z0-9_.-]{1,64}$/.test(name);
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value === "number" && Number.isInteger(value) ? "integer" : typeof value;
}
