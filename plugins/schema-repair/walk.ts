import {
  ANNOTATIONS,
  DEFINITIONS,
  FORMS,
  isObject,
  isPattern,
  isSchema,
  LISTS,
  MAPS,
  type Schema,
  SINGLE,
  SWITCHES,
} from "./keywords.ts";
import { Draft, type Outcome } from "./draft.ts";
import { modernize } from "./older.ts";
import type { Survey } from "./references.ts";
import type { Notes, Place } from "./notes.ts";

export interface WalkOptions extends Survey {
  /** Whether nothing beside a `$ref` counts, as it was up to draft-07. */
  readonly refStandsAlone: boolean;
  /** Whether what references lead to may have become wider. */
  readonly areTargetsWider: boolean;
  /** Whether it is to be sent to models' providers, who want to be told more than the standard does. */
  readonly isForModels: boolean;
  readonly notes: Notes;
}

/**
 * Makes of a schema one whose every keyword has the form that the standard wants, without references that lead nowhere or in
 * a circle. What it accepted it still accepts: where that is not so clear, something is left out.
 */
export class Walk {
  readonly #options: WalkOptions;
  /** Whether anything has become wider, definitions included. */
  hasWidened = false;

  constructor(options: WalkOptions) {
    this.#options = options;
  }

  /** @param place undefined for the root */
  repair(value: unknown, place: Place | undefined): Outcome {
    if (typeof value === "boolean") {
      this.#note("true and false written as schemas", place);
      return { schema: value ? {} : { not: {} }, isWider: false };
    }
    if (!isObject(value)) {
      this.#note("what is no schema left out", place);
      this.hasWidened = true;
      return { schema: {}, isWider: true };
    }
    const draft = new Draft(value);
    this.#cutReference(draft, value, place);
    modernize(draft, {
      refStandsAlone: this.#options.refStandsAlone,
      isRoot: place === undefined,
      note: (what = OLDER) => this.#note(what, place),
    });
    this.#checkForms(draft, place);
    this.#descend(draft, place);
    if (this.#options.isForModels) this.#complete(draft, place);
    if (draft.isWider) this.hasWidened = true;
    if (draft.has("$ref") && this.#options.areTargetsWider) draft.isWider = true;
    this.#settle(draft);
    return draft.outcome;
  }

  #note(what: string, place: Place | undefined): void {
    this.#options.notes.add(what, place);
  }

  #cutReference(draft: Draft, schema: Schema, place: Place | undefined): void {
    if (!draft.has("$ref")) return;
    const { cuts, refStandsAlone } = this.#options;
    // Not all readers know that nothing beside it counts: what is left suits those who do, and those who do not.
    const ignored = refStandsAlone ? draft.keywords().filter(isIgnored) : [];
    if (ignored.length > 0) {
      this.#note(OLDER, place);
      draft.widen(...ignored);
    }
    const cut = cuts.get(schema);
    if (cut === undefined) return;
    const where = cut.to === "nowhere" ? "that lead nowhere" : "in a circle";
    this.#note(`references ${where} left out`, place);
    draft.widen("$ref");
    if (cut.to === "itself" && cut.type !== undefined && !draft.has("type")) {
      draft.set("type", cut.type);
    }
  }

  #checkForms(draft: Draft, place: Place | undefined): void {
    const drop = (keyword: string, ...others: readonly string[]): void => {
      this.#note(`${keyword} left out, as it made no sense`, place);
      draft.delete(keyword);
      if (!ANNOTATIONS.includes(keyword)) draft.widen(...others);
    };
    for (const keyword of draft.keywords()) {
      const isForm = Object.hasOwn(FORMS, keyword) ? FORMS[keyword] : undefined;
      if (isForm === undefined || !draft.has(keyword) || isForm(draft.get(keyword))) continue;
      // Without the number, one would do, or any.
      if (keyword.endsWith("Contains")) drop(keyword, "contains", "minContains", "maxContains");
      else drop(keyword);
    }
    for (const keyword of SINGLE) {
      if (draft.has(keyword) && !isSchema(draft.get(keyword))) drop(keyword);
    }
    for (const keyword of LISTS) {
      const list = draft.get(keyword);
      if (!draft.has(keyword) || (Array.isArray(list) && list.length > 0)) continue;
      // What follows the items of a list begins where they end.
      drop(keyword, ...(keyword === "prefixItems" ? ["items"] : []));
    }
    for (const keyword of MAPS) {
      const map = draft.get(keyword);
      const isFine =
        isObject(map) && (keyword !== "patternProperties" || Object.keys(map).every(isPattern));
      // What else there may be is what these do not name.
      if (draft.has(keyword) && !isFine) drop(keyword, "additionalProperties");
    }
  }

  #descend(draft: Draft, place: Place | undefined): void {
    for (const keyword of SINGLE) {
      const value = draft.get(keyword);
      if (value === undefined) continue;
      const isSwitch = SWITCHES.includes(keyword) || keyword === "items";
      if (typeof value === "boolean" && isSwitch && !(keyword === "items" && value)) continue;
      const { schema, isWider } = this.repair(value, { name: keyword, above: place });
      draft.set(keyword, schema);
      if (isWider) this.#loosen(draft, keyword);
    }
    for (const keyword of LISTS) {
      const list = draft.get(keyword);
      if (!Array.isArray(list)) continue;
      const above: Place = { name: keyword, above: place };
      const results = list.map((item, i) => this.repair(item, { name: `${i}`, above }));
      const isChanged = results.some(({ schema }, i) => schema !== list[i]);
      if (isChanged)
        draft.set(
          keyword,
          results.map(({ schema }) => schema),
        );
      if (results.some(({ isWider }) => isWider)) this.#loosen(draft, keyword);
    }
    for (const keyword of MAPS) {
      const map = draft.get(keyword);
      if (!isObject(map)) continue;
      const above: Place = { name: keyword, above: place };
      const results = Object.entries(map).map(
        ([name, item]) => [name, item, this.repair(item, { name, above })] as const,
      );
      const isChanged = results.some(([, before, { schema }]) => schema !== before);
      if (isChanged) {
        draft.set(
          keyword,
          Object.fromEntries(results.map(([name, , { schema }]) => [name, schema])),
        );
      }
      const isWider = results.some(([, , outcome]) => outcome.isWider);
      if (isWider && !DEFINITIONS.includes(keyword)) draft.isWider = true;
    }
  }

  /** Where a wider part would make the whole narrower, the whole gives way. */
  #loosen(draft: Draft, keyword: string): void {
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

  /** Says what goes without saying, and what some providers want to have said. */
  #complete(draft: Draft, place: Place | undefined): void {
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
    // They are no longer among what is additional.
    if (draft.has("additionalProperties") || this.#options.hasUnevaluated) draft.isWider = true;
  }

  /** What others have left over is less than before where these look at more; then nothing is asked of it. */
  #settle(draft: Draft): void {
    if (draft.isWider) for (const each of UNEVALUATED) draft.delete(each);
  }
}

/** Whether a keyword means nothing beside a `$ref`, up to draft-07. */
function isIgnored(keyword: string): boolean {
  return keyword !== "$ref" && !ANNOTATIONS.includes(keyword) && !DEFINITIONS.includes(keyword);
}

const OLDER = "keywords of older drafts rewritten";

const UNEVALUATED = ["unevaluatedItems", "unevaluatedProperties"] as const;

/** What providers take as the name of an argument. */
export function isPropertyName(name: string): boolean {
  return /^[a-zA-Z0-9_.-]{1,64}$/.test(name);
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value === "number" && Number.isInteger(value) ? "integer" : typeof value;
}
