import { HubError } from "../base/errors.ts";
import type { StateName } from "../base/hub-events.ts";
import { invalidError } from "../manifest/problems.ts";
import type { RunnableServer, ServerSpec } from "../manifest/manifest.ts";
import type { Era } from "../protocol/modern.ts";
import type { AuthorizationProgress, HttpTransportKind } from "../transport/http/target.ts";
import type { Separation } from "./sharing.ts";
import type { StrayOutput } from "./stray-output.ts";
import { serverStateOf, type ServerState, type ServerSummary } from "./verdict.ts";

/**
 * Whether a server should run. `up`: always; `onDemand`: when a call needs it (lazy servers, and servers that were
 * stopped because they were idle); `down`: never, even if a tool of the server is called.
 */
export type Goal = "up" | "onDemand" | "down";

/** The server's name and version from its handshake. */
export interface PeerInfo {
  readonly era: Era;
  readonly protocolVersion: string;
  readonly name: string | undefined;
  readonly version: string | undefined;
}

/** Attempts to connect that have failed in succession, whoever has started them. */
export interface FailedAttempts {
  /** When the first of them failed, in ms since the epoch. */
  readonly since: number;
  readonly attempts: number;
  /** Whether the last one has failed with the same error as the one before it. */
  readonly isSame: boolean;
}

/** The status of one connection. Durations are in ms; times are in ms since the epoch. */
export interface ConnectionStatus {
  /** Identifies the connection among the connections to its server. */
  readonly id: string;
  /** The id of the only client of the connection; undefined if clients share the server. */
  readonly client: string | undefined;
  /** The ids of the clients that currently use the connection, except clients that cannot be told apart from others. */
  readonly clients: readonly string[];
  /** Why the server has this connection in addition to others; absent for the first one. */
  readonly separation?: Separation;
  /** The kinds of requests that all clients of the connection can answer: `elicitation`, `roots`, `sampling`. */
  readonly canAsk: readonly string[];
  readonly state: StateName;
  /** When `state` began, in ms since the epoch. */
  readonly since: number;
  /** The number of the current or last attempt, counted from 1 since the connection was last stable. */
  readonly attempt: number | undefined;
  readonly retryAt: number | undefined;
  /**
   * Duration of the running attempt, in ms; set only if it exceeds `connectTimeout`, so that calls no longer wait for
   * the attempt.
   */
  readonly late?: number;
  /** Whether the server responds to health checks; undefined unless the server is connected. */
  readonly responsive: boolean | undefined;
  /** The HTTP transport that is used; undefined for stdio, or if the server is not connected. */
  readonly httpTransport: HttpTransportKind | undefined;
  readonly progress: AuthorizationProgress | undefined;
  /** The error because of which the server is not connected. */
  readonly cause: HubError | undefined;
  /** The last error, even if the server has connected since. */
  readonly lastError: HubError | undefined;
  /** When `lastError` occurred, in ms since the epoch. */
  readonly lastErrorAt?: number | undefined;
  /** The attempts that have failed since the server was last connected or stopped; undefined if none has. */
  readonly failing: FailedAttempts | undefined;
  /** Name and version of the server in the current session, or in the last one. */
  readonly peer: PeerInfo | undefined;
  /** Whether the listing was saved earlier or read from the server; undefined if no listing is known. */
  readonly listing: "snapshot" | "server" | undefined;
  /** When the listing was saved, in ms since the epoch; absent unless the listing was read from a snapshot. */
  readonly listedAt?: number;
  /** Numbers of the items that the server lists, before any filter is applied; undefined if no listing is known. */
  readonly tools: number | undefined;
  readonly prompts: number | undefined;
  readonly resources: number | undefined;
  /** Duration of the last successful start, including the first listing, in ms. */
  readonly startDuration: number | undefined;
  /** Number of calls sent to the server. `inFlight`: the number of those that are not answered yet. */
  readonly calls: number;
  readonly inFlight: number;
  /** The server's own name of the tool that was called last. */
  readonly lastTool: string | undefined;
  /** Lines on stdout that were not messages, over all connections to the server; absent if there were none. */
  readonly strayOutput?: StrayOutput;
  /** What is wrong with the capabilities that the server declares: texts that begin with a verb; absent if nothing is. */
  readonly capabilityFaults?: readonly string[];
}

