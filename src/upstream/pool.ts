import { HubError } from "../base/errors.ts";
import type { StateName } from "../base/events.ts";
import type { ServerListing } from "../catalog/listing.ts";
import { diffServers } from "../manifest/diff.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import { formatExtensionSettings, parseCapabilityClass } from "../protocol/capabilities.ts";
import { Connection } from "./connection.ts";
import { type ClientProfile, type ConnectionClients, SHARED_PROFILE } from "./profile.ts";
import type { PoolOptions } from "./saved-listings.ts";
import { stateAfterStop } from "./state.ts";
import type { Goal, ServerStatus } from "./status.ts";
import { MalformedOutputReporter } from "./stray-output.ts";

/**
 * The client profiles that are present. They decide which connections the servers with goal "up" get, and which
 * connections are unused.
 */
export class PresentProfiles {
  readonly #profiles = new Set<ClientProfile>();

  /** The profiles that use a server. */
  profilesOf(server: string): readonly ClientProfile[] {
    return [...this.#profiles].filter(({ subset }) => subset.has(server));
  }

  add(profile: ClientProfile): void {
    this.#profiles.add(profile);
  }

  delete(profile: ClientProfile): void {
    this.#profiles.delete(profile);
  }

  /**
   * The connections of a server that no present profile uses. A shared connection counts as used until a client needs
   * a different shared connection.
   */
  unusedConnections({
    spec,
    connections,
  }: PooledServer): readonly (readonly [string, PooledConnection])[] {
    const { isolation } = spec;
    const isShared = isolation === "shared";
    const users = this.profilesOf(spec.name);
    const present = users.filter(({ channel }) => !isShared || channel !== undefined);
    if (isShared && present.length === 0) return [];
    const keys = new Set(present.map((profile) => profile.keys[isolation]));
    return [...connections].filter(([key]) => !keys.has(key));
  }

  /** The clients of the connection that serves a profile. */
  clientsOf({ name, isolation }: RunnableServer, profile: ClientProfile): ConnectionClients {
    const { era, capabilities, keys, channel } = profile;
    const key = keys[isolation];
    const { extensions = {}, experimental = {} } = channel?.settings ?? {};
    // Clients share a connection if they have the same extensions, as far as the server may know them. Their
    // experimental capabilities may differ.
    const settings = isolation === "perClient" ? { extensions, experimental } : { extensions };
    return {
      era,
      capabilities: { ...parseCapabilityClass(capabilities), ...formatExtensionSettings(settings) },
      current: () =>
        this.profilesOf(name).flatMap(
          (each) => (each.keys[isolation] === key && each.channel) || [],
        ),
    };
  }
}

/** The connections that are draining: each is removed when it has stopped. */
export class DrainingConnections {
  readonly #draining = new Map<
    Connection,
    { readonly key: string; readonly stopped: Promise<void> }
  >();

  get connections(): readonly Connection[] {
    return [...this.#draining.keys()];
  }

  /**
   * Settles when the draining connections that must not run beside a new one are gone: all of the server if it is or
   * was shared, else those with the same key.
   */
  conflictingStopped({ name, isolation }: RunnableServer, key: string): Promise<unknown> {
    const before = [...this.#draining].filter(([{ spec }, draining]) => {
      const isOrWasShared = isolation === "shared" || spec.isolation !== isolation;
      return spec.name === name && (isOrWasShared || draining.key === key);
    });
    return Promise.all(before.map(([, { stopped }]) => stopped));
  }

