import type { Alerts } from "../base/alerts.ts";
import { HubError } from "../base/errors.ts";
import type { EventBus, StateName } from "../base/hub-events.ts";
import { diffServers, hasSameProgram } from "../manifest/diff.ts";
import { valueNamesOf } from "../manifest/client-values.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import { formatExtensionSettings, parseCapabilityClass } from "../protocol/capabilities.ts";
import type { ConnectEnvironment, PartialListing } from "./connect.ts";
import { Connection } from "./connection.ts";
import {
  type ClientProfile,
  type ConnectionClients,
  type ServerSubset,
  SHARED_PROFILE,
} from "./profile.ts";
import { pinLevelOf } from "../pins/level.ts";
import type { PinnedServer, Pins } from "../pins/pins.ts";
import type { KnownListing } from "./listing.ts";
import type { ListingMemory } from "./saved-listings.ts";
import {
  connectionKeyOf,
  everybodyLike,
  hasSharedConnections,
  largestContained,
  MAX_CLASSES,
  separationsOf,
  valuesKeyOf,
  withoutCapabilities,
} from "./sharing.ts";
import { stateAfterStop } from "./state.ts";
import type { ConnectionStatus, Goal, ServerOrigin, ServerStatus } from "./status.ts";
import { MalformedOutputReporter } from "./stray-output.ts";

export interface PoolOptions {
  readonly environment: ConnectEnvironment;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly memory: ListingMemory;
  /** Compares what servers list with what was accepted. */
  readonly pins: Pick<Pins, "review" | "report" | "end">;
  /** See `ListingSyncOptions.examine`. */
  examine(
    spec: RunnableServer,
    listing: PartialListing,
    isOver: () => boolean,
  ): Promise<unknown> | undefined;
  /** Whether clients of several processes share the hub, and bring the values of servers' entries. */
  isShared(): boolean;
  /** Returns a random number from 0 to 1. */
  random(): number;
  /** Called when the listing of a server has changed. */
  changed(): void;
  /** Called when `isSettled` or `isListable` of a connection may have changed. */
  settled(): void;
}

interface PooledServer {
  spec: RunnableServer;
  origin: ServerOrigin;
  goal: Goal;
  /** Whether a command has stopped the server. If so, the manifest cannot start it; only another command can. */
  isStopped: boolean;
  /** The connections by connection key. */
  readonly connections: Map<string, PooledConnection>;
  /**
   * The keys of clients whose class of capabilities has no connection of its own, because there are `MAX_CLASSES`; for
   * each, the key of the connection that they use. It stays the same until the clients have left.
   */
  readonly borrowed: Map<string, string>;
  /** Counts malformed messages since the server got this specification. */
  malformedOutput: MalformedOutputReporter;
}

interface PooledConnection {
  readonly connection: Connection;
  /** The profile that the connection was created for. */
  readonly profile: ClientProfile;
}

/** The state that a connection takes over from the one that it replaces. */
interface FormerConnection {
  readonly former?: KnownListing | undefined;
  readonly isEarly?: boolean;
}

interface RetiredConnection {
  /** The key of the connection among those to its server. */
  readonly key: string;
  readonly stopped: Promise<void>;
  /**
   * Whether the connection only finishes calls for clients of another kind. Clients of one kind do not wait for the
   * calls of another kind, just as their connections run at the same time.
   */
  isForOtherClients: boolean;
}

/** Time within which calls to a replaced or removed server may still finish, in ms. */
const DRAIN_LIMIT = 10_000;

/** The limit of a connection that no present client uses any more: its calls end by their own deadlines. */
const OTHER_CLIENTS = "otherClients";

const STOPPED: Pick<PooledServer, "goal" | "isStopped"> = { goal: "down", isStopped: true };
const FAILED_STATES: readonly StateName[] = ["failed", "reconnecting"];

/**
 * The pool of all servers, each with its goal and its connections. Client profiles with the same connection key share a
 * connection.
 */
