import type { Era } from "../src/protocol/modern.ts";
import { Caller } from "./caller.ts";
import { HttpCallers } from "./http/callers.ts";
import type { Command } from "./peer.ts";

/**
 * A job in which peers take turns under the same load, while all of them stay alive. Other load on the machine
 * affects all of them alike, so the ratios within a round are more reliable than the absolute figures.
 */
export interface ContestJob {
  readonly kind: "contest";
  readonly entrants: readonly Entrant[];
  readonly load: ContestLoad;
  readonly rounds: number;
  /** `warmUp`: warm-up time of each entrant. `duration`: length of each of its turns. Both are in ms. */
  readonly warmUp: number;
  readonly duration: number;
}

export interface Entrant {
  readonly peer: Command;
  /** The tools that are called in turn. Their names have the same length. */
  readonly tools: readonly [string, ...string[]];
  /** The transport over which the peer is called; its stdin and stdout if absent. */
  readonly transport?: "http";
  /** The protocol era of the client; legacy if absent. */
  readonly era?: Era;
}

export interface ContestLoad {
  /** Calls in flight; over HTTP each has a session and a connection. */
  readonly flight: number;
  /** Lines of text in an answer. */
  readonly lines: number;
  /** Padding in a call's arguments, in bytes. */
  readonly pad: number;
}

/** The figures of one turn. */
export interface Turn {
  readonly calls: number;
  /** Latencies in µs. */
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  /** CPU time of the peer's own process per call, in µs; null if unknown. */
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

/** The results of all entrants, in the order of the entrants. */
export type ContestResult = readonly EntrantResult[];

/** A running peer, together with the client that calls it. */
export interface Racer {
  /** Makes calls for `ms` milliseconds, and waits until all of them are answered. @throws if an answer is wrong */
  run(ms: number): Promise<Turn> | Turn;
  weigh(): Omit<EntrantResult, "turns">;
  /** Ends the peer. */
  end(): Promise<void>;
}

/** Runs a contest. Each round begins with a different entrant. */
export async function contest(job: ContestJob): Promise<ContestResult> {
  const { entrants, load, rounds, warmUp, duration } = job;
  const racers: Racer[] = [];
  for (const entrant of entrants) {
    const isHttp = entrant.transport === "http";
    racers.push(isHttp ? await HttpCallers.open(entrant, load) : new Caller(entrant, load));
  }
  for (const racer of racers) await racer.run(warmUp);
  const turns = racers.map((): Turn[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const at of racers.keys()) {
      const turn = (at + round) % racers.length;
      const done = await racers[turn]?.run(duration);
      if (done !== undefined) turns[turn]?.push(done);
    }
  }
  const results = racers.map((racer, at) => ({ turns: turns[at] ?? [], ...racer.weigh() }));
  for (const racer of racers) await racer.end();
  return results;
}
