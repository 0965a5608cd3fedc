/**
 * The catalog: what clients see of all servers together, computed without I/O.
 * `Catalog` has one `Section` per kind of item (tools, prompts, resources, resource templates, skills). A section maps
 * the names and URIs that clients see (exposed names, with the server's prefix) to routes, which name the server and
 * the item there. Start with `buildCatalog`, then `section.ts` (look-up and list results), `listing.ts` (what one
 * server lists) and `names.ts` (exposed names).
 */
import { applyEdits, type Edit, joinPieces, makeSlice, type Piece, utf8 } from "../base/bytes.ts";
import { skipWhitespace } from "../base/json.ts";
import { conform, type SchemaVariant } from "./conformance.ts";
import { type CatalogFilter, matcherOf } from "./filter.ts";
import { idleRulesOf, idleSkillRulesOf } from "./idle-rules.ts";
import {
  type CombinedCapabilities,
  isReadOnlyTool,
  isShowable,
  type Kind,
  KINDS,
  type ListedItem,
  mapKinds,
  mergeCacheHints,
  mergeCapabilities,
  mergeInstructions,
  mergeListMetas,
  NO_CACHING,
  type ServerListing,
} from "./listing.ts";
import {
  isExposable,
  matchesGlob,
  type NameRules,
  prefixName,
  type Sha256,
  shortenName,
} from "./names.ts";
import { type ExposureNote, type ExposureRules, isNamed, type NamedKind } from "./exposure.ts";
import { ExposedUris, renameSkillFiles } from "./renamed-uris.ts";
import { type ListedRoute, type RouteTimeouts, type SectionEntry, Section } from "./section.ts";
import { SkillRoots, type SkillRules } from "./skills.ts";
import { overriddenNames, overrideTool } from "./tool-overrides.ts";
import { decodeUri, encodeUriTemplate, encodeUri, uiResourceEdits } from "./uris.ts";

export interface ExposedList {
  /**
   * Sorted by precedence: if two entries have the same name, the first one gets it. Entries that the manifest renames
   * come first.
   */
  readonly entries: readonly SectionEntry[];
  readonly notes: readonly ExposureNote[];
}

export interface ExposeListInput {
  readonly server: string;
  readonly list: NamedKind;
  readonly items: readonly ListedItem[];
  /** All that the server lists; absent: `items`. */
  readonly listed?: readonly ListedItem[] | undefined;
  readonly rules: ExposureRules;
  readonly schemaRules: SchemaVariant;
  /**
   * Makes a section entry.
   * @param name the exposed name
   * @param fullName the name before it was shortened or characters were replaced
   */
  makeEntry(item: ListedItem, name: string, fullName: string): SectionEntry;
  /** Lets plugins change the items that the filter allows. */
  transform?(items: readonly ListedItem[]): readonly ListedItem[];
}

export type AddNote = (item: ListedItem, kind: ExposureNote["kind"], text: string) => void;

/**
 * Computes one server's list as clients may see it. The steps, in order: filter, plugins, schema conformance,
 * overrides, renames, prefix.
 */
export function exposeList(input: ExposeListInput, names: NameRules, sha256: Sha256): ExposedList {
  const { server, list, items, listed: all = items, rules } = input;
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

  // A loop instead of `push(...)`, because there may be more notes than a function call may have arguments.
  for (const note of idleRulesOf(server, list, rules, all, transformed)) notes.push(note);

  const overridden = overriddenNames(rules);
  const renamed: SectionEntry[] = [];
  const entries: SectionEntry[] = [];
  for (const listed of transformed) {
    const conforming = conformForClients(listed, list, input.schemaRules, addNote);
    if (conforming === undefined) continue;
    const { key } = conforming;
    const { item, conflicts } = overridden.has(key)
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
    (item) => isShowable(item) || conformForClients(item, list, "legacy", addNote) !== undefined,
  );
}

/**
 * Returns the item in a form that official clients can read; undefined if there is none. Adds a note if the item is
 * changed or hidden.
 */
export function conformForClients(
  item: ListedItem,
  list: Kind,
  schema: SchemaVariant,
  addNote: AddNote,
): ListedItem | undefined {
  if (item.state === "sound") return item;
  const { item: result, text } = conform(item, list, schema);
  if (text !== "") addNote(item, result === undefined ? "unreadable" : "conformed", text);
  return result;
}

