import type { Alerts } from "../base/alerts.ts";
import { deferred } from "../base/deferred.ts";
import { HubError } from "../base/errors.ts";
import type { EventBus, StateName } from "../base/events.ts";
import type { ServerListing } from "../catalog/listing.ts";
import { diffServers } from "../manifest/diff.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import { formatExtensionSettings, parseCapabilityClass } from "../protocol/capabilities.ts";
import type { ConnectEnvironment } from "./connect.ts";
import { Connection } from "./connection.ts";
import { type ClientProfile, type ConnectionClients, SHARED_PROFILE } from "./profile.ts";
import type { ListingMemory } from "./saved-listings.ts";
import { stateAfterStop } from "./state.ts";
import type { Goal, ServerStatus } from "./status.ts";
import { MalformedOutputReporter } from "./stray-output.ts";

/** The options of a server pool. */
export interface PoolOptions {
  readonly environment: ConnectEnvironment;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly memory: ListingMemory;
  /** Returns a random number from 0 to 1. */
  random(): number;
  /** The listing of some server has changed. */
  changed(): void;
  /** `isSettled` or `isListable` of a connection may have changed. */
  settled(): void;
}

/** A server with its goal and its connections. */
interface PooledServer {
  spec: RunnableServer;
  goal: Goal;
  /** The server was stopped by a command: until a command starts it, the manifest does not decide whether it runs. */
  isStopped: boolean;
  /** By connection key. */
  readonly connections: Map<string, PooledConnection>;
  /** Malformed messages of the server since it has this specification. */
  malformedOutput: MalformedOutputReporter;
}

interface PooledConnection {
  readonly connection: Connection;
  /** The profile that the connection was created for. */
  readonly profile: ClientProfile;
}

/** Maximum time that calls on a replaced or removed server may take to finish, in ms. */
const DRAIN_LIMIT = 10_000;

const STOPPED: Pick<PooledServer, "goal" | "isStopped"> = { goal: "down", isStopped: true };
const FAILED_STATES: readonly StateName[] = ["failed", "reconnecting"];

/**
 * upstream/: the MCP servers behind the hub: their connections, sessions, listings and states. Main type: `ServerPool`,
 * below. Start here, then read `connection.ts` (one server for one client profile), `state.ts` (its states and signals),
 * `connect.ts` (one attempt) and `session.ts` (MCP over an open transport).
 *
 * All servers: the goal of each, and its connections, one for each connection key of the client profiles that use it.
 */
