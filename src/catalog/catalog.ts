import { applyEdits, type Edit, joinPieces, utf8 } from "../bytes.ts";
import { skipSpace } from "../json.ts";
import { eachKind, type Item, type Kind } from "./item.ts";
import { interfaceEdits } from "./interfaces.ts";
import { readLocator, writeLocator, writeTemplate } from "./locator.ts";
import type { Digest, NameRules } from "./names.ts";
import { joinHints, NO_CACHE, type Offer } from "./offer.ts";
import { type Entry, type Limits, Section } from "./section.ts";
import {
  firstOfEach,
  isNamed,
  type NamedKind,
  type Remark,
  shape,
  type Shaped,
  type ShapeRules,
} from "./shape.ts";

/** One server's part of a catalog. */
export interface Source {
  readonly server: string;
  readonly offer: Offer;
  readonly rules: Readonly<Record<NamedKind, ShapeRules>>;
  limits(kind: Kind, remoteName: string): Limits;
  /** What plugins make of those tools that the rules let through. */
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
    const entries = isNamed(kind)
      ? nameEntries(kind, sources, { names, digest, renamed }, remarks)
      : locateEntries(kind, sources, remarks);
    return new Section(kind, entries, origin);
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

const NO_NAMES: ReadonlyMap<string, string> = new Map();

function nameEntries(
  kind: NamedKind,
  sources: readonly Source[],
  { names, digest, renamed }: Naming,
  remarks: Remark[],
): ReadonlyMap<string, Entry> {
  const entries = new Map<string, Entry>();
  const ordered = [
    ...sources.filter(({ rules }) => rules[kind].prefix !== ""),
    ...sources.filter(({ rules }) => rules[kind].prefix === ""),
  ];
  for (const source of ordered) {
    const { server, offer, rules } = source;
    const revise = kind === "tools" && source.revise !== undefined;
    const raw = {
      server,
      list: kind,
      items: offer[kind],
      rules: rules[kind],
      ...(revise && { revise: (items: readonly Item[]) => source.revise?.(items) ?? items }),
    };
    const shaped = shape(raw, names, digest);
    // There may be more than a call can have arguments.
    for (const remark of shaped.remarks) remarks.push(remark);
    const { shown } = shaped;
    for (const one of [...shown.filter((it) => it.renamed), ...shown.filter((it) => !it.renamed)]) {
      const owner = entries.get(one.name)?.route;
      if (owner === undefined) {
        const edits = interfaceEdits(one.item, renamed.get(server) ?? NO_NAMES);
        entries.set(one.name, toEntry(kind, source, one, edits));
        continue;
      }
      const text = `"${one.name}" is already ${owner.remoteName} of server "${owner.server}".`;
      remarks.push({ server, list: kind, remoteName: one.item.key, kind: "clash", text });
    }
  }
  return entries;
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
      entries.set(name, toEntry(kind, source, { item, name, full: name, renamed: false }));
      if (name === item.key) continue;
      const why =
        owner === undefined ? `It names server "${named}"` : `Server "${owner}" has the same`;
      const text = `${why}; it is exposed as "${name}".`;
      remarks.push({ server, list: kind, remoteName: item.key, kind: "shortened", text });
    }
  }
  return entries;
}

function toEntry(kind: Kind, source: Source, shaped: Shaped, edits: readonly Edit[] = []): Entry {
  const { item, name } = shaped;
  const route = {
    kind,
    server: source.server,
    name,
    remoteName: item.key,
    remoteNameJson: utf8(JSON.stringify(item.key)),
    item,
    limits: source.limits(kind, item.key),
  };
  return { route, bytes: bytesOf(shaped, edits) };
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