/**
 * The origin of a server: the manifest, or a command that has added the server while the hub runs (`runtime`). A reload
 * of the manifest keeps servers of origin `runtime`.
 */
export type ServerOrigin = "manifest" | "runtime";

/** The status of one server of the hub. */
export interface ServerStatus {
  readonly server: string;
  readonly origin: ServerOrigin;
  /** The kind of the server; undefined if its table in the manifest is invalid. */
  readonly transport: RunnableServer["kind"] | undefined;
  readonly goal: Goal;
  /** Whether a command has stopped the server. */
  readonly isStopped: boolean;
  /** The shared connections, or one for each client; empty until a client has needed the server. */
  readonly connections: readonly ConnectionStatus[];
}

/** Returns the status of a server that is never started: it is disabled, or the hub cannot use its table. */
export function unusableStatusOf(spec: ServerSpec): ServerStatus {
  const { name: server, kind } = spec;
  const transport = kind === "invalid" || kind === "unsupported" ? undefined : kind;
  if (!spec.enabled) return { ...statusWithout(server), transport, goal: "down" };
  if (kind === "invalid") return statusWithout(server, invalidError(spec));
  if (kind !== "unsupported") return { ...statusWithout(server), transport };
  const text = `Server "${server}" cannot be used: ${spec.reason}.`;
  return statusWithout(server, new HubError("notSupported", text, { server }));
}

/**
 * Returns the status of a server without connections.
 * @param cause why it cannot be used; undefined if nothing is wrong with it
 */
function statusWithout(server: string, cause?: HubError): ServerStatus {
  const connection: ConnectionStatus = {
    id: "",
    client: undefined,
    clients: [],
    canAsk: [],
    state: "failed",
    since: Date.now(),
    attempt: undefined,
    retryAt: undefined,
    responsive: undefined,
    httpTransport: undefined,
    progress: undefined,
    cause,
    lastError: cause,
    failing: undefined,
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
  return {
    server,
    origin: "manifest",
    transport: undefined,
    goal: "up",
    isStopped: false,
    connections: cause === undefined ? [] : [connection],
  };
}

/**
 * Groups of servers. `connected`: with a working connection; `late`: still starting after `connectTimeout`; `failed`:
 * neither of the two, with the reason why the server cannot be used.
 */
export interface SettledServers {
  readonly connected: readonly string[];
  readonly late: readonly string[];
  readonly failed: readonly { readonly server: string; readonly cause: HubError }[];
}

/** Groups the servers by state. Servers with goal "down", and per-client servers without a client, are in none of the groups. */
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

/** The reason why none of a server's connections can be used, as an error. */
export function unavailableReasonOf(
  server: string,
  connections: readonly ConnectionStatus[],
): HubError {
  for (const { cause, lastError } of connections) {
    const error = cause ?? lastError;
    if (error !== undefined) return error;
  }
  const isWaiting = connections.some(({ state }) => state === "authenticating");
  return isWaiting
    ? new HubError("unauthorized", `Server "${server}" waits for its authorization.`, { server })
    : new HubError("serverStopped", `Server "${server}" does not run.`, { server });
}

/**
 * The order for choosing the connection that represents its server: the best state is first. A connection that ends
 * because none of its clients is left must not hide that another one has failed.
 */
const STATE_ORDER: readonly StateName[] = [
  "connected",
  "authenticating",
  "connecting",
  "reconnecting",
  "failed",
  "stopping",
  "idle",
  "disconnected",
];

/** The connection that represents its server: the connection in the best state. Undefined if there is none. */
export function bestConnectionOf(
  connections: readonly ConnectionStatus[],
): ConnectionStatus | undefined {
  const rank = ({ state }: ConnectionStatus): number => STATE_ORDER.indexOf(state);
  return connections.toSorted((a, b) => rank(a) - rank(b))[0];
}

/** The state of a server as a whole; see `serverStateOf`. */
export function summaryStateOf({ goal, isStopped, connections }: ServerStatus): ServerState {
  const best = bestConnectionOf(connections);
  return serverStateOf({
    goal,
    isStopped,
    state: best?.state,
    hasFailed: best?.cause !== undefined,
  });
}

/** Summarizes each server for the verdict over all servers. */
export function summariesOf(servers: readonly ServerStatus[]): readonly ServerSummary[] {
  return servers.map((status) => ({ goal: status.goal, state: summaryStateOf(status) }));
}