export class ServerPool {
  readonly #options: PoolOptions;
  /** The servers by name, in manifest order. */
  #servers = new Map<string, PooledServer>();
  /**
   * The profiles of the clients that are present: a server with goal "up" is started for each of them, and a connection
   * that none of them uses is closed.
   */
  readonly #profiles = new Set<ClientProfile>();
  /** The retired connections that have not stopped yet, with their keys. */
  readonly #retired = new Map<
    Connection,
    { readonly key: string; readonly stopped: Promise<void> }
  >();
  /** Reading from all servers is paused. */
  #isPaused = false;
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** The specifications of all servers, in manifest order. */
  get specs(): readonly RunnableServer[] {
    return [...this.#servers.values()].map(({ spec }) => spec);
  }

  /** Whether some server has a connection per client. */
  get hasPerClientServers(): boolean {
    return this.specs.some(({ isolation }) => isolation === "perClient");
  }

  get status(): readonly ServerStatus[] {
    return [...this.#servers.values()].map((server) => ({
      server: server.spec.name,
      transport: server.spec.kind,
      goal: server.goal,
      connections: connectionsOf(server).map(({ status }) => status),
    }));
  }

  /**
   * Applies these specifications, in this order. A server whose process still fits its specification keeps the process
   * and its calls.
   */
  reconcile(specs: readonly RunnableServer[]): void {
    const wanted = new Set(specs.map(({ name }) => name));
    for (const name of this.#servers.keys()) if (!wanted.has(name)) this.remove(name);
    for (const spec of specs) this.add(spec);
    const ordered = specs.flatMap(({ name }) => {
      const server = this.#servers.get(name);
      return server === undefined ? [] : [[name, server] as const];
    });
    this.#servers = new Map(ordered);
    this.#options.changed();
  }

  /** Adds a server or changes its specification; its process is kept unless the changes need a new process. */
  add(spec: RunnableServer): void {
    const known = this.#servers.get(spec.name);
    const difference = known && diffServers(known.spec, spec);
    if (difference === "same" || this.#isClosed) return;
    const goal = goalOf(spec);
    const server: PooledServer = known ?? {
      spec,
      goal,
      isStopped: false,
      connections: new Map(),
      malformedOutput: new MalformedOutputReporter(),
    };
    if (difference === "process") server.malformedOutput = new MalformedOutputReporter();
    this.#servers.set(spec.name, server);
    this.#options.alerts.addServer(spec.name);
    this.#emitChange(spec.name, known === undefined ? "added" : "changed");
    const resetsGoal = difference === "process" || goalOf(server.spec) !== goal;
    if (resetsGoal && !server.isStopped) server.goal = goal;
    // When the isolation changes, clients are assigned to connections in another way: no single connection replaces an
    // old one, so all are retired.
    const hasNewIsolation = server.spec.isolation !== spec.isolation;
    server.spec = spec;
    if (server.goal === "down" || hasNewIsolation) this.#retireAll(server);
    else if (difference === "process") this.#replaceAll(server);
    else for (const connection of connectionsOf(server)) connection.update(spec);
    for (const profile of this.#profilesOf(spec.name)) this.#ensureStarted(server, profile);
    this.#options.changed();
  }

  /** Removes a server; its running calls may finish within `DRAIN_LIMIT`. */
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

  /** A profile is now present: servers of its subset whose goal is "up" are started for it. */
  addProfile(profile: ClientProfile): void {
    this.#profiles.add(profile);
    for (const server of this.#serversOf(profile)) {
      this.#retireUnused(server);
      this.#ensureStarted(server, profile);
    }
  }

  /** A profile is no longer present: connections that only it used are closed. */
  removeProfile(profile: ClientProfile): void {
    this.#profiles.delete(profile);
    for (const server of this.#servers.values()) this.#retireUnused(server);
  }

  /** Replaces one present profile by another. */
  replaceProfile(before: ClientProfile, after: ClientProfile): void {
    this.#profiles.delete(before);
    this.addProfile(after);
  }

  /**
   * Whether clients that declare this extension belong to another capability class than those that do not: some server
   * has declared it, or some server's declarations are not known yet.
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
   * The connection to a server for this profile; undefined if the profile has no such server, or its goal is "down".
   * @throws {HubError} notSupported if the server has a connection per client and the client is unknown
   */
  connectionFor(name: string, profile: ClientProfile): Connection | undefined {
    const server = profile.subset.has(name) ? this.#servers.get(name) : undefined;
    if (server === undefined || server.goal === "down") return undefined;
    if (server.spec.isolation === "perClient" && profile.client === undefined) {
      const text = `Server "${name}" is one for each client (isolation = "perClient"), and it cannot be told which client this is.`;
      throw new HubError("notSupported", text, { server: name });
    }
    return this.#find(server, profile) ?? this.#create(server, profile);
  }

  /** Whether the profile's subset has such a server, whatever its goal. */
  has(name: string, profile: ClientProfile): boolean {
    return profile.subset.has(name) && this.#servers.has(name);
  }

  /** The connections whose listings this profile sees, in manifest order. */
  connections(profile: ClientProfile): readonly Connection[] {
    return this.#serversOf(profile).flatMap((server) => {
      // A profile without a client is also shown the listings of connections that it may not use itself.
      const other = profile.client === undefined ? firstOf(server) : undefined;
      return this.#find(server, profile) ?? other ?? [];
    });
  }

  /** The servers of the profile's subset whose goal is "down". */
  stoppedServers(profile: ClientProfile): readonly RunnableServer[] {
    return this.#serversOf(profile).flatMap(({ spec, goal }) => (goal === "down" ? [spec] : []));
  }

  /** All connections to a server. @throws {HubError} usage if there is no such server */
  connectionsOf(name: string): readonly Connection[] {
    return connectionsOf(this.#get(name));
  }

  /** All connections. */
  get allConnections(): readonly Connection[] {
    return [...this.#servers.values()].flatMap(connectionsOf);
  }

  /** Starts all servers whose goal is not "down", including those with goal "onDemand". */
  startAll(): void {
    this.#profiles.add(SHARED_PROFILE);
    for (const [name, { goal }] of this.#servers) if (goal !== "down") this.start(name);
  }

  /** Reconnects all connections of a server; a connection attempt in progress goes on. @throws {HubError} usage */
  reconnect(name: string): void {
    const server = this.#get(name);
    if (server.goal === "down") this.start(name);
    else for (const connection of connectionsOf(server)) connection.reconnect();
  }

  /** Reconnects all connections that failed or wait for their next attempt. @returns the names of the servers */
  reconnectFailed(): readonly string[] {
    const failed = this.allConnections.filter(({ state }) =>
      FAILED_STATES.includes(stateAfterStop(state).at),
    );
    for (const connection of failed) connection.reconnect();
    return [...new Set(failed.map(({ spec }) => spec.name))];
  }

  /** Sets the server's goal to "up" and starts it. @throws {HubError} usage if there is no such server */
  start(name: string): void {
    const server = this.#get(name);
    if (this.#isClosed) return;
    Object.assign(server, { goal: "up", isStopped: false });
    const profiles = this.#profilesOf(name);
    const isForAll = server.spec.isolation === "shared" && profiles.length === 0;
    for (const profile of isForAll ? [SHARED_PROFILE] : profiles)
      this.#ensureStarted(server, profile);
    for (const connection of connectionsOf(server)) connection.start();
    this.#options.changed();
  }

  /** Stops a server (goal "down"). @returns a promise that resolves when its processes have ended @throws {HubError} */
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

  /** Stops all servers and starts none any more. @returns a promise that resolves when their processes have ended */
  shutDown(): Promise<void> {
    this.#isClosed = true;
    return this.stopAll();
  }

  /** Pauses or resumes reading from all servers. */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    for (const connection of [...this.allConnections, ...this.#retired.keys()])
      connection.setPaused(isPaused);
  }

  /** The servers of this profile's subset. */
  #serversOf({ subset }: ClientProfile): readonly PooledServer[] {
    return [...this.#servers.values()].filter(({ spec }) => subset.has(spec.name));
  }

  #get(name: string): PooledServer {
    const server = this.#servers.get(name);
    if (server !== undefined) return server;
    throw new HubError("usage", `There is no server "${name}".`);
  }

  /** The present profiles that use a server. */
  #profilesOf(server: string): readonly ClientProfile[] {
    return [...this.#profiles].filter(({ subset }) => subset.has(server));
  }

  /**
   * The connection that a profile uses: that of its key. If there is none, a profile without a channel uses any shared
   * connection.
   */
  #find(server: PooledServer, { keys, channel }: ClientProfile): Connection | undefined {
    const { isolation } = server.spec;
    const own = server.connections.get(keys[isolation])?.connection;
    return own ?? (channel === undefined && isolation === "shared" ? firstOf(server) : undefined);
  }

  /** Creates the connection of a profile if needed, and starts it if the server's goal is "up". */
  #ensureStarted(server: PooledServer, profile: ClientProfile): void {
    const { goal } = server;
    if (goal === "down") return;
    const connection = this.#find(server, profile);
    if (connection === undefined) this.#create(server, profile);
    else if (goal === "up" && stateAfterStop(connection.state).at === "idle") connection.start();
  }

  /** @param listing the listing of the connection that this one replaces */
  #create(server: PooledServer, profile: ClientProfile, listing?: ServerListing): Connection {
    const options = this.#options;
    const { spec } = server;
    const key = profile.keys[spec.isolation];
    const connection = new Connection({
      ...options,
      spec,
      key,
      malformedOutput: server.malformedOutput,
      client: spec.isolation === "perClient" ? profile.client : undefined,
      clients: this.#clientsOf(spec, profile),
      listing,
      ready: this.#conflictingStopped(spec, key),
      goal: () => server.goal,
      loadSaved: () => options.memory.load(spec, profile),
      save: (saved) => options.memory.save(spec, profile, saved),
      onIdleStop: () => {
        if (server.goal === "up") server.goal = "onDemand";
      },
    });
    server.connections.set(key, { connection, profile });
    connection.setPaused(this.#isPaused);
    void connection.begin();
    return connection;
  }

  /** The clients of the connection that serves a profile. */
  #clientsOf({ name, isolation }: RunnableServer, profile: ClientProfile): ConnectionClients {
    const { era, capabilities, keys, channel } = profile;
    const key = keys[isolation];
    const { extensions = {}, experimental = {} } = channel?.settings ?? {};
    // All clients of a shared connection have the same extensions, as far as the server may know them; their
    // experimental capabilities may differ, so none are declared.
    const settings = isolation === "perClient" ? { extensions, experimental } : { extensions };
    return {
      era,
      capabilities: { ...parseCapabilityClass(capabilities), ...formatExtensionSettings(settings) },
      current: () =>
        this.#profilesOf(name).flatMap(
          (each) => (each.keys[isolation] === key && each.channel) || [],
        ),
    };
  }

  /**
   * Settles when the retired connections that must not run beside a new one have stopped: all of the server if it is or
   * was shared, else those with the same key.
   */
  #conflictingStopped({ name, isolation }: RunnableServer, key: string): Promise<unknown> {
    const before = [...this.#retired].filter(([{ spec }, retired]) => {
      const isOrWasShared = isolation === "shared" || spec.isolation !== isolation;
      return spec.name === name && (isOrWasShared || retired.key === key);
    });
    return Promise.all(before.map(([, { stopped }]) => stopped));
  }

  /** Replaces all connections to a server, because its specification has changed and needs a new process. */
  #replaceAll(server: PooledServer): void {
    const connections = [...server.connections];
    for (const [key, { connection, profile }] of connections) {
      const { listing } = connection;
      this.#retire(server, key, DRAIN_LIMIT, () => this.#create(server, profile, listing));
    }
  }

  /** Retires all connections to a server. */
  #retireAll(server: PooledServer): void {
    // The keys are copied first: retiring a connection may make its waiters create new connections, which must stay.
    const keys = [...server.connections.keys()];
    for (const key of keys) this.#retire(server, key, DRAIN_LIMIT);
  }

  /**
   * Retires the connections that no present profile uses. A shared connection counts as used until a client needs a
   * different shared connection.
   */
  #retireUnused(server: PooledServer): void {
    const { spec, connections } = server;
    const isShared = spec.isolation === "shared";
    const users = this.#profilesOf(spec.name).filter(
      ({ channel }) => !isShared || channel !== undefined,
    );
    if (isShared && users.length === 0) return;
    const used = new Set(users.map(({ keys }) => keys[spec.isolation]));
    const unused = [...connections.keys()].filter((key) => !used.has(key));
    for (const key of unused) this.#retire(server, key, isShared ? DRAIN_LIMIT : 0);
    if (unused.length > 0) this.#options.changed();
  }

  /**
   * Takes a connection out of use: it drains for up to `limit` ms and stops.
   * @param replace creates the connection in its place; it is started when this one has stopped
   */
  #retire(server: PooledServer, key: string, limit: number, replace?: () => void): void {
    const { connection } = server.connections.get(key) ?? {};
    if (connection === undefined) return;
    server.connections.delete(key);
    const stopped = deferred();
    // A connection that is created from now on waits until this one has stopped.
    this.#retired.set(connection, { key, stopped: stopped.promise });
    replace?.();
    void connection.retire(limit).then(() => {
      this.#retired.delete(connection);
      stopped.resolve();
    });
  }

  #emitChange(server: string, change: "added" | "changed" | "removed"): void {
    this.#options.bus.emit({ kind: "server", server, change });
  }
}

function connectionsOf({ connections }: PooledServer): readonly Connection[] {
  return [...connections.values()].map(({ connection }) => connection);
}

function firstOf({ connections }: PooledServer): Connection | undefined {
  return connections.values().next().value?.connection;
}

/** The goal of a server according to the manifest. */
export function goalOf({ enabled, lazy }: RunnableServer): Goal {
  if (!enabled) return "down";
  return lazy ? "onDemand" : "up";
}
