/** The names of the tools that a client sees, found in the forms in which people and models write them. Pure. */

import type { Section, SectionEntry } from "../section.ts";
import { Likeness, squash } from "./words.ts";

/**
 * The tool that a name stands for. `ambiguous`: it is the name of several tools at their servers, or of several apart
 * from case and separators. `unknown`: it stands for no tool, however similar to a name it is.
 */
export type NameResolution =
  | { readonly kind: "found"; readonly entry: SectionEntry }
  | { readonly kind: "ambiguous"; readonly entries: readonly SectionEntry[] }
  | { readonly kind: "unknown" };

const UNKNOWN: NameResolution = { kind: "unknown" };

/** Maximum length of a name that is compared with others, in UTF-16 units. */
const MAX_NAME = 500;
/** Likeness from which a name is called similar, from 0 to 1. */
const MIN_SIMILAR = 0.4;

const namesBySection = new WeakMap<Section, ToolNames>();

export class ToolNames {
  readonly #section: Section;
  /** The entries by exposed name, by own name, and by server and own name; each without case and separators. */
  #squashed: readonly NameMap[] | undefined;

  private constructor(section: Section) {
    this.#section = section;
  }

  /** The names of a section; always the same object. */
  static of(section: Section): ToolNames {
    let names = namesBySection.get(section);
    if (names === undefined) namesBySection.set(section, (names = new ToolNames(section)));
    return names;
  }

  /**
   * The tool that a name stands for: its exposed name, `select:NAME`, `server:tool`, `server.tool`, `server/tool`, its
   * name at its server if no other server has that, or one of these in another case or with other separators. Nothing
   * that is not in the section has an influence.
   */
  resolve(text: string): NameResolution {
    const exact = this.#section.entry(text);
    if (exact !== undefined) return { kind: "found", entry: exact };
    if (text.length > MAX_NAME) return UNKNOWN;
    const name = plainName(text);
    // `select:` may be a part of the name.
    for (const each of name === text ? [name] : [text, name]) {
      const resolution = this.#resolveExact(each);
      if (resolution.kind !== "unknown") return resolution;
    }
    return this.#resolveSquashed(squash(name));
  }

  /** The tool with exactly this exposed name; else the one that `server:tool` and own names stand for. */
  #resolveExact(name: string): NameResolution {
    const exposed = this.#section.entry(name);
    if (exposed !== undefined) return { kind: "found", entry: exposed };
    const ofServer = this.#ofServer(name);
    const own = this.#section.remoteEntries(name);
    return resolutionOf([...new Set([...(ofServer === undefined ? [] : [ofServer]), ...own])]);
  }

  /** The tool with exactly this exposed name, or of this server and own name: `server:tool`. */
  exact(name: string): SectionEntry | undefined {
    return this.#section.entry(name) ?? this.#ofServer(name);
  }

  /** The exposed names that are most like a name, the most similar first. */
  similar(text: string, max = 3): readonly string[] {
    return this.like(text, MIN_SIMILAR)
      .slice(0, max)
      .map(({ entry }) => entry.name);
  }

  /** Prepares what `named` and `like` use, in steps of well below a millisecond. */
  *prepare(): Generator<void, void> {
    if (this.#squashed !== undefined) return;
    const maps = [new Map(), new Map(), new Map()] as const;
    for (const [i, entry] of this.#section.entries.entries()) {
      addNames(maps, entry);
      if (i % 64 === 0) yield;
    }
    this.#squashed = maps;
  }

  /** The tools whose exposed or own name has at least this likeness to a name, the most similar first. */
  like(
    text: string,
    least: number,
  ): readonly { readonly entry: SectionEntry; readonly likeness: number }[] {
    const likeness = new Likeness(squash(plainName(text.slice(0, MAX_NAME))));
    const found: { entry: SectionEntry; likeness: number }[] = [];
    for (const map of this.#maps.slice(0, 2)) {
      for (const [name, entries] of map) {
        const value = likeness.of(name, least);
        if (value >= least) for (const entry of entries) found.push({ entry, likeness: value });
      }
    }
    found.sort((a, b) => b.likeness - a.likeness || compareNames(a.entry, b.entry));
    const seen = new Set<SectionEntry>();
    return found.filter(({ entry }) => !seen.has(entry) && seen.add(entry));
  }

  /**
   * The tools that a name without case and separators stands for: by their exposed names, by their own names, and by
   * their servers' and own names together.
   */
  named(squashed: string): readonly (readonly SectionEntry[])[] {
    return squashed === "" ? [] : this.#maps.map((map) => map.get(squashed) ?? []);
  }

  get #maps(): readonly NameMap[] {
    if (this.#squashed === undefined) for (const _ of this.prepare());
    return this.#squashed ?? [];
  }

  /** The tool that `server:tool` names. Both parts may contain the separators. */
  #ofServer(name: string): SectionEntry | undefined {
    for (let at = 1; at < name.length - 1; at++) {
      if (!":./".includes(name[at] ?? " ")) continue;
      const server = name.slice(0, at);
      const own = this.#section.remoteEntries(name.slice(at + 1));
      const entry = own.find((each) => each.server === server);
      if (entry !== undefined) return entry;
    }
    return undefined;
  }

  #resolveSquashed(name: string): NameResolution {
    for (const entries of this.named(name)) {
      const resolution = resolutionOf(entries);
      if (resolution.kind !== "unknown") return resolution;
    }
    return UNKNOWN;
  }
}

/** A name without spaces and quotes around it, and without `select:`, which some models write before it. */
export function plainName(text: string): string {
  const name = text
    .trim()
    .replace(/^select:/i, "")
    .trim();
  const [first] = name;
  const isQuoted =
    name.length > 2 && first !== undefined && "\"'`".includes(first) && name.endsWith(first);
  return isQuoted ? name.slice(1, -1) : name;
}

/** Compares exposed names by their UTF-16 units. */
function compareNames(a: SectionEntry, b: SectionEntry): number {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

function resolutionOf(entries: readonly SectionEntry[]): NameResolution {
  const [entry, ...others] = entries;
  if (entry === undefined) return UNKNOWN;
  return others.length === 0 ? { kind: "found", entry } : { kind: "ambiguous", entries };
}

type NameMap = ReadonlyMap<string, readonly SectionEntry[]>;
type NewNameMap = Map<string, SectionEntry[]>;

function addNames(
  [exposed, own, ofServer]: readonly [NewNameMap, NewNameMap, NewNameMap],
  entry: SectionEntry,
): void {
  const exposedName = squash(entry.name);
  const ownName = entry.remoteName === entry.name ? exposedName : squash(entry.remoteName);
  add(exposed, exposedName, entry);
  if (ownName !== exposedName) add(own, ownName, entry);
  const full = squash(entry.server) + ownName;
  if (full !== exposedName && full !== ownName) add(ofServer, full, entry);
}

function add(map: NewNameMap, name: string, entry: SectionEntry): void {
  const entries = map.get(name);
  if (entries === undefined) map.set(name, [entry]);
  else entries.push(entry);
}
