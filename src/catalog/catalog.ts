import { eachKind, type Item, type Kind } from "./item.ts";
import type { SchemaRules } from "./conform.ts";
import { interfaceEdits } from "./interfaces.ts";
import { Listed } from "./listed.ts";
import { ExposedUris, renameSkillFiles } from "./renamed-uris.ts";
import { SkillPlaces, type SkillRules } from "./skills.ts";
import { readLocator, writeLocator, writeTemplate } from "./locator.ts";
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

/** One server's part of a catalog. What it comes to is remembered, so that another catalog with the same one is made sooner. */
export interface Source {
  readonly server: string;
  readonly offer: Offer;
  /** What the clients speak that see it; undefined: legacy. */
  readonly era?: "legacy" | "modern";
  readonly rules: Readonly<Record<NamedKind, ShapeRules>>;
  /** Which of its skills are shown; all if absent. */
  readonly skills?: SkillRules | undefined;
  limits(kind: Kind, remoteName: string): Limits;
  /** What plugins make of those tools that the rules let through. A source that has this may be used once only. */
  revise?(tools: readonly Item[]): readonly Item[];
}

/** An immutable snapshot of all that clients can see; replaced as a whole. */
export interface Catalog extends Readonly<Record<Kind, Section>> {
  /** Under which URIs clients know what servers have. */
  readonly uris: ExposedUris;
  /** What the servers want models to know, each under its server's name; undefined if they say nothing. */
  readonly instructions: string | undefined;
  /** What the servers declare beside their lists. */
  readonly offered: Offered;
  /** What is hidden, or shown under another name, and why. */
  readonly remarks: readonly Remark[];
}

/**
 * Builds the catalog from the servers' offers, in manifest order. Every exposed name has one owner: a prefixed name
 * comes before an unprefixed one, then the manifest's order decides, then within a server a renamed entry comes before
 * one that is called so by itself. The others are hidden and remarked on. URIs are exposed as they are, and where a
 * server before it has the same one, as one that names the server.
 * @param isWhole whether there is no other server of which nothing is known yet
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

/** How names are made, and under which other names a server's resources are exposed. */
interface Naming {
  readonly names: NameRules;
  readonly digest: Digest;
  readonly renamed: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** By server and its own URI. */
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

/** What a server's list comes to by itself: all that clients would see if there were no other server. */
interface Part {
  readonly names: NameRules;
  /** In the order in which they get their names. */
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
    // There may be more than a call can have arguments.
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

/** By source, of each kind the last one. */
const parts = new WeakMap<Source, Map<NamedKind, Part>>();

function partOf(kind: NamedKind, source: Source, { names, digest, renamed }: Naming): Part {
  const interfaces = renamed.get(source.server);
  // How resources are called depends on other servers.
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

/** A server that says for how long its lists hold is one of the modern era. */
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
      // Some clients refuse a whole list for one that is no absolute URI (RFC 3986).
      const isUri = kind === "resourceTemplates" || URL.canParse(own);
      const renamed = places.rename(server, item.key);
      const isFree = owner === undefined && !isOfHub && isUri;
      const name = renamed ?? (isFree ? own : write(server, item.key));
      // The same half characters are no characters at all.
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
