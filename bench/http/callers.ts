import type { Buffer } from "node:buffer";
import { answerSize, answerText } from "../answer.ts";
import type { Entrant, Load, Racer } from "../contest.ts";
import { HttpClient } from "./client.ts";
import { Host } from "./host.ts";

/** The number before the first call's key. Keys have eight digits. */
const FIRST_KEY = 10_000_000;
/** One in this many answers is checked completely. */
const SAMPLE_EVERY = 100;

/** One of the callers, with one call at a time. */
interface Client {
  /** Sends a call. @returns the received data, which contains the answer */
  call(text: string, id: number): Promise<Buffer>;
  close(): void;
}

/** Calls a program over HTTP with several callers. */
export class HttpCallers implements Racer {
  readonly #host: Host;
  readonly #clients: readonly Client[];
  readonly #tools: Entrant["tools"];
  readonly #load: Load;
  #key = FIRST_KEY;
  #latencies: number[] = [];

  constructor(host: Host, clients: readonly Client[], tools: Entrant["tools"], load: Load) {
    this.#host = host;
    this.#clients = clients;
    this.#tools = tools;
    this.#load = load;
  }

  /** Starts the program, and a session for each call in flight. */
  static async open({ peer, tools }: Entrant, load: Load): Promise<HttpCallers> {
    const host = await Host.start(peer);
    const clients = Array.from({ length: load.flight }, () => HttpClient.connect(host.url));
    return new HttpCallers(host, await Promise.all(clients), tools, load);
  }

  get pid(): number {
    return this.#host.pid;
  }

  async run(ms: number): Promise<Float64Array> {
    this.#latencies = [];
    const until = performance.now() + ms;
    await Promise.all(this.#clients.map((client) => this.#call(client, until)));
    return Float64Array.from(this.#latencies).sort();
  }

  async end(): Promise<void> {
    for (const client of this.#clients) client.close();
    await this.#host.end();
  }

  async #call(client: Client, end: number): Promise<void> {
    const { lines, pad } = this.#load;
    const more = pad > 0 ? `,"pad":"${"x".repeat(pad)}"` : "";
    let now: number;
    do {
      const key = ++this.#key;
      const tool = this.#tools[key % this.#tools.length] ?? "";
      const text = `{"jsonrpc":"2.0","id":${key},"method":"tools/call","params":{"name":"${tool}","arguments":{"key":"${key}","lines":${lines}${more}}}}`;
      const asked = performance.now();
      const body = await client.call(text, key);
      now = performance.now();
      this.#latencies.push((now - asked) * 1000);
      checkAnswer(body, key, lines);
    } while (now < end);
  }
}

/** @throws {Error} if the data does not contain the answer to a call */
function checkAnswer(body: Buffer, key: number, lines: number): void {
  const digits = String(key);
  const first = body.indexOf(digits);
  let isRight = first >= 0 && body.lastIndexOf(digits) > first;
  isRight &&= body.length >= answerSize(lines) - answerSize(0);
  if (isRight && key % SAMPLE_EVERY === 1) {
    const data = /^data: ?(\{.*"result".*)$/m.exec(body.toString())?.[1] ?? body.toString();
    const { id, result } = JSON.parse(data) as {
      readonly id?: unknown;
      readonly result?: { readonly content?: readonly { readonly text?: string }[] };
    };
    isRight = id === key && result?.content?.[0]?.text === answerText(key, lines);
  }
  if (!isRight) throw new Error(`not the answer to ${key}: ${body.toString("utf8", 0, 300)}`);
}