export class ServerPool {
  readonly #options: PoolOptions;
  /** The servers by name, in manifest order. */
  #servers = new Map<string, PooledServer>();
  /**
   * The profiles of the present clients. For each profile, the servers with goal "up" are started. A connection that no
   * profile uses is closed.
   */
  readonly #profiles = new Set<ClientProfile>();
  /** The retired connections that have not stopped yet. */
  readonly #retired = new Map<Connection, RetiredConnection>();
  /** The servers that are connected before a client wants them; undefined: none. */
  #early: ServerSubset | undefined;
  /** Whether reading from all servers is paused. */
  #isPaused = false;
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** The specifications of all servers, in manifest order. */
  get specs(): readonly RunnableServer[] {
    return [...this.#servers.values()].map(({ spec }) => spec);
  }

  get hasPerClientServers(): boolean {
    return this.specs.some((spec) => !hasSharedConnections(spec));
  }

  get status(): readonly ServerStatus[] {
    return [...this.#servers.values()].map((server) => ({
      server: server.spec.name,
      origin: server.origin,
      transport: server.spec.kind,
      goal: server.goal,
      isStopped: server.isStopped,
      connections: statusesOf(server),
    }));
  }

  /**
   * Replaces the specifications of all servers of the manifest. A server whose process still fits the new specification
   * keeps the process and its calls. A server of origin `runtime` stays, unless the manifest has a server of that name.
   */
  reconcile(specs: readonly RunnableServer[]): void {
    const wanted = new Set(specs.map(({ name }) => name));
    for (const [name, { origin }] of this.#servers) {
      if (origin === "manifest" && !wanted.has(name)) this.remove(name);
    }
    for (const spec of specs) this.add(spec);
    const names = [...wanted, ...this.#servers.keys()];
    const ordered = names.flatMap((name) => {
      const server = this.#servers.get(name);
      return server === undefined ? [] : [[name, server] as const];
    });
    this.#servers = new Map(ordered);
    this.#options.changed();
  }

  /** Adds a server or changes its specification. A running process is kept unless the changes need a new one. */
  add(spec: RunnableServer, origin: ServerOrigin = "manifest"): void {
    const known = this.#servers.get(spec.name);
    const difference = known && diffServers(known.spec, spec);
    if (known !== undefined && known.origin !== origin) {
      known.origin = origin;
      if (origin === "manifest") {
        const text =
          "The manifest now has this server: its settings replace those of the command line.";
        this.#options.bus.emit({
          kind: "log",
          level: "info",
          source: "hub",
          server: spec.name,
          text,
        });
      }
    }
    if (difference === "same" || this.#isClosed) return;
    const goal = goalOf(spec);
    const server: PooledServer = known ?? {
      spec,
      origin,
      goal,
      isStopped: false,
      connections: new Map(),
      borrowed: new Map(),
      malformedOutput: new MalformedOutputReporter(),
    };
    if (difference === "process") server.malformedOutput = new MalformedOutputReporter();
    this.#servers.set(spec.name, server);
    this.#options.alerts.addServer(spec.name);
    this.#emitChange(spec.name, known === undefined ? "added" : "changed");
    const resetsGoal = difference === "process" || goalOf(server.spec) !== goal;
    if (resetsGoal && !server.isStopped) server.goal = goal;
    // A changed isolation assigns clients to connections in another way. No new connection corresponds to an old one,
    // so all old connections are retired.
    const hasNewIsolation = server.spec.isolation !== spec.isolation;
    const users = this.#usersOf(server);
    server.spec = spec;
    const startForClients = (): void => {
      for (const profile of this.#profilesOf(spec.name)) this.#ensureStarted(server, profile);
      this.#startEarly(server);
    };
    if (server.goal === "down" || hasNewIsolation) this.#retireAll(server, startForClients);
    else {
      if (difference === "process") this.#replaceAll(server, users);
      else
        for (const [key, { connection }] of server.connections) {
          connection.update(spec);
          if (pinLevelOf(spec) === "off") this.#options.pins.end(spec.name, key);
        }
      startForClients();
    }
    this.#options.changed();
  }

  /** Removes a server. Its running calls may finish within `DRAIN_LIMIT`. */
  remove(name: string): void {
    const server = this.#servers.get(name);
    if (server === undefined) return;
    this.#servers.delete(name);
    server.goal = "down";
    this.#retireAll(server);
    this.#options.alerts.removeServer(name);
    this.#emitChange(name, "removed");
    this.#options.changed();
  }

  /** Adds a client's profile, and starts the servers of its subset whose goal is "up". */
  addProfile(profile: ClientProfile): void {
    this.#profiles.add(profile);
    for (const server of this.#serversOf(profile)) {
      this.#retireUnused(server, () => this.#ensureStarted(server, profile));
    }
  }

  /** Removes a client's profile, and closes the connections that only it used. */
  removeProfile(profile: ClientProfile): void {
    this.#profiles.delete(profile);
    for (const server of this.#servers.values()) this.#retireUnused(server);
  }

  replaceProfile(before: ClientProfile, after: ClientProfile): void {
    this.#profiles.delete(before);
    this.addProfile(after);
  }

  /**
   * Whether an extension matters for the capability class of clients: a server has declared the extension, or the
   * declaration of a server is not known yet.
   */
  distinguishesExtension(name: string): boolean {
    return [...this.#servers.values()].some((server) => {
      const connections = connectionsOf(server);
      if (server.goal === "down") return false;
      if (connections.length === 0) return true;
      return connections.some(({ listing, isSettled }) => {
        const declared = listing?.declared;
        return declared === undefined ? !isSettled : Object.hasOwn(declared.extensions, name);
      });
    });
  }

  /**
   * Returns the connection to a server for this profile; undefined if the profile has no such server, or the server's
   * goal is "down".
   * @throws {HubError} notSupported if the server has a connection per client and the client is unknown
   */
  connectionFor(name: string, profile: ClientProfile): Connection | undefined {
    const server = profile.subset.has(name) ? this.#servers.get(name) : undefined;
    if (server === undefined || server.goal === "down") return undefined;
    if (!hasSharedConnections(server.spec) && profile.client === undefined) {
      const text = `Server "${name}" is one for each client, and it cannot be told which client this is. Set isolation = "shared" for it if clients may share it.`;
      throw new HubError("notSupported", text, { server: name });
    }
    return this.#find(server, profile) ?? this.#join(server, profile);
  }

  /** Whether there is a server of this name in the profile's subset, whatever its goal. */
  has(name: string, profile: ClientProfile): boolean {
    return profile.subset.has(name) && this.#servers.has(name);
  }

  /**
   * Equal for profiles that fill in the entries of all servers alike; "" if no server takes values from this profile's
   * client.
   */
  valuesKeyOf({ origin }: ClientProfile): string {
    if (origin === undefined) return "";
    return this.specs.map((spec) => valuesKeyOf(spec, origin)).join("");
  }

  /** Returns the connections whose listings this profile sees, in manifest order. */
  connections(profile: ClientProfile): readonly Connection[] {
    return this.#serversOf(profile).flatMap((server) => this.#findListed(server, profile) ?? []);
  }

  /** Whether this profile sees the listing of this connection: whether it is one of `connections`. */
  shows(connection: Connection, profile: ClientProfile): boolean {
    const { name } = connection.spec;
    const server = profile.subset.has(name) ? this.#servers.get(name) : undefined;
    return server !== undefined && this.#findListed(server, profile) === connection;
  }

  /** Returns the servers of the profile's subset whose goal is "down". */
  stoppedServers(profile: ClientProfile): readonly RunnableServer[] {
    return this.#serversOf(profile).flatMap(({ spec, goal }) => (goal === "down" ? [spec] : []));
  }

  /** Returns all connections to a server. @throws {HubError} usage if there is no such server */
  connectionsOf(name: string): readonly Connection[] {
    return connectionsOf(this.#get(name));
  }

  get allConnections(): readonly Connection[] {
    return [...this.#servers.values()].flatMap(connectionsOf);
  }

  /** Starts all servers whose goal is "up" or "onDemand". */
  startAll(): void {
    this.#profiles.add(SHARED_PROFILE);
    for (const [name, { goal }] of this.#servers) if (goal !== "down") this.start(name);
  }

  /**
   * Connects the servers of a subset before a client wants them, and those that are added to it later: each one whose
   * goal is "up" and that clients share, as for a legacy client without capabilities. Servers that take values from the
   * clients of a shared hub are not among them.
   */
  startEarly(subset: ServerSubset): void {
    this.#early = subset;
    for (const server of this.#servers.values()) this.#startEarly(server);
  }

  #startEarly(server: PooledServer): void {
    const { spec, goal, connections } = server;
    if (this.#early?.has(spec.name) !== true || this.#isClosed) return;
    if (goal !== "up" || !hasSharedConnections(spec) || connections.size > 0) return;
    if (this.#options.isShared() && valueNamesOf(spec).length > 0) return;
    this.#create(server, SHARED_PROFILE, { isEarly: true });
  }

  /** Reconnects all connections of a server; attempts in progress go on. @throws {HubError} usage */
  reconnect(name: string): void {
    const server = this.#get(name);
    if (server.goal === "down") this.start(name);
    else for (const connection of connectionsOf(server)) connection.reconnect();
  }

  /** Reconnects all connections that failed or wait for their next attempt. @returns the names of the servers */
  reconnectFailed(): readonly string[] {
    const failed = this.allConnections.filter(({ state }) => {
      const next = stateAfterStop(state);
      return next.at === "idle" ? next.cause !== undefined : FAILED_STATES.includes(next.at);
    });
    for (const connection of failed) connection.reconnect();
    return [...new Set(failed.map(({ spec }) => spec.name))];
  }

  /** Sets the server's goal to "up" and starts it. @throws {HubError} usage if there is no such server */
  start(name: string): void {
    const server = this.#get(name);
    if (this.#isClosed) return;
    Object.assign(server, { goal: "up", isStopped: false });
    const profiles = this.#profilesOf(name);
    const isForAll = hasSharedConnections(server.spec) && profiles.length === 0;
    for (const profile of isForAll ? [SHARED_PROFILE] : profiles)
      this.#ensureStarted(server, profile);
    for (const connection of connectionsOf(server)) connection.start();
    this.#options.changed();
  }

  /**
   * Sets the server's goal to "down" and stops it.
   * @returns a promise that resolves when the server's processes have ended
   * @throws {HubError} usage if there is no such server
   */
  async stop(name: string): Promise<void> {
    const server = this.#get(name);
    Object.assign(server, STOPPED);
    this.#options.changed();
    const retired = [...this.#retired.keys()].filter(({ spec }) => spec.name === name);
    const connections = [...connectionsOf(server), ...retired];
    await Promise.all(connections.map((connection) => connection.stop()));
  }

  /**
   * Stops all servers, including retired connections.
   * @returns a promise that resolves when their processes have ended
   */
  async stopAll(): Promise<void> {
    for (const server of this.#servers.values()) Object.assign(server, STOPPED);
    this.#options.changed();
    const retired = [...this.#retired.values()].map(({ stopped }) => stopped);
    const connections = [...this.allConnections, ...this.#retired.keys()];
    await Promise.all(connections.map((connection) => connection.stop()));
    await Promise.all(retired);
  }

  /**
   * Stops all servers for good.
   * @returns a promise that resolves when their processes have ended
   */
  shutDown(): Promise<void> {
    this.#isClosed = true;
    return this.stopAll();
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    for (const connection of [...this.allConnections, ...this.#retired.keys()])
      connection.setPaused(isPaused);
  }

  #serversOf({ subset }: ClientProfile): readonly PooledServer[] {
    return [...this.#servers.values()].filter(({ spec }) => subset.has(spec.name));
  }

  #get(name: string): PooledServer {
    const server = this.#servers.get(name);
    if (server !== undefined) return server;
    throw new HubError("usage", `There is no server "${name}".`);
  }

  #profilesOf(server: string): readonly ClientProfile[] {
    return [...this.#profiles].filter(({ subset }) => subset.has(server));
  }

  /**
   * Returns the connection that the profile uses. If there is none, a profile with `usesAnyConnection` gets any shared
   * connection that was not filled in with the values of another client.
   */
  #find(server: PooledServer, profile: ClientProfile): Connection | undefined {
    const { spec, connections, borrowed } = server;
    const key = connectionKeyOf(spec, profile);
    const own = connections.get(key) ?? connections.get(borrowed.get(key) ?? key);
    if (own !== undefined) return own.connection;
    return profile.usesAnyConnection && hasSharedConnections(spec)
      ? firstOf(server, profile)
      : undefined;
  }

  /** The connection whose listing a profile sees. */
  #findListed(server: PooledServer, profile: ClientProfile): Connection | undefined {
    // A profile without a client id also sees the listings of connections that it may not use for calls.
    const other = profile.client === undefined ? firstOf(server, profile) : undefined;
    return this.#find(server, profile) ?? other;
  }

  /** Creates the connection of a profile if there is none, and starts it if the server's goal is "up". */
  #ensureStarted(server: PooledServer, profile: ClientProfile): void {
    const { goal } = server;
    if (goal === "down") return;
    const connection = this.#find(server, profile);
    if (connection === undefined) {
      this.#join(server, profile);
      return;
    }
    connection.want();
    if (goal === "up" && stateAfterStop(connection.state).at === "idle") connection.start();
  }

  /**
   * Gives a profile a connection: one of its own or, if the server has `MAX_CLASSES` connections for the profile's
   * values, that with the most capabilities that the profile has, too.
   */
  #join(server: PooledServer, profile: ClientProfile): Connection {
    const { spec, connections, borrowed } = server;
    const values = valuesKeyOf(spec, profile.origin);
    const alike = [...connections.values()].filter(
      (each) => valuesKeyOf(spec, each.profile.origin) === values,
    );
    const hasClasses = spec.isolation === "shared" || spec.isolation === "auto";
    if (!hasClasses || alike.length < MAX_CLASSES || profile.capabilities === "")
      return this.#create(server, profile);
    const lender =
      largestContained(
        alike.map((each) => each.profile),
        profile,
      ) ?? withoutCapabilities(profile);
    const key = connectionKeyOf(spec, lender);
    borrowed.set(connectionKeyOf(spec, profile), key);
    const lent = connections.get(key)?.connection ?? this.#create(server, lender);
    lent.want();
    return lent;
  }

  /** Creates a connection. @param former the connection that the new one replaces, or what is taken over from it */
  #create(
    server: PooledServer,
    creator: ClientProfile,
    { former, isEarly = false }: FormerConnection = {},
  ): Connection {
    const options = this.#options;
    const { spec } = server;
    const profile = spec.isolation === "one" ? everybodyLike(creator) : creator;
    const key = connectionKeyOf(spec, profile);
    const reviewed = (peer: string | undefined): PinnedServer => {
      return { spec: connection.spec, origin: profile.origin, connection: key, peer };
    };
    const connection: Connection = new Connection({
      ...options,
      spec,
      key,
      malformedOutput: server.malformedOutput,
      client: hasSharedConnections(spec) ? undefined : profile.client,
      origin: profile.origin,
      isPrivate: !hasSharedConnections(spec) || valuesKeyOf(spec, profile.origin) !== "",
      clients: this.#clientsOf(server, profile),
      former,
      isEarly,
      ready: this.#conflictingStopped(spec, key),
      goal: () => server.goal,
      loadSaved: () => options.memory.load(spec, profile),
      save: (saved) => options.memory.save(spec, profile, saved),
      review: (peer, listing, isOver) =>
        options.pins.review(
          reviewed(peer),
          listing,
          () => isOver() || this.#retired.has(connection),
        ),
      examine: (listing, isOver) => options.examine(connection.spec, listing, isOver),
      reviewed: (peer, review) => {
        if (!this.#retired.has(connection)) void options.pins.report(reviewed(peer), review);
      },
      onIdleStop: () => {
        if (server.goal === "up") server.goal = "onDemand";
      },
    });
    server.connections.set(key, { connection, profile });
    server.borrowed.delete(key);
    connection.setPaused(this.#isPaused);
    void connection.begin();
    return connection;
  }

  /** Returns the clients that share the connection of this profile. */
  #clientsOf({ spec, borrowed }: PooledServer, profile: ClientProfile): ConnectionClients {
    const { era, capabilities, channel } = profile;
    const key = connectionKeyOf(spec, profile);
    const { extensions = {}, experimental = {} } = channel?.settings ?? {};
    // Clients with different extensions use different connections, but clients of a shared connection may have
    // different experimental capabilities. So experimental capabilities are not declared on a shared connection.
    const settings = hasSharedConnections(spec) ? { extensions } : { extensions, experimental };
    return {
      era,
      isForEverybody: spec.isolation === "one",
      capabilities: { ...parseCapabilityClass(capabilities), ...formatExtensionSettings(settings) },
      current: () => {
        const same = this.#profilesOf(spec.name).filter((each) => {
          const own = connectionKeyOf(spec, each);
          return (borrowed.get(own) ?? own) === key;
        });
        // A client with two views has two profiles with one channel, and is still one client.
        return [...new Set(same.flatMap((each) => each.channel ?? []))];
      },
    };
  }

  /**
   * Settles when all retired connections of the server that conflict with a new connection have stopped. If the server
   * is shared or its isolation has changed, all retired connections conflict; if not, only those with the same key.
   */
  #conflictingStopped({ name, isolation }: RunnableServer, key: string): Promise<unknown> {
    const before = [...this.#retired].filter(([{ spec }, retired]) => {
      if (retired.isForOtherClients) return false;
      const isOrWasShared = hasSharedConnections({ isolation }) || spec.isolation !== isolation;
      return spec.name === name && (isOrWasShared || retired.key === key);
    });
    return Promise.all(before.map(([, { stopped }]) => stopped));
  }

  /** For each connection of a server, by key, a present profile that uses it; else the one that it was created for. */
  #usersOf(server: PooledServer): ReadonlyMap<string, ClientProfile> {
    const { spec, connections } = server;
    const present = this.#profilesOf(spec.name).filter(({ origin }) => origin !== undefined);
    const users = new Map(present.map((profile) => [connectionKeyOf(spec, profile), profile]));
    return new Map(
      [...connections].map(([key, { profile }]) => [key, users.get(key) ?? profile] as const),
    );
  }

  /**
   * Replaces all connections to a server, because its changed specification needs a new process. Until the new process
   * has listed its items, clients see those of the old one if it is the same program; another program may lack them.
   * @param users the result of `#usersOf` before the change
   */
  #replaceAll(server: PooledServer, users: ReadonlyMap<string, ClientProfile>): void {
    const connections = [...server.connections];
    this.#limitRetired(server);
    const keys = connections.map(([key]) => key);
    this.#retire(server, keys, DRAIN_LIMIT, () => {
      for (const [before, { connection, profile: creator }] of connections) {
        const profile = users.get(before) ?? creator;
        const key = connectionKeyOf(server.spec, profile);
        const isSame = hasSameProgram(connection.spec, server.spec);
        // Connections that differed in clients' values may be one for the new specification.
        if (server.connections.has(key)) continue;
        const { isEarly, known } = connection;
        this.#create(server, profile, { isEarly, former: isSame ? known : undefined });
      }
    });
  }

  #retireAll(server: PooledServer, replace?: () => void): void {
    this.#limitRetired(server);
    this.#retire(server, [...server.connections.keys()], DRAIN_LIMIT, replace);
  }

  /** Ends the retired connections that finish calls for clients of another kind: the server is replaced or removed. */
  #limitRetired({ spec: { name } }: PooledServer): void {
    for (const [connection, retired] of this.#retired) {
      if (connection.spec.name !== name || !retired.isForOtherClients) continue;
      retired.isForOtherClients = false;
      void connection.retire(DRAIN_LIMIT);
    }
  }

  /**
   * Retires the connections that no present profile uses. Connections to a shared server stay as long as every present
   * profile accepts any of them (`usesAnyConnection`).
   * @param replace creates the connection of a new profile
   */
  #retireUnused(server: PooledServer, replace?: () => void): void {
    const limit = hasSharedConnections(server.spec) ? OTHER_CLIENTS : 0;
    const unused = this.#unusedKeys(server);
    this.#retire(server, unused, limit, replace);
    if (unused.length > 0) this.#options.changed();
  }

  #unusedKeys(server: PooledServer): readonly string[] {
    const { spec, connections, borrowed } = server;
    const isShared = hasSharedConnections(spec);
    const users = this.#profilesOf(spec.name).filter(
      ({ usesAnyConnection }) => !isShared || !usesAnyConnection,
    );
    if (isShared && users.length === 0) return [];
    const own = new Set(users.map((profile) => connectionKeyOf(spec, profile)));
    for (const key of borrowed.keys()) if (!own.has(key)) borrowed.delete(key);
    const used = new Set([...own].map((key) => borrowed.get(key) ?? key));
    return [...connections.keys()].filter((key) => !used.has(key));
  }

  /**
   * Takes connections out of use. Each stops when its calls have ended, at the latest after `limit` ms. New connections
   * start when it has stopped; with `OTHER_CLIENTS`, they do not wait for its calls.
   * @param replace creates new connections. It is called before the old ones begin to stop: list requests would be
   *   answered without the server if no connection stood for it.
   */
  #retire(
    server: PooledServer,
    keys: readonly string[],
    limit: number | typeof OTHER_CLIENTS,
    replace: () => void = () => {},
  ): void {
    const ends = keys.map((key) => this.#takeOut(server, key, limit));
    replace();
    for (const end of ends) end();
  }

  /** @returns a function that begins to stop the connection */
  #takeOut(server: PooledServer, key: string, limit: number | typeof OTHER_CLIENTS): () => void {
    const { connection } = server.connections.get(key) ?? {};
    if (connection === undefined) return () => {};
    server.connections.delete(key);
    this.#options.pins.end(server.spec.name, key);
    const stopped = Promise.withResolvers<void>();
    const isForOtherClients = limit === OTHER_CLIENTS && connection.isBusy;
    this.#retired.set(connection, { key, stopped: stopped.promise, isForOtherClients });
    return () => {
      void connection.retire(limit === OTHER_CLIENTS ? undefined : limit).then(() => {
        this.#retired.delete(connection);
        stopped.resolve();
      });
    };
  }

  #emitChange(server: string, change: "added" | "changed" | "removed"): void {
    this.#options.bus.emit({ kind: "server", server, change });
  }
}

function connectionsOf({ connections }: PooledServer): readonly Connection[] {
  return [...connections.values()].map(({ connection }) => connection);
}

/** The first connection that was not filled in with other values than the profile's; of all, if it has no values. */
function firstOf(
  { spec, connections }: PooledServer,
  { origin }: ClientProfile,
): Connection | undefined {
  if (origin === undefined) return connections.values().next().value?.connection;
  const values = valuesKeyOf(spec, origin);
  return [...connections.values()].find(
    ({ profile }) => valuesKeyOf(spec, profile.origin) === values,
  )?.connection;
}

function statusesOf(server: PooledServer): readonly ConnectionStatus[] {
  const connections = [...server.connections.values()];
  if (connections.length < 2) return connections.map(({ connection }) => connection.status);
  const separations = separationsOf(
    server.spec,
    connections.map(({ profile }) => profile),
  );
  return connections.map(({ connection: { status } }, index) => {
    const separation = separations[index];
    return separation === undefined ? status : { ...status, separation };
  });
}

/** The goal that the manifest sets for a server. */
export function goalOf({ enabled, lazy }: RunnableServer): Goal {
  if (!enabled) return "down";
  return lazy ? "onDemand" : "up";
}
