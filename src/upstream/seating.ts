import type { ServerListing } from "../catalog/offer.ts";
import { lookAhead } from "./account.ts";
import type { Attendance } from "./attendance.ts";
import { Connection } from "./connection.ts";
import { Departures } from "./departures.ts";
import type { PoolParts } from "./parts.ts";
import type { Profile } from "./profile.ts";
import { type Seat, seatOf, type Server } from "./server.ts";

/** How long calls that run on a server which is replaced or removed may take to finish, in ms. */
const DRAIN_LIMIT = 10_000;

/** Who has which connection to a server: makes them, and lets them go. */
export class Seating {
  readonly #parts: PoolParts;
  readonly #attendance: Attendance;
  readonly #departures = new Departures();
  #held = false;

  constructor(parts: PoolParts, attendance: Attendance) {
    this.#parts = parts;
    this.#attendance = attendance;
  }

  /** Connections that are nobody's any more, until nothing of them is left. */
  get leaving(): readonly Connection[] {
    return this.#departures.connections;
  }

  /** Settles when nothing is left of those. */
  emptied(): Promise<unknown> {
    return this.#departures.all();
  }

  /** The connection that a profile uses. */
  take(server: Server, profile: Profile): Connection {
    return seatOf(server, profile)?.connection ?? this.#connect(server, profile);
  }

  /** Makes sure of the connection for a profile, and that it is up if it shall be. */
  begin(server: Server, profile: Profile): void {
    const { goal } = server;
    if (goal === "down") return;
    const known = seatOf(server, profile)?.connection;
    if (known === undefined) this.#connect(server, profile);
    else if (goal === "up" && lookAhead(known.state).at === "idle") known.start();
  }

  /** Puts new connections in the place of those whose process is not what is wanted any more. */
  replace(server: Server): void {
    const seats = [...server.seats];
    for (const [key, { connection, profile }] of seats) {
      server.seats.delete(key);
      this.#departures.add(connection, key, DRAIN_LIMIT, () =>
        this.#connect(server, profile, connection.offer),
      );
    }
  }

  /** Ends all connections to a server, in whose place there is none. */
  retire(server: Server): void {
    for (const [key, { connection }] of server.seats) {
      server.seats.delete(key);
      this.#departures.add(connection, key, DRAIN_LIMIT);
    }
  }

  /** Ends what is nobody's any more; who waits there goes on to what there is for the heir. @returns whether there was any */
  clear(server: Server, heir?: Profile): boolean {
    const { goal, spec, seats } = server;
    const limit = spec.isolation === "shared" ? DRAIN_LIMIT : 0;
    const succeed =
      heir === undefined || goal === "down" ? undefined : () => this.take(server, heir);
    const orphans: readonly (readonly [string, Seat])[] = this.#attendance.orphans(server);
    for (const [key, { connection }] of orphans) {
      seats.delete(key);
      this.#departures.add(connection, key, limit, succeed);
    }
    return orphans.length > 0;
  }

  /** Stops or resumes reading from all, those of these servers and those that leave. */
  hold(held: boolean, connections: readonly Connection[]): void {
    this.#held = held;
    for (const connection of [...connections, ...this.leaving]) connection.hold(held);
  }

  /** @param offer what was offered by the connection before it. */
  #connect(server: Server, profile: Profile, offer?: ServerListing): Connection {
    const parts = this.#parts;
    const { spec } = server;
    const key = profile.keys[spec.isolation];
    const connection = new Connection({
      ...parts,
      spec,
      key,
      flaws: server.flaws,
      client: spec.isolation === "perClient" ? profile.client : undefined,
      audience: this.#attendance.audience(spec, profile),
      offer,
      before: this.#departures.gone(spec, key),
      goal: () => server.goal,
      recall: () => parts.memory.recall(spec, profile),
      keep: (kept) => parts.memory.keep(spec, profile, kept),
      idled: () => {
        if (server.goal === "up") server.goal = "onDemand";
      },
    });
    server.seats.set(key, { connection, profile });
    connection.hold(this.#held);
    void connection.begin();
    return connection;
  }
}
