import type { Era } from "../src/protocol/modern.ts";
import { Flight } from "./flight.ts";
import { HttpCallers } from "./http/callers.ts";
import { type Command, Peer, type Stdio } from "./peer.ts";
import { quantile } from "./stats.ts";
import { forgetPeak, readUsage } from "./usage.ts";

/** A program that is called, and how. */
export interface Entrant {
  readonly peer: Command;
  /** The tools that are called in turn. Their names have the same length. */
  readonly tools: readonly [string, ...string[]];
  /** The transport over which the program is called; its stdin and stdout if absent. */
  readonly transport?: "http";
  /** The kind of its stdin and stdout; pipes if absent. */
  readonly stdio?: Stdio;
  /** The protocol era of the client; legacy if absent. */
  readonly era?: Era;
}

/** The calls, the same for all entrants. */
export interface Load {
  /** Calls in flight; over HTTP each has a session and a connection. */
  readonly flight: number;
  /** Lines of text in an answer. */
  readonly lines: number;
  /** Padding in a call's arguments, in bytes. */
  readonly pad: number;
}

/** The number of rounds, the warm-up time of each entrant, and the length of each of its turns, in ms. */
export interface Pace {
  readonly rounds: number;
  readonly warmUp: number;
  readonly duration: number;
}

interface ContestJob extends Pace {
  readonly entrants: readonly Entrant[];
  readonly load: Load;
}

/** The figures of one turn. */
export interface Turn {
  /** Latencies in µs. */
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  /** CPU time of the entrant's own process per call, in µs; null if unknown. */
  readonly cpu: number | null;
}

/** The turns of one entrant, and the memory of its process in bytes; null if unknown. */
export interface EntrantResult {
  readonly turns: readonly Turn[];
  /** `base`: before the first call. `peak`: the maximum since then. `rss`: after the last call. */
  readonly base: number | null;
  readonly peak: number | null;
  readonly rss: number | null;
}

/** A running program, together with the client that calls it. */
export interface Racer {
  readonly pid: number;
  /**
   * Makes calls for `ms` milliseconds, and waits until all of them are answered.
   * @returns their latencies in µs, ascending
   * @throws if an answer is wrong
   */
  run(ms: number): Promise<Float64Array> | Float64Array;
  /** Ends the program. */
  end(): Promise<void>;
}

/**
 * A contest in which entrants take turns under the same load, while all of them stay alive. Other load on the machine
 * affects all of them alike, so the ratios within a round are more reliable than the absolute figures. Each round
 * begins with a different entrant.
 * @returns the results of all entrants, in their order
 */
export async function contest(job: ContestJob): Promise<readonly EntrantResult[]> {
  const { entrants, load, rounds, warmUp, duration } = job;
  const racers: { racer: Racer; base: number | null; turns: Turn[] }[] = [];
  for (const entrant of entrants) {
    const isHttp = entrant.transport === "http";
    const racer = isHttp ? await HttpCallers.open(entrant, load) : new Caller(entrant, load);
    racers.push({ racer, base: readUsage(racer.pid)?.rss ?? null, turns: [] });
    forgetPeak(racer.pid);
  }
  for (const { racer } of racers) await racer.run(warmUp);
  for (let round = 0; round < rounds; round++) {
    for (const at of racers.keys()) {
      const next = racers[(at + round) % racers.length];
      next?.turns.push(await takeTurn(next.racer, duration));
    }
  }
  const results = racers.map(({ racer, base, turns }) => {
    const { peak = null, rss = null } = readUsage(racer.pid) ?? {};
    return { turns, base, peak, rss };
  });
  for (const { racer } of racers) await racer.end();
  return results;
}

/** Lets a program be called for `ms` milliseconds. */
export async function takeTurn(racer: Racer, ms: number): Promise<Turn> {
  const began = performance.now();
  const before = readUsage(racer.pid);
  const latencies = await racer.run(ms);
  const seconds = (performance.now() - began) / 1000;
  const after = readUsage(racer.pid);
  return {
    p50: quantile(latencies, 0.5),
    p99: quantile(latencies, 0.99),
    rate: latencies.length / seconds,
    cpu: after && before ? (after.cpu - before.cpu) / latencies.length : null,
  };
}

/** Calls a program over its stdin and stdout. */
export class Caller implements Racer {
  readonly #peer: Peer;
  readonly #flight: Flight;

  /** Starts the program, and waits for its tools. */
  constructor({ peer: command, tools, era, stdio }: Entrant, { flight, lines, pad }: Load) {
    this.#peer = new Peer(command, era, stdio);
    this.#peer.awaitTools((names) => tools.every((tool) => names.includes(tool)));
    this.#flight = new Flight(tools, lines, flight, this.#peer.envelope, pad);
  }

  get pid(): number {
    return this.#peer.pid;
  }

  run(ms: number): Float64Array {
    this.#flight.record();
    const until = performance.now() + ms;
    for (let now = 0; now < until; now = this.#flight.receive(this.#peer))
      this.#flight.send(this.#peer);
    this.#flight.finish(this.#peer);
    return this.#flight.latencies();
  }

  /** Checks the sampled answers, and ends the program. */
  async end(): Promise<void> {
    this.#flight.verify();
    await this.#peer.end();
  }
}
