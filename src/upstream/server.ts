import type { RunnableServer } from "../manifest/schema.ts";
import type { Connection } from "./connection.ts";
import type { Profile } from "./profile.ts";
import type { Goal, ServerStatus } from "./status.ts";

/** What is wanted of a server, and the connections that there are to it, by whom they are for. */
export interface Server {
  spec: RunnableServer;
  goal: Goal;
  /** Somebody stopped it; what the manifest says of its start does not count until somebody starts it. */
  isStopped: boolean;
  readonly seats: Map<string, Seat>;
}

export interface Seat {
  readonly connection: Connection;
  readonly profile: Profile;
}

export function connectionsOf({ seats }: Server): readonly Connection[] {
  return [...seats.values()].map(({ connection }) => connection);
}

export function statusOf(server: Server): ServerStatus {
  const { spec, goal } = server;
  const connections = connectionsOf(server).map(({ status }) => status);
  return { server: spec.name, transport: spec.kind, goal, connections };
}

/** What the manifest wants. */
export function goalOf({ enabled, lazy }: RunnableServer): Goal {
  if (!enabled) return "down";
  return lazy ? "onDemand" : "up";
}
