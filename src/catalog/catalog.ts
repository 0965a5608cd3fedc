import { applyEdits, type Edit, joinPieces, utf8 } from "../bytes.ts";
import { skipSpace } from "../json.ts";
import { eachKind, type Item, type Kind } from "./item.ts";
import { interfaceEdits } from "./interfaces.ts";
import { readLocator, writeLocator, writeTemplate } from "./locator.ts";
import type { Digest, NameRules } from "./names.ts";
import { joinHints, NO_CACHE, type Offer } from "./offer.ts";
import { byName, type Entry, type Limits, type ListedRoute, type Run, Section } from "./section.ts";
import {
  firstOfEach,
  isNamed,
  type NamedKind,
  type Remark,
  shape,
  type Shaped,
  type ShapeRules,
} from "./shape.ts";

/** One server's part of a catalog. What it comes to is remembered, so that another catalog with the same one is made sooner. */
export interface Source {
  readonly server: string;
  readonly offer: Offer;
  readonly rules: Readonly<Record<NamedKind, ShapeRules>>;
  limits(kind: Kind, remoteName: string): Limits;
  /** What plugins make of those tools that the rules let through. A source that has this may be used once only. */
  revise?(tools: readonly Item[]): readonly Item[];
}

/** An immutable snapshot of all that clients can see; replaced as a whole. */
export interface Catalog extends Readonly<Record<Kind, Section>> {
  /** What the servers want models to know, each under its server's name; undefined if they say nothing. */
  readonly instructions: string | undefined;
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
  const resources = locateEntries("resources", sources, remarks);
  const renamed = namesOf(resources.values());
  const sections = eachKind((kind) => {
    const origin = { hint: isWhole ? joinHints(kind, offers) : NO_CACHE, modern };
    if (kind === "resources") return new Section(kind, resources, origin);
    if (!isNamed(kind)) return new Section(kind, locateEntries(kind, sources, remarks), origin);
    const { entries, runs } = nameEntries(kind, sources, { names, digest, renamed }, remarks);
    return new Section(kind, entries, origin, runs);
  });
  return { ...sections, instructions: joinInstructions(sources), remarks };
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
  readonly run: Run;
  readonly remarks: readonly Remark[];
}

function nameEntries(
  kind: NamedKind,
  sources: readonly Source[],
  naming: Naming,
  remarks: Remark[],
): { readonly entries: ReadonlyMap<string, Entry>; readonly runs: readonly Run[] } {
  const entries = new Map<string, Entry>();
  const runs: Run[] = [];
  const ordered = [
    ...sources.filter(({ rules }) => rules[kind].prefix !== ""),
    ...sources.filter(({ rules }) => rules[kind].prefix === ""),
  ];
  for (const source of ordered) {
    const { server } = source;
    const part = partOf(kind, source, naming);
    // There may be more than a call can have arguments.
    for (const remark of part.remarks) remarks.push(remark);
    const before = entries.size;
    for (const entry of part.entries) {
      const { name, remoteName } = entry.route;
      const owner = entries.get(name)?.route;
      if (owner === undefined) {
        entries.set(name, entry);
        continue;
      }
      const text = `"${name}" is already ${owner.remoteName} of server "${owner.server}".`;
      remarks.push({ server, list: kind, remoteName, kind: "clash", text });
    }
    const isWhole = entries.size - before === part.entries.length;
    runs.push(isWhole ? part.run : part.run.filter((it) => entries.get(it.route.name) === it));
  }
  return { entries, runs };
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
    ...(revise && { revise: (items: readonly Item[]) => source.revise?.(items) ?? items }),
  };
  const { shown, remarks } = shape(raw, names, digest);
  const entries = [...shown.filter((it) => it.renamed), ...shown.filter((it) => !it.renamed)].map(
    (one) => new Listed(kind, source, one, interfaceEdits(one.item, interfaces)),
  );
  return { names, entries, run: entries.toSorted(byName), remarks };
}

function locateEntries(
  kind: "resources" | "resourceTemplates",
  sources: readonly Source[],
  remarks: Remark[],
): ReadonlyMap<string, Entry> {
  const entries = new Map<string, Entry>();
  const write = kind === "resources" ? writeLocator : writeTemplate;
  for (const source of sources) {
    const { server, offer } = source;
    const items = firstOfEach(offer[kind], ({ key: remoteName }) => {
      const text = "The server lists this URI twice; the first is kept.";
      remarks.push({ server, list: kind, remoteName, kind: "duplicate", text });
    });
    for (const item of items) {
      const owner = entries.get(item.key)?.route.server;
      const named = readLocator(item.key)?.server;
      const isOfHub = sources.some((each) => each.server === named);
      const name = owner === undefined && !isOfHub ? item.key : write(server, item.key);
      entries.set(name, new Listed(kind, source, { item, name, full: name, renamed: false }));
      if (name === item.key) continue;
      const why =
        owner === undefined ? `It names server "${named}"` : `Server "${owner}" has the same`;
      const text = `${why}; it is exposed as "${name}".`;
      remarks.push({ server, list: kind, remoteName: item.key, kind: "shortened", text });
    }
  }
  return entries;
}

/** An entry whose bytes are made when somebody wants them: of a long list most clients see the first page. */
class Listed implements Entry {
  readonly route: ListedRoute;
  readonly #shaped: Shaped;
  readonly #edits: readonly Edit[];
  #bytes: Uint8Array | undefined;

  constructor(kind: Kind, source: Source, shaped: Shaped, edits: readonly Edit[] = []) {
    const { item, name } = shaped;
    this.#shaped = shaped;
    this.#edits = edits;
    this.route = {
      kind,
      server: source.server,
      name,
      remoteName: item.key,
      remoteNameJson: utf8(JSON.stringify(item.key)),
      item,
      limits: source.limits(kind, item.key),
    };
  }

  get bytes(): Uint8Array {
    return (this.#bytes ??= bytesOf(this.#shaped, this.#edits));
  }
}

/** The entry as the server wrote it, but for its name and, if that was cut, a word on what it was. */
function bytesOf({ item, name, full }: Shaped, more: readonly Edit[]): Uint8Array {
  if (name === full && name === item.key && more.length === 0) return item.bytes;
  const json = utf8(JSON.stringify(name));
  const edits: Edit[] = [...item.keys.map(({ start, end }) => ({ start, end, by: json })), ...more];
  if (name !== full) edits.push(metaEdit(item, full));
  return joinPieces(applyEdits(item.bytes, edits));
}

/** `_meta` key for the full name of an entry whose exposed name was shortened. */
const FULL_NAME_KEY = "toolmux/fullName";

function metaEdit({ bytes, meta }: Item, full: string): Edit {
  const member = `${JSON.stringify(FULL_NAME_KEY)}:${JSON.stringify(full)}`;
  if (meta !== undefined) {
    const at = meta.start + 1;
    const empty = skipSpace(bytes, at) === meta.end - 1;
    return { start: at, end: at, by: utf8(empty ? member : `${member},`) };
  }
  const close = bytes.length - 1;
  return { start: close, end: close, by: utf8(`,"_meta":{${member}}`) };
}

function joinInstructions(sources: readonly Source[]): string | undefined {
  const texts = sources.flatMap(({ server, offer }) => {
    const text = offer.instructions?.trim();
    return text === undefined || text === "" ? [] : [`# ${server}\n\n${text}`];
  });
  return texts.length === 0 ? undefined : texts.join("\n\n");
}
