import type { Buffer } from "node:buffer";
import { answerSize } from "../answer.ts";
import type { Entrant, Load } from "../contest.ts";
import { Host } from "./host.ts";
import { HttpClient } from "./client.ts";
import { HttpConnection } from "./connection.ts";

/** The number before the first call's key. Keys have eight digits. */
const FIRST_KEY = 10_000_000;

/** One of the callers, with its own session, its own connection, and one call at a time. */
interface Caller {
  readonly client: HttpClient;
  readonly connection: HttpConnection;
}

/** Calls a peer over HTTP with several callers. */
export class HttpCallers {
  readonly #host: Host;
  readonly #callers: readonly Caller[];
  readonly #tools: Entrant["tools"];
  readonly #load: Load;
  #key = FIRST_KEY;
  #latencies: number[] = [];

  private constructor(host: Host, callers: readonly Caller[], tools: Entrant["tools"], load: Load) {
    this.#host = host;
    this.#callers = callers;
    this.#tools = tools;
    this.#load = load;
  }

  /** Starts the peer, and a session for each caller. */
  static async open({ peer, tools }: Entrant, load: Load): Promise<HttpCallers> {
    const host = await Host.start(peer);
    const open = async (): Promise<Caller> => ({
      client: await HttpClient.connect(host.url),
      connection: await HttpConnection.open(host.url),
    });
    const callers = await Promise.all(Array.from({ length: load.flight }, open));
    return new HttpCallers(host, callers, tools, load);
  }

  get pid(): number {
    return this.#host.pid;
  }

  async run(ms: number): Promise<Float64Array> {
    this.#latencies = [];
    const until = performance.now() + ms;
    await Promise.all(this.#callers.map((caller) => this.#call(caller, until)));
    return Float64Array.from(this.#latencies).sort();
  }

  async end(): Promise<void> {
    for (const { client, connection } of this.#callers) {
      client.close();
      connection.close();
    }
    await this.#host.end();
  }

  async #call({ client, connection }: Caller, end: number): Promise<void> {
    const { lines, pad } = this.#load;
    const more = pad > 0 ? `,"pad":"${"x".repeat(pad)}"` : "";
    const head = client.postHead;
    for (let now = performance.now(); now < end;) {
      const key = this.#key++;
      const tool = this.#tools[key % this.#tools.length] ?? "";
      const text = `{"jsonrpc":"2.0","id":${key},"method":"tools/call","params":{"name":"${tool}","arguments":{"key":"${key}","lines":${lines}${more}}}}`;
      const asked = performance.now();
      const { body, status } = await connection.exchange(`${head}${text.length}\r\n\r\n${text}`);
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
