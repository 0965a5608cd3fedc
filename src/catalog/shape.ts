import { conform, type SchemaRules } from "./conformance.ts";
import { isShowable, type ListedItem, type Kind } from "./listing.ts";
import {
  type Sha256,
  isExposable,
  matchesGlob,
  type NameRules,
  prefixName,
  shortenName,
} from "./names.ts";
import { overriddenNames, overrideTool, type ToolOverrides } from "./tool-overrides.ts";
import type { SectionEntry } from "./section.ts";

/** The kinds with names, which clients see with a prefix; the other kinds have URIs. */
export type NamedKind = "tools" | "prompts";

export function isNamed(kind: Kind): kind is NamedKind {
  return kind === "tools" || kind === "prompts";
}

/** The manifest's settings for a server's tools or prompts; all keys are remote names. */
export interface ExposureRules extends ToolOverrides {
  /** Empty: no prefix. */
  readonly prefix: string;
  /** Globs; undefined allows everything. */
  readonly allow: readonly string[] | undefined;
  readonly deny: readonly string[];
  readonly rename: Readonly<Record<string, string>>;
}

/** A note on an entry that clients do not see, or see changed or renamed, and why. */
export interface ExposureNote {
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

export interface ExposedList {
  /** In the order in which they claim their names: entries renamed by the manifest come first. */
  readonly entries: readonly SectionEntry[];
  readonly notes: readonly ExposureNote[];
}

/** The input of `exposeList`. */
export interface RawList {
  readonly server: string;
  readonly list: NamedKind;
  readonly items: readonly ListedItem[];
  readonly rules: ExposureRules;
  /** The schema that entries are checked against. */
  readonly schemaRules: SchemaRules;
  /**
   * Makes a section entry. @param name the exposed name; @param fullName the name before it was shortened or made safe
   */
  makeEntry(item: ListedItem, name: string, fullName: string): SectionEntry;
  /** Lets plugins change the items that the filter allows. */
  transform?(items: readonly ListedItem[]): readonly ListedItem[];
}

/** Records a note on one entry. */
export type AddNote = (item: ListedItem, kind: ExposureNote["kind"], text: string) => void;

/**
 * Computes one server's list as clients may see it: filter, plugins, schema conformance, overrides, renames, prefix.
 */
export function exposeList(input: RawList, names: NameRules, sha256: Sha256): ExposedList {
  const { server, list, items, rules } = input;
  const notes: ExposureNote[] = [];
  const addNote: AddNote = (item, kind, text) =>
    void notes.push({ server, list, remoteName: item.key, kind, text });

  const isOpen = rules.allow === undefined && rules.deny.length === 0;
  const unique = withoutDuplicates(dropUnshowable(items, list, addNote), addNote);
  const allowed = isOpen ? unique : unique.filter((item) => isAllowed(item, input, addNote));
  const transformed =
    input.transform === undefined ? allowed : withoutDuplicates(input.transform(allowed));
  if (transformed !== allowed) {
    const visible = new Set(transformed.map(({ key }) => key));
    for (const item of allowed) {
      if (!visible.has(item.key)) addNote(item, "hidden", "A plugin hides it.");
    }
  }

  const overrideKeys = overriddenNames(rules);
  for (const [remoteName, key] of overrideKeys) {
    const hasName = (item: ListedItem): boolean => item.key === remoteName;
    if (transformed.some(hasName)) continue;
    const reason = items.some(hasName) ? "which is not shown" : "which the server does not list";
    const text = `${key} names "${remoteName}", ${reason}.`;
    notes.push({ server, list, remoteName, kind: "idleOverride", text });
  }

  const renamed: SectionEntry[] = [];
  const entries: SectionEntry[] = [];
  for (const listed of transformed) {
    const conforming = makeExposable(listed, list, input.schemaRules, addNote);
    if (conforming === undefined) continue;
    const { key } = conforming;
    const { item, conflicts } = overrideKeys.has(key)
      ? overrideTool(conforming, rules)
      : { item: conforming, conflicts: [] };
    if (conflicts.length > 0) {
      addNote(item, "conflict", `The manifest and the server differ on ${conflicts.join(", ")}.`);
    }
    const newName = Object.hasOwn(rules.rename, key) ? rules.rename[key] : undefined;
    const fullName = prefixName(names, rules.prefix, newName ?? key);
    let name = fullName;
    if (!isExposable(names, fullName)) {
      name = shortenName(names, fullName, { server, remoteName: key }, sha256);
      addNote(item, "shortened", `"${fullName}" is exposed as "${name}".`);
    }
    (newName === undefined ? entries : renamed).push(input.makeEntry(item, name, fullName));
  }
  return { entries: renamed.length === 0 ? entries : renamed.concat(entries), notes };
}

/** Removes items that no client can be shown, with a note for each, so that neither filters nor plugins see them. */
export function dropUnshowable(
  items: readonly ListedItem[],
  list: Kind,
  addNote: AddNote,
): readonly ListedItem[] {
  if (items.every(isShowable)) return items;
  return items.filter(
    (item) => isShowable(item) || makeExposable(item, list, "legacy", addNote) !== undefined,
  );
}

/**
 * Returns the item in a form that official clients can read, with a note if it was changed or is hidden (undefined).
 */
export function makeExposable(
  item: ListedItem,
  list: Kind,
  schema: SchemaRules,
  addNote: AddNote,
): ListedItem | undefined {
  if (item.state === "sound") return item;
  const { item: result, text } = conform(item, list, schema);
  if (text !== "") addNote(item, result === undefined ? "unreadable" : "conformed", text);
  return result;
}

/** Whether the filter allows the item; adds a note if not. */
function isAllowed(item: ListedItem, { list, rules }: RawList, addNote: AddNote): boolean {
  const { key } = item;
  const allowed = rules.allow?.some((glob) => matchesGlob(glob, key)) ?? true;
  const denied = rules.deny.some((glob) => matchesGlob(glob, key));
  if (allowed && !denied) return true;
  addNote(item, "filtered", denied ? `${list}.deny names it.` : `${list}.allow does not name it.`);
  return false;
}

/** Keeps the first item of each key. */
function withoutDuplicates(items: readonly ListedItem[], addNote?: AddNote): readonly ListedItem[] {
  const seen = new Set<string>();
  for (const { key } of items) seen.add(key);
  if (seen.size === items.length) return items;
  seen.clear();
  return items.filter((item) => {
    const isNew = !seen.has(item.key);
    seen.add(item.key);
    if (!isNew)
      addNote?.(item, "duplicate", "The server lists this name twice; the first is kept.");
    return isNew;
  });
}
