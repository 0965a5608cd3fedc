/**
 * views/: what one client sees of a hub. `client-view.ts` has its catalog and leads from the name of a server to the
 * connection that its calls use, `catalogs.ts` builds and keeps catalogs for all clients, `client-modes.ts` says which
 * modes limit which client. Main type: `ClientView`. Start here.
 */
import type { MinimumApproval } from "../approval/policy.ts";
import { isNamed } from "../catalog/exposure.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { FilterItem } from "../catalog/filter.ts";
import { KIND_NOUNS, KINDS, type Kind, type ServerListing } from "../catalog/listing.ts";
import type { ListedRoute, Section } from "../catalog/section.ts";
import { declaresSkills } from "../catalog/skills.ts";
import type { Clock } from "../base/clock.ts";
import { filterCapabilityClass } from "../protocol/capabilities.ts";
import { HubError } from "../base/errors.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import { invalidError, withoutFolders } from "../manifest/problems.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { Connection } from "../upstream/connection.ts";
import type { ServerPool } from "../upstream/pool.ts";
import type { Notification } from "../jsonrpc/message.ts";
import {
  ALL_SERVERS,
  type ClientChannel,
  type ClientProfile,
  namePrefixOf,
  profileOf,
} from "../upstream/profile.ts";
import type { CatalogCache } from "./catalogs.ts";
import {
  type ClientLimits,
  hidingMode,
  type Modes,
  type ModeSelection,
  NO_LIMITS,
} from "./client-modes.ts";
import type { Session } from "../upstream/session.ts";

type PrefixedServer = Pick<RunnableServer, "name" | "prefix">;

export interface ClientViewOptions {
  readonly pool: ServerPool;
  readonly catalogCache: CatalogCache;
  readonly modes: Modes;
  readonly limits: ClientLimits;
  readonly clock: Clock;
  /** Returns the maximum time that a client's first list request waits for servers without a known listing, in ms. */
  listWait(): number;
  /** True once the hub closes. It has no servers then, and lists that say so would be wrong: they are not answered. */
  isClosing(): boolean;
}

/**
 * Maximum time that a handshake waits for saved listings, in ms. It is long enough for a busy machine: if a server's
 * listing comes too late, the client never gets that server's instructions.
 */
const LOAD_SAVED_WAIT = 500;

/** A server, and what it lists; `listing` is undefined if that is not known yet. */
export interface SeenServer {
  readonly spec: RunnableServer;
  readonly listing: ServerListing | undefined;
  /** The client whose values fill in the specification; undefined: the hub's own environment. */
  readonly origin?: ClientOrigin | undefined;
}

/** One client's view of the hub: the catalog that it sees, and the connections that its calls use. */
export class ClientView {
  readonly #options: ClientViewOptions;
  #profile: ClientProfile;
  #catalog: Catalog | undefined;
  /** The version of the `CatalogCache` when `#catalog` was read from it. */
  #version = 0;
  /** `wholeCatalog`, and the version of the `CatalogCache` when it was read. */
  #whole: { readonly version: number; readonly catalog: Catalog } | undefined;
  /** The state of the view. While it is "opening", list requests wait until it is "listable". */
  #state: "closed" | "opening" | "listable" = "closed";
  #savedListings: "notStarted" | "loading" | "loaded" = "notStarted";
  readonly #listWaiters = new CatalogWaiters();
  readonly #savedWaiters = new CatalogWaiters();
  /** Latest result of `updateReadiness`: a connection whose saved listing is loading, and one that is not listable. */
  #loading: Connection | undefined;
  #unlisted: Connection | undefined;
  #cancelTimer: (() => void) | undefined;
  /** Whether the client has left. */
  isClosed = false;

  constructor(profile: ClientProfile, options: ClientViewOptions) {
    this.#profile = profile;
    this.#options = options;
  }

  /**
   * Adopts the capabilities that the client declares, and starts the client's servers.
   * @param isOperator whether the client belongs to the hub's operator. Such a client uses any existing connection to a
   * shared server
   */
  declareCapabilities(capabilities: string, channel: ClientChannel, isOperator = false): void {
    const before = this.#profile;
    const { pool } = this.#options;
    const counted = filterCapabilityClass(capabilities, (name) =>
      pool.distinguishesExtension(name),
    );
    const { client, subset, origin } = before;
    this.#profile = profileOf(counted, client, channel, subset, isOperator, origin);
    this.#catalog = undefined;
    this.#whole = undefined;
    if (this.#state !== "closed") {
      this.#options.pool.replaceProfile(before, this.#profile);
      // The servers that were just started for this client are not listed yet, so list requests wait again.
      this.#cancelTimer?.();
      this.#state = "closed";
    }
    this.open();
    this.levelChanged();
  }

