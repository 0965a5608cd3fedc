import type { ServerListing } from "../catalog/offer.ts";
import { stateAfterStop } from "./account.ts";
import type { PresentProfiles } from "./attendance.ts";
import { Connection } from "./connection.ts";
import { DrainingConnections } from "./departures.ts";
import type { PoolOptions } from "./parts.ts";
import type { ClientProfile } from "./profile.ts";
import { type PooledConnection, connectionFor, type PooledServer } from "./server.ts";

/** How long calls that run on a server which is replaced or removed may take to finish, in ms. */
const DRAIN_LIMIT = 10_000;

/** Who has which connection to a server: makes them, and lets them go. */
export class ConnectionAssignment {
  readonly #parts: PoolOptions;
  readonly #attendance: PresentProfiles;
  readonly #departures = new DrainingConnections();
  #held = false;

  constructor(parts: PoolOptions, attendance: PresentProfiles) {
    this.#parts = parts;
    this.#attendance = attendance;
  }

  /** Connections that are nobody's any more, until nothing of them is left. */
  get leaving(): readonly Connection[] {
    return this.#departures.connections;
  }

  /** Settles when nothing is left of those. */
  emptied(): Promise<unknown> {
    return this.#departures.allStopped();
  }

  /** The connection that a profile uses. */
  take(server: PooledServer, profile: ClientProfile): Connection {
    return connectionFor(server, profile)?.connection ?? this.#connect(server, profile);
  }

  /** Makes sure of the connection for a profile, and that it is up if it shall be. */
  begin(server: PooledServer, profile: ClientProfile): void {
    const { goal } = server;
    if (goal === "down") return;
    const known = connectionFor(server, profile)?.connection;
    if (known === undefined) this.#connect(server, profile);
    else if (goal === "up" && stateAfterStop(known.state).at === "idle") known.start();
  }

  /** Puts new connections in the place of those whose process is not what is wanted any more. */
  replace(server: PooledServer): void {
    const seats = [...server.seats];
    for (const [key, { connection, profile }] of seats) {
      server.seats.delete(key);
      this.#departures.add(connection, key, DRAIN_LIMIT, () =>
        this.#connect(server, profile, connection.listing),
      );
    }
  }

  /** Ends all connections to a server, in whose place there is none. */
  retire(server: PooledServer): void {
    for (const [key, { connection }] of server.seats) {
      server.seats.delete(key);
      this.#departures.add(connection, key, DRAIN_LIMIT);
    }
  }

  /** Ends what is nobody's any more; who waits there goes on to what there is for the heir. @returns whether there was any */
  clear(server: PooledServer, heir?: ClientProfile): boolean {
    const { goal, spec, seats } = server;
    const limit = spec.isolation === "shared" ? DRAIN_LIMIT : 0;
    const succeed =
      heir === undefined || goal === "down" ? undefined : () => this.take(server, heir);
    const orphans: readonly (readonly [string, PooledConnection])[] =
      this.#attendance.unusedConnections(server);
    for (const [key, { connection }] of orphans) {
      seats.delete(key);
      this.#departures.add(connection, key, limit, succeed);
    }
    return orphans.length > 0;
  }

  /** Stops or resumes reading from all, those of these servers and those that leave. */
  hold(held: boolean, connections: readonly Connection[]): void {
    this.#held = held;
    for (const connection of [...connections, ...this.leaving]) connection.setPaused(held);
  }

  /** @param offer what was offered by the connection before it. */
  #connect(server: PooledServer, profile: ClientProfile, offer?: ServerListing): Connection {
    const parts = this.#parts;
    const { spec } = server;
    const key = profile.keys[spec.isolation];
    const connection = new Connection({
      ...parts,
      spec,
      key,
      flaws: server.flaws,
      client: spec.isolation === "perClient" ? profile.client : undefined,
      clients: this.#attendance.clientsOf(spec, profile),
      offer,
      ready: this.#departures.conflictingStopped(spec, key),
      goal: () => server.goal,
      recall: () => parts.memory.recall(spec, profile),
      keep: (kept) => parts.memory.keep(spec, profile, kept),
      idled: () => {
        if (server.goal === "up") server.goal = "onDemand";
      },
    });
    server.seats.set(key, { connection, profile });
    connection.setPaused(this.#held);
    void connection.begin();
    return connection;
  }
}
