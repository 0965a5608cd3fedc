import { HubError } from "../base/errors.ts";
import type { StateName } from "../base/events.ts";
import { invalidError } from "../manifest/problems.ts";
import type { InvalidServer, RunnableServer } from "../manifest/schema.ts";
import type { Era } from "../protocol/modern.ts";
import type { AuthorizationProgress, HttpTransportKind } from "../transport/http/target.ts";
import type { StrayOutput } from "./stray-output.ts";

/**
 * What is wanted of a server. `up`: it shall run; `onDemand`: it shall run when it is called (lazy servers, and those
 * that were stopped because they were idle); `down`: it shall not run, whoever calls it.
 */
export type Goal = "up" | "onDemand" | "down";

/** Who a server is, as its handshake says. */
export interface PeerInfo {
  readonly era: Era;
  readonly protocolVersion: string;
  readonly name: string | undefined;
  readonly version: string | undefined;
}

/** How one connection stands. Times are in ms; those of day are counted from the epoch. */
export interface ConnectionStatus {
  /** Whose it is, if the server is not shared. */
  readonly client: string | undefined;
  readonly state: StateName;
  /** Which attempt of the present series it is, or was. */
  readonly attempt: number | undefined;
  readonly retryAt: number | undefined;
  /** How long its start has taken so far, in ms, once that is longer than `connectTimeout`: nobody waits for it. */
  readonly late?: number;
  /** Whether it answers; undefined unless connected. */
  readonly responsive: boolean | undefined;
  /** How it is reached over HTTP: Streamable HTTP, or HTTP with SSE; undefined if it is not, or is not connected. */
  readonly way: HttpTransportKind | undefined;
  /** How far an authorization has come that is just being got. */
  readonly progress: AuthorizationProgress | undefined;
  /** Why it is not connected, if that is a failure. */
  readonly cause: HubError | undefined;
  /** The last failure there was, also if it is over. */
  readonly lastError: HubError | undefined;
  /** Of the present connection, or else of the last one. */
  readonly peer: PeerInfo | undefined;
  /** Where the lists are from that are shown; undefined: none is known. */
  readonly listing: "snapshot" | "server" | undefined;
  /** How many of each the server lists, before any is filtered out; undefined: no list is known. */
  readonly tools: number | undefined;
  readonly prompts: number | undefined;
  readonly resources: number | undefined;
  /** How long the last successful start took, from its own begin to the first listing. */
  readonly startDuration: number | undefined;
  /** Calls that were ever sent to it, and those that it has not answered yet. */
  readonly calls: number;
  readonly inFlight: number;
  /** The tool of the last of these calls, by the server's own name. */
  readonly lastTool: string | undefined;
  /** Lines of the server's stdout that were no messages, over all its connections; absent: there were none. */
  readonly strayOutput?: StrayOutput;
}

/** How one server of the manifest stands. */
export interface ServerStatus {
  readonly server: string;
  /** undefined: its table in the manifest has a problem, so it is not known. */
  readonly transport: RunnableServer["kind"] | undefined;
  readonly goal: Goal;
  /** One for all clients, or one for each; none while nobody has needed the server. */
  readonly connections: readonly ConnectionStatus[];
}

/** How a server stands that is not started, as its table in the manifest has a problem. */
export function invalidStatus(spec: InvalidServer): ServerStatus {
  const cause = invalidError(spec);
  const connection: ConnectionStatus = {
    client: undefined,
    state: "failed",
    attempt: undefined,
    retryAt: undefined,
    responsive: undefined,
    way: undefined,
    progress: undefined,
    cause,
    lastError: cause,
    peer: undefined,
    listing: undefined,
    tools: undefined,
    prompts: undefined,
    resources: undefined,
    startDuration: undefined,
    calls: 0,
    inFlight: 0,
    lastTool: undefined,
  };
  return { server: spec.name, transport: undefined, goal: "up", connections: [connection] };
}

/** Which servers have a connection that runs; which are still starting; and of which all have failed, and why. */
export interface SettledServers {
  readonly connected: readonly string[];
  readonly late: readonly string[];
  readonly failed: readonly { readonly server: string; readonly cause: HubError }[];
}

/** Servers that shall not run, and those of which nobody knows for whom they would, are neither. */
export function settledServersOf(servers: readonly ServerStatus[]): SettledServers {
  const connected: string[] = [];
  const late: string[] = [];
  const failed: { server: string; cause: HubError }[] = [];
  for (const { server, goal, connections } of servers) {
    if (connections.length === 0 || goal === "down") continue;
    if (connections.some(({ state }) => state === "connected")) connected.push(server);
    else if (connections.some((connection) => connection.late !== undefined)) late.push(server);
    else failed.push({ server, cause: unavailableReasonOf(server, connections) });
  }
  return { connected, late, failed };
}

/** Why none of a server's connections can be used. */
export function unavailableReasonOf(
  server: string,
  connections: readonly ConnectionStatus[],
): HubError {
  for (const { cause, lastError } of connections) {
    const known = cause ?? lastError;
    if (known !== undefined) return known;
  }
  const isWaiting = connections.some(({ state }) => state === "authenticating");
  return isWaiting
    ? new HubError("unauthorized", `Server "${server}" waits for its authorization.`, { server })
    : new HubError("serverStopped", `Server "${server}" does not run.`, { server });
}
