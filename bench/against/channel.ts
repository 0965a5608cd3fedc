import { Buffer } from "node:buffer";
import type { Message } from "../http/visitor.ts";
import { Wire } from "../http/wire.ts";
import { type Caller, excerpt, namesIn } from "./caller.ts";

const VERSION = "2024-11-05";
const EVENT_END = "\n\n";

/** A client of HTTP with SSE as it was before: requests are posted, and all answers come on one stream of events. */
export class Channel implements Caller {
  readonly #url: URL;
  readonly #stream: Wire;
  readonly #free: Wire[] = [];
  readonly #waiting = new Map<number, (answer: Buffer) => void>();
  readonly #lost: Promise<never>;
  readonly #endpoint = Promise.withResolvers<URL>();
  #text = "";
  #searched = 0;

  private constructor(url: URL, stream: Wire) {
    this.#url = url;
    this.#stream = stream;
    const head = `GET ${url.pathname} HTTP/1.1\r\nHost: ${url.host}\r\nAccept: text/event-stream`;
    this.#lost = stream
      .exchange(`${head}\r\n\r\n`, (piece) => this.#read(piece))
      .then(({ status }) => Promise.reject(new Error(`the stream ended, with ${status}`)));
    // Whoever waits for something hears of it.
    this.#lost.catch(() => {});
  }

  /** @throws if there is no such stream, or no handshake. */
  static async open(url: URL): Promise<Channel> {
    const channel = new Channel(url, await Wire.open(url));
    const clientInfo = { name: "bench", version: "1.0.0" };
    const params = { protocolVersion: VERSION, capabilities: {}, clientInfo };
    await channel.#ask(0, "initialize", params);
    await channel.#post(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }));
    return channel;
  }

  async call(text: string, id: number): Promise<Buffer> {
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    this.#waiting.set(id, resolve);
    await this.#post(text);
    return Promise.race([promise, this.#lost]);
  }

  async listTools(): Promise<string[]> {
    return namesIn((await this.#ask(1, "tools/list", {})).result);
  }

  close(): void {
    this.#stream.close();
    for (const wire of this.#free) wire.close();
  }

  async #ask(id: number, method: string, params: object): Promise<Message> {
    const answer = await this.call(JSON.stringify({ jsonrpc: "2.0", id, method, params }), id);
    return JSON.parse(answer.toString()) as Message;
  }

  async #post(text: string): Promise<void> {
    const { pathname, search } = await Promise.race([this.#endpoint.promise, this.#lost]);
    const length = `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}`;
    const head = `POST ${pathname}${search} HTTP/1.1\r\nHost: ${this.#url.host}\r\n${length}`;
    let wire = this.#free.pop();
    // What is not used for long is closed at the other end.
    while (wire?.isClosed === true) wire = this.#free.pop();
    wire ??= await Wire.open(this.#url);
    const { status, body } = await wire.exchange(`${head}\r\n\r\n${text}`);
    this.#free.push(wire);
    if (status >= 300) throw new Error(`refused with ${status}: ${excerpt(body)}`);
  }

  #read(piece: Buffer): void {
    this.#text += piece.toString("latin1");
    for (;;) {
      const end = this.#text.indexOf(EVENT_END, this.#searched);
      // The first half of the mark may be here already.
      this.#searched = end < 0 ? Math.max(0, this.#text.length - 1) : 0;
      if (end < 0) return;
      this.#hear(this.#text.slice(0, end));
      this.#text = this.#text.slice(end + EVENT_END.length);
    }
  }

  #hear(event: string): void {
    const data = /^data: ?(.*)$/m.exec(event)?.[1] ?? "";
    if (/^event: ?endpoint$/m.test(event)) return this.#endpoint.resolve(new URL(data, this.#url));
    // Its id is the first or the last of an answer's members.
    const found = /^\{"jsonrpc":"2\.0","id":(\d+)|"id":(\d+)\}$/.exec(data);
    const id = Number(found?.[1] ?? found?.[2]);
    this.#waiting.get(id)?.(Buffer.from(data, "latin1"));
    this.#waiting.delete(id);
  }
}
