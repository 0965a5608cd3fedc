import type { Socket } from "node:net";
import { type Piece, sizeOf } from "../../base/bytes.ts";
import {
  type HttpConnectionEvents,
  HttpConnection,
  type HttpRequestBytes,
  type ResponseReceiver,
} from "./connection.ts";

/** Where requests go, as their first lines say it. */
export interface RequestTarget {
  readonly url: URL;
  readonly path: string;
  readonly host: string;
}

export function requestTargetOf(url: URL): RequestTarget {
  return { url, path: `${url.pathname}${url.search}`, host: url.host };
}

/** A request for a server. */
export interface PooledRequest {
  readonly method: string;
  readonly place: RequestTarget;
  /** Headers, each with its line end; those that say where it goes and how long it is are added. */
  readonly fields: string;
  readonly body: readonly Piece[] | undefined;
}

/** A connection that was opened, and what has to be said of requests on it. */
export interface OpenedSocket {
  readonly socket: Socket;
  /** Whether each names its whole URL, since somebody on the way has to know it. */
  readonly isRelayed: boolean;
  /** What requests bear for whoever relays them. */
  readonly fields: string;
}

/** A request that is on its way, or its answer. */
export interface RequestHandle {
  /** Gives it up: nothing is told any more. */
  drop(): void;
  pause(): void;
  resume(): void;
}

/** How many connections are being opened at a time. */
const OPENING = 32;
/** How long a connection rests before it is closed, in ms, where the server does not say how long it keeps it. */
const REST = { usual: 4000, margin: 1000, longest: 120_000 };

/**
 * The connections to one server. A request takes one that rests, or is carried by whichever is the next to be free, one that
 * is opened for it included.
 */
export class HttpConnectionPool implements HttpConnectionEvents {
  readonly #open: (signal: AbortSignal) => Promise<OpenedSocket>;
  readonly #abort = new AbortController();
  readonly #lanes = new Map<HttpConnection, OpenedSocket>();
  /** The one that rested last is the first to be used. */
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

  /** Ends all of them; whoever waits is not told. */
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

  /** Opens as many connections as are waited for. */
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

  /** The server cannot be connected to: that holds for all who wait for it. */
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

  /** The lane, as long as it is this one's. */
  #present(): HttpConnection | undefined {
    if (this.#lane === undefined || this.#parcel === undefined) return undefined;
    return this.#lane.carries(this.#parcel) ? this.#lane : undefined;
  }
}

/** A server may close a connection at the very moment in which it is used: before that it is not used any more. */
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
