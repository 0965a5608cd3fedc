/**
 * The catalog: what clients see of all servers together, computed without I/O.
 * `Catalog` has one `Section` per kind of item (tools, prompts, resources, resource templates, skills); a section maps
 * exposed names and URIs to routes. Start with `buildCatalog`, then `section.ts` (look-up and list results),
 * `listing.ts` (what one server lists) and `names.ts` (exposed names).
 */

import { mapKinds, type ListedItem, type Kind } from "./listing.ts";
import type { SchemaRules } from "./conformance.ts";
import { uiResourceEdits } from "./interfaces.ts";
import { LazyEntry } from "./listed.ts";
import { ExposedUris, renameSkillFiles } from "./renamed-uris.ts";
import { SkillRoots, type SkillRules } from "./skills.ts";
import { decodeUri, encodeUri, encodeUriTemplate } from "./uris.ts";
import type { Sha256, NameRules } from "./names.ts";
import {
  mergeCapabilities,
  mergeCacheHints,
  mergeInstructions,
  mergeListMetas,
  NO_CACHING,
  type ServerListing,
  type CombinedCapabilities,
} from "./offer.ts";
import { type SectionEntry, type RouteLimits, Section } from "./section.ts";
import {
  dropUnshowable,
  isNamed,
  makeExposable,
  type NamedKind,
  type ExposureNote,
  type AddNote,
  exposeList,
  type ExposureRules,
} from "./shape.ts";

/**
 * One server's input to a catalog. Its exposed tools and prompts are cached by this object, so later catalogs that
 * reuse it build faster.
 */
export interface CatalogSource {
  readonly server: string;
  readonly listing: ServerListing;
  /** The protocol era of the clients of this catalog; undefined: legacy. */
  readonly era?: "legacy" | "modern";
  readonly rules: Readonly<Record<NamedKind, ExposureRules>>;
  /** Which of the server's skills are shown; absent: all. */
  readonly skills?: SkillRules | undefined;
  limits(kind: Kind, remoteName: string): RouteLimits;
  /**
   * Lets plugins change the tools that the filter allows. A source with this method may be used for one catalog only.
   */
  transformTools?(tools: readonly ListedItem[]): readonly ListedItem[];
}

/** An immutable snapshot of everything clients can see; replaced as a whole. */
export interface Catalog extends Readonly<Record<Kind, Section>> {
  /** Maps the servers' own URIs to exposed ones. */
  readonly uris: ExposedUris;
  /** The servers' `instructions`, each under its server's name; undefined if no server has any. */
  readonly instructions: string | undefined;
  /** The capabilities that the servers declare beside their lists. */
  readonly capabilities: CombinedCapabilities;
  /** Which entries are hidden, renamed or changed, and why. */
  readonly notes: readonly ExposureNote[];
}

/**
 * Builds the catalog from the servers' listings, in manifest order. Every exposed name has one owner. A prefixed name
 * wins over an unprefixed one, then the earlier server in the manifest wins, then, within a server, an entry renamed by
 * the manifest wins over one with that name of its own. The others are hidden, with a note. URIs are exposed unchanged;
 * a URI that an earlier server has already is exposed in a form that names the server.
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
  const skillRoots = skillRootsOf(sources);
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

/** How exposed names are made, and the resource URIs that are exposed under other names. */
interface NameSettings {
  readonly nameRules: NameRules;
  readonly sha256: Sha256;
  readonly renamedUris: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** Exposed URIs that differ from the server's own, by server, then by the server's own URI. */
function renamedUrisOf(entries: Iterable<SectionEntry>): NameSettings["renamedUris"] {
  const renamed = new Map<string, Map<string, string>>();
  for (const { route } of entries) {
    const { server, name, remoteName } = route;
    if (name === remoteName) continue;
    const own = renamed.get(server) ?? new Map<string, string>();
    renamed.set(server, own.set(remoteName, name));
  }
  return renamed;
}

/** The exposed list of one server, as it is without any other server. */
interface CachedList {
  readonly nameRules: NameRules;
  /** In the order in which they claim their names. */
  readonly entries: readonly SectionEntry[];
  readonly notes: readonly ExposureNote[];
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
    // No spread: a list may be longer than the maximum number of arguments.
    for (const note of list.notes) notes.push(note);
    for (const entry of list.entries) {
      const { name } = entry;
      const owner = entries.get(name);
      if (owner === undefined) {
        entries.set(name, entry);
        continue;
      }
      const { remoteName } = entry.route;
      const text = `"${name}" is already ${owner.route.remoteName} of server "${owner.server}".`;
      notes.push({ server, list: kind, remoteName, kind: "clash", text });
    }
  }
  return entries;
}

/** The last exposed list of each kind, by source. */
const listCache = new WeakMap<CatalogSource, Map<NamedKind, CachedList>>();

function cachedListOf(
  kind: NamedKind,
  source: CatalogSource,
  { nameRules, sha256, renamedUris: renamedUrisByServer }: NameSettings,
): CachedList {
  const renamedUris = renamedUrisByServer.get(source.server);
  // Not cached: renamed resource URIs depend on other servers.
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
  return isInSkill ? "It is in a skill that another server has, too" : "It is no URI";
}

function skillRootsOf(sources: readonly CatalogSource[]): SkillRoots {
  const published = sources.map(({ server, listing, skills: rules }) => {
    const { skills, resources } = listing;
    return { server, skills, resources, rules };
  });
  return new SkillRoots(published, new Set(sources.map(({ server }) => server)));
}

/** Only modern servers give cache hints. */
function schemaRulesOf({ era, listing }: CatalogSource): SchemaRules {
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
    const { server, listing } = source;
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
      const item = makeExposable(listed, kind, schemaRulesOf(source), addNote);
      if (item === undefined) continue;
      const ownUri = item.key.toWellFormed();
      const skillOwner = skillRoots.ownerOf(ownUri);
      const owner = entries.get(ownUri)?.server ?? (skillOwner === server ? undefined : skillOwner);
      const namedServer = decodeUri(ownUri)?.server;
      const namesHubServer = namedServer !== undefined && servers.has(namedServer);
      // Some clients refuse a whole list that contains one relative URI (RFC 3986).
      const isUri = kind === "resourceTemplates" || URL.canParse(ownUri);
      const renamed = skillRoots.exposedUriOf(server, item.key);
      const isFree = owner === undefined && !namesHubServer && isUri;
      const name = renamed ?? (isFree ? ownUri : encode(server, item.key));
      // URIs that differ only in lone surrogates have the same encoded form.
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
