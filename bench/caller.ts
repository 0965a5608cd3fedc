import type { ContestLoad, Entrant, EntrantResult, Racer, Turn } from "./contest.ts";
import { Flight } from "./flight.ts";
import { Peer } from "./peer.ts";
import { quantile } from "./stats.ts";
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
    const began = performance.now();
    const before = { answered: flight.answered, usage: readUsage(peer.pid) };
    for (let now = began; now < began + ms;) {
      if (flight.free > 0) peer.write(flight.take(performance.now()));
      now = this.#receive();
    }
    while (flight.free < this.#width) this.#receive();
    const seconds = (performance.now() - began) / 1000;
    const after = readUsage(peer.pid);
    const calls = flight.answered - before.answered;
    const latencies = flight.latencies();
    const used = after && before.usage && after.cpu - before.usage.cpu;
    return {
      calls,
      p50: quantile(latencies, 0.5),
      p99: quantile(latencies, 0.99),
      rate: calls / seconds,
      cpu: used === undefined ? null : used / calls,
    };
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
