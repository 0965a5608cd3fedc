/**
 * The catalog: what clients see of all servers together, computed without I/O.
 * `Catalog` has one `Section` per kind of item (tools, prompts, resources, resource templates, skills); a section maps
 * exposed names and URIs to routes. Start with `buildCatalog`, then `section.ts` (look-up and list results),
 * `listing.ts` (what one server lists) and `names.ts` (exposed names).
 */

import { eachKind, type Item, type Kind } from "./listing.ts";
import type { SchemaRules } from "./conformance.ts";
import { interfaceEdits } from "./interfaces.ts";
import { Listed } from "./listed.ts";
import { ExposedUris, renameSkillFiles } from "./renamed-uris.ts";
import { SkillPlaces, type SkillRules } from "./skills.ts";
import { readLocator, writeLocator, writeTemplate } from "./uris.ts";
import type { Digest, NameRules } from "./names.ts";
import {
  joinDeclared,
  joinHints,
  joinInstructions,
  joinMetas,
  NO_CACHE,
  type Offer,
  type Offered,
} from "./offer.ts";
import { type Entry, type Limits, Section } from "./section.ts";
import {
  dropHidden,
  isNamed,
  makeReadable,
  type NamedKind,
  type Remark,
  type Remarker,
  shape,
  type ShapeRules,
} from "./shape.ts";

/**
 * One server's input to a catalog. Its exposed tools and prompts are cached by this object, so later catalogs that
 * reuse it build faster.
 */
export interface Source {
  readonly server: string;
  readonly offer: Offer;
  /** The protocol era of the clients of this catalog; undefined: legacy. */
  readonly era?: "legacy" | "modern";
  readonly rules: Readonly<Record<NamedKind, ShapeRules>>;
  /** Which of the server's skills are shown; absent: all. */
  readonly skills?: SkillRules | undefined;
  limits(kind: Kind, remoteName: string): Limits;
  /**
   * Lets plugins change the tools that the filter allows. A source with this method may be used for one catalog only.
   */
  revise?(tools: readonly Item[]): readonly Item[];
}

/** An immutable snapshot of everything clients can see; replaced as a whole. */
export interface Catalog extends Readonly<Record<Kind, Section>> {
  /** Maps the servers' own URIs to exposed ones. */
  readonly uris: ExposedUris;
  /** The servers' `instructions`, each under its server's name; undefined if no server has any. */
  readonly instructions: string | undefined;
  /** The capabilities that the servers declare beside their lists. */
  readonly offered: Offered;
  /** Which entries are hidden, renamed or changed, and why. */
  readonly remarks: readonly Remark[];
}

/**
 * Builds the catalog from the servers' listings, in manifest order. Every exposed name has one owner. A prefixed name
 * wins over an unprefixed one, then the earlier server in the manifest wins, then, within a server, an entry renamed by
 * the manifest wins over one with that name of its own. The others are hidden, with a note. URIs are exposed unchanged;
 * a URI that an earlier server has already is exposed in a form that names the server.
 * @param isComplete false while the listing of some server is not known yet
 */
export function buildCatalog(
  sources: readonly Source[],
  names: NameRules,
  digest: Digest,
  isWhole = true,
): Catalog {
  const offers = sources.map(({ offer }) => offer);
  const modern = new Set(
    sources.filter(({ offer }) => offer.hints !== undefined).map(({ server }) => server),
  );
  const remarks: Remark[] = [];
  const places = placeSkills(sources);
  const resources = locateEntries("resources", sources, places, remarks);
  const renamed = namesOf(resources.values());
  const sections = eachKind((kind) => {
    const hint = isWhole ? joinHints(kind, offers) : NO_CACHE;
    const origin = { hint, modern, meta: joinMetas(kind, offers) };
    if (kind === "resources") return new Section(kind, resources, origin);
    if (!isNamed(kind)) {
      return new Section(kind, locateEntries(kind, sources, places, remarks), origin);
    }
    const naming = { names, digest, renamed };
    return new Section(kind, nameEntries(kind, sources, naming, remarks), origin);
  });
  const instructions = joinInstructions(sources);
  const offered = joinDeclared(offers, isWhole);
  const uris = new ExposedUris(renamed, places);
  return { ...sections, uris, instructions, offered, remarks };
}

