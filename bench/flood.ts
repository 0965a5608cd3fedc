import { Buffer } from "node:buffer";
import process from "node:process";
import { type Command, Peer } from "./peer.ts";
import { readUsage } from "./usage.ts";

/** The members of a JSON-RPC message that are needed to check the order of progress. */
export interface ProgressMessage {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: { readonly progressToken?: unknown; readonly progress?: unknown };
  readonly result?: unknown;
}

/** Each call makes the server send `notes` progress notifications as fast as it can. */
interface FloodJob {
  readonly peer: Command;
  readonly tools: readonly [string, ...string[]];
  readonly notes: number;
  readonly rounds: number;
}

/** The CPU time per notification in each round, in µs; null if unknown. */
interface FloodResult {
  /** Number of messages that were missing, out of order, repeated, late or of another call, in all rounds. */
  readonly faults: number;
  /** CPU time of the peer's own process. */
  readonly cpus: readonly (number | null)[];
  /** CPU time of the client, which parses all messages. It shows how fast the machine is at the moment. */
  readonly readings: readonly (number | null)[];
}

/** The id and key of the first call. Keys have eight digits; the ids of the handshake are shorter. */
const FIRST_CALL = 10_000_001;

export async function flood({ notes, rounds, ...job }: FloodJob): Promise<FloodResult> {
  const peer = new Peer(job.peer);
  const [name] = job.tools;
  peer.awaitTools((names) => names.includes(name));
  const costs: (readonly (number | null)[])[] = [];
  let faults = 0;
  // The first round warms up.
  for (let round = 0; round <= rounds; round++) {
    const id = FIRST_CALL + round;
    const given = { key: String(id), lines: 1, notes };
    const params = { name, arguments: given, _meta: { progressToken: id } };
    const request = JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params });
    const before = [readUsage(peer.pid), readUsage(process.pid)];
    peer.write(Buffer.from(`${request}\n`));
    faults += countFaults(id, notes, () => JSON.parse(peer.line().toString()) as ProgressMessage);
    const after = [readUsage(peer.pid), readUsage(process.pid)];
    const cost = after.map((usage, at) => {
      const earlier = before[at];
      return usage && earlier ? (usage.cpu - earlier.cpu) / notes : null;
    });
    if (round > 0) costs.push(cost);
  }
  await peer.end();
  const of = (at: number) => costs.map((cost) => cost[at] ?? null);
  return { faults, cpus: of(0), readings: of(1) };
}

/**
 * Checks the messages up to the result of a call, whose progress token is its id. It must get `notes` notifications
 * with the progress 1, 2, 3, …, and then its result. Notifications of other kinds belong to no call.
 * @returns the number of messages that are missing, out of order, repeated, or of another call
 */
export function countFaults(call: number, notes: number, next: () => ProgressMessage): number {
  let faults = 0;
  for (let seen = 0; ;) {
    const { id, method, params, result } = next();
    if (method === "notifications/progress") {
      const { progressToken, progress } = params ?? {};
      if (progressToken !== call || progress !== seen + 1) faults++;
      if (progressToken === call) seen = Math.max(seen, Number(progress));
    } else if (id === call && method === undefined) {
      return faults + (result === undefined || seen !== notes ? 1 : 0);
    } else if (id !== undefined && method === undefined) faults++;
  }
}
