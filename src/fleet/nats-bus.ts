import { Buffer } from "node:buffer";
import type { ConnectionOptions, Msg, MsgHdrs, NatsConnection } from "@nats-io/transport-node";
import { settlesWithin } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { connectOnBun } from "../base/runtime.ts";
import type { Bus, BusEvent, BusHeaders, BusMessage, PublishOptions } from "./bus.ts";
import { connectOverSockets } from "./socket-transport.ts";

/** How a hub connects to NATS. All texts are filled in. */
export interface BusTarget {
  /** The NATS servers: `nats://host:port` or `tls://host:port`. */
  readonly urls: readonly string[];
  /** The name of the connection, which NATS shows to its operator. */
  readonly name: string;
  /** The beginning of the subjects of answers: `_INBOX_` and the user's tokens. */
  readonly inboxPrefix: string;
  readonly login: BusLogin;
  /** Certificates in PEM; undefined: those of the system, and no client certificate. */
  readonly tls: { readonly ca?: string; readonly cert?: string; readonly key?: string } | undefined;
}

/** The credentials of a connection. `creds`: the content of a credentials file; `nkey`: a seed. */
export type BusLogin =
  | { readonly kind: "none" }
  | { readonly kind: "creds"; readonly creds: string }
  | { readonly kind: "nkey"; readonly seed: string }
  | { readonly kind: "password"; readonly user: string; readonly password: string }
  | { readonly kind: "token"; readonly token: string };

/** Time limit of a connect, in ms. */
const CONNECT_TIMEOUT = 5_000;
/** Time between two attempts to reconnect, in ms, and the random time added to it. */
const RECONNECT = { wait: 250, jitter: 250 };
/** How often the NATS server is pinged on a silent connection, in ms, and the pings without an answer that end it. */
const PING = { interval: 10_000, out: 2 };
/** Maximum size of what is kept while the connection is interrupted, in bytes. What exceeds it is lost. */
const MAX_KEPT = 16 * 1024 * 1024;
/** Time limit for sending what is waiting when the connection is closed, in ms. */
const CLOSE_LIMIT = 2_000;

/**
 * Connects to NATS. After that, the connection is made again whenever it is lost.
 * @throws {HubError} unreachable, unauthorized or tlsFailed
 */
export async function connectBus(target: BusTarget, signal: AbortSignal): Promise<Bus> {
  const nats = await import("@nats-io/transport-node");
  const { login, tls } = target;
  const options: ConnectionOptions = {
    servers: [...target.urls],
    name: target.name,
    inboxPrefix: target.inboxPrefix,
    timeout: CONNECT_TIMEOUT,
    reconnect: true,
    maxReconnectAttempts: -1,
    reconnectTimeWait: RECONNECT.wait,
    reconnectJitter: RECONNECT.jitter,
    reconnectJitterTLS: RECONNECT.jitter,
    // New credentials may be put in place of those that have expired.
    ignoreAuthErrorAbort: true,
    pingInterval: PING.interval,
    maxPingOut: PING.out,
    noAsyncTraces: true,
    ...(login.kind === "creds" && {
      authenticator: nats.credsAuthenticator(new TextEncoder().encode(login.creds)),
    }),
    ...(login.kind === "nkey" && {
      authenticator: nats.nkeyAuthenticator(new TextEncoder().encode(login.seed)),
    }),
    ...(login.kind === "password" && { user: login.user, pass: login.password }),
    ...(login.kind === "token" && { token: login.token }),
    ...(tls !== undefined && { tls }),
  };
  let connection: NatsConnection;
  try {
    connection = await (connectOnBun === undefined
      ? nats.connect(options)
      : connectOverSockets(nats, options, connectOnBun));
  } catch (error) {
    throw connectError(error, target.urls);
  }
  if (signal.aborted) {
    await connection.close();
    throw new HubError("cancelled", "The connection to NATS was not opened.");
  }
  return new NatsBus(connection, nats.headers, target.inboxPrefix, nats.createInbox);
}