/** How exposed names are made, and the resource URIs that are exposed under other names. */
interface Naming {
  readonly names: NameRules;
  readonly digest: Digest;
  readonly renamed: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** Exposed URIs that differ from the server's own, by server, then by the server's own URI. */
function namesOf(entries: Iterable<Entry>): Naming["renamed"] {
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
interface Part {
  readonly names: NameRules;
  /** In the order in which they claim their names. */
  readonly entries: readonly Entry[];
  readonly remarks: readonly Remark[];
}

function nameEntries(
  kind: NamedKind,
  sources: readonly Source[],
  naming: Naming,
  remarks: Remark[],
): ReadonlyMap<string, Entry> {
  const entries = new Map<string, Entry>();
  const ordered = [
    ...sources.filter(({ rules }) => rules[kind].prefix !== ""),
    ...sources.filter(({ rules }) => rules[kind].prefix === ""),
  ];
  for (const source of ordered) {
    const { server } = source;
    const part = partOf(kind, source, naming);
    // No spread: a list may be longer than the maximum number of arguments.
    for (const remark of part.remarks) remarks.push(remark);
    for (const entry of part.entries) {
      const { name } = entry;
      const owner = entries.get(name);
      if (owner === undefined) {
        entries.set(name, entry);
        continue;
      }
      const { remoteName } = entry.route;
      const text = `"${name}" is already ${owner.route.remoteName} of server "${owner.server}".`;
      remarks.push({ server, list: kind, remoteName, kind: "clash", text });
    }
  }
  return entries;
}

/** The last exposed list of each kind, by source. */
const parts = new WeakMap<Source, Map<NamedKind, Part>>();

function partOf(kind: NamedKind, source: Source, { names, digest, renamed }: Naming): Part {
  const interfaces = renamed.get(source.server);
  // Not cached: renamed resource URIs depend on other servers.
  if (interfaces !== undefined) return makePart(kind, source, names, digest, interfaces);
  const known = parts.get(source);
  const before = known?.get(kind);
  if (before?.names === names) return before;
  const part = makePart(kind, source, names, digest);
  if (known === undefined) parts.set(source, new Map([[kind, part]]));
  else known.set(kind, part);
  return part;
}

const NO_NAMES: ReadonlyMap<string, string> = new Map();

function makePart(
  kind: NamedKind,
  source: Source,
  names: NameRules,
  digest: Digest,
  interfaces = NO_NAMES,
): Part {
  const { server, offer, rules } = source;
  const revise = kind === "tools" && source.revise !== undefined;
  const raw = {
    server,
    list: kind,
    items: offer[kind],
    rules: rules[kind],
    schema: schemaFor(source),
    enlist(item: Item, name: string, full: string): Entry {
      const edits = interfaces.size === 0 ? undefined : interfaceEdits(item, interfaces);
      return new Listed(kind, source, item, name, full, edits);
    },
    ...(revise && { revise: (items: readonly Item[]) => source.revise?.(items) ?? items }),
  };
  return { names, ...shape(raw, names, digest) };
}

function explainRename(
  owner: string | undefined,
  named: string | undefined,
  isInSkill: boolean,
): string {
  if (owner !== undefined) return `Server "${owner}" has the same`;
  if (named !== undefined) return `It names server "${named}"`;
  return isInSkill ? "It is in a skill that another server has, too" : "It is no URI";
}

function placeSkills(sources: readonly Source[]): SkillPlaces {
  const published = sources.map(({ server, offer, skills: rules }) => {
    const { skills, resources } = offer;
    return { server, skills, resources, rules };
  });
  return new SkillPlaces(published, new Set(sources.map(({ server }) => server)));
}

/** Only modern servers give cache hints. */
function schemaFor({ era, offer }: Source): SchemaRules {
  if (era === "modern") return "modern";
  return offer.hints === undefined ? "legacy" : "wrapped";
}

function locateEntries(
  kind: "resources" | "resourceTemplates" | "skills",
  sources: readonly Source[],
  places: SkillPlaces,
  remarks: Remark[],
): ReadonlyMap<string, Entry> {
  const entries = new Map<string, Entry>();
  const write = kind === "resources" ? writeLocator : writeTemplate;
  const servers = new Set(sources.map(({ server }) => server));
  for (const source of sources) {
    const { server, offer } = source;
    const seen = new Set<string>();
    const remark: Remarker = ({ key: remoteName }, aside, text) =>
      void remarks.push({ server, list: kind, remoteName, kind: aside, text });
    for (const listed of dropHidden(offer[kind], kind, remark)) {
      if (seen.has(listed.key)) {
        remark(listed, "duplicate", "The server lists this URI twice; the first is kept.");
        continue;
      }
      seen.add(listed.key);
      const isHidden =
        kind === "skills"
          ? places.hidesSkill(server, listed.key)
          : places.hidesFile(server, listed.key);
      if (isHidden) {
        remark(listed, "filtered", "skills.allow or skills.deny hides the skill.");
        continue;
      }
      const item = makeReadable(listed, kind, schemaFor(source), remark);
      if (item === undefined) continue;
      const own = item.key.toWellFormed();
      const inSkill = places.ownerOf(own);
      const owner = entries.get(own)?.server ?? (inSkill === server ? undefined : inSkill);
      const named = readLocator(own)?.server;
      const isOfHub = named !== undefined && servers.has(named);
      // Some clients refuse a whole list that contains one relative URI (RFC 3986).
      const isUri = kind === "resourceTemplates" || URL.canParse(own);
      const renamed = places.rename(server, item.key);
      const isFree = owner === undefined && !isOfHub && isUri;
      const name = renamed ?? (isFree ? own : write(server, item.key));
      // URIs that differ only in lone surrogates have the same encoded form.
      if (entries.get(name)?.server === server) {
        remark(item, "duplicate", "The server lists this URI twice; the first is kept.");
        continue;
      }
      const edits =
        kind === "skills" && renamed !== undefined
          ? renameSkillFiles(item.bytes, { start: 0, end: item.bytes.length }, (uri) =>
              places.rename(server, uri),
            )
          : undefined;
      entries.set(name, new Listed(kind, source, item, name, name, edits));
      if (name === own) continue;
      const why = explainRename(owner, isOfHub ? named : undefined, renamed !== undefined);
      remark(item, "shortened", `${why}; it is exposed as "${name}".`);
    }
  }
  return entries;
}
