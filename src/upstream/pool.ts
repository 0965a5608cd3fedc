import { HubError } from "../base/errors.ts";
import type { StateName } from "../base/events.ts";
import { diffServers } from "../manifest/diff.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import { stateAfterStop } from "./account.ts";
import { PresentProfiles } from "./attendance.ts";
import type { Connection } from "./connection.ts";
import { MalformedOutputReporter } from "./stray-output.ts";
import type { PoolOptions } from "./parts.ts";
import { SHARED_PROFILE, type ClientProfile } from "./profile.ts";
import { ConnectionAssignment } from "./seating.ts";
import {
  connectionsOf,
  goalOf,
  type PooledServer,
  visibleConnectionFor,
  statusOf,
} from "./server.ts";
import type { ServerStatus } from "./status.ts";

const STOPPED: Pick<PooledServer, "goal" | "isStopped"> = { goal: "down", isStopped: true };
const FAILED: readonly StateName[] = ["failed", "reconnecting"];

/** All servers: what is wanted of each, and the connections to it. Alone says which there are; its Seating makes and ends them. */
export class ServerPool {
  readonly #parts: PoolOptions;
  /** In manifest order. */
  #servers = new Map<string, PooledServer>();
  /** Servers that shall be up are started for each of those who want them. */
  readonly #attendance = new PresentProfiles();
  readonly #seating: ConnectionAssignment;
  #isClosed = false;

  constructor(parts: PoolOptions) {
    this.#parts = parts;
    this.#seating = new ConnectionAssignment(parts, this.#attendance);
  }

