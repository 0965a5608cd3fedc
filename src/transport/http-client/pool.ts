import type { Socket } from "node:net";
import { type Piece, sizeOf } from "../../base/bytes.ts";
import {
  type HttpConnectionEvents,
  HttpConnection,
  type HttpRequestBytes,
  type ResponseReceiver,
} from "./connection.ts";

/** The target of a request, with the parts that its request line and Host header need. */
export interface RequestTarget {
  readonly url: URL;
  readonly path: string;
  readonly host: string;
}

export function requestTargetOf(url: URL): RequestTarget {
  return { url, path: `${url.pathname}${url.search}`, host: url.host };
}

/** A request to be sent over the pool. */
export interface PooledRequest {
  readonly method: string;
  readonly place: RequestTarget;
  /** Header lines, each with its CRLF; Host and Content-Length are added. */
  readonly fields: string;
  readonly body: readonly Piece[] | undefined;
}

/** An open connection, and how requests on it have to be written. */
export interface OpenedSocket {
  readonly socket: Socket;
  /** Whether the request line needs the whole URL (absolute-form, RFC 9112, 3.2.2), because a proxy reads it. */
  readonly isRelayed: boolean;
  /** Header lines for the proxy. */
  readonly fields: string;
}

/** A request in progress. */
export interface RequestHandle {
  /** Cancels the request: its receiver is not called any more. */
  drop(): void;
  pause(): void;
  resume(): void;
}

/** Maximum number of connections that are being opened at a time. */
const OPENING = 32;
/**
 * Idle time after which a connection is closed, in ms: without a `Keep-Alive` header; subtracted from that header's
 * timeout; and at most.
 */
const REST = { usual: 4000, margin: 1000, longest: 120_000 };

/**
 * The transport/http-client folder: an HTTP/1.1 client for Bun, Deno and Node which never sends a request twice, and
 * which knows proxies and additional certificates. Main types: `HttpConnectionPool`, below, and `HttpConnection`
 * (`connection.ts`). Start here; `fetch.ts` is the `fetch`-like use of it.
 *
 * The connections to one origin. A request uses an idle connection, or the next one that becomes idle or is opened.
 */
export class HttpConnectionPool implements HttpConnectionEvents {
  readonly #open: (signal: AbortSignal) => Promise<OpenedSocket>;
  readonly #abort = new AbortController();
  readonly #lanes = new Map<HttpConnection, OpenedSocket>();
  /** The connection that was used last is reused first. */
  readonly #resting: HttpConnection[] = [];
  readonly #waiting = new Set<Waiting>();
  #opening = 0;
  #sweep: ReturnType<typeof setTimeout> | undefined;

  constructor(open: (signal: AbortSignal) => Promise<OpenedSocket>) {
    this.#open = open;
  }

  send(order: PooledRequest, receiver: ResponseReceiver): RequestHandle {
    const waiting = new Waiting(order, receiver, () => this.#waiting.delete(waiting));
    const lane = this.#resting.length > 0 ? this.#take() : undefined;
    if (lane === undefined) {
      this.#waiting.add(waiting);
      this.#reach();
    } else {
      this.#carry(lane, waiting);
    }
    return waiting;
  }

  /** Closes all connections; the receivers of requests in progress are not called. */
  close(): void {
    this.#abort.abort();
    this.#waiting.clear();
    clearTimeout(this.#sweep);
    this.#sweep = undefined;
    for (const lane of this.#lanes.keys()) lane.drop();
  }

  freed(lane: HttpConnection): void {
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      this.#carry(lane, next);
      return;
    }
    lane.restsSince = performance.now();
    this.#resting.push(lane);
    this.#sweep ??= setTimeout(this.#tidy, REST.usual);
  }

  gone(lane: HttpConnection): void {
    this.#lanes.delete(lane);
    const at = this.#resting.indexOf(lane);
    if (at >= 0) this.#resting.splice(at, 1);
  }

  #take(): HttpConnection | undefined {
    const now = performance.now();
    for (let lane = this.#resting.pop(); lane !== undefined; lane = this.#resting.pop()) {
      if (!isStale(lane, now)) return lane;
      lane.drop();
    }
    return undefined;
  }

  #carry(lane: HttpConnection, waiting: Waiting): void {
    const opened = this.#lanes.get(lane);
    if (opened === undefined) return;
    waiting.board(lane, pack(waiting, opened));
  }

  /** Opens a connection for each waiting request, up to the limit. */
  #reach(): void {
    while (this.#opening < Math.min(this.#waiting.size, OPENING)) {
      this.#opening++;
      void this.#open(this.#abort.signal).then(
        (opened) => this.#arrived(opened),
        (error: unknown) => this.#failed(error),
      );
    }
  }

  #arrived(opened: OpenedSocket): void {
    this.#opening--;
    if (this.#abort.signal.aborted) {
      opened.socket.destroy();
      return;
    }
    const lane = new HttpConnection(opened.socket, this);
    this.#lanes.set(lane, opened);
    this.freed(lane);
    this.#reach();
  }

  /** The server cannot be connected to: all waiting requests fail. */
  #failed(thrown: unknown): void {
    this.#opening--;
    if (this.#abort.signal.aborted) return;
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const { receiver } of waiting) receiver.fail(error, true);
  }

  readonly #tidy = (): void => {
    this.#sweep = undefined;
    const now = performance.now();
    const stale = this.#resting.filter((lane) => isStale(lane, now));
    for (const lane of stale) lane.drop();
    if (this.#resting.length > 0) this.#sweep = setTimeout(this.#tidy, REST.usual);
  };
}

class Waiting implements RequestHandle {
  readonly order: PooledRequest;
  readonly receiver: ResponseReceiver;
  readonly #leave: () => void;
  #lane: HttpConnection | undefined;
  #parcel: HttpRequestBytes | undefined;
  #isPaused = false;

  constructor(order: PooledRequest, receiver: ResponseReceiver, leave: () => void) {
    this.order = order;
    this.receiver = receiver;
    this.#leave = leave;
  }

  board(lane: HttpConnection, parcel: HttpRequestBytes): void {
    this.#lane = lane;
    this.#parcel = parcel;
    lane.send(parcel);
    if (this.#isPaused) this.pause();
  }

  drop(): void {
    this.#leave();
    this.#present()?.drop();
  }

  pause(): void {
    this.#isPaused = true;
    this.#present()?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#present()?.resume();
  }

  /** The connection, as long as it carries this request. */
  #present(): HttpConnection | undefined {
    if (this.#lane === undefined || this.#parcel === undefined) return undefined;
    return this.#lane.carries(this.#parcel) ? this.#lane : undefined;
  }
}

/** A server may close an idle connection just when it is reused: stop using it before the server's timeout. */
function isStale(lane: HttpConnection, now: number): boolean {
  const { patience } = lane;
  const limit =
    patience === undefined
      ? REST.usual
      : Math.min(Math.max(patience - REST.margin, 0), REST.longest);
  return now - lane.restsSince >= limit;
}

function pack({ order, receiver }: Waiting, { isRelayed, fields }: OpenedSocket): HttpRequestBytes {
  const { method, place, body } = order;
  const target = isRelayed ? `${place.url.origin}${place.path}` : place.path;
  let length = "";
  if (body !== undefined) {
    let size = 0;
    for (const piece of body) size += sizeOf(piece);
    length = `Content-Length: ${size}\r\n`;
  }
  const head = `${method} ${target} HTTP/1.1\r\nHost: ${place.host}\r\n${fields}${order.fields}${length}\r\n`;
  return { method, head, body: body ?? [], receiver };
}