  /** Settles when all draining connections have stopped. */
  allStopped(): Promise<unknown> {
    return Promise.all([...this.#draining.values()].map(({ stopped }) => stopped));
  }

  /**
   * Drains a connection for up to `limit` ms and stops it.
   * @param createSuccessor creates the connection that replaces it; absent: none does
   */
  add(
    connection: Connection,
    key: string,
    limit: number,
    createSuccessor?: () => Connection,
  ): void {
    let resolveStopped = (): void => {};
    const stopped = new Promise<void>((resolve) => (resolveStopped = resolve));
    this.#draining.set(connection, { key, stopped });
    void connection.drain(createSuccessor?.(), limit).then(() => {
      this.#draining.delete(connection);
      resolveStopped();
    });
  }
}

/** A server with its goal and its connections, by connection key. */
export interface PooledServer {
  spec: RunnableServer;
  goal: Goal;
  /** The server was stopped by a command: the manifest's start settings do not count until it is started by one. */
  isStopped: boolean;
  readonly connections: Map<string, PooledConnection>;
  /** Malformed messages of the server since it has this specification. */
  malformedOutput: MalformedOutputReporter;
}

export interface PooledConnection {
  readonly connection: Connection;
  readonly profile: ClientProfile;
}

export function connectionsOf({ connections }: PooledServer): readonly Connection[] {
  return [...connections.values()].map(({ connection }) => connection);
}

/** The connection that a profile uses: that of its key, or any shared one if servers cannot send it requests. */
export function connectionFor(
  { spec, connections }: PooledServer,
  profile: ClientProfile,
): PooledConnection | undefined {
  const mayUseAny = profile.channel === undefined && spec.isolation === "shared";
  return (
    connections.get(profile.keys[spec.isolation]) ?? (mayUseAny ? firstOf(connections) : undefined)
  );
}

/**
 * The connection whose catalog a profile sees. The shared profile sees connections of other profiles, which it may not
 * use.
 */
export function visibleConnectionFor(
  server: PooledServer,
  profile: ClientProfile,
): PooledConnection | undefined {
  const own = connectionFor(server, profile);
  return own ?? (profile.client === undefined ? firstOf(server.connections) : undefined);
}

function firstOf(connections: PooledServer["connections"]): PooledConnection | undefined {
  return connections.values().next().value;
}

export function statusOf(server: PooledServer): ServerStatus {
  const { spec, goal } = server;
  const connections = connectionsOf(server).map(({ status }) => status);
  return { server: spec.name, transport: spec.kind, goal, connections };
}

/** The goal of a server according to the manifest. */
export function goalOf({ enabled, lazy }: RunnableServer): Goal {
  if (!enabled) return "down";
  return lazy ? "onDemand" : "up";
}

/** Maximum time that calls on a replaced or removed server may take to finish, in ms. */
const DRAIN_LIMIT = 10_000;

/** Assigns connections to profiles: creates and closes connections. */
export class ConnectionAssignment {
  readonly #options: PoolOptions;
  readonly #presentProfiles: PresentProfiles;
  readonly #draining = new DrainingConnections();
  #isPaused = false;

  constructor(options: PoolOptions, presentProfiles: PresentProfiles) {
    this.#options = options;
    this.#presentProfiles = presentProfiles;
  }

  /** The connections that are being closed and no longer belong to a profile. */
  get closing(): readonly Connection[] {
    return this.#draining.connections;
  }

  /** Resolves when the closing connections are closed. */
  allClosed(): Promise<unknown> {
    return this.#draining.allStopped();
  }

  /** The connection that a profile uses, created if needed. */
  obtain(server: PooledServer, profile: ClientProfile): Connection {
    return connectionFor(server, profile)?.connection ?? this.#create(server, profile);
  }

  /** Creates the connection of a profile if needed, and starts it if the server's goal is "up". */
  ensureStarted(server: PooledServer, profile: ClientProfile): void {
    const { goal } = server;
    if (goal === "down") return;
    const known = connectionFor(server, profile)?.connection;
    if (known === undefined) this.#create(server, profile);
    else if (goal === "up" && stateAfterStop(known.state).at === "idle") known.start();
  }

  /** Replaces all connections to a server, because its specification has changed and needs a new process. */
  replace(server: PooledServer): void {
    const connections = [...server.connections];
    for (const [key, { connection, profile }] of connections) {
      server.connections.delete(key);
      this.#draining.add(connection, key, DRAIN_LIMIT, () =>
        this.#create(server, profile, connection.listing),
      );
    }
  }

  /** Closes all connections to a server without replacement. */
  closeAll(server: PooledServer): void {
    for (const [key, { connection }] of server.connections) {
      server.connections.delete(key);
      this.#draining.add(connection, key, DRAIN_LIMIT);
    }
  }

  /**
   * Closes the connections that no profile uses; their waiters move to the connection of `successor`.
   * @returns whether there were any
   */
  closeUnused(server: PooledServer, successor?: ClientProfile): boolean {
    const { goal, spec, connections } = server;
    const limit = spec.isolation === "shared" ? DRAIN_LIMIT : 0;
    const succeed =
      successor === undefined || goal === "down" ? undefined : () => this.obtain(server, successor);
    const orphans: readonly (readonly [string, PooledConnection])[] =
      this.#presentProfiles.unusedConnections(server);
    for (const [key, { connection }] of orphans) {
      connections.delete(key);
      this.#draining.add(connection, key, limit, succeed);
    }
    return orphans.length > 0;
  }

  /** Pauses or resumes reading from these connections and from those that are being closed. */
  setPaused(held: boolean, connections: readonly Connection[]): void {
    this.#isPaused = held;
    for (const connection of [...connections, ...this.closing]) connection.setPaused(held);
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
      clients: this.#presentProfiles.clientsOf(spec, profile),
      listing,
      ready: this.#draining.conflictingStopped(spec, key),
      goal: () => server.goal,
      loadSaved: () => options.memory.load(spec, profile),
      save: (kept) => options.memory.save(spec, profile, kept),
      onIdleStop: () => {
        if (server.goal === "up") server.goal = "onDemand";
      },
    });
    server.connections.set(key, { connection, profile });
    connection.setPaused(this.#isPaused);
    void connection.begin();
    return connection;
  }
}

const STOPPED: Pick<PooledServer, "goal" | "isStopped"> = { goal: "down", isStopped: true };
const FAILED_STATES: readonly StateName[] = ["failed", "reconnecting"];

/**
 * upstream/: the MCP servers behind the hub: their connections, sessions, listings and states. Main type: `ServerPool`,
 * below. Start here, then read `connection.ts` (one server for one client profile), `state.ts` (its states and signals),
 * `connect.ts` (one attempt) and `session.ts` (MCP over an open transport).
 *
 * All servers: the goal of each and its connections. It owns the list of servers; `ConnectionAssignment` creates and
 * closes connections.
 */
export class ServerPool {
  readonly #options: PoolOptions;
  /** The servers by name, in manifest order. */
  #servers = new Map<string, PooledServer>();
  /** The present profiles: a server with goal "up" is started for each of them. */
  readonly #presentProfiles = new PresentProfiles();
  readonly #assignment: ConnectionAssignment;
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#assignment = new ConnectionAssignment(options, this.#presentProfiles);
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
    return [...this.#servers.values()].map(statusOf);
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
    // A connection that changes between shared and per client has no single successor.
    const hasNewIsolation = server.spec.isolation !== spec.isolation;
    server.spec = spec;
    if (server.goal === "down" || hasNewIsolation) this.#assignment.closeAll(server);
    else if (difference === "process") this.#assignment.replace(server);
    else for (const connection of connectionsOf(server)) connection.update(spec);
    for (const profile of this.#presentProfiles.profilesOf(spec.name))
      this.#assignment.ensureStarted(server, profile);
    this.#options.changed();
  }

  /** Removes a server; its running calls may finish within `DRAIN_LIMIT`. */
  remove(name: string): void {
    const server = this.#servers.get(name);
    if (server === undefined) return;
    this.#servers.delete(name);
    server.goal = "down";
    this.#assignment.closeAll(server);
    this.#options.alerts.removeServer(name);
    this.#emitChange(name, "removed");
    this.#options.changed();
  }

  /** A profile is now present: servers of its subset whose goal is "up" are started for it. */
  addProfile(profile: ClientProfile): void {
    this.#presentProfiles.add(profile);
    for (const server of this.#serversOf(profile)) {
      this.#closeUnused(server, profile);
      this.#assignment.ensureStarted(server, profile);
    }
  }

  /** A profile is no longer present: connections that only it used are closed. */
  removeProfile(profile: ClientProfile): void {
    this.#presentProfiles.delete(profile);
    for (const server of this.#servers.values()) this.#closeUnused(server);
  }

  /** Replaces one present profile by another. */
  replaceProfile(before: ClientProfile, after: ClientProfile): void {
    this.#presentProfiles.delete(before);
    this.addProfile(after);
  }

  /**
   * Whether this extension is part of a client's capability class: some server has declared it, or some server's
   * declarations are not known yet.
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
    return this.#assignment.obtain(server, profile);
  }

  /** Whether the profile's subset has such a server, whatever its goal. */
  has(name: string, profile: ClientProfile): boolean {
    return profile.subset.has(name) && this.#servers.has(name);
  }

  /** The connections whose listings this profile sees, in manifest order. */
  connections(profile: ClientProfile): readonly Connection[] {
    return this.#serversOf(profile).flatMap(
      (server) => visibleConnectionFor(server, profile)?.connection ?? [],
    );
  }

  /** The servers of its subset whose goal is down. */
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
    this.#presentProfiles.add(SHARED_PROFILE);
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
    const profiles = this.#presentProfiles.profilesOf(name);
    const isForAll = server.spec.isolation === "shared" && profiles.length === 0;
    for (const profile of isForAll ? [SHARED_PROFILE] : profiles)
      this.#assignment.ensureStarted(server, profile);
    for (const connection of connectionsOf(server)) connection.start();
    this.#options.changed();
  }