  /** Every specification, in manifest order. */
  get specs(): readonly RunnableServer[] {
    return [...this.#servers.values()].map(({ spec }) => spec);
  }

  /** Whether there is a server that every client has for itself. */
  get hasIsolated(): boolean {
    return this.specs.some(({ isolation }) => isolation === "perClient");
  }

  get status(): readonly ServerStatus[] {
    return [...this.#servers.values()].map(statusOf);
  }

  /** Makes what is wanted what these say, in this order. Who is the same keeps its process and all that runs. */
  reconcile(specs: readonly RunnableServer[]): void {
    const wanted = new Set(specs.map(({ name }) => name));
    for (const name of this.#servers.keys()) if (!wanted.has(name)) this.remove(name);
    for (const spec of specs) this.add(spec);
    const ordered = specs.flatMap(({ name }) => {
      const server = this.#servers.get(name);
      return server === undefined ? [] : [[name, server] as const];
    });
    this.#servers = new Map(ordered);
    this.#parts.changed();
  }

  /** Adds a server, or gives it this specification: the process goes on if it does not depend on what changed. */
  add(spec: RunnableServer): void {
    const known = this.#servers.get(spec.name);
    const difference = known && diffServers(known.spec, spec);
    if (difference === "same" || this.#isClosed) return;
    const goal = goalOf(spec);
    const server: PooledServer = known ?? {
      spec,
      goal,
      isStopped: false,
      seats: new Map(),
      flaws: new MalformedOutputReporter(),
    };
    if (difference === "process") server.flaws = new MalformedOutputReporter();
    this.#servers.set(spec.name, server);
    this.#parts.alerts.addServer(spec.name);
    this.#tell(spec.name, known === undefined ? "added" : "changed");
    const isOther = difference === "process" || goalOf(server.spec) !== goal;
    if (isOther && !server.isStopped) server.goal = goal;
    // What was one connection for many, or the other way round, has no one successor.
    const isSplit = server.spec.isolation !== spec.isolation;
    server.spec = spec;
    if (server.goal === "down" || isSplit) this.#seating.retire(server);
    else if (difference === "process") this.#seating.replace(server);
    else for (const connection of connectionsOf(server)) connection.update(spec);
    for (const profile of this.#attendance.profilesOf(spec.name))
      this.#seating.begin(server, profile);
    this.#parts.changed();
  }

  /** Forgets a server: what runs may finish, for a while. */
  remove(name: string): void {
    const server = this.#servers.get(name);
    if (server === undefined) return;
    this.#servers.delete(name);
    server.goal = "down";
    this.#seating.retire(server);
    this.#parts.alerts.removeServer(name);
    this.#tell(name, "removed");
    this.#parts.changed();
  }

  /** From now on the servers of its scope that shall be up are so for this profile. */
  open(profile: ClientProfile): void {
    this.#attendance.add(profile);
    for (const server of this.#in(profile)) {
      this.#clear(server, profile);
      this.#seating.begin(server, profile);
    }
  }

  /** Nobody needs what was for this profile alone. */
  close(profile: ClientProfile): void {
    this.#attendance.delete(profile);
    for (const server of this.#servers.values()) this.#clear(server);
  }

  /** Who was the one is the other from now on. */
  exchange(before: ClientProfile, after: ClientProfile): void {
    this.#attendance.delete(before);
    this.open(after);
  }

  /**
   * Whether clients that declare this extension are of another kind than those that do not: a server has declared it, or it
   * is not known yet what a server declares.
   */
  countsExtension(name: string): boolean {
    return [...this.#servers.values()].some((server) => {
      const connections = connectionsOf(server);
      if (server.goal === "down") return false;
      if (connections.length === 0) return true;
      return connections.some(({ listing: offer, isSettled }) => {
        const declared = offer?.declared;
        return declared === undefined ? !isSettled : Object.hasOwn(declared.extensions, name);
      });
    });
  }

  /**
   * The connection that is for this profile; undefined if there is no such server for it, or if it shall not run.
   * @throws {HubError} notSupported if the server is one for each client, and the client is unknown
   */
  find(name: string, profile: ClientProfile): Connection | undefined {
    const server = profile.scope.has(name) ? this.#servers.get(name) : undefined;
    if (server === undefined || server.goal === "down") return undefined;
    if (server.spec.isolation === "perClient" && profile.client === undefined) {
      const text = `Server "${name}" is one for each client (isolation = "perClient"), and it cannot be told which client this is.`;
      throw new HubError("notSupported", text, { server: name });
    }
    return this.#seating.take(server, profile);
  }

  /** Whether there is such a server for this profile, also if it shall not run. */
  has(name: string, profile: ClientProfile): boolean {
    return profile.scope.has(name) && this.#servers.has(name);
  }

  /** Those that there are for this profile, in manifest order. */
  connections(profile: ClientProfile): readonly Connection[] {
    return this.#in(profile).flatMap(
      (server) => visibleConnectionFor(server, profile)?.connection ?? [],
    );
  }

  /** Those of its scope that shall not run. */
  down(profile: ClientProfile): readonly RunnableServer[] {
    return this.#in(profile).flatMap(({ spec, goal }) => (goal === "down" ? [spec] : []));
  }

  /** All connections to a server. @throws {HubError} usage if there is no such server */
  of(name: string): readonly Connection[] {
    return connectionsOf(this.#get(name));
  }

  /** All connections there are. */
  get all(): readonly Connection[] {
    return [...this.#servers.values()].flatMap(connectionsOf);
  }

  /** Starts all that shall not be down, also those that only a call would start. */
  startAll(): void {
    this.#attendance.add(SHARED_PROFILE);
    for (const [name, { goal }] of this.#servers) if (goal !== "down") this.start(name);
  }

  /** Ends what there is of a server and starts it anew; an attempt that runs is left to run. @throws {HubError} usage */
  reconnect(name: string): void {
    const server = this.#get(name);
    if (server.goal === "down") this.start(name);
    else for (const connection of connectionsOf(server)) connection.reconnect();
  }

  /** Reconnects all that failed, or wait for their next attempt. @returns the servers. */
  reconnectFailed(): readonly string[] {
    const failed = this.all.filter(({ state }) => FAILED.includes(stateAfterStop(state).at));
    for (const connection of failed) connection.reconnect();
    return [...new Set(failed.map(({ spec }) => spec.name))];
  }

  /** Somebody wants it up from now on. @throws {HubError} usage if there is no such server */
  start(name: string): void {
    const server = this.#get(name);
    if (this.#isClosed) return;
    Object.assign(server, { goal: "up", isStopped: false });
    const profiles = this.#attendance.profilesOf(name);
    const isForAll = server.spec.isolation === "shared" && profiles.length === 0;
    for (const profile of isForAll ? [SHARED_PROFILE] : profiles)
      this.#seating.begin(server, profile);
    for (const connection of connectionsOf(server)) connection.start();
    this.#parts.changed();
  }

  /** Somebody wants it down until it is started. @returns when nothing of it is left. @throws {HubError} usage */
  async stop(name: string): Promise<void> {
    const server = this.#get(name);
    Object.assign(server, STOPPED);
    this.#parts.changed();
    const leaving = this.#seating.leaving.filter(({ spec }) => spec.name === name);
    const every = [...connectionsOf(server), ...leaving];
    await Promise.all(every.map((connection) => connection.stop()));
  }

  /** Stops all until they are started, also what is still finishing. @returns when nothing is left. */
  async stopAll(): Promise<void> {
    for (const server of this.#servers.values()) Object.assign(server, STOPPED);
    this.#parts.changed();
    const every = [...this.all, ...this.#seating.leaving];
    await Promise.all(every.map((connection) => connection.stop()));
    await this.#seating.emptied();
  }

  /** Stops all, and starts nothing any more. @returns when nothing is left. */
  end(): Promise<void> {
    this.#isClosed = true;
    return this.stopAll();
  }

  /** Stops or resumes reading from all servers. */
  hold(held: boolean): void {
    this.#seating.hold(held, this.all);
  }

  /** Those that there are for this profile. */
  #in({ scope }: ClientProfile): readonly PooledServer[] {
    return [...this.#servers.values()].filter(({ spec }) => scope.has(spec.name));
  }

  #get(name: string): PooledServer {
    const server = this.#servers.get(name);
    if (server !== undefined) return server;
    throw new HubError("usage", `There is no server "${name}".`);
  }

  /** Ends what is nobody's any more. */
  #clear(server: PooledServer, heir?: ClientProfile): void {
    if (this.#seating.clear(server, heir)) this.#parts.changed();
  }

  #tell(server: string, change: "added" | "changed" | "removed"): void {
    this.#parts.bus.emit({ kind: "server", server, change });
  }
}
