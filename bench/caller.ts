import { receive, send, catchUp } from "./exchange.ts";
import { beginTurn } from "./turn.ts";
import type { ContestLoad, Entrant, EntrantResult, Racer, Turn } from "./contest.ts";
import { Flight } from "./flight.ts";
import { Peer } from "./peer.ts";
import { forgetPeak, readUsage } from "./usage.ts";

/** Calls a peer over the peer's stdin and stdout. */
export class Caller implements Racer {
  readonly #peer: Peer;
  readonly #flight: Flight;
  readonly #width: number;
  readonly #base: number | null;

  /** Starts the peer, and waits for its tools. */
  constructor({ peer: command, tools, era }: Entrant, { flight, lines, pad }: ContestLoad) {
    const peer = new Peer(command, era);
    peer.awaitTools((names) => tools.every((tool) => names.includes(tool)));
    this.#flight = new Flight(tools, lines, flight, peer.envelope, pad);
    catchUp(peer, this.#flight);
    this.#peer = peer;
    this.#width = flight;
    this.#base = readUsage(peer.pid)?.rss ?? null;
    forgetPeak(peer.pid);
  }

  run(ms: number): Turn {
    const [flight, peer] = [this.#flight, this.#peer];
    flight.record();
    const { answered } = flight;
    const end = beginTurn(peer.pid);
    const until = performance.now() + ms;
    for (let now = 0; now < until;) {
      send(peer, flight);
      now = receive(peer, flight);
    }
    while (flight.free < this.#width) receive(peer, flight);
    return end(flight.answered - answered, flight.latencies());
  }

  weigh(): Omit<EntrantResult, "turns"> {
    const usage = readUsage(this.#peer.pid);
    return { base: this.#base, peak: usage?.peak ?? null, rss: usage?.rss ?? null };
  }

  /** Checks the sampled answers, and ends the peer. */
  async end(): Promise<void> {
    this.#flight.verify();
    await this.#peer.end();
  }
}