  /** Stops a server (goal "down"). @returns a promise that resolves when its processes have ended @throws {HubError} */
  async stop(name: string): Promise<void> {
    const server = this.#get(name);
    Object.assign(server, STOPPED);
    this.#options.changed();
    const closing = this.#assignment.closing.filter(({ spec }) => spec.name === name);
    const connections = [...connectionsOf(server), ...closing];
    await Promise.all(connections.map((connection) => connection.stop()));
  }

  /**
   * Stops all servers, including connections that are still being closed.
   * @returns a promise that resolves when their processes have ended
   */
  async stopAll(): Promise<void> {
    for (const server of this.#servers.values()) Object.assign(server, STOPPED);
    this.#options.changed();
    const connections = [...this.allConnections, ...this.#assignment.closing];
    await Promise.all(connections.map((connection) => connection.stop()));
    await this.#assignment.allClosed();
  }

  /** Stops all servers and starts none any more. @returns a promise that resolves when their processes have ended */
  shutDown(): Promise<void> {
    this.#isClosed = true;
    return this.stopAll();
  }

  /** Pauses or resumes reading from all servers. */
  setPaused(held: boolean): void {
    this.#assignment.setPaused(held, this.allConnections);
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

  /** Closes the connections that no profile uses. */
  #closeUnused(server: PooledServer, successor?: ClientProfile): void {
    if (this.#assignment.closeUnused(server, successor)) this.#options.changed();
  }

  #emitChange(server: string, change: "added" | "changed" | "removed"): void {
    this.#options.bus.emit({ kind: "server", server, change });
  }
}
