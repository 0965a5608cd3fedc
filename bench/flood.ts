import { Buffer } from "node:buffer";
import process from "node:process";
import { Order, type OrderedMessage } from "./order.ts";
import { type Command, Peer } from "./peer.ts";
import { forgetPeak, readUsage } from "./usage.ts";

/** A flood test. Peers take turns; each call makes a server send progress notifications as fast as it can. */
export interface FloodJob {
  readonly kind: "flood";
  readonly entrants: readonly FloodEntrant[];
  /** Number of notifications for each call. */
  readonly notes: number;
  readonly rounds: number;
}

export interface FloodEntrant {
  readonly peer: Command;
  /** The tools that are called at the same time. */
  readonly tools: readonly string[];
}

/** The result of one entrant over all rounds. */
export interface FloodResult {
  /** Total number of notifications. */
  readonly notes: number;
  /**
   * `faults`: number of messages that were missing, out of order, repeated, late or of another call. `examples`: the
   * first of these faults, as text.
   */
  readonly faults: number;
  readonly examples: readonly string[];
  /** Notifications per second, in each round. The time in which the client parses them is included. */
  readonly rates: readonly number[];
  /** CPU time of the peer's own process per notification, in µs, in each round; null if unknown. */
  readonly cpus: readonly (number | null)[];
  /**
   * CPU time of the client per notification, in µs, in each round. It shows how fast the machine is at the moment.
   */
  readonly readings: readonly (number | null)[];
  /** The peer's memory in bytes: before the test (`base`), and its maximum (`peak`); null if unknown. */
  readonly base: number | null;
  readonly peak: number | null;
}

/** The id and key of the first call. Keys have eight digits; the ids of the handshake are shorter. */
const FIRST_CALL = 10_000_001;

export async function flood(job: FloodJob): Promise<readonly FloodResult[]> {
  const peers = job.entrants.map((entrant) => new FloodPeer(entrant, job.notes));
  // The first round warms up.
  for (let round = 0; round <= job.rounds; round++) {
    for (const at of peers.keys()) {
      peers[(at + round) % peers.length]?.run(round > 0);
    }
  }
  const results = peers.map((peer) => peer.result);
  for (const peer of peers) await peer.end();
  return results;
}

class FloodPeer {
  readonly #peer: Peer;
  readonly #tools: readonly string[];
  readonly #notes: number;
  readonly #base: number | null;
  readonly #examples: string[] = [];
  readonly #rates: number[] = [];
  readonly #cpus: (number | null)[] = [];
  readonly #readings: (number | null)[] = [];
  #faults = 0;
  #next = FIRST_CALL;

  constructor({ peer, tools }: FloodEntrant, notes: number) {
    this.#peer = new Peer(peer);
    this.#peer.awaitTools((names) => tools.every((tool) => names.includes(tool)));
    this.#tools = tools;
    this.#notes = notes;
    this.#base = readUsage(this.#peer.pid)?.rss ?? null;
    forgetPeak(this.#peer.pid);
  }

  get result(): FloodResult {
    return {
      notes: this.#rates.length * this.#tools.length * this.#notes,
      faults: this.#faults,
      examples: this.#examples,
      rates: this.#rates,
      cpus: this.#cpus,
      readings: this.#readings,
      base: this.#base,
      peak: readUsage(this.#peer.pid)?.peak ?? null,
    };
  }

  run(counts: boolean): void {
    const calls = this.#tools.map((name) => ({ name, id: this.#next++ }));
    const order = new Order(
      calls.map(({ id }) => id),
      this.#notes,
    );
    const requests = calls.map(({ name, id }) => {
      const given = { key: String(id), lines: 1, notes: this.#notes };
      const params = { name, arguments: given, _meta: { progressToken: id } };
      return `${JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params })}\n`;
    });
    const before = [readUsage(this.#peer.pid), readUsage(process.pid)];
    const began = performance.now();
    this.#peer.write(Buffer.from(requests.join("")));
    while (!order.isOver) order.accept(JSON.parse(this.#peer.line().toString()) as OrderedMessage);
    const seconds = (performance.now() - began) / 1000;
    const after = [readUsage(this.#peer.pid), readUsage(process.pid)];
    this.#faults += order.faults;
    this.#examples.push(...order.examples);
    if (!counts) return;
    const notes = calls.length * this.#notes;
    this.#rates.push(notes / seconds);
    const [cpu = null, reading = null] = after.map((usage, at) => {
      const earlier = before[at];
      return usage && earlier ? (usage.cpu - earlier.cpu) / notes : null;
    });
    this.#cpus.push(cpu);
    this.#readings.push(reading);
  }

  async end(): Promise<void> {
    await this.#peer.end();
  }
}
