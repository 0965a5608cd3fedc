import type { RunnableServer } from "../manifest/schema.ts";
import type { Connection } from "./connection.ts";
import type { MalformedOutputReporter } from "./stray-output.ts";
import type { ClientProfile } from "./profile.ts";
import type { Goal, ServerStatus } from "./status.ts";

/** What is wanted of a server, and the connections that there are to it, by whom they are for. */
export interface PooledServer {
  spec: RunnableServer;
  goal: Goal;
  /** Somebody stopped it; what the manifest says of its start does not count until somebody starts it. */
  isStopped: boolean;
  readonly seats: Map<string, PooledConnection>;
  /** What is wrong with its messages, since it is made from this specification. */
  flaws: MalformedOutputReporter;
}

export interface PooledConnection {
  readonly connection: Connection;
  readonly profile: ClientProfile;
}

export function connectionsOf({ seats }: PooledServer): readonly Connection[] {
  return [...seats.values()].map(({ connection }) => connection);
}

/** The one that a profile uses: its own, or any that clients share if it cannot be asked anything. */
export function connectionFor(
  { spec, seats }: PooledServer,
  profile: ClientProfile,
): PooledConnection | undefined {
  const isGuest = profile.attendee === undefined && spec.isolation === "shared";
  return seats.get(profile.keys[spec.isolation]) ?? (isGuest ? firstOf(seats) : undefined);
}

/** The one that a profile is shown: who is nobody in particular sees what others use, though it may not use it. */
export function visibleConnectionFor(
  server: PooledServer,
  profile: ClientProfile,
): PooledConnection | undefined {
  const own = connectionFor(server, profile);
  return own ?? (profile.client === undefined ? firstOf(server.seats) : undefined);
}

function firstOf(seats: PooledServer["seats"]): PooledConnection | undefined {
  return seats.values().next().value;
}

export function statusOf(server: PooledServer): ServerStatus {
  const { spec, goal } = server;
  const connections = connectionsOf(server).map(({ status }) => status);
  return { server: spec.name, transport: spec.kind, goal, connections };
}

/** What the manifest wants. */
export function goalOf({ enabled, lazy }: RunnableServer): Goal {
  if (!enabled) return "down";
  return lazy ? "onDemand" : "up";
}
