import { count } from "../base/format.ts";
import type { Alerts } from "../base/alerts.ts";
import type { ExposureNote } from "../catalog/exposure.ts";
import {
  buildCatalog,
  type Catalog,
  type CatalogSource,
  filterCatalog,
} from "../catalog/catalog.ts";
import { describeIdleRule, isIdleRule } from "../catalog/idle-rules.ts";
import { KIND_NOUNS, type Kind, type ListedItem, type ServerListing } from "../catalog/listing.ts";
import { diffSections, type RouteTimeouts, type Route, Section } from "../catalog/section.ts";
import { exposedNameOf, type NameRules, type Sha256 } from "../catalog/names.ts";
import type { EventBus, LogLevel } from "../base/hub-events.ts";
import type { InvalidServer, RunnableServer } from "../manifest/manifest.ts";
import type { Era } from "../protocol/modern.ts";
import type { ModeSelection } from "./client-modes.ts";
import type { ServerPool } from "../upstream/pool.ts";
import {
  ALL_SERVERS,
  type ClientProfile,
  namePrefixOf,
  type ServerSubset,
  SHARED_PROFILE,
} from "../upstream/profile.ts";

export interface CatalogCacheOptions {
  readonly pool: ServerPool;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly digest: Sha256;
  /** Returns the function with which plugins rewrite a server's listing; undefined if there are no plugins. */
  listingRewriter():
    ((server: string, items: readonly ListedItem[]) => readonly ListedItem[]) | undefined;
  /** A server's listing without what the scan hides (`scan = "block"`); the same object for the same content. */
  shownListing(spec: RunnableServer, listing: ServerListing): ServerListing;
}

/**
 * Maximum number of cached catalogs, and of cached filtered catalogs. Each subset of servers that clients choose has
 * its own catalog, and each mode has its own filtered catalog.
 */
const MAX_CATALOGS = 64;

/** Limits of the log lines about one server's listing: their number, and the length of each in UTF-16 units. */
const MAX_NOTES = 100;
const MAX_NOTE_LENGTH = 1000;

/** A catalog, with the data for making its filtered form for a mode. */
interface BuiltCatalog {
  /** The catalog without the hub's own instructions. */
  readonly catalog: Catalog;
  readonly sources: readonly CatalogSource[];
  readonly hasPrefixes: boolean;
  /** The catalog with the hub's own instructions. */
  readonly shown: Catalog;
}

/**
 * A cache of catalogs: one for each subset of servers and capability class, and for each mode the part of a catalog
 * that the mode shows. Each is built when it is first needed after a change.
 */
export class CatalogCache {
  names: NameRules;
  /** The first paragraph of the instructions for clients that see prefixed names; "" for none. */
  ownInstructions = "";
  /** The instructions that are used if no server has any. */
  fallbackInstructions: string | undefined;
  /** The servers that are not started because their tables in the manifest are invalid. */
  invalidServers: readonly InvalidServer[] = [];
  /** Incremented whenever a catalog may have changed. */
  version = 0;
  readonly #options: CatalogCacheOptions;
  readonly #catalogs = new Map<string, BuiltCatalog>();
  /** The filtered catalogs: the parts that modes show. */
  readonly #filtered = new Map<string, Catalog>();
  /**
   * A cache: for each server listing, the catalog source that was last built from it, and the settings of that build.
   */
  readonly #sources = new WeakMap<
    ServerListing,
    {
      readonly spec: RunnableServer;
      readonly prefix: string;
      readonly era: Era;
      readonly source: CatalogSource;
    }
  >();
  /** For each cached catalog, by its key: what is withheld of the same servers, because it is not accepted. */
  readonly #withheld = new Map<string, Catalog>();
  /** For each server, the keys of the log lines that were already written about its items. */
  readonly #loggedNotes = new Map<string, Set<string>>();
  /** The exposed names that now lead to another tool than at first, each with its first route. */
  readonly #movedNames = new Map<string, Route>();
  /** The tools at the last call of `announce`. The next call reports the differences. */
  #announced: Section | undefined;

  constructor(names: NameRules, options: CatalogCacheOptions) {
    this.names = names;
    this.#options = options;
  }