function connectError(error: unknown, urls: readonly string[]): HubError {
  const where = urls.map(withoutLogin).join(", ");
  const reason = error instanceof Error ? error.message : String(error);
  const name = error instanceof Error ? error.name : "";
  if (name === "AuthorizationError" || name === "UserAuthenticationExpiredError") {
    const text = `NATS at ${where} refuses the credentials of [fleet].`;
    return new HubError("unauthorized", text, { cause: error });
  }
  if (isTlsFault(error)) {
    const text = `The TLS connection to NATS at ${where} failed: ${reason}.`;
    return new HubError("tlsFailed", text, { cause: error });
  }
  return new HubError("unreachable", `NATS at ${where} cannot be reached: ${reason}.`, {
    cause: error,
  });
}

/** Whether an error, or one that caused it, is about TLS: its code says so in all runtimes. */
function isTlsFault(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  return /CERT|SELF_SIGNED|SSL|TLS|UNABLE_TO/.test(code) || isTlsFault(error.cause);
}

/** A URL for people, without the user and password that it may have. */
export function withoutLogin(url: string): string {
  return url.replace(/\/\/[^@/]*@/, "//");
}

class NatsBus implements Bus {
  readonly inbox: string;
  readonly #connection: NatsConnection;
  readonly #headers: () => MsgHdrs;
  readonly #listeners = new Set<(event: BusEvent) => void>();
  /** The headers that were sent before, as the client of NATS has them. */
  readonly #encoded = new WeakMap<BusHeaders, MsgHdrs>();
  readonly #received = new ReceivedHeaders();
  /** What is sent when the connection is there again, and the size of that in bytes. */
  #kept: (() => void)[] = [];
  #keptSize = 0;
  #isConnected = true;
  #closing: Promise<void> | undefined;

  constructor(
    connection: NatsConnection,
    headers: () => MsgHdrs,
    inboxPrefix: string,
    createInbox: (prefix?: string) => string,
  ) {
    this.#connection = connection;
    this.#headers = headers;
    this.inbox = createInbox(inboxPrefix);
    void this.#follow();
  }

  get maxPayload(): number {
    return this.#connection.info?.max_payload ?? DEFAULT_MAX_PAYLOAD;
  }

  get isAuthenticated(): boolean {
    return this.#connection.info?.auth_required === true;
  }

  get isConnected(): boolean {
    return this.#isConnected;
  }

  get server(): string {
    return this.#connection.getServer();
  }

  publish(subject: string, data: Uint8Array, options: PublishOptions = {}): void {
    if (this.#closing !== undefined || this.#connection.isClosed()) return;
    if (this.#isConnected) this.#send(subject, data, options);
    else if (this.#keptSize + data.length <= MAX_KEPT) {
      // The client of NATS drops what was not sent when it connects again.
      this.#kept.push(() => this.#send(subject, data, options));
      this.#keptSize += data.length + subject.length;
    }
  }

  #send(subject: string, data: Uint8Array, { reply, headers }: PublishOptions): void {
    if (headers === undefined) {
      this.#connection.publish(subject, data, reply === undefined ? {} : { reply });
      return;
    }
    let own = this.#encoded.get(headers);
    if (own === undefined) {
      own = this.#headers();
      for (const [name, value] of headers) own.append(name, value);
      fixEncoding(own);
      this.#encoded.set(headers, own);
    }
    this.#connection.publish(
      subject,
      data,
      reply === undefined ? { headers: own } : { reply, headers: own },
    );
  }

  subscribe(subject: string, receive: (message: BusMessage) => void, queue?: string): () => void {
    if (this.#closing !== undefined || this.#connection.isClosed()) return () => {};
    const subscription = this.#connection.subscribe(subject, {
      ...(queue !== undefined && { queue }),
      callback: (error, message) => {
        if (error !== null) return;
        try {
          receive(new ReceivedMessage(message, this.#received));
        } catch (fault) {
          // The client of NATS stops reading if a callback throws.
          this.#emit({ kind: "fault", error: fault });
        }
      },
    });
    return () => subscription.unsubscribe();
  }

  async roundTrip(): Promise<number> {
    const start = performance.now();
    await this.#connection.flush();
    return performance.now() - start;
  }

  onEvent(listener: (event: BusEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#connection.isClosed()) return;
    if (this.#isConnected)
      await settlesWithin(
        CLOSE_LIMIT,
        this.#connection.drain().catch(() => {}),
      );
    if (!this.#connection.isClosed()) await this.#connection.close();
  }

  async #follow(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === "disconnect") {
        this.#isConnected = false;
        this.#emit({ kind: "disconnected" });
      } else if (status.type === "reconnect") {
        this.#isConnected = true;
        const kept = this.#kept;
        this.#kept = [];
        this.#keptSize = 0;
        for (const send of kept) send();
        this.#emit({ kind: "reconnected" });
      } else if (status.type === "error") this.#onError(status.error);
    }
    this.#isConnected = false;
    const error = await this.#connection.closed();
    this.#emit({ kind: "closed", reason: error instanceof Error ? error.message : "" });
  }

  #onError(error: Error): void {
    if (!("operation" in error) || !("subject" in error)) return;
    const { operation, subject } = error;
    if (typeof subject !== "string") return;
    const kind = operation === "publish" ? "publish" : "subscribe";
    this.#emit({ kind: "denied", operation: kind, subject });
  }

