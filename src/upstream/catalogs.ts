import type { Alerts } from "../base/alerts.ts";
import { buildCatalog, type CatalogSource, type Catalog } from "../catalog/catalog.ts";
import { KIND_NOUNS, type Kind, type ListedItem, type ServerListing } from "../catalog/listing.ts";
import { diffSections, type RouteLimits, type Route, Section } from "../catalog/section.ts";
import type { NameRules, Sha256 } from "../catalog/names.ts";
import type { EventBus, LogLevel } from "../base/events.ts";
import type { InvalidServer, RunnableServer } from "../manifest/schema.ts";
import type { Era } from "../protocol/modern.ts";
import type { ServerPool } from "./pool.ts";
import {
  ALL_SERVERS,
  type ClientProfile,
  namePrefixOf,
  type ServerSubset,
  SHARED_PROFILE,
} from "./profile.ts";

export interface CatalogCacheOptions {
  readonly pool: ServerPool;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly digest: Sha256;
  /** What plugins make of a server's listing; undefined if there are none. */
  reviser(): ((server: string, items: readonly ListedItem[]) => readonly ListedItem[]) | undefined;
}

/** How many catalogs are kept for whoever comes next: clients choose of which servers they want one. */
const MOST_CATALOGS = 64;

/** So much is said of what one server lists: lines, and the UTF-16 units of one. */
const MOST_REMARKS = 100;
const LONGEST_REMARK = 1000;

/** The catalogs in force, by servers and by what clients can do; each is built when it is first needed after a change. */
export class CatalogCache {
  names: NameRules;
  /** What models are to know if no server says anything. */
  notice: string | undefined;
  /** The servers that are not started, as their tables in the manifest are wrong. */
  invalid: readonly InvalidServer[] = [];
  /** Another whenever a catalog may be another. */
  version = 0;
  readonly #parts: CatalogCacheOptions;
  readonly #catalogs = new Map<string, Catalog>();
  /** What was last made of each offer, and for which prefix. */
  readonly #sources = new WeakMap<
    ServerListing,
    {
      readonly spec: RunnableServer;
      readonly prefix: string;
      readonly era: Era;
      readonly source: CatalogSource;
    }
  >();
  /** What was said of servers' entries, by server. */
  readonly #remarked = new Map<string, Set<string>>();
  /** The exposed names that belong to another tool than to the one that had them first, and which that was. */
  readonly #moved = new Map<string, Route>();
  /** What was last told of. */
  #told: Section | undefined;

  constructor(names: NameRules, parts: CatalogCacheOptions) {
    this.names = names;
    this.#parts = parts;
  }

