import type { Era } from "../src/protocol/modern.ts";
import { Caller } from "./caller.ts";
import { Crowd } from "./http/load.ts";
import type { Command } from "./peer.ts";

/**
 * Peers that take turns under the same load, all of them alive all the time: what happens to the machine
 * meanwhile happens to all of them, so that ratios within a round say more than what each takes.
 */
export interface ContestJob {
  readonly kind: "contest";
  readonly entrants: readonly Entrant[];
  readonly load: ContestLoad;
  readonly rounds: number;
  /** ms that each warms up, and that each of its turns takes. */
  readonly warmUp: number;
  readonly duration: number;
}

export interface Entrant {
  readonly peer: Command;
  /** Called in turn; their names are of one length. */
  readonly tools: readonly [string, ...string[]];
  /** Over which it is asked: its stdin and stdout if it is left out. */
  readonly face?: "http";
  /** Of the client; legacy if it is left out. */
  readonly era?: Era;
}

export interface ContestLoad {
  /** Calls in flight; over HTTP each has a session and a connection. */
  readonly flight: number;
  /** Lines of text in an answer. */
  readonly lines: number;
  /** Bytes in a call's arguments that nobody needs. */
  readonly pad: number;
}

/** What came of one turn. */
export interface Turn {
  readonly calls: number;
  /** µs. */
  readonly p50: number;
  readonly p99: number;
  /** Calls per second. */
  readonly rate: number;
  /** What a call costs the peer's own process, in µs; null where that cannot be known. */
  readonly cpu: number | null;
}

/** Turn by turn, and memory in bytes; null where that cannot be known. */
export interface EntrantResult {
  readonly turns: readonly Turn[];
  /** Before the first call, the most that it was since, and after the last. */
  readonly base: number | null;
  readonly peak: number | null;
  readonly rss: number | null;
}

/** Each entrant's results, in their order. */
export type ContestResult = readonly EntrantResult[];

/** A peer and whoever calls it. */
export interface Racer {
  /** Calls for so many ms, and until all of that is answered. @throws if an answer is wrong. */
  run(ms: number): Promise<Turn> | Turn;
  weigh(): Omit<EntrantResult, "turns">;
  /** Ends the peer. */
  end(): Promise<void>;
}

/** Each round begins with another entrant. */
export async function contest(job: ContestJob): Promise<ContestResult> {
  const { entrants, load, rounds, warmUp, duration } = job;
  const racers: Racer[] = [];
  for (const entrant of entrants) {
    const isHttp = entrant.face === "http";
    racers.push(isHttp ? await Crowd.open(entrant, load) : new Caller(entrant, load));
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
