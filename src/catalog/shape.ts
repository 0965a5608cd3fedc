import { conform, type SchemaRules } from "./conformance.ts";
import { isShowable, type Item, type Kind } from "./listing.ts";
import {
  type Digest,
  isExposable,
  matchesGlob,
  type NameRules,
  prefixName,
  shortenName,
} from "./names.ts";
import { overriddenNames, overrideTool, type ToolOverrides } from "./tool-overrides.ts";
import type { Entry } from "./section.ts";

/** The kinds with names, which clients see with a prefix; the other kinds have URIs. */
export type NamedKind = "tools" | "prompts";

export function isNamed(kind: Kind): kind is NamedKind {
  return kind === "tools" || kind === "prompts";
}

/** The manifest's settings for a server's tools or prompts; all keys are remote names. */
export interface ShapeRules extends ToolOverrides {
  /** Empty: no prefix. */
  readonly prefix: string;
  /** Globs; undefined allows everything. */
  readonly allow: readonly string[] | undefined;
  readonly deny: readonly string[];
  readonly rename: Readonly<Record<string, string>>;
}

/** A note on an entry that clients do not see, or see changed or renamed, and why. */
export interface Remark {
  readonly server: string;
  /** The server's list that contains the entry. */
  readonly list: Kind;
  readonly remoteName: string;
  readonly kind:
    | "filtered"
    | "hidden"
    | "duplicate"
    | "clash"
    | "shortened"
    /** The manifest overrides a tool that the server does not list, or that is not shown. */
    | "idleOverride"
    /** The manifest sets a member for which the server has another value. */
    | "conflict"
    /**
     * The entry does not conform to the official schemas: it is shown with changes (conformed) or hidden (unreadable).
     */
    | "conformed"
    | "unreadable";
  readonly text: string;
}

export interface ShapedList {
  /** In the order in which they claim their names: entries renamed by the manifest come first. */
  readonly entries: readonly Entry[];
  readonly remarks: readonly Remark[];
}

/** The input of `exposeList`. */
export interface Raw {
  readonly server: string;
  readonly list: NamedKind;
  readonly items: readonly Item[];
  readonly rules: ShapeRules;
  /** The schema that entries are checked against. */
  readonly schema: SchemaRules;
  /**
   * Makes a section entry. @param name the exposed name; @param fullName the name before it was shortened or made safe
   */
  enlist(item: Item, name: string, full: string): Entry;
  /** Lets plugins change the items that the filter allows. */
  revise?(items: readonly Item[]): readonly Item[];
}

/** Records a note on one entry. */
export type Remarker = (item: Item, kind: Remark["kind"], text: string) => void;

/**
 * Computes one server's list as clients may see it: filter, plugins, schema conformance, overrides, renames, prefix.
 */
export function shape(raw: Raw, names: NameRules, digest: Digest): ShapedList {
  const { server, list, items, rules } = raw;
  const remarks: Remark[] = [];
  const remark: Remarker = (item, kind, text) =>
    void remarks.push({ server, list, remoteName: item.key, kind, text });

  const isOpen = rules.allow === undefined && rules.deny.length === 0;
  const single = firstOfEach(dropHidden(items, list, remark), remark);
  const kept = isOpen ? single : single.filter((item) => isLetThrough(item, raw, remark));
  const revised = raw.revise === undefined ? kept : firstOfEach(raw.revise(kept));
  if (revised !== kept) {
    const visible = new Set(revised.map(({ key }) => key));
    for (const item of kept) {
      if (!visible.has(item.key)) remark(item, "hidden", "A plugin hides it.");
    }
  }

  const overridden = overriddenNames(rules);
  for (const [remoteName, key] of overridden) {
    const isTool = (item: Item): boolean => item.key === remoteName;
    if (revised.some(isTool)) continue;
    const why = items.some(isTool) ? "which is not shown" : "which the server does not list";
    const text = `${key} names "${remoteName}", ${why}.`;
    remarks.push({ server, list, remoteName, kind: "idleOverride", text });
  }

  const renamed: Entry[] = [];
  const entries: Entry[] = [];
  for (const listed of revised) {
    const readable = makeReadable(listed, list, raw.schema, remark);
    if (readable === undefined) continue;
    const { key } = readable;
    const { item, conflicts } = overridden.has(key)
      ? overrideTool(readable, rules)
      : { item: readable, conflicts: [] };
    if (conflicts.length > 0) {
      remark(item, "conflict", `The manifest and the server differ on ${conflicts.join(", ")}.`);
    }
    const other = Object.hasOwn(rules.rename, key) ? rules.rename[key] : undefined;
    const full = prefixName(names, rules.prefix, other ?? key);
    let name = full;
    if (!isExposable(names, full)) {
      name = shortenName(names, full, { server, remoteName: key }, digest);
      remark(item, "shortened", `"${full}" is exposed as "${name}".`);
    }
    (other === undefined ? entries : renamed).push(raw.enlist(item, name, full));
  }
  return { entries: renamed.length === 0 ? entries : renamed.concat(entries), remarks };
}

/** Removes items that no client can be shown, with a note for each, so that neither filters nor plugins see them. */
export function dropHidden(items: readonly Item[], list: Kind, remark: Remarker): readonly Item[] {
  if (items.every(isShowable)) return items;
  return items.filter(
    (item) => isShowable(item) || makeReadable(item, list, "legacy", remark) !== undefined,
  );
}

/**
 * Returns the item in a form that official clients can read, with a note if it was changed or is hidden (undefined).
 */
export function makeReadable(
  item: Item,
  list: Kind,
  schema: SchemaRules,
  remark: Remarker,
): Item | undefined {
  if (item.state === "sound") return item;
  const { item: made, text } = conform(item, list, schema);
  if (text !== "") remark(item, made === undefined ? "unreadable" : "conformed", text);
  return made;
}

/** Whether the filter allows the item; adds a note if not. */
function isLetThrough(item: Item, { list, rules }: Raw, remark: Remarker): boolean {
  const { key } = item;
  const allowed = rules.allow?.some((glob) => matchesGlob(glob, key)) ?? true;
  const denied = rules.deny.some((glob) => matchesGlob(glob, key));
  if (allowed && !denied) return true;
  remark(item, "filtered", denied ? `${list}.deny names it.` : `${list}.allow does not name it.`);
  return false;
}

/** Keeps the first item of each key. */
function firstOfEach(items: readonly Item[], remark?: Remarker): readonly Item[] {
  const seen = new Set<string>();
  for (const { key } of items) seen.add(key);
  if (seen.size === items.length) return items;
  seen.clear();
  return items.filter((item) => {
    const isNew = !seen.has(item.key);
    seen.add(item.key);
    if (!isNew) remark?.(item, "duplicate", "The server lists this name twice; the first is kept.");
    return isNew;
  });
}