  #emit(event: BusEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

/** The default of the NATS server, in bytes. */
const DEFAULT_MAX_PAYLOAD = 1024 * 1024;
const NO_RESPONDERS = 503;

class ReceivedMessage implements BusMessage {
  readonly #message: Msg;
  readonly #known: ReceivedHeaders;
  #headers: HeaderBlock | undefined;
  readonly data: Uint8Array;

  constructor(message: Msg, known: ReceivedHeaders) {
    this.#message = message;
    this.#known = known;
    // The client of NATS makes a new view each time that it is asked.
    this.data = message.data;
  }

  get subject(): string {
    return this.#message.subject;
  }

  get reply(): string {
    return this.#message.reply ?? "";
  }

  header(name: string): string {
    return this.#block.values.get(name) ?? "";
  }

  get hasNoResponders(): boolean {
    return this.data.length === 0 && this.#block.code === NO_RESPONDERS;
  }

  get #block(): HeaderBlock {
    this.#headers ??= this.#known.read(this.#message, this.data);
    return this.#headers;
  }
}

/** The headers of a message. */
interface HeaderBlock {
  /** The status that NATS itself reports; 0: none. */
  readonly code: number;
  readonly values: ReadonlyMap<string, string>;
}

const NO_HEADERS: HeaderBlock = { code: 0, values: new Map() };
/** Maximum size of a header block that is kept, in bytes, and number of those. */
const KEPT_HEADERS = { bytes: 512, blocks: 1000 } as const;

/**
 * Reads the headers of received messages. Most have the same as one before: those are compared as bytes, because the
 * client of NATS takes longer to decode them than for the rest of a message.
 */
class ReceivedHeaders {
  readonly #blocks = new Map<string, HeaderBlock>();

  read(message: Msg & { size?(): number }, data: Uint8Array): HeaderBlock {
    const { subject, reply = "" } = message;
    const { buffer, byteOffset, length } = data;
    // The client of NATS does not tell where the headers are: they end where the data begins.
    const size = (message.size?.() ?? NaN) - subject.length - reply.length - length;
    if (size === 0) return NO_HEADERS;
    const isKept = size > 0 && size <= KEPT_HEADERS.bytes && size <= byteOffset;
    if (!isKept) return decodeHeaders(message);
    const text = Buffer.from(buffer, byteOffset - size, size).toString("latin1");
    // The size counts bytes: if the subject is not ASCII, this begins too early.
    if (!text.startsWith(HEADERS_START)) return decodeHeaders(message);
    let block = this.#blocks.get(text);
    if (block === undefined) {
      block = decodeHeaders(message);
      if (this.#blocks.size >= KEPT_HEADERS.blocks) this.#blocks.clear();
      this.#blocks.set(text, block);
    }
    return block;
  }
}

const HEADERS_START = "NATS/1.0";

function decodeHeaders({ headers }: Msg): HeaderBlock {
  if (headers === undefined) return NO_HEADERS;
  const values = new Map<string, string>();
  for (const [name, [value = ""]] of headers) values.set(name, value);
  return { code: headers.code, values };
}

/** Makes the client of NATS encode headers once, and not with each message. They must not be changed afterwards. */
function fixEncoding(headers: MsgHdrs & { encode?(): Uint8Array }): void {
  const bytes = headers.encode?.();
  if (bytes !== undefined) headers.encode = () => bytes;
}
