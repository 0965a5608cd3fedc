import { Buffer } from "node:buffer";
import type * as nats from "@nats-io/transport-node";
import type {
  ConnectionOptions,
  NatsConnection,
  Server,
  ServerInfo,
  Transport,
} from "@nats-io/transport-node";
import type { BunSocket, connectOnBun } from "../base/runtime.ts";

type Connect = NonNullable<typeof connectOnBun>;
type Client = typeof nats;
/** A transport once it is connected. */
type OpenTransport = Omit<Transport, "connect">;

/**
 * Connects to NATS through the runtime's own sockets, unless the connection is encrypted. The client's own transport uses
 * the streams of `node:net`, which take several µs more for each message (`docs/decisions/fleet.md`).
 * @throws {Error} of the client of NATS, or of the system
 */
export async function connectOverSockets(
  client: Client,
  options: ConnectionOptions,
  connect: Connect,
): Promise<NatsConnection> {
  const { NodeTransport, nodeResolveHost, VERSION } =
    await import("@nats-io/transport-node/lib/node_transport.js");
  const { NatsConnectionImpl, setTransportFactory } = client;
  setTransportFactory({
    factory: () =>
      new ChosenTransport(new SocketTransport(client, connect, VERSION), () => new NodeTransport()),
    // The client tries all addresses of a name.
    dnsResolveFn: nodeResolveHost,
  });
  return NatsConnectionImpl.connect(options);
}

/** A transport that is encrypted or not, which the server says after it was connected. */
class ChosenTransport implements Transport {
  readonly lang: string;
  readonly version: string;
  readonly #makeEncrypted: () => Transport;
  readonly #closed = Promise.withResolvers<void | Error>();
  readonly #plain: SocketTransport;
  #chosen: OpenTransport;
  #isDiscarded = false;
  closeError?: Error;

  constructor(plain: SocketTransport, makeEncrypted: () => Transport) {
    this.#plain = plain;
    this.#chosen = plain;
    this.#makeEncrypted = makeEncrypted;
    this.lang = plain.lang;
    this.version = plain.version;
  }

  async connect(server: Server, options: ConnectionOptions): Promise<void> {
    if (options.tls !== undefined || !(await this.#plain.connect(server, options))) {
      const encrypted = this.#makeEncrypted();
      this.#chosen = encrypted;
      if (this.#isDiscarded) encrypted.discard();
      await encrypted.connect(server, options);
    }
    void this.#chosen.closed().then(() => {
      const { closeError } = this.#chosen;
      if (closeError !== undefined) this.closeError = closeError;
      this.#closed.resolve(closeError);
    });
  }

  get isClosed(): boolean {
    return this.#chosen.isClosed;
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array> {
    return this.#chosen[Symbol.asyncIterator]();
  }

  isEncrypted(): boolean {
    return this.#chosen.isEncrypted();
  }

  send(frame: Uint8Array): void {
    this.#chosen.send(frame);
  }

  close(error?: Error): Promise<void> {
    return this.#chosen.close(error);
  }

  disconnect(): void {
    this.#chosen.disconnect();
  }

  closed(): Promise<void | Error> {
    return this.#closed.promise;
  }

  discard(): void {
    this.#isDiscarded = true;
    this.#chosen.discard();
  }
}

/** The longest first line of a server, in bytes. */
const MAX_INFO = 1024 * 1024;
const NEW_LINE = 10;

/** A connection to a NATS server that is not encrypted. */
class SocketTransport implements OpenTransport {
  readonly lang = "nats.js";
  readonly version: string;
  readonly #client: Client;
  readonly #connect: Connect;
  readonly #closed = Promise.withResolvers<void | Error>();
  readonly #info = Promise.withResolvers<ServerInfo>();
  /** The received chunks that the client has not read yet. */
  readonly #received: Uint8Array[] = [];
  #reader: ((result: IteratorResult<Uint8Array>) => void) | undefined;
  /** The rest of an incomplete write; `#waiting`: the frames to write after it. */
  #unsent: Uint8Array | undefined;
  #waiting: Uint8Array[] = [];
  #socket: BunSocket | undefined;
  #state: "connecting" | "open" | "closed" = "connecting";
  /** True if the client has used the connection, and it was lost. */
  #isLoss = false;
  closeError?: Error;

  constructor(client: Client, connect: Connect, version: string) {
    this.#client = client;
    this.#connect = connect;
    this.version = version;
  }

