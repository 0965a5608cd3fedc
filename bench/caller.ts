import { beginTurn } from "./turn.ts";
import type { ContestLoad, Entrant, EntrantResult, Racer, Turn } from "./contest.ts";
import { Flight } from "./flight.ts";
import { Peer } from "./peer.ts";
import { forgetPeak, readUsage } from "./usage.ts";

/** Who calls a peer over its stdin and stdout. */
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
    this.#accept(peer.rest());
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
      if (flight.free > 0) peer.write(flight.take(performance.now()));
      now = this.#receive();
    }
    while (flight.free < this.#width) this.#receive();
    return end(flight.answered - answered, flight.latencies());
  }

  weigh(): Omit<EntrantResult, "turns"> {
    const usage = readUsage(this.#peer.pid);
    return { base: this.#base, peak: usage?.peak ?? null, rss: usage?.rss ?? null };
  }

  /** Checks the samples and ends the peer. */
  async end(): Promise<void> {
    this.#flight.verify();
    await this.#peer.end();
  }

  #accept(rest: Buffer): void {
    const { bytes, offset } = this.#flight.room();
    rest.copy(bytes, offset);
    this.#flight.accept(rest.length, performance.now());
  }

  #receive(): number {
    const { bytes, offset, length } = this.#flight.room();
    const read = this.#peer.read(bytes, offset, length);
    const now = performance.now();
    this.#flight.accept(read, now);
    return now;
  }
}
