import { conform, type SchemaRules } from "./conform.ts";
import { isShowable, type Item, type Kind } from "./item.ts";
import {
  type Digest,
  isExposable,
  matchesGlob,
  type NameRules,
  prefixName,
  shortenName,
} from "./names.ts";
import { overriddenNames, overrideTool, type ToolOverrides } from "./overrides.ts";
import type { Entry } from "./section.ts";

/** What is called by names, which clients see with a prefix; everything else has a URI. */
export type NamedKind = "tools" | "prompts";

export function isNamed(kind: Kind): kind is NamedKind {
  return kind === "tools" || kind === "prompts";
}

/** What the manifest says of a server's tools or prompts; every key speaks of remote names. */
export interface ShapeRules extends ToolOverrides {
  /** Empty for none. */
  readonly prefix: string;
  /** Globs; undefined lets everything through. */
  readonly allow: readonly string[] | undefined;
  readonly deny: readonly string[];
  readonly rename: Readonly<Record<string, string>>;
}

/** An entry that clients do not see, or not under its own name, and why. */
export interface Remark {
  readonly server: string;
  /** In which list of the server it is. */
  readonly list: Kind;
  readonly remoteName: string;
  readonly kind:
    | "filtered"
    | "hidden"
    | "duplicate"
    | "clash"
    | "shortened"
    /** The manifest sets something of a tool that the server does not list, or that is not shown. */
    | "idleOverride"
    /** The manifest sets a member that the server sets to another value. */
    | "conflict"
    /** Official clients could not read it as it is: it is shown with changes, or not at all. */
    | "conformed"
    | "unreadable";
  readonly text: string;
}

export interface ShapedList {
  /** In the order in which they get their names: renamed ones come before those that are called so by themselves. */
  readonly entries: readonly Entry[];
  readonly remarks: readonly Remark[];
}

/** What is to be shaped. */
export interface Raw {
  readonly server: string;
  readonly list: NamedKind;
  readonly items: readonly Item[];
  readonly rules: ShapeRules;
  /** Against which schema entries are checked. */
  readonly schema: SchemaRules;
  /** Makes an entry. @param name what clients see; @param full the same before it was made safe or cut */
  enlist(item: Item, name: string, full: string): Entry;
  /** What plugins make of those items that the rules let through. */
  revise?(items: readonly Item[]): readonly Item[];
}

/** Takes down what is remarkable about one entry. */
export type Remarker = (item: Item, kind: Remark["kind"], text: string) => void;

/** Filter, then let plugins revise, then make conform, then rename, then namespace: one server's listing as clients may see it. */
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

/** Without those that no client can be shown, which are remarked on: neither plugins nor anybody else has to do with them. */
export function dropHidden(items: readonly Item[], list: Kind, remark: Remarker): readonly Item[] {
  if (items.every(isShowable)) return items;
  return items.filter(
    (item) => isShowable(item) || makeReadable(item, list, "legacy", remark) !== undefined,
  );
}

/** The entry as official clients can read it; what is changed is remarked on, and why there is none. */
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

/** Whether the rules show it to clients; it is remarked on if not. */
function isLetThrough(item: Item, { list, rules }: Raw, remark: Remarker): boolean {
  const { key } = item;
  const allowed = rules.allow?.some((glob) => matchesGlob(glob, key)) ?? true;
  const denied = rules.deny.some((glob) => matchesGlob(glob, key));
  if (allowed && !denied) return true;
  remark(item, "filtered", denied ? `${list}.deny names it.` : `${list}.allow does not name it.`);
  return false;
}

/** Of those with one key the first. */
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