  /** Returns another view for the same client, of all servers and without modes. It is opened and closed separately. */
  withAllServers(): ClientView {
    const profile = { ...this.#profile, subset: ALL_SERVERS };
    const { servers, approval } = this.#options.limits;
    const limits = { ...NO_LIMITS, ...(servers !== undefined && { servers }), approval };
    return new ClientView(profile, { ...this.#options, limits });
  }

  /** Whether the client's token allows the server, also to agents that the client starts. */
  allows(server: string): boolean {
    return this.#options.limits.servers?.().has(server) ?? true;
  }

  get catalog(): Catalog {
    const { catalogCache } = this.#options;
    if (this.#catalog === undefined || this.#version !== catalogCache.version) {
      this.#version = catalogCache.version;
      this.#catalog = catalogCache.catalog(this.#profile, this.#mode);
    }
    return this.#catalog;
  }

  /** The catalog without the client's modes. All clients with an equal `wholeCatalogKey` have the same. */
  get wholeCatalog(): Catalog {
    const { catalogCache } = this.#options;
    if (this.#mode.filter === undefined) return this.catalog;
    if (this.#whole?.version !== catalogCache.version) {
      const catalog = catalogCache.catalog(this.#profile);
      this.#whole = { version: catalogCache.version, catalog };
    }
    return this.#whole.catalog;
  }

  get wholeCatalogKey(): string {
    return this.#options.catalogCache.keyOf(this.#profile);
  }

  /** Equal for clients that always see the same catalog. */
  get catalogKey(): string {
    return this.#options.catalogCache.keyOf(this.#profile, this.#mode);
  }

  /** The servers of which the client may see something, in the order of the manifest. */
  get servers(): readonly SeenServer[] {
    const connections = this.#options.pool.connections(this.#profile);
    return connections
      .filter(({ spec }) => this.sees(spec.name) !== false)
      .map(({ spec, listing, origin }) => ({ spec, listing, origin }));
  }

  get #mode(): ModeSelection {
    const { modes, limits } = this.#options;
    return modes.selectionFor(this.#profile.client, limits);
  }

  /** The client's name in the manifest, if it has its own token there. */
  get principal(): string | undefined {
    return this.#options.limits.principal;
  }

  /** The minimum level of approvals that the client itself asks for; undefined: none. */
  get minimumApproval(): MinimumApproval | undefined {
    return this.#options.limits.approval;
  }

  /**
   * Refuses a request for an item that only the client's modes hide.
   * @throws {HubError} notInMode
   */
  refuseHidden(kind: Kind, name: string): void {
    const mode = this.#mode;
    if (mode.filter === undefined) return;
    const section = this.#options.catalogCache.catalog(this.#profile)[kind];
    const entry = section.entry(name) ?? section.remoteEntries(name)[0];
    if (entry !== undefined) this.refuseOutside(kind, entry, name);
  }

  /** Refuses a request for an item that the client's modes hide. @throws {HubError} notInMode */
  refuseOutside(kind: Kind, item: FilterItem, name: string): void {
    const hiding = hidingMode(this.#mode, kind, item);
    if (hiding === undefined) return;
    const noun = KIND_NOUNS[kind].replace(/^./, (letter) => letter.toUpperCase());
    throw new HubError("notInMode", `${noun} "${name}" is not part of mode "${hiding.name}".`);
  }

  /**
   * The error for a tool or prompt that the client is not shown because it is not accepted (pins); undefined if there is
   * no such entry, or the client's modes hide it.
   * @param find finds the route of the request among such entries
   */
  withheldError(
    kind: Kind,
    find: (section: Section) => ListedRoute | undefined,
  ): HubError | undefined {
    const section = this.#options.catalogCache.withheld(this.#profile)?.[kind];
    const route = section && find(section);
    const entry = route && section.entry(route.name);
    if (route === undefined || entry === undefined || this.isHidden(kind, entry)) return undefined;
    return this.connection(entry.server)?.pinError(route);
  }

  /** Whether the client's modes hide the item. */
  isHidden(kind: Kind, item: FilterItem): boolean {
    return hidingMode(this.#mode, kind, item) !== undefined;
  }

  /**
   * Whether the client sees anything of a server now: the server is one of its servers, and its modes show an item of
   * it. Undefined if that is not known before the server has listed its items.
   */
  sees(server: string): boolean | undefined {
    if (!this.#profile.subset.has(server)) return false;
    const { filter } = this.#mode;
    if (filter === undefined || serversIn(this.catalog).has(server)) return true;
    if (!filter.mayTakeFrom(server)) return false;
    const connections = this.#options.pool.connections(this.#profile);
    const connection = connections.find(({ spec }) => spec.name === server);
    return connection !== undefined && connection.listing === undefined ? undefined : false;
  }

  /** The channel for servers' messages to the client; undefined if servers cannot reach the client. */
  get channel(): ClientChannel | undefined {
    return this.#profile.channel;
  }

  /** Whether the client may use a server of this name, even if the server is stopped. */
  has(server: string): boolean {
    return this.#options.pool.has(server, this.#profile);
  }

  /** The client's connection to a server. @throws {HubError} notSupported; see `ServerPool.connectionFor` */
  connection(server: string): Connection | undefined {
    return this.#options.pool.connectionFor(server, this.#profile);
  }

  /** The names of the servers that are known to declare skills. */
  get skillServers(): readonly string[] {
    return this.#options.pool
      .connections(this.#profile)
      .filter(({ listing }) => declaresSkills(listing?.declared?.extensions ?? {}))
      .map(({ spec }) => spec.name);
  }

  /** Returns the connections to servers that may have this exposed name or URI, but whose listings are not known. */
  unlistedConnections(kind: Kind, name: string): readonly Connection[] {
    return this.#options.pool
      .connections(this.#profile)
      .filter(({ listing, canStart }) => listing === undefined && canStart)
      .filter(({ spec }) => !isNamed(kind) || this.#mayOffer(spec, name));
  }

  /** Returns the error for an unknown exposed name or URI. */
  notFoundError(kind: Kind, name: string): HubError {
    const noun = KIND_NOUNS[kind];
    const text = `There is no ${noun} "${name}"`;
    if (!isNamed(kind)) return new HubError("unknownResource", `${text}.`, { uri: name });
    const { subset } = this.#profile;
    const isLikely = (spec: PrefixedServer): boolean =>
      subset.isSingle || (spec.prefix !== "" && this.#mayOffer(spec, name));
    const { invalidServers: invalid } = this.#options.catalogCache;
    const invalidServer = invalid.find((spec) => subset.has(spec.name) && isLikely(spec));
    if (invalidServer !== undefined) return invalidError(withoutFolders(invalidServer));
    const stopped = this.#options.pool.stoppedServers(this.#profile).find(isLikely);
    if (stopped === undefined) {
      return new HubError(kind === "tools" ? "unknownTool" : "unknownPrompt", `${text}.`);
    }
    const reason = `Server "${stopped.name}" is stopped, so there is no ${noun} "${name}" now.`;
    return new HubError("serverStopped", reason, { server: stopped.name });
  }

  /** Starts the client's servers with goal "up". */
  open(): void {
    if (this.#state !== "closed") return;
    this.#state = "opening";
    const { pool, clock } = this.#options;
    const cancelSavedTimer = clock.after(LOAD_SAVED_WAIT, () => this.#setSavedLoaded());
    this.#cancelTimer = cancelSavedTimer;
    pool.addProfile(this.#profile);
    // A listener of the servers' events may have closed the hub.
    if (this.#state === "opening" && !this.isClosed) {
      const cancelListTimer = clock.after(this.#listWait(), () => this.#setListable());
      this.#cancelTimer = () => {
        cancelListTimer();
        cancelSavedTimer();
      };
    }
    // This is set only after `addProfile` has created all connections of the client: otherwise the loading would count
    // as done too early.
    if (this.#savedListings === "notStarted") this.#savedListings = "loading";
    this.updateReadiness();
  }

  rootsChanged(notification: Notification): void {
    for (const session of this.#sessions) session.rootsChanged(notification);
  }

  levelChanged(): void {
    for (const session of this.#sessions) session.updateLogLevel();
  }

  close(): void {
    this.isClosed = true;
    this.#cancelTimer?.();
    this.#listWaiters.clear();
    this.#savedWaiters.clear();
    this.#options.pool.removeProfile(this.#profile);
    this.levelChanged();
  }

  /**
   * Calls back with the catalog as soon as list requests need not wait for any server (`isListable` of all
   * connections), but at the latest after `listWait`. Programs of servers that were missing are looked for again.
   * @returns a function that cancels the callback
   */
  whenListed(callback: (catalog: Catalog) => void): () => void {
    this.#lookForPrograms();
    const answer = (catalog: Catalog): void => {
      callback(catalog);
      this.#startPlanned();
    };
    if (this.#state !== "listable" || this.#options.isClosing())
      return this.#listWaiters.add(answer);
    answer(this.catalog);
    return () => {};
  }

  /**
   * Calls back with the catalog as soon as saved listings are loaded, but at the latest after `LOAD_SAVED_WAIT` ms.
   * @returns a function that cancels the callback
   */
  whenSavedLoaded(callback: (catalog: Catalog) => void): () => void {
    if (this.#savedListings !== "loaded") return this.#savedWaiters.add(callback);
    callback(this.catalog);
    return () => {};
  }

  /** Checks whether waiting list requests can be answered now. */
  updateReadiness(): void {
    if (this.#state !== "opening") return;
    if (this.#savedListings === "loading") {
      this.#loading = this.#findAwaited(this.#loading, isLoading);
      if (this.#loading === undefined) this.#setSavedLoaded();
    }
    this.#unlisted = this.#findAwaited(this.#unlisted, isUnlisted);
    if (this.#unlisted === undefined) this.#setListable();
  }

  /**
   * A connection that list requests wait for; undefined if there is none. Many servers settle one after the other, so
   * the other connections are not looked at while the last one that was found is still waited for. The last of all is
   * found first, because servers start in this order.
   */
  #findAwaited(
    last: Connection | undefined,
    isAwaited: (connection: Connection) => boolean,
  ): Connection | undefined {
    const { pool } = this.#options;
    if (last !== undefined && isAwaited(last) && pool.shows(last, this.#profile)) return last;
    return pool.connections(this.#profile).findLast(isAwaited);
  }

  #lookForPrograms(): void {
    const { pool, clock } = this.#options;
    const lacking = pool.connections(this.#profile).filter((each) => each.lacksProgram);
    if (this.#state === "closed" || lacking.length === 0) return;
    for (const connection of lacking) connection.lookForProgram();
    if (this.#state !== "listable") return;
    this.#state = "opening";
    this.#cancelTimer = clock.after(this.#options.listWait(), () => this.#setListable());
    this.updateReadiness();
  }

  /**
   * How long list requests wait for servers that are not listed, in ms. A server that has not been listed for `listWait`
   * since its connection was created has made other clients wait already.
   */
  #listWait(): number {
    const { pool, clock } = this.#options;
    const start = clock.now() - this.#options.listWait();
    const unlisted = pool.connections(this.#profile).filter(({ isListable }) => !isListable);
    return Math.max(0, ...unlisted.map(({ createdAt }) => createdAt - start));
  }

  /** The sessions of the client's servers, including those that are still being opened or listed. */
  get #sessions(): readonly Session[] {
    if (this.#profile.channel === undefined) return [];
    return this.#options.pool.connections(this.#profile).flatMap(({ session }) => session ?? []);
  }

  #mayOffer(spec: PrefixedServer, name: string): boolean {
    const prefix = namePrefixOf(this.#profile.subset, spec);
    return prefix === "" || name.startsWith(prefix + this.#options.catalogCache.names.separator);
  }

  #setSavedLoaded(): void {
    this.#savedListings = "loaded";
    this.#savedWaiters.callAll(() => this.catalog);
  }

  #setListable(): void {
    this.#setSavedLoaded();
    if (this.#options.isClosing()) return;
    this.#state = "listable";
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#listWaiters.callAll(() => this.catalog);
  }

  /** Starts the servers whose start would have delayed the list that was just answered. */
  #startPlanned(): void {
    const { clock, pool } = this.#options;
    const planned = pool.connections(this.#profile).filter((each) => each.isStartPlanned);
    if (planned.length === 0) return;
    // The answer is sent at the end of this turn of the event loop.
    clock.after(0, () => {
      for (const connection of planned) connection.startPlanned();
    });
  }
}

function isLoading({ isLoadingSaved }: Connection): boolean {
  return isLoadingSaved;
}

function isUnlisted({ isListable }: Connection): boolean {
  return !isListable;
}

const serversByCatalog = new WeakMap<Catalog, ReadonlySet<string>>();

/** The names of the servers that have an item in a catalog. */
function serversIn(catalog: Catalog): ReadonlySet<string> {
  const known = serversByCatalog.get(catalog);
  if (known !== undefined) return known;
  const servers = new Set<string>();
  for (const kind of KINDS) for (const { server } of catalog[kind].entries) servers.add(server);
  serversByCatalog.set(catalog, servers);
  return servers;
}

/** The callbacks that wait for the catalog. Each is called once, unless it is cancelled. */
class CatalogWaiters {
  readonly #callbacks = new Set<(catalog: Catalog) => void>();

  /** Adds a callback. @returns a function that cancels it */
  add(callback: (catalog: Catalog) => void): () => void {
    this.#callbacks.add(callback);
    return () => void this.#callbacks.delete(callback);
  }

  /**
   * Calls all callbacks once.
   * @param catalog returns the current catalog; called again for each callback, because a callback may change the
   * catalog
   */
  callAll(catalog: () => Catalog): void {
    const callbacks = [...this.#callbacks];
    this.#callbacks.clear();
    for (const callback of callbacks) callback(catalog());
  }

  clear(): void {
    this.#callbacks.clear();
  }
}