  /** What there is for that profile. Whoever gets it has to keep it until `version` is another: it may not be kept here. */
  catalog(profile: ClientProfile): Catalog {
    const { pool } = this.#parts;
    const isOwn = profile.client !== undefined && pool.hasIsolated;
    const key = `${profile.scope.key} ${profile.keys.shared}`;
    const known = isOwn ? undefined : this.#catalogs.get(key);
    if (known !== undefined) return known;
    const catalog = this.#build(profile);
    if (isOwn) return catalog;
    const [oldest] = this.#catalogs.keys();
    if (this.#catalogs.size >= MOST_CATALOGS && oldest !== undefined) this.#catalogs.delete(oldest);
    this.#catalogs.set(key, catalog);
    return catalog;
  }

  /** Some server shows something else. */
  clear(): void {
    this.version++;
    this.#catalogs.clear();
  }

  /** Tells on the bus what is another since it was last told; an exposed name that has another owner is an alert. */
  announce(): void {
    const { bus } = this.#parts;
    const { tools } = this.catalog(SHARED_PROFILE);
    const change = diffSections(this.#told ?? NOTHING, tools);
    this.#told = tools;
    if (change === undefined) return;
    const { added, removed, altered, moved } = change;
    bus.emit({ kind: "catalog", added, removed, altered });
    for (const { from } of moved) {
      if (!this.#moved.has(from.name)) this.#moved.set(from.name, from);
    }
    this.#tellMoves(tools);
  }

  /** An alert for every server that has names which were another's, as long as it has them. */
  #tellMoves(tools: Section): void {
    const { pool, alerts } = this.#parts;
    const texts = new Map<string, string[]>();
    for (const [name, from] of this.#moved) {
      const to = tools.find(name);
      if (to === undefined || (to.server === from.server && to.remoteName === from.remoteName)) {
        this.#moved.delete(name);
        continue;
      }
      const text = `"${name}" is now ${to.remoteName} of server "${to.server}"; it was ${from.remoteName} of server "${from.server}".`;
      texts.set(to.server, [...(texts.get(to.server) ?? []), text]);
    }
    for (const { name: server } of pool.specs) {
      const [first, ...more] = texts.get(server) ?? [];
      if (first === undefined) alerts.clear(server, ["nameMoved"]);
      else {
        const text =
          more.length === 0 ? first : `${first} ${more.length} more names went the same way.`;
        alerts.raise({ kind: "nameMoved", server, text });
      }
    }
  }

  #build(profile: ClientProfile): Catalog {
    // Plugins could add to a list that there is not.
    const { scope, era } = profile;
    const connections = this.#parts.pool.connections(profile);
    const shown = connections.flatMap(({ spec, listing: offer }) => {
      return offer === undefined ? [] : [{ spec, offer }];
    });
    const sources = shown.map(({ spec, offer }) => this.#sourceOf(spec, offer, scope, era));
    const isWhole = shown.length === connections.length;
    const built = buildCatalog(sources, this.names, this.#parts.digest, isWhole);
    const { instructions = this.notice } = built;
    const catalog = { ...built, instructions };
    // Of a part there is nothing to say that was not said of the whole.
    if (scope !== ALL_SERVERS) return catalog;
    for (const { list, kind, server, remoteName, text } of catalog.notes) {
      const noun = KIND_NOUNS[list].replace(/^./, (letter) => letter.toUpperCase());
      const line = `${noun} "${remoteName}" of server "${server}": ${text}`;
      // Entries without a name were told of when they were listed.
      const isTold = kind === "unreadable" && remoteName === "";
      if (kind === "filtered" || kind === "hidden" || kind === "conflict" || isTold) continue;
      this.#remark(server, kind === "shortened" ? "info" : "warn", line.slice(0, LONGEST_REMARK));
    }
    return catalog;
  }

  /** The same for the same, so that only what has changed is shaped anew; what plugins make of it may be another each time. */
  #sourceOf(
    spec: RunnableServer,
    offer: ServerListing,
    scope: ServerSubset,
    era: Era,
  ): CatalogSource {
    const prefix = namePrefixOf(scope, spec);
    const revise = this.#parts.reviser();
    if (revise !== undefined) {
      return {
        ...makeSource(spec, offer, prefix, era),
        transformTools: (listed) => revise(spec.name, listed),
      };
    }
    const known = this.#sources.get(offer);
    if (known?.spec === spec && known.prefix === prefix && known.era === era) return known.source;
    const source = makeSource(spec, offer, prefix, era);
    this.#sources.set(offer, { spec, prefix, era, source });
    return source;
  }

  /** Says it once, and not without end: servers may list other odd things every time. */
  #remark(server: string, level: LogLevel, line: string): void {
    const remarked = this.#remarked.get(server) ?? new Set();
    this.#remarked.set(server, remarked);
    if (remarked.size > MOST_REMARKS || remarked.has(line)) return;
    remarked.add(line);
    const isLast = remarked.size > MOST_REMARKS;
    const text = isLast ? `No more is said of what server "${server}" lists.` : line;
    this.#parts.bus.emit({ kind: "log", level, source: "hub", text });
  }
}

const NOTHING = new Section("tools", new Map());

function makeSource(
  spec: RunnableServer,
  offer: ServerListing,
  prefix: string,
  era: Era,
): CatalogSource {
  return {
    server: spec.name,
    listing: offer,
    era,
    rules: { tools: { prefix, ...spec.tools }, prompts: { prefix, ...spec.prompts } },
    skills: spec.skills,
    limits: (kind, remoteName) => limitsOf(spec, kind, remoteName),
  };
}

function limitsOf(
  { tools, callTimeout, maxCallTimeout }: RunnableServer,
  kind: Kind,
  remoteName: string,
): RouteLimits {
  const isSet = kind === "tools" && Object.hasOwn(tools.timeout, remoteName);
  const own = isSet ? tools.timeout[remoteName] : undefined;
  return own === undefined
    ? { timeout: callTimeout, maxTimeout: maxCallTimeout }
    : { timeout: own, maxTimeout: Math.max(own, maxCallTimeout) };
}