  /**
   * Returns the catalog of a client, or the part that its modes show. Callers may keep the result until `version`
   * changes; the cache itself may drop it earlier.
   */
  catalog(profile: ClientProfile, mode?: ModeSelection): Catalog {
    const isOwn = this.#hasOwnCatalog(profile);
    const values = this.#options.pool.valuesKeyOf(profile);
    const key = `${profile.subset.key} ${profile.keys.shared} ${values}`;
    const make = (): BuiltCatalog => this.#build(profile);
    if (mode?.filter === undefined)
      return (isOwn ? make() : getOrMake(this.#catalogs, key, make)).shown;
    const { filter } = mode;
    const makePart = (): Catalog => {
      const { catalog, sources, hasPrefixes } = isOwn
        ? make()
        : getOrMake(this.#catalogs, key, make);
      return this.#withInstructions(filterCatalog(catalog, filter, sources), hasPrefixes);
    };
    return isOwn ? makePart() : getOrMake(this.#filtered, `${mode.key}\n${key}`, makePart);
  }

  /**
   * The tools and prompts of the client's servers that it is not shown because they are not accepted (pins), under the
   * names that they would have; undefined if there are none.
   */
  withheld(profile: ClientProfile): Catalog | undefined {
    const { pool } = this.#options;
    const servers = pool.connections(profile).flatMap(({ spec, withheld: listing }) => {
      return listing === undefined ? [] : [{ spec, listing }];
    });
    if (servers.length === 0) return undefined;
    const make = (): Catalog => {
      const sources = servers.map(({ spec, listing }) =>
        makeSource(spec, listing, namePrefixOf(profile.subset, spec), profile.era),
      );
      return buildCatalog(sources, this.names, this.#options.digest, true);
    };
    return this.#hasOwnCatalog(profile)
      ? make()
      : getOrMake(this.#withheld, this.keyOf(profile), make);
  }

  /** Equal for clients that always see the same catalog. */
  keyOf(profile: ClientProfile, mode?: ModeSelection): string {
    const { subset, keys, client } = profile;
    const own = this.#hasOwnCatalog(profile) ? client : undefined;
    const values = this.#options.pool.valuesKeyOf(profile);
    return JSON.stringify([mode?.key ?? "", subset.key, keys.shared, values, own ?? null]);
  }

  /** Whether a client's catalog may differ from those of all others, because some server has a process per client. */
  #hasOwnCatalog({ client }: ClientProfile): boolean {
    return client !== undefined && this.#options.pool.hasPerClientServers;
  }

  /** Drops all catalogs, because the listing of a server has changed. */
  clear(): void {
    this.version++;
    this.#catalogs.clear();
    this.#filtered.clear();
    this.#withheld.clear();
  }

  /** Called when clients' modes have changed. @param dropsFilters whether the filter of a mode has changed */
  modesChanged(dropsFilters: boolean): void {
    this.version++;
    if (dropsFilters) this.#filtered.clear();
  }

  /**
   * Emits one event with the changes of the tools since the last call of `announce`, if any. Raises an alert if an
   * exposed name leads to another tool than before.
   */
  announce(): void {
    const { bus } = this.#options;
    const { tools } = this.catalog(SHARED_PROFILE);
    const change = diffSections(this.#announced ?? EMPTY_SECTION, tools);
    this.#announced = tools;
    if (change === undefined) return;
    const { added, removed, altered, moved } = change;
    bus.emit({ kind: "catalog", added, removed, altered });
    for (const { from } of moved) {
      if (!this.#movedNames.has(from.name)) this.#movedNames.set(from.name, from);
    }
    this.#updateMoveAlerts(tools);
  }

  /**
   * Raises or clears the alert `nameMoved` of each server. The alert says that exposed names that led to other tools
   * now lead to tools of this server.
   */
  #updateMoveAlerts(tools: Section): void {
    const { pool, alerts } = this.#options;
    const texts = new Map<string, string[]>();
    for (const [name, from] of this.#movedNames) {
      const to = tools.find(name);
      if (to === undefined || (to.server === from.server && to.remoteName === from.remoteName)) {
        this.#movedNames.delete(name);
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
          more.length === 0
            ? first
            : `${first} ${count(more.length, "more name")} went the same way.`;
        alerts.raise({ kind: "nameMoved", server, text });
      }
    }
  }

  #build(profile: ClientProfile): BuiltCatalog {
    const { subset, era } = profile;
    const connections = this.#options.pool.connections(profile);
    const listed = connections.flatMap(({ spec, listing, known }) => {
      if (listing === undefined) return [];
      return [{ spec, offer: this.#options.shownListing(spec, listing), all: known?.listing }];
    });
    const sources = listed.map(({ spec, offer: listing, all }) =>
      this.#sourceOf(spec, listing, all, subset, era),
    );
    const isComplete = listed.length === connections.length;
    const catalog = buildCatalog(sources, this.names, this.#options.digest, isComplete);
    const hasPrefixes = connections.some(({ spec }) => namePrefixOf(subset, spec) !== "");
    const shown = this.#withInstructions(catalog, hasPrefixes);
    const built = { catalog, sources, hasPrefixes, shown };
    // Only the notes of the catalog of all servers are logged, because they include the notes of each subset.
    if (subset !== ALL_SERVERS) return built;
    for (const note of catalog.notes) {
      const { list, kind, server, remoteName } = note;
      if (isIdleRule(note)) {
        // The key does not contain the note's text, because that text contains the number of tools, which may change.
        this.#logNote(server, "warn", describeIdleRule(note), `${list} ${kind} ${remoteName}`);
        continue;
      }
      const line = describeItemNote(note);
      if (line !== undefined) this.#logNote(server, kind === "shortened" ? "info" : "warn", line);
    }
    return built;
  }

  #withInstructions(catalog: Catalog, hasPrefixes: boolean): Catalog {
    const { instructions = this.fallbackInstructions } = catalog;
    if (!hasPrefixes || this.ownInstructions === "") return { ...catalog, instructions };
    const own = this.ownInstructions.replaceAll("{separator}", () => this.names.separator);
    return {
      ...catalog,
      instructions: instructions === undefined ? own : `${own}\n\n${instructions}`,
      ownInstructions: own,
    };
  }

  /**
   * The catalog source of a server. It is the same object for unchanged input, so that unchanged servers are not
   * processed again. If plugins are active, it is always a new object, because a plugin's result may differ each time.
   */
  #sourceOf(
    spec: RunnableServer,
    listing: ServerListing,
    all: ServerListing | undefined,
    subset: ServerSubset,
    era: Era,
  ): CatalogSource {
    const prefix = namePrefixOf(subset, spec);
    const wholeNameOf = (name: string, remoteName: string): string => {
      const owner = { server: spec.name, remoteName };
      return exposedNameOf(this.names, spec.prefix, name, owner, this.#options.digest);
    };
    const make = (): CatalogSource => ({
      ...makeSource(spec, listing, prefix, era),
      ...(all !== undefined && all !== listing && { listed: all }),
      ...(prefix !== spec.prefix && { wholeNameOf }),
    });
    const rewrite = this.#options.listingRewriter();
    if (rewrite !== undefined) {
      return {
        ...make(),
        transformTools: (tools) => rewrite(spec.name, tools),
      };
    }
    const known = this.#sources.get(listing);
    if (known?.spec === spec && known.prefix === prefix && known.era === era) return known.source;
    const source = make();
    this.#sources.set(listing, { spec, prefix, era, source });
    return source;
  }

  /**
   * Logs a line unless a line with the same key was already logged. The number of lines per server is limited, because
   * a server may list different unusable items each time.
   */
  #logNote(server: string, level: LogLevel, whole: string, key = whole): void {
    const logged = this.#loggedNotes.get(server) ?? new Set();
    this.#loggedNotes.set(server, logged);
    if (logged.size > MAX_NOTES || logged.has(key)) return;
    logged.add(key);
    const isLast = logged.size > MAX_NOTES;
    const line = whole.slice(0, MAX_NOTE_LENGTH);
    const text = isLast ? `No more is logged of what server "${server}" lists.` : line;
    this.#options.bus.emit({ kind: "log", level, source: "hub", text, isNote: true });
  }
}

/** Describes a note on one item, with the item and its server; undefined if the note is not logged. */
export function describeItemNote(note: ExposureNote): string | undefined {
  const { list, kind, server, remoteName, text } = note;
  // Unreadable items without a name were already logged when the server was listed.
  const isLogged = kind === "unreadable" && remoteName === "";
  const isSilent = kind === "filtered" || kind === "hidden" || kind === "conflict";
  if (isIdleRule(note) || isSilent || isLogged) return undefined;
  const noun = KIND_NOUNS[list].replace(/^./, (letter) => letter.toUpperCase());
  return `${noun} "${remoteName}" of server "${server}": ${text}`;
}

/** Returns the cached value of a key, or makes and caches it. If the cache is full, the oldest value is dropped. */
function getOrMake<T>(values: Map<string, T>, key: string, make: () => T): T {
  const known = values.get(key);
  if (known !== undefined) return known;
  const value = make();
  const [oldest] = values.keys();
  if (values.size >= MAX_CATALOGS && oldest !== undefined) values.delete(oldest);
  values.set(key, value);
  return value;
}

const EMPTY_SECTION = new Section("tools", new Map());

function makeSource(
  spec: RunnableServer,
  listing: ServerListing,
  prefix: string,
  era: Era,
): CatalogSource {
  return {
    server: spec.name,
    listing,
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
): RouteTimeouts {
  const isSet = kind === "tools" && Object.hasOwn(tools.timeout, remoteName);
  const own = isSet ? tools.timeout[remoteName] : undefined;
  return own === undefined
    ? { timeout: callTimeout, maxTimeout: maxCallTimeout }
    : { timeout: own, maxTimeout: Math.max(own, maxCallTimeout) };
}
