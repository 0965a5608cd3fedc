import type { Socket } from "node:net";
import { ReadShare } from "../../base/peer-reader.ts";
import { type Piece, pieceSize } from "../../base/bytes.ts";
import {
  type HttpConnectionEvents,
  HttpConnection,
  type OutgoingRequest,
  type ResponseReceiver,
} from "./connection.ts";

/** The URL of a request, and the parts of it that the request line and the Host header need. */
export interface RequestTarget {
  readonly url: URL;
  readonly path: string;
  readonly host: string;
}

export function requestTargetOf(url: URL): RequestTarget {
  return { url, path: `${url.pathname}${url.search}`, host: url.host };
}

export interface PooledRequest {
  readonly method: string;
  readonly target: RequestTarget;
  /** Each line ends with CRLF. The pool adds Host and Content-Length. */
  readonly headerLines: string;
  readonly body: readonly Piece[] | undefined;
}

/** An open connection, to a server or to a proxy, and what request heads on it must contain for the proxy. */
export interface OpenedSocket {
  readonly socket: Socket;
  /** Whether the request line must contain the whole URL, as a proxy demands (absolute-form, RFC 9112, 3.2.2). */
  readonly usesAbsoluteForm: boolean;
  readonly proxyHeaderLines: string;
}

export interface RequestHandle {
  /** Cancels the request. Its receiver is not called any more. */
  cancel(): void;
  pause(): void;
  resume(): void;
}

const MAX_OPENING = 32;
/**
 * Time after which an idle connection is closed, in ms: the server's `Keep-Alive` timeout minus `margin`, but at most
 * `max`; `standard` if the server has sent no timeout.
 */
const IDLE_TIMEOUT = { standard: 4000, margin: 1000, max: 120_000 };

/**
 * The transport/http-client folder: an HTTP/1.1 client for Bun, Deno and Node. It never sends a request twice, and
 * supports proxies and additional certificates. Start with `HttpConnectionPool`, below. `open-socket.ts` connects
 * (`proxy.ts` chooses the proxy), `connection.ts` sends requests over one connection, `response-parser.ts` decodes
 * responses, and `fetch.ts` uses the pool in the manner of `fetch`. docs/decisions/http-client.md tells why `node:http`
 * is not used.
 *
 * A pool of connections to one origin. A request uses an idle connection, or the next one that becomes idle or is
 * opened.
 */
export class HttpConnectionPool implements HttpConnectionEvents {
  readonly #share: ReadShare;
  readonly #open: (signal: AbortSignal) => Promise<OpenedSocket>;
  readonly #abort = new AbortController();
  readonly #connections = new Map<HttpConnection, OpenedSocket>();
  /** Idle connections. The one that was used last is at the end, and is reused first. */
  readonly #idle: HttpConnection[] = [];
  readonly #queue = new Set<QueuedRequest>();
  #openingCount = 0;
  #idleTimer: ReturnType<typeof setTimeout> | undefined;

  /** @param share what may be handled of the server in one turn of the event loop */
  constructor(
    open: (signal: AbortSignal) => Promise<OpenedSocket>,
    share: ReadShare = new ReadShare(),
  ) {
    this.#open = open;
    this.#share = share;
  }