  /** @returns false if the server wants an encrypted connection, which this is not */
  async connect({ hostname, port }: Server, options: ConnectionOptions): Promise<boolean> {
    // Rejected when the connection is closed, also if nobody waits for it any more.
    this.#info.promise.catch(() => {});
    try {
      await this.#connect({
        hostname,
        port,
        allowHalfOpen: true,
        socket: {
          open: (socket) => this.#onOpen(socket),
          data: (_, chunk) => this.#onData(chunk),
          drain: () => this.#onDrain(),
          end: () => this.#end(undefined),
          close: () => this.#onClose(),
          error: (_, error) => this.#end(error),
        },
      });
    } catch (cause) {
      throw this.#connectError(cause, hostname, port);
    }
    const info = await this.#info.promise;
    this.#client.checkOptions(info, options);
    const { tls_required, tls_available } = info;
    if (tls_required === true || (tls_available === true && options.tls !== null)) {
      this.discard();
      return false;
    }
    if (this.isClosed) throw new this.#client.ConnectionError(CLOSED);
    this.#state = "open";
    return true;
  }

  #connectError(cause: unknown, hostname: string, port: number): Error {
    const { ConnectionError } = this.#client;
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    const text =
      code === "ECONNREFUSED" ? "connection refused" : `connect ${code} ${hostname}:${port}`;
    return new ConnectionError(text, { cause });
  }

  get isClosed(): boolean {
    return this.#state === "closed";
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array> {
    const iterator: AsyncIterableIterator<Uint8Array> = {
      next: () => this.#next(),
      // The client cannot read what it has got.
      return: () => {
        this.#end(new this.#client.ConnectionError("the server sent what cannot be read"));
        return Promise.resolve({ done: true, value: undefined });
      },
      [Symbol.asyncIterator]: () => iterator,
    };
    return iterator;
  }

  #next(): Promise<IteratorResult<Uint8Array>> {
    const value = this.#received.shift();
    if (value !== undefined) return Promise.resolve({ done: false, value });
    if (this.#state === "closed") {
      this.#tellClosed();
      return Promise.resolve({ done: true, value: undefined });
    }
    return new Promise((resolve) => (this.#reader = resolve));
  }

  isEncrypted(): boolean {
    return false;
  }

  send(frame: Uint8Array): void {
    if (this.#socket === undefined || this.#state === "closed") return;
    if (this.#unsent === undefined) this.#write(frame);
    else this.#waiting.push(frame);
  }

  close(error?: Error): Promise<void> {
    this.#end(error);
    return Promise.resolve();
  }

  disconnect(): void {
    this.#end(undefined);
  }

  closed(): Promise<void | Error> {
    return this.#closed.promise;
  }

  discard(): void {
    // The client is not told: it has another connection, or none is wanted.
    this.#state = "closed";
    this.#release();
  }

  #onOpen(socket: BunSocket): void {
    this.#socket = socket;
    if (this.#state === "closed") socket.terminate();
  }

  #onData(chunk: Uint8Array): void {
    if (this.#state === "closed") return;
    const reader = this.#reader;
    if (reader === undefined) this.#received.push(chunk);
    else {
      this.#reader = undefined;
      reader({ done: false, value: chunk });
    }
    if (this.#state === "connecting") this.#readInfo();
  }

  /** Reads the first line of the server, which is read once more by the client. */
  #readInfo(): void {
    const start = Buffer.concat(this.#received);
    const end = start.indexOf(NEW_LINE);
    if (end < 0 && start.length <= MAX_INFO) return;
    try {
      const [, json] = this.#client.INFO.exec(start.toString("utf8", 0, end + 1)) ?? [];
      if (json === undefined) throw new Error("unexpected response from server");
      this.#info.resolve(JSON.parse(json) as ServerInfo);
    } catch (error) {
      this.#info.reject(error);
      this.discard();
    }
  }

  #write(bytes: Uint8Array): void {
    const written = this.#socket?.write(bytes, 0, bytes.length) ?? -1;
    if (written < 0) this.#end(undefined);
    else this.#unsent = written === bytes.length ? undefined : bytes.subarray(written);
  }

  #onDrain(): void {
    if (this.#unsent === undefined) return;
    this.#write(this.#unsent);
    if (this.#unsent !== undefined || this.#waiting.length === 0) return;
    const waiting = Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#write(waiting);
  }

  #onClose(): void {
    this.#end(undefined);
    this.#socket = undefined;
  }

  /** The connection is over. */
  #end(error: Error | undefined): void {
    if (this.#state === "closed") return;
    this.#isLoss = this.#state === "open";
    this.#state = "closed";
    if (error !== undefined) this.closeError = error;
    this.#info.reject(error ?? new this.#client.ConnectionError(CLOSED));
    // The last that was received may say why: the client reads it first.
    if (this.#reader !== undefined || error !== undefined) this.#tellClosed();
    this.#release();
  }

  #tellClosed(): void {
    if (this.#isLoss) this.#closed.resolve(this.closeError);
  }

  #release(): void {
    this.#unsent = undefined;
    this.#waiting = [];
    this.#reader?.({ done: true, value: undefined });
    this.#reader = undefined;
    this.#socket?.end();
  }
}

const CLOSED = "the server has closed the connection";
