import type { Item } from "./item.ts";
import { type Digest, exposeName, matchesGlob, type NameRules } from "./names.ts";

/** What the manifest says of a server's tools; every key speaks of remote names. */
export interface ShapeRules {
  /** Empty for none. */
  readonly prefix: string;
  /** Globs; undefined lets everything through. */
  readonly allow: readonly string[] | undefined;
  readonly deny: readonly string[];
  readonly rename: Readonly<Record<string, string>>;
}

/** One tool under its exposed name. */
export interface Shaped {
  readonly item: Item;
  /** What clients see. */
  readonly name: string;
  /** The name before it was made safe or cut. */
  readonly full: string;
  readonly renamed: boolean;
}

/** A tool that clients do not see, or not under its own name, and why. */
export interface Remark {
  readonly server: string;
  readonly remoteName: string;
  readonly kind: "filtered" | "hidden" | "duplicate" | "clash" | "shortened";
  readonly text: string;
}

export interface ShapedList {
  readonly tools: readonly Shaped[];
  readonly remarks: readonly Remark[];
}

/** What is to be shaped. */
export interface Raw {
  readonly server: string;
  readonly items: readonly Item[];
  readonly rules: ShapeRules;
  /** What plugins make of those items that the rules let through. */
  revise?(items: readonly Item[]): readonly Item[];
}

/** Filter, then let plugins revise, then rename, then namespace: one server's listing as clients may see it. */
export function shape(raw: Raw, names: NameRules, digest: Digest): ShapedList {
  const { server, items, rules } = raw;
  const remarks: Remark[] = [];
  const remark = (item: Item, kind: Remark["kind"], text: string): void =>
    void remarks.push({ server, remoteName: item.key, kind, text });

  const seen = new Set<string>();
  const kept = items.filter((item) => {
    if (seen.has(item.key)) {
      remark(item, "duplicate", "The server lists this name twice; the first is kept.");
      return false;
    }
    seen.add(item.key);
    const allowed = rules.allow?.some((glob) => matchesGlob(glob, item.key)) ?? true;
    const denied = rules.deny.some((glob) => matchesGlob(glob, item.key));
    if (allowed && !denied) return true;
    remark(item, "filtered", denied ? "tools.deny names it." : "tools.allow does not name it.");
    return false;
  });

  const shown = raw.revise === undefined ? kept : firstOfEach(raw.revise(kept));
  const visible = new Set(shown.map(({ key }) => key));
  for (const item of kept) {
    if (!visible.has(item.key)) remark(item, "hidden", "A plugin hides it.");
  }

  const tools = shown.map((item): Shaped => {
    const renamed = Object.hasOwn(rules.rename, item.key);
    const name = (renamed ? rules.rename[item.key] : undefined) ?? item.key;
    const parts = { server, prefix: rules.prefix, remoteName: item.key, name };
    const exposed = exposeName(names, parts, digest);
    if (exposed.name !== exposed.full) {
      remark(item, "shortened", `"${exposed.full}" is exposed as "${exposed.name}".`);
    }
    return { item, name: exposed.name, full: exposed.full, renamed };
  });
  return { tools, remarks };
}

/** Of those with one name the first. */
function firstOfEach(items: readonly Item[]): readonly Item[] {
  const seen = new Set<string>();
  return items.filter(({ key }) => {
    const isNew = !seen.has(key);
    seen.add(key);
    return isNew;
  });
}
