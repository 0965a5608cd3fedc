import { Buffer } from "node:buffer";
import { type Reply, HttpConnection } from "./connection.ts";

/** The members of a JSON-RPC message that are used here. */
export interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: {
    readonly message?: string;
    readonly data?: { readonly code?: string; readonly server?: string };
  };
}

const VERSION = "2025-06-18";

/** A client with its own session, and with as many connections as it needs at the same time. */
export class HttpClient {
  readonly #url: URL;
  readonly #socketPath: string | undefined;
  readonly #free: HttpConnection[] = [];
  readonly #all = new Set<HttpConnection>();
  #session = "";
  #id = 0;

  /** A client without a session. @param socketPath the Unix socket of the server, if it has one */
  constructor(url: URL, socketPath?: string) {
    this.#url = url;
    this.#socketPath = socketPath;
  }

  /** Connects a client, and begins a session if the server has sessions. @throws if the server refuses the client */
  static async connect(url: URL, socketPath?: string): Promise<HttpClient> {
    const client = new HttpClient(url, socketPath);
    const clientInfo = { name: "bench", version: "1.0.0" };
    const params = { protocolVersion: VERSION, capabilities: {}, clientInfo };
    const text = JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params });
    const { head, status } = await client.post(text);
    const session = /\r\nmcp-session-id: *([^\r]+)/i.exec(head)?.[1];
    if (status !== 200) throw new Error(`no session, but ${status}`);
    const named = session === undefined ? "" : `Mcp-Session-Id: ${session}\r\n`;
    client.#session = `${named}MCP-Protocol-Version: ${VERSION}\r\n`;
    await client.notify("notifications/initialized");
    return client;
  }

  /** A new request id. */
  nextId(): number {
    return ++this.#id;
  }

  /** Sends a request. @returns all messages of the response */
  async ask(method: string, params: object, id: number = this.nextId()): Promise<Message[]> {
    return readMessages(await this.post(JSON.stringify({ jsonrpc: "2.0", id, method, params })));
  }

  async notify(method: string, params?: object): Promise<void> {
    await this.post(JSON.stringify({ jsonrpc: "2.0", method, params }));
  }

  /** Sends a call. @returns the body of the response, which contains the answer */
  async call(text: string): Promise<Buffer> {
    const { status, body } = await this.post(text);
    if (status !== 200) throw new Error(`status ${status}: ${body.toString("utf8", 0, 300)}`);
    return body;
  }

  post(text: string): Promise<Reply> {
    const { host, pathname, search } = this.#url;
    const types = "Accept: application/json, text/event-stream\r\nContent-Type: application/json";
    const head = `POST ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\n${types}\r\n${this.#session}`;
    return this.#use(`${head}Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  }

  /** Reads the session's stream until it ends. */
  listen(hear: (message: Message) => void): Promise<void> {
    return this.readEvents((data) => hear(JSON.parse(data) as Message));
  }

  /** Reads the event stream at the URL until it ends. @param hear gets the data and the name of each event */
  async readEvents(hear: (data: string, name: string | undefined) => void): Promise<void> {
    const { host, pathname } = this.#url;
    const head = `GET ${pathname} HTTP/1.1\r\nHost: ${host}\r\nAccept: text/event-stream`;
    let text = "";
    await this.#use(`${head}\r\n${this.#session}\r\n`, (piece) => {
      const searchFrom = Math.max(0, text.length - 1);
      text += piece.toString("latin1");
      for (let end = text.indexOf("\n\n", searchFrom); end >= 0; end = text.indexOf("\n\n")) {
        const event = text.slice(0, end);
        text = text.slice(end + 2);
        const [, data] = /^data: ?(.+)$/m.exec(event) ?? [];
        if (data !== undefined) hear(data, /^event: ?(.*)$/m.exec(event)?.[1]);
      }
    });
  }

  /** Closes all connections, without ending the session. */
  close(): void {
    for (const connection of this.#all) connection.close();
  }

  async #use(request: string, sink?: (piece: Buffer) => void): Promise<Reply> {
    let connection = this.#free.pop();
    // The server closes connections that are unused for long.
    while (connection?.isClosed === true) connection = this.#free.pop();
    connection ??= await this.#open();
    const reply = await connection.exchange(request, sink);
    this.#free.push(connection);
    return reply;
  }

  async #open(): Promise<HttpConnection> {
    const connection = await HttpConnection.open(this.#url, this.#socketPath);
    this.#all.add(connection);
    return connection;
  }
}

/** Reads the messages of a response: a single JSON message, or server-sent events. */
function readMessages({ head, body }: Reply): Message[] {
  if (/\r\ncontent-type: *text\/event-stream/i.test(head)) return readEvents(body.toString());
  return body.length === 0 ? [] : [JSON.parse(body.toString()) as Message];
}

function readEvents(text: string): Message[] {
  const data = [...text.matchAll(/^data: ?(.+)$/gm)];
  return data.map(([, json = ""]) => JSON.parse(json) as Message);
}
