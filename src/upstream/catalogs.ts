import type { Alerts } from "../base/alerts.ts";
import { buildCatalog, type CatalogSource, type Catalog } from "../catalog/catalog.ts";
import { describeIdleRule, isIdleRule } from "../catalog/idle-rules.ts";
import { KIND_NOUNS, type Kind, type ListedItem, type ServerListing } from "../catalog/listing.ts";
import { diffSections, type RouteTimeouts, type Route, Section } from "../catalog/section.ts";
import type { NameRules, Sha256 } from "../catalog/names.ts";
import type { EventBus, LogLevel } from "../base/events.ts";
import type { InvalidServer, RunnableServer } from "../manifest/manifest.ts";
import type { Era } from "../protocol/modern.ts";
import type { Connection } from "./connection.ts";
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
  /** Returns the function with which plugins rewrite a server's listing; undefined if there are no plugins. */
  listingRewriter():
    ((server: string, items: readonly ListedItem[]) => readonly ListedItem[]) | undefined;
}

/** Maximum number of catalogs kept. Each subset of servers that clients choose has its own catalog. */
const MAX_CATALOGS = 64;

/** Limits of the log lines about one server's listing: their number, and the length of each in UTF-16 units. */
const MAX_NOTES = 100;
const MAX_NOTE_LENGTH = 1000;

/**
 * The catalogs in use, one for each subset of servers and capability class. Each is built when first needed after a
 * change.
 */
export class CatalogCache {
  names: NameRules;
  /** The first paragraph of the instructions of clients that see prefixes; "" for none. */
  ownInstructions = "";
  /** The instructions if no server has any. */
  fallbackInstructions: string | undefined;
  /** The servers that are not started because their tables in the manifest are invalid. */
  invalidServers: readonly InvalidServer[] = [];
  /** Incremented whenever a catalog may have changed. */
  version = 0;
  readonly #options: CatalogCacheOptions;
  readonly #catalogs = new Map<string, Catalog>();
  /** For each server listing, the catalog source that was built from it last, and the settings of that build. */
  readonly #sources = new WeakMap<
    ServerListing,
    {
      readonly spec: RunnableServer;
      readonly prefix: string;
      readonly era: Era;
      readonly source: CatalogSource;
    }
  >();
  /** By server: the keys of the log lines that were already written about its items. */
  readonly #loggedNotes = new Map<string, Set<string>>();
  /** The exposed names that have been taken over by another tool. The value is the route that the name had first. */
  readonly #movedNames = new Map<string, Route>();
  /** The tools at the last `announce`: the next call reports the differences. */
  #announced: Section | undefined;

  constructor(names: NameRules, options: CatalogCacheOptions) {
    this.names = names;
    this.#options = options;
  }

  /** Callers may keep the result until `version` changes; the cache itself may drop it earlier. */
  catalog(profile: ClientProfile): Catalog {
    const { pool } = this.#options;
    const isOwn = profile.client !== undefined && pool.hasPerClientServers;
    const key = `${profile.subset.key} ${profile.keys.shared}`;
    const known = isOwn ? undefined : this.#catalogs.get(key);
    if (known !== undefined) return known;
    const catalog = this.#build(profile);
    if (isOwn) return catalog;
    const [oldest] = this.#catalogs.keys();
    if (this.#catalogs.size >= MAX_CATALOGS && oldest !== undefined) this.#catalogs.delete(oldest);
    this.#catalogs.set(key, catalog);
    return catalog;
  }

  /** Drops all catalogs, because the listing of a server has changed. */
  clear(): void {
    this.version++;
    this.#catalogs.clear();
  }

  /**
   * Emits one event with the changes of the tools since the last call, if any. Raises an alert for an exposed name that
   * now leads to another tool.
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

  /** Raises or clears, for each server, the alert that it has taken over exposed names of another tool. */
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
          more.length === 0 ? first : `${first} ${more.length} more names went the same way.`;
        alerts.raise({ kind: "nameMoved", server, text });
      }
    }
  }

  #build(profile: ClientProfile): Catalog {
    const { subset, era } = profile;
    const connections = this.#options.pool.connections(profile);
    const listed = connections.flatMap(({ spec, listing }) => {
      return listing === undefined ? [] : [{ spec, offer: listing }];
    });
    const sources = listed.map(({ spec, offer: listing }) =>
      this.#sourceOf(spec, listing, subset, era),
    );
    const isComplete = listed.length === connections.length;
    const built = buildCatalog(sources, this.names, this.#options.digest, isComplete);
    const instructions = this.#instructionsOf(built, connections, subset);
    const catalog = { ...built, instructions };
    // Only the catalog of all servers is logged: its notes include those of each subset.
    if (subset !== ALL_SERVERS) return catalog;
    for (const note of catalog.notes) {
      const { list, kind, server, remoteName, text } = note;
      if (isIdleRule(note)) {
        // The text is not the key, because it contains the number of tools, which may change.
        this.#logNote(server, "warn", describeIdleRule(note), `${list} ${kind} ${remoteName}`);
        continue;
      }
      const noun = KIND_NOUNS[list].replace(/^./, (letter) => letter.toUpperCase());
      const line = `${noun} "${remoteName}" of server "${server}": ${text}`;
      // Unreadable items without a name were already logged when the server was listed.
      const isLogged = kind === "unreadable" && remoteName === "";
      if (kind === "filtered" || kind === "hidden" || kind === "conflict" || isLogged) continue;
      this.#logNote(server, kind === "shortened" ? "info" : "warn", line);
    }
    return catalog;
  }

  #instructionsOf(
    { instructions = this.fallbackInstructions }: Catalog,
    connections: readonly Connection[],
    subset: ServerSubset,
  ): string | undefined {
    const hasPrefixes = connections.some(({ spec }) => namePrefixOf(subset, spec) !== "");
    if (!hasPrefixes || this.ownInstructions === "") return instructions;
    const own = this.ownInstructions.replaceAll("{separator}", () => this.names.separator);
    return instructions === undefined ? own : `${own}\n\n${instructions}`;
  }

  /**
   * Returns the same object for unchanged input, so that unchanged servers are not processed again. If plugins are
   * active it always returns a new object, because a plugin may return something else each time.
   */
  #sourceOf(
    spec: RunnableServer,
    listing: ServerListing,
    subset: ServerSubset,
    era: Era,
  ): CatalogSource {
    const prefix = namePrefixOf(subset, spec);
    const rewrite = this.#options.listingRewriter();
    if (rewrite !== undefined) {
      return {
        ...makeSource(spec, listing, prefix, era),
        transformTools: (tools) => rewrite(spec.name, tools),
      };
    }
    const known = this.#sources.get(listing);
    if (known?.spec === spec && known.prefix === prefix && known.era === era) return known.source;
    const source = makeSource(spec, listing, prefix, era);
    this.#sources.set(listing, { spec, prefix, era, source });
    return source;
  }

  /**
   * Logs each line once, by its key. The number of lines per server is limited, because a server may list different
   * unusable items each time.
   */
  #logNote(server: string, level: LogLevel, whole: string, key = whole): void {
    const logged = this.#loggedNotes.get(server) ?? new Set();
    this.#loggedNotes.set(server, logged);
    if (logged.size > MAX_NOTES || logged.has(key)) return;
    logged.add(key);
    const isLast = logged.size > MAX_NOTES;
    const line = whole.slice(0, MAX_NOTE_LENGTH);
    const text = isLast ? `No more is said of what server "${server}" lists.` : line;
    this.#options.bus.emit({ kind: "log", level, source: "hub", text });
  }
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