  send(pooledRequest: PooledRequest, receiver: ResponseReceiver): RequestHandle {
    const queued = new QueuedRequest(pooledRequest, receiver, () => this.#queue.delete(queued));
    const connection = this.#idle.length > 0 ? this.#takeIdle() : undefined;
    if (connection === undefined) {
      this.#queue.add(queued);
      this.#openConnections();
    } else {
      this.#assign(connection, queued);
    }
    return queued;
  }

  /** Closes all connections. The receivers of requests in progress are not called. */
  close(): void {
    this.#abort.abort();
    this.#queue.clear();
    clearTimeout(this.#idleTimer);
    this.#idleTimer = undefined;
    for (const connection of this.#connections.keys()) connection.destroy();
  }

  available(connection: HttpConnection): void {
    for (const next of this.#queue) {
      this.#queue.delete(next);
      this.#assign(connection, next);
      return;
    }
    connection.idleSince = performance.now();
    this.#idle.push(connection);
    this.#idleTimer ??= setTimeout(this.#closeStale, IDLE_TIMEOUT.standard);
  }

  closed(connection: HttpConnection): void {
    this.#connections.delete(connection);
    const index = this.#idle.indexOf(connection);
    if (index >= 0) this.#idle.splice(index, 1);
  }

  #takeIdle(): HttpConnection | undefined {
    const now = performance.now();
    for (
      let connection = this.#idle.pop();
      connection !== undefined;
      connection = this.#idle.pop()
    ) {
      if (!isStale(connection, now)) return connection;
      connection.destroy();
    }
    return undefined;
  }

  #assign(connection: HttpConnection, queued: QueuedRequest): void {
    const opened = this.#connections.get(connection);
    if (opened === undefined) return;
    queued.attach(connection, encodeRequest(queued, opened));
  }

  #openConnections(): void {
    while (this.#openingCount < Math.min(this.#queue.size, MAX_OPENING)) {
      this.#openingCount++;
      void this.#open(this.#abort.signal).then(
        (opened) => this.#connected(opened),
        (error: unknown) => this.#connectFailed(error),
      );
    }
  }

  #connected(opened: OpenedSocket): void {
    this.#openingCount--;
    if (this.#abort.signal.aborted) {
      opened.socket.destroy();
      return;
    }
    const connection = new HttpConnection(opened.socket, this, this.#share);
    this.#connections.set(connection, opened);
    this.available(connection);
    this.#openConnections();
  }

  /** Fails all waiting requests, because the server cannot be connected to. */
  #connectFailed(thrown: unknown): void {
    this.#openingCount--;
    if (this.#abort.signal.aborted) return;
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    const queued = [...this.#queue];
    this.#queue.clear();
    for (const { receiver } of queued) receiver.fail(error, true);
  }

  readonly #closeStale = (): void => {
    this.#idleTimer = undefined;
    const now = performance.now();
    const stale = this.#idle.filter((connection) => isStale(connection, now));
    for (const connection of stale) connection.destroy();
    if (this.#idle.length > 0)
      this.#idleTimer = setTimeout(this.#closeStale, IDLE_TIMEOUT.standard);
  };
}

class QueuedRequest implements RequestHandle {
  readonly request: PooledRequest;
  readonly receiver: ResponseReceiver;
  readonly #removeFromQueue: () => void;
  #connection: HttpConnection | undefined;
  #bytes: OutgoingRequest | undefined;
  #isPaused = false;

  constructor(request: PooledRequest, receiver: ResponseReceiver, removeFromQueue: () => void) {
    this.request = request;
    this.receiver = receiver;
    this.#removeFromQueue = removeFromQueue;
  }

  attach(connection: HttpConnection, bytes: OutgoingRequest): void {
    this.#connection = connection;
    this.#bytes = bytes;
    connection.send(bytes);
    if (this.#isPaused) this.pause();
  }

  cancel(): void {
    this.#removeFromQueue();
    this.#currentConnection()?.destroy();
  }

  pause(): void {
    this.#isPaused = true;
    this.#currentConnection()?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#currentConnection()?.resume();
  }

  /** Returns the connection only while it carries this request: between the assignment and the end of the response. */
  #currentConnection(): HttpConnection | undefined {
    if (this.#connection === undefined || this.#bytes === undefined) return undefined;
    return this.#connection.isSending(this.#bytes) ? this.#connection : undefined;
  }
}

/**
 * Whether a connection was idle for too long. A reused connection must not be near the server's own timeout: the server
 * may close it just when a request is sent.
 */
function isStale(connection: HttpConnection, now: number): boolean {
  const { keepAliveTimeout } = connection;
  const limit =
    keepAliveTimeout === undefined
      ? IDLE_TIMEOUT.standard
      : Math.min(Math.max(keepAliveTimeout - IDLE_TIMEOUT.margin, 0), IDLE_TIMEOUT.max);
  return now - connection.idleSince >= limit;
}

function encodeRequest(
  { request, receiver }: QueuedRequest,
  { usesAbsoluteForm: isRelayed, proxyHeaderLines }: OpenedSocket,
): OutgoingRequest {
  const { method, target, body } = request;
  const requestLineTarget = isRelayed ? `${target.url.origin}${target.path}` : target.path;
  let length = "";
  if (body !== undefined) {
    let size = 0;
    for (const piece of body) size += pieceSize(piece);
    length = `Content-Length: ${size}\r\n`;
  }
  const head = `${method} ${requestLineTarget} HTTP/1.1\r\nHost: ${target.host}\r\n${proxyHeaderLines}${request.headerLines}${length}\r\n`;
  return { method, head, body: body ?? [], receiver };
}
