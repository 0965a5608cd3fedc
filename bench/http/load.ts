import { beginTurn } from "../turn.ts";
import type { Buffer } from "node:buffer";
import { answerSize } from "../answer.ts";
import type { ContestLoad, Entrant, EntrantResult, Racer, Turn } from "../contest.ts";
import { forgetPeak, readUsage } from "../usage.ts";
import { Host } from "./host.ts";
import { Visitor } from "./visitor.ts";
import { Wire } from "./wire.ts";

/** The number before the first call's key. Keys have eight digits. */
const FIRST_KEY = 10_000_000;

/** One of the clients, with its own session, its own connection, and one call at a time. */
interface Client {
  readonly visitor: Visitor;
  readonly wire: Wire;
}

/** Calls a peer over HTTP with several clients. */
export class Crowd implements Racer {
  readonly #host: Host;
  readonly #clients: readonly Client[];
  readonly #tools: Entrant["tools"];
  readonly #load: ContestLoad;
  readonly #base: number | null;
  #key = FIRST_KEY;
  #latencies: number[] = [];

  private constructor(
    host: Host,
    clients: readonly Client[],
    tools: Entrant["tools"],
    load: ContestLoad,
  ) {
    this.#host = host;
    this.#clients = clients;
    this.#tools = tools;
    this.#load = load;
    this.#base = readUsage(host.pid)?.rss ?? null;
    forgetPeak(host.pid);
  }

  /** Starts the peer, and a session for each client. */
  static async open({ peer, tools }: Entrant, load: ContestLoad): Promise<Crowd> {
    const host = await Host.start(peer);
    const open = async (): Promise<Client> => {
      return { visitor: await Visitor.arrive(host.url), wire: await Wire.open(host.url) };
    };
    const clients = await Promise.all(Array.from({ length: load.flight }, open));
    return new Crowd(host, clients, tools, load);
  }

  async run(ms: number): Promise<Turn> {
    this.#latencies = [];
    const end = beginTurn(this.#host.pid);
    const until = performance.now() + ms;
    await Promise.all(this.#clients.map((client) => this.#call(client, until)));
    return end(this.#latencies.length, Float64Array.from(this.#latencies).sort());
  }

  weigh(): Omit<EntrantResult, "turns"> {
    const usage = readUsage(this.#host.pid);
    return { base: this.#base, peak: usage?.peak ?? null, rss: usage?.rss ?? null };
  }

  async end(): Promise<void> {
    for (const { visitor, wire } of this.#clients) {
      visitor.close();
      wire.close();
    }
    await this.#host.end();
  }

  async #call({ visitor, wire }: Client, end: number): Promise<void> {
    const { lines, pad } = this.#load;
    const more = pad > 0 ? `,"pad":"${"x".repeat(pad)}"` : "";
    const head = visitor.postHead;
    for (let now = performance.now(); now < end;) {
      const key = this.#key++;
      const tool = this.#tools[key % this.#tools.length] ?? "";
      const text = `{"jsonrpc":"2.0","id":${key},"method":"tools/call","params":{"name":"${tool}","arguments":{"key":"${key}","lines":${lines}${more}}}}`;
      const asked = performance.now();
      const { body, status } = await wire.exchange(`${head}${text.length}\r\n\r\n${text}`);
      if (!isAnswerTo(key, body) || body.length < answerSize(lines) - answerSize(0)) {
        throw new Error(`not the answer to ${key}: ${status} ${body.toString().slice(0, 300)}`);
      }
      now = performance.now();
      this.#latencies.push((now - asked) * 1000);
    }
  }
}

function isAnswerTo(key: number, body: Buffer): boolean {
  return body.includes(`"id":${key}`) && body.includes(`"text":"${key} `);
}