/** Whether the filter allows the item; adds a note if not. */
function isAllowed(item: ListedItem, { list, rules }: ExposeListInput, addNote: AddNote): boolean {
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

/**
 * A section entry whose route and bytes are created on first use: of a long list, most clients read only the first page
 * and call few of its tools.
 */
class LazyEntry implements SectionEntry {
  readonly name: string;
  readonly #kind: Kind;
  readonly #source: CatalogSource;
  readonly #item: ListedItem;
  readonly #fullName: string;
  readonly #edits: readonly Edit[] | undefined;
  #route: ListedRoute | undefined;
  #bytes: Uint8Array | undefined;

  /**
   * @param name the exposed name
   * @param fullName the name before it was shortened or characters were replaced
   * @param edits edits of the item in addition to its name
   */
  constructor(
    kind: Kind,
    source: CatalogSource,
    item: ListedItem,
    name: string,
    fullName: string,
    edits?: readonly Edit[],
  ) {
    this.name = name;
    this.#kind = kind;
    this.#source = source;
    this.#item = item;
    this.#fullName = fullName;
    this.#edits = edits;
  }

  get server(): string {
    return this.#source.server;
  }

  get remoteName(): string {
    return this.#item.key;
  }

  get fullCatalogName(): string | undefined {
    if (!isNamed(this.#kind)) return undefined;
    return this.#source.wholeNameOf?.(this.#fullName, this.#item.key);
  }

  get isReadOnly(): boolean {
    return this.#kind !== "tools" || isReadOnlyTool(this.#item);
  }

  get item(): ListedItem {
    return this.#item;
  }

  get route(): ListedRoute {
    return (this.#route ??= this.#makeRoute());
  }

  get bytes(): Uint8Array {
    return (this.#bytes ??= this.#makeBytes());
  }

  /** The pieces are not cached, because only a list result needs them, and the list result is cached as a whole. */
  appendTo(pieces: Piece[]): void {
    const { bytes, keys } = this.#item;
    const [keyRange, secondKeyRange] = keys;
    if (this.#isUnchanged) pieces.push(bytes);
    else if (this.#bytes !== undefined) pieces.push(this.#bytes);
    else if (this.#isOnlyRenamed && keyRange !== undefined && secondKeyRange === undefined) {
      pieces.push(
        makeSlice(bytes, 0, keyRange.start),
        this.#nameJson,
        makeSlice(bytes, keyRange.end, bytes.length),
      );
    } else pieces.push(this.bytes);
  }

  /** Whether the name is the only difference from the server's item. */
  get #isOnlyRenamed(): boolean {
    return this.name === this.#fullName && this.#edits === undefined;
  }

  get #isUnchanged(): boolean {
    return this.#isOnlyRenamed && this.name === this.#item.key;
  }

  /** An exposed name needs no JSON escaping, but a URI may contain any character. */
  get #nameJson(): Piece {
    return isNamed(this.#kind) ? `"${this.name}"` : utf8(JSON.stringify(this.name));
  }

  #makeBytes(): Uint8Array {
    const item = this.#item;
    if (this.#isUnchanged) return item.bytes;
    const edits: Edit[] = item.keys.map(({ start, end }) => ({
      start,
      end,
      replacement: this.#nameJson,
    }));
    if (this.#edits !== undefined) edits.push(...this.#edits);
    if (this.name !== this.#fullName) edits.push(fullNameEdit(item, this.#fullName));
    return joinPieces(applyEdits(item.bytes, edits));
  }

  #makeRoute(): ListedRoute {
    const [kind, item, source] = [this.#kind, this.#item, this.#source];
    return {
      kind,
      server: source.server,
      name: this.name,
      remoteName: item.key,
      remoteNameJson: utf8(JSON.stringify(item.key)),
      item,
      limits: source.limits(kind, item.key),
    };
  }
}

/** The `_meta` key that holds the full name of an entry whose exposed name was shortened. */
const FULL_NAME_KEY = "toolmux/fullName";

function fullNameEdit({ bytes, meta }: ListedItem, fullName: string): Edit {
  const member = `${JSON.stringify(FULL_NAME_KEY)}:${JSON.stringify(fullName.toWellFormed())}`;
  if (meta !== undefined) {
    const at = meta.start + 1;
    const empty = skipWhitespace(bytes, at) === meta.end - 1;
    return { start: at, end: at, replacement: utf8(empty ? member : `${member},`) };
  }
  const close = bytes.length - 1;
  return { start: close, end: close, replacement: utf8(`,"_meta":{${member}}`) };
}

/**
 * The contribution of one server to a catalog. The server's exposed tools and prompts are cached with this object as
 * the key, so a later catalog that reuses the object is built faster.
 */
export interface CatalogSource {
  readonly server: string;
  readonly listing: ServerListing;
  /** All that the server lists, if `listing` leaves out what is not accepted or suspicious; else absent. */
  readonly listed?: ServerListing;
  /** The protocol of the clients: up to 2025-11-25 (`legacy`, the default) or 2026-07-28 (`modern`). */
  readonly era?: "legacy" | "modern";
  readonly rules: Readonly<Record<NamedKind, ExposureRules>>;
  /** Which of the server's skills are shown; absent: all. */
  readonly skills?: SkillRules | undefined;
  limits(kind: Kind, remoteName: string): RouteTimeouts;
  /**
   * Returns the name of an entry in the catalog of all servers. Absent if the source belongs to that catalog.
   * @param fullName the name without the prefix, before it was shortened or characters were replaced
   */
  wholeNameOf?(fullName: string, remoteName: string): string;
  /**
   * Lets plugins change the tools that the filter allows. Such a source may be used for one catalog only: its list is
   * cached, and a second catalog would not ask the plugins again.
   */
  transformTools?(tools: readonly ListedItem[]): readonly ListedItem[];
}

/** An immutable snapshot of everything clients can see; replaced as a whole. */
export interface Catalog extends Readonly<Record<Kind, Section>> {
  /** Maps URIs as the servers list them to the URIs that clients see. */
  readonly uris: ExposedUris;
  /** The servers' `instructions`, each under its server's name; undefined if no server has any. */
  readonly instructions: string | undefined;
  /** The hub's own paragraph, with which `instructions` begin; absent: there is none. */
  readonly ownInstructions?: string | undefined;
  /** The capabilities of the servers, apart from those for their lists. */
  readonly capabilities: CombinedCapabilities;
  readonly notes: readonly ExposureNote[];
}

/**
 * Builds the catalog from the servers' listings, in manifest order. If several entries would have the same exposed
 * name, only one is shown. These rules decide which, in this order: a prefixed name wins over an unprefixed one; the
 * earlier server in the manifest wins; within a server, an entry that the manifest renames wins over an entry that has
 * the name itself. The other entries are hidden, with an `ExposureNote`. URIs are exposed unchanged, but a URI that an
 * earlier server already has is exposed in a form that names its server.
 * @param isComplete false while the listing of some server is not known yet
 */
export function buildCatalog(
  sources: readonly CatalogSource[],
  nameRules: NameRules,
  sha256: Sha256,
  isComplete = true,
): Catalog {
  const listings = sources.map(({ listing }) => listing);
  const modernServers = new Set(
    sources.filter(({ listing }) => listing.hints !== undefined).map(({ server }) => server),
  );
  const notes: ExposureNote[] = [];
  const skillRoots = new SkillRoots(sources);
  const resources = uriEntriesOf("resources", sources, skillRoots, notes);
  const renamedUris = renamedUrisOf(resources.values());
  const sections = mapKinds((kind) => {
    const cacheHint = isComplete ? mergeCacheHints(kind, listings) : NO_CACHING;
    const info = { cacheHint, modernServers, listMeta: mergeListMetas(kind, listings) };
    if (kind === "resources") return new Section(kind, resources, info);
    if (!isNamed(kind)) {
      return new Section(kind, uriEntriesOf(kind, sources, skillRoots, notes), info);
    }
    const settings = { nameRules, sha256, renamedUris };
    return new Section(kind, namedEntriesOf(kind, sources, settings, notes), info);
  });
  const instructions = mergeInstructions(sources);
  const capabilities = mergeCapabilities(listings, isComplete);
  const uris = new ExposedUris(renamedUris, skillRoots);
  return { ...sections, uris, instructions, capabilities, notes };
}

/**
 * The part of a catalog that a filter shows. Its sections have the same entries as those of the catalog.
 * @param sources the sources of the catalog. The instructions of servers of which nothing is shown are left out
 */
export function filterCatalog(
  catalog: Catalog,
  filter: CatalogFilter,
  sources: readonly CatalogSource[],
): Catalog {
  const filtered = mapKinds((kind) => catalog[kind].filter(matcherOf(filter, kind)));
  const shown = new Set<string>();
  for (const kind of KINDS) for (const { server } of filtered[kind].entries) shown.add(server);
  const shownSources = sources.filter(({ server }) => shown.has(server));
  const instructions = mergeInstructions(shownSources);
  // Servers of which nothing is shown add nothing to the `_meta` of the lists either.
  const listings = shownSources.map(({ listing }) => listing);
  const sections = mapKinds((kind) => filtered[kind].withListMeta(mergeListMetas(kind, listings)));
  return { ...catalog, ...sections, instructions };
}

interface NameSettings {
  readonly nameRules: NameRules;
  readonly sha256: Sha256;
  readonly renamedUris: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** The exposed URIs of entries whose URI at the server is another one; by server, then by the URI at the server. */
function renamedUrisOf(entries: Iterable<SectionEntry>): NameSettings["renamedUris"] {
  const renamed = new Map<string, Map<string, string>>();
  for (const { server, name, remoteName } of entries) {
    if (name === remoteName) continue;
    const own = renamed.get(server) ?? new Map<string, string>();
    renamed.set(server, own.set(remoteName, name));
  }
  return renamed;
}

/** A cached list of one server as clients see it, before names that clash with those of other servers are hidden. */
interface CachedList extends ExposedList {
  readonly nameRules: NameRules;
}

function namedEntriesOf(
  kind: NamedKind,
  sources: readonly CatalogSource[],
  settings: NameSettings,
  notes: ExposureNote[],
): ReadonlyMap<string, SectionEntry> {
  const entries = new Map<string, SectionEntry>();
  const ordered = [
    ...sources.filter(({ rules }) => rules[kind].prefix !== ""),
    ...sources.filter(({ rules }) => rules[kind].prefix === ""),
  ];
  for (const source of ordered) {
    const { server } = source;
    const list = cachedListOf(kind, source, settings);
    // A loop instead of `push(...list.notes)`, because there may be more notes than a function call may have arguments.
    for (const note of list.notes) notes.push(note);
    for (const entry of list.entries) {
      const { name } = entry;
      const owner = entries.get(name);
      if (owner === undefined) {
        entries.set(name, entry);
        continue;
      }
      const { remoteName } = entry;
      const text = `"${name}" is already ${owner.remoteName} of server "${owner.server}".`;
      notes.push({ server, list: kind, remoteName, kind: "clash", text });
    }
  }
  return entries;
}

/** Cache by source: the last list that was computed for each kind. */
const listCache = new WeakMap<CatalogSource, Map<NamedKind, CachedList>>();

function cachedListOf(
  kind: NamedKind,
  source: CatalogSource,
  { nameRules, sha256, renamedUris: renamedUrisByServer }: NameSettings,
): CachedList {
  const renamedUris = renamedUrisByServer.get(source.server);
  // The list of a server with renamed resource URIs is not cached, because these URIs depend on other servers.
  if (renamedUris !== undefined) return makeList(kind, source, nameRules, sha256, renamedUris);
  const cached = listCache.get(source);
  const previous = cached?.get(kind);
  if (previous?.nameRules === nameRules) return previous;
  const list = makeList(kind, source, nameRules, sha256);
  if (cached === undefined) listCache.set(source, new Map([[kind, list]]));
  else cached.set(kind, list);
  return list;
}

const NO_RENAMED_URIS: ReadonlyMap<string, string> = new Map();

function makeList(
  kind: NamedKind,
  source: CatalogSource,
  nameRules: NameRules,
  sha256: Sha256,
  renamedUris = NO_RENAMED_URIS,
): CachedList {
  const { server, listing, rules } = source;
  const transform = kind === "tools" && source.transformTools !== undefined;
  const raw = {
    server,
    list: kind,
    items: listing[kind],
    listed: source.listed?.[kind],
    rules: rules[kind],
    schemaRules: schemaRulesOf(source),
    makeEntry(item: ListedItem, name: string, fullName: string): SectionEntry {
      const edits = renamedUris.size === 0 ? undefined : uiResourceEdits(item, renamedUris);
      return new LazyEntry(kind, source, item, name, fullName, edits);
    },
    ...(transform && {
      transform: (items: readonly ListedItem[]) => source.transformTools?.(items) ?? items,
    }),
  };
  return { nameRules, ...exposeList(raw, nameRules, sha256) };
}

function explainRename(
  owner: string | undefined,
  namedServer: string | undefined,
  isInSkill: boolean,
): string {
  if (owner !== undefined) return `Server "${owner}" has the same`;
  if (namedServer !== undefined) return `It names server "${namedServer}"`;
  return isInSkill ? "It is in a skill that another server has, too" : "It is not a URI";
}

/**
 * The schema that a server's entries must conform to. If the listing has cache hints, the server is one of protocol
 * 2026-07-28 (modern).
 */
function schemaRulesOf({ era, listing }: CatalogSource): SchemaVariant {
  if (era === "modern") return "modern";
  return listing.hints === undefined ? "legacy" : "wrapped";
}

function uriEntriesOf(
  kind: "resources" | "resourceTemplates" | "skills",
  sources: readonly CatalogSource[],
  skillRoots: SkillRoots,
  notes: ExposureNote[],
): ReadonlyMap<string, SectionEntry> {
  const entries = new Map<string, SectionEntry>();
  const encode = kind === "resources" ? encodeUri : encodeUriTemplate;
  const servers = new Set(sources.map(({ server }) => server));
  for (const source of sources) {
    const { server, listing, skills: skillRules } = source;
    if (kind === "skills" && skillRules !== undefined) {
      for (const note of idleSkillRulesOf(server, skillRules, listing.skills)) notes.push(note);
    }
    const seen = new Set<string>();
    const addNote: AddNote = ({ key: remoteName }, noteKind, text) =>
      void notes.push({ server, list: kind, remoteName, kind: noteKind, text });
    for (const listed of dropUnshowable(listing[kind], kind, addNote)) {
      if (seen.has(listed.key)) {
        addNote(listed, "duplicate", "The server lists this URI twice; the first is kept.");
        continue;
      }
      seen.add(listed.key);
      const isHidden =
        kind === "skills"
          ? skillRoots.hidesSkill(server, listed.key)
          : skillRoots.hidesFile(server, listed.key);
      if (isHidden) {
        addNote(listed, "filtered", "skills.allow or skills.deny hides the skill.");
        continue;
      }
      const item = conformForClients(listed, kind, schemaRulesOf(source), addNote);
      if (item === undefined) continue;
      const ownUri = item.key.toWellFormed();
      const skillOwner = skillRoots.ownerOf(ownUri);
      const owner = entries.get(ownUri)?.server ?? (skillOwner === server ? undefined : skillOwner);
      const namedServer = decodeUri(ownUri)?.server;
      const namesHubServer = namedServer !== undefined && servers.has(namedServer);
      // A relative URI (RFC 3986) is exposed in a form that names its server, because some clients refuse a whole list
      // for one relative URI.
      const isUri = kind === "resourceTemplates" || URL.canParse(ownUri);
      const renamed = skillRoots.exposedUriOf(server, item.key);
      const isFree = owner === undefined && !namesHubServer && isUri;
      const name = renamed ?? (isFree ? ownUri : encode(server, item.key));
      // URIs that differ only in lone surrogates have the same encoded form, so they count as duplicates.
      if (entries.get(name)?.server === server) {
        addNote(item, "duplicate", "The server lists this URI twice; the first is kept.");
        continue;
      }
      const edits =
        kind === "skills" && renamed !== undefined
          ? renameSkillFiles(item.bytes, { start: 0, end: item.bytes.length }, (uri) =>
              skillRoots.exposedUriOf(server, uri),
            )
          : undefined;
      entries.set(name, new LazyEntry(kind, source, item, name, name, edits));
      if (name === ownUri) continue;
      const reason = explainRename(
        owner,
        namesHubServer ? namedServer : undefined,
        renamed !== undefined,
      );
      addNote(item, "shortened", `${reason}; it is exposed as "${name}".`);
    }
  }
  return entries;
}
