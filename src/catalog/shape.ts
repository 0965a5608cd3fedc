import type { Item, Kind } from "./item.ts";
import { type Digest, exposeName, matchesGlob, type NameRules } from "./names.ts";

/** What is called by names, which clients see with a prefix; everything else has a URI. */
export type NamedKind = "tools" | "prompts";

export function isNamed(kind: Kind): kind is NamedKind {
  return kind === "tools" || kind === "prompts";
}

/** What the manifest says of a server's tools or prompts; every key speaks of remote names. */
export interface ShapeRules {
  /** Empty for none. */
  readonly prefix: string;
  /** Globs; undefined lets everything through. */
  readonly allow: readonly string[] | undefined;
  readonly deny: readonly string[];
  readonly rename: Readonly<Record<string, string>>;
}

/** One entry under its exposed name. */
export interface Shaped {
  readonly item: Item;
  /** What clients see. */
  readonly name: string;
  /** The name before it was made safe or cut. */
  readonly full: string;
  readonly renamed: boolean;
}

/** An entry that clients do not see, or not under its own name, and why. */
export interface Remark {
  readonly server: string;
  /** In which list of the server it is. */
  readonly list: Kind;
  readonly remoteName: string;
  readonly kind: "filtered" | "hidden" | "duplicate" | "clash" | "shortened";
  readonly text: string;
}

export interface ShapedList {
  readonly shown: readonly Shaped[];
  readonly remarks: readonly Remark[];
}

/** What is to be shaped. */
export interface Raw {
  readonly server: string;
  readonly list: NamedKind;
  readonly items: readonly Item[];
  readonly rules: ShapeRules;
  /** What plugins make of those items that the rules let through. */
  revise?(items: readonly Item[]): readonly Item[];
}

/** Filter, then let plugins revise, then rename, then namespace: one server's listing as clients may see it. */
export function shape(raw: Raw, names: NameRules, digest: Digest): ShapedList {
  const { server, list, items, rules } = raw;
  const remarks: Remark[] = [];
  const remark = (item: Item, kind: Remark["kind"], text: string): void =>
    void remarks.push({ server, list, remoteName: item.key, kind, text });

  const single = firstOfEach(items, (item) => {
    remark(item, "duplicate", "The server lists this name twice; the first is kept.");
  });
  const kept = single.filter((item) => {
    const allowed = rules.allow?.some((glob) => matchesGlob(glob, item.key)) ?? true;
    const denied = rules.deny.some((glob) => matchesGlob(glob, item.key));
    if (allowed && !denied) return true;
    remark(item, "filtered", denied ? `${list}.deny names it.` : `${list}.allow does not name it.`);
    return false;
  });

  const revised = raw.revise === undefined ? kept : firstOfEach(raw.revise(kept));
  const visible = new Set(revised.map(({ key }) => key));
  for (const item of kept) {
    if (!visible.has(item.key)) remark(item, "hidden", "A plugin hides it.");
  }

  const shown = revised.map((item): Shaped => {
    const renamed = Object.hasOwn(rules.rename, item.key);
    const name = (renamed ? rules.rename[item.key] : undefined) ?? item.key;
    const parts = { server, prefix: rules.prefix, remoteName: item.key, name };
    const exposed = exposeName(names, parts, digest);
    if (exposed.name !== exposed.full) {
      remark(item, "shortened", `"${exposed.full}" is exposed as "${exposed.name}".`);
    }
    return { item, name: exposed.name, full: exposed.full, renamed };
  });
  return { shown, remarks };
}

/** Of those with one key the first. */
export function firstOfEach(
  items: readonly Item[],
  drop: (item: Item) => void = () => {},
): readonly Item[] {
  const seen = new Set<string>();
  return items.filter((item) => {
    const isNew = !seen.has(item.key);
    seen.add(item.key);
    if (!isNew) drop(item);
    return isNew;
  });
}
