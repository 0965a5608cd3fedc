import type { StateName } from "../base/hub-events.ts";
import type { Goal } from "./status.ts";

/**
 * The state of a server as a whole, as all commands, the control API and the page show it. Besides the states of its
 * best connection: `notStarted`: it should be up, but nothing has started it yet; `idle`: it waits for a call, because
 * it is lazy or was unused; `stopped`: a command has stopped it; `disabled`: the manifest switches it off.
 */
export const SERVER_STATES = [
  "connected",
  "connecting",
  "authenticating",
  "reconnecting",
  "stopping",
  "failed",
  "notStarted",
  "idle",
  "stopped",
  "disabled",
] as const;

export type ServerState = (typeof SERVER_STATES)[number];

/** Facts about a server that `serverStateOf` needs. `state`: that of its best connection; undefined if it has none. */
export interface ServerStanding {
  readonly goal: Goal;
  /** Whether a command has stopped the server. */
  readonly isStopped: boolean;
  readonly state: StateName | undefined;
  /** Whether the last attempt to connect has failed, and no other one follows by itself. */
  readonly hasFailed: boolean;
}

/** The state of a server as a whole. */
export function serverStateOf({
  goal,
  isStopped,
  state = "idle",
  hasFailed,
}: ServerStanding): ServerState {
  if (goal === "down") {
    if (state === "stopping") return state;
    return isStopped ? "stopped" : "disabled";
  }
  if (state === "disconnected" || state === "idle") {
    if (hasFailed) return "failed";
    return goal === "up" ? "notStarted" : "idle";
  }
  return state;
}

/** The state as people read it, in tables and sentences. */
export function nameOfState(state: ServerState): string {
  return state === "notStarted" ? "not started" : state;
}

/** The possible overall states of a hub's servers; see `verdictOf`. */
export const VERDICTS = ["healthy", "partial", "failed", "none"] as const;

export type Verdict = (typeof VERDICTS)[number];

/** Facts about a server that `verdictOf` and `countServers` need. */
export interface ServerSummary {
  readonly goal: Goal;
  readonly state: ServerState;
}

/** The parts by which servers are counted, in the order in which they are told. Each server is in one part. */
export const COUNTED_PARTS = [
  "connected",
  "failed",
  "connecting",
  "authenticating",
  "reconnecting",
  "stopping",
  "notStarted",
  "resting",
  "stopped",
  "disabled",
] as const;

export type CountedPart = (typeof COUNTED_PARTS)[number];

/** The numbers of servers by part; their sum is `total`. `resting`: the servers that are idle. */
export type ServerCounts = Readonly<Record<CountedPart | "total", number>>;

export function countServers(servers: readonly ServerSummary[]): ServerCounts {
  const counts = Object.fromEntries(COUNTED_PARTS.map((part) => [part, 0])) as Record<
    CountedPart,
    number
  >;
  for (const server of servers) counts[partOf(server)]++;
  return { ...counts, total: servers.length };
}

function partOf({ goal, state }: ServerSummary): CountedPart {
  if (goal === "down" && state === "stopping") return "stopped";
  return state === "idle" ? "resting" : state;
}

/**
 * The overall state of the servers that should run: all are usable, some are, all have failed, or there are no such
 * servers. A server is usable if it is connected, or if it rests until it is called. A server that should be up and was
 * not started is not usable.
 */
export function verdictOf(servers: readonly ServerSummary[]): Verdict {
  const wanted = servers.filter(({ goal }) => goal !== "down");
  const usable = wanted.filter(({ state }) => state === "connected" || state === "idle").length;
  if (wanted.length === 0) return "none";
  if (usable === wanted.length) return "healthy";
  return wanted.every(({ state }) => state === "failed") ? "failed" : "partial";
}

/**
 * The counts in words: `4 connected, 1 failed, 2 resting, 1 disabled`. Parts that are zero are left out.
 * @param failing number of servers that are not among them, because their attempts keep failing
 */
export function describeCounts(counts: ServerCounts, failing = 0): string {
  const parts = COUNTED_PARTS.flatMap((part) => [
    ...describePart(counts, part),
    ...(part === "failed" && failing > 0 ? [`${failing} failing`] : []),
  ]);
  return parts.length === 0 ? "no servers" : parts.join(", ");
}

/**
 * How many of the enabled servers that do not rest are connected, and the servers that are not among them:
 * `1/1, 1 resting, 1 disabled`.
 */
export function describeIndicator(counts: ServerCounts): string {
  const { connected, resting, stopped, disabled, total } = counts;
  const others = (["resting", "stopped", "disabled"] as const).flatMap((part) =>
    describePart(counts, part),
  );
  return [`${connected}/${total - resting - stopped - disabled}`, ...others].join(", ");
}

function describePart(counts: ServerCounts, part: CountedPart): readonly string[] {
  const name = part === "resting" ? part : nameOfState(part);
  return counts[part] === 0 ? [] : [`${counts[part]} ${name}`];
}
