import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { settlesWithin } from "../../base/clock.ts";
import {
  type BunHttpHandler,
  type BunHttpServer,
  serveOnBun,
  type BunServeOptions,
  serveOnDeno,
} from "../../base/runtime.ts";

/** Address of an HTTP server. `hostname`: a name or IP address, IPv6 without brackets; `port`: 0 for any free port. */
export type ListenAddress =
  | { readonly hostname: string; readonly port: number }
  /** The path of a Unix socket, which must not exist. */
  | { readonly path: string };

/** A listening HTTP server of the runtime. */
export interface HttpListener {
  /** The TCP port; 0 for a Unix socket. */
  readonly port: number;
  /** Stops listening; open connections have `ms` milliseconds to send their last responses. */
  close(ms: number): Promise<void>;
}

export interface ListenOptions {
  readonly address: ListenAddress;
  /**
   * Paths for which `RequestInfo.isPathAsSent` is exact: `/a` or `/a/:name`, where `:name` stands for one segment; for
   * `/a/:name/*`, it says that the path was sent below `/a/NAME/`. For other paths, `isPathAsSent` may be false although
   * the path is as sent.
   */
  readonly exactPaths?: readonly string[];
  /** Answers a request; must never reject. */
  readonly fetch: (request: Request, info: RequestInfo) => Promise<Response>;
}

/** Details of an HTTP request that a web `Request` lacks. */
export interface RequestInfo {
  /**
   * Whether the path of the request's URL is the path that the client sent. If false, the runtime may have normalized
   * the path (`/a/../b` to `/b`). A reverse proxy that allows only some paths checks the path that was sent.
   */
  readonly isPathAsSent: boolean;
  /** Keeps the connection open until `response` settles, even if nothing is sent for longer than `IDLE_TIMEOUT`. */
  keepOpen(response: Promise<unknown>): void;
  /** The address of the client; undefined or absent: it is not known. */
  address?(): string | undefined;
}

function requestInfo(isPathAsSent: boolean, address: string | undefined): RequestInfo {
  return { isPathAsSent, keepOpen() {}, address: () => address };
}

/** Details of a request on Bun. */
class BunRequestInfo implements RequestInfo {
  readonly isPathAsSent: boolean;
  readonly #request: Request;
  readonly #server: BunHttpServer;

  constructor(isPathAsSent: boolean, request: Request, server: BunHttpServer) {
    this.isPathAsSent = isPathAsSent;
    this.#request = request;
    this.#server = server;
  }

  keepOpen(response: Promise<unknown>): void {
    this.#server.timeout(this.#request, 0);
    const restore = (): void => this.#server.timeout(this.#request, IDLE_TIMEOUT);
    void response.then(restore, restore);
  }

  address(): string | undefined {
    return this.#server.requestIP(this.#request)?.address;
  }
}

/** Time in s after which a connection without traffic and without a pending response is closed; not applied on Deno. */
const IDLE_TIMEOUT = 60;

/**
 * Listens with the HTTP server of the runtime: `Bun.serve`, `Deno.serve`, or `node:http` with `@hono/node-server`. That
 * server parses requests, limits the size of their heads and closes idle connections. Rejects with the runtime's error.
 */
export async function listen(given: ListenOptions): Promise<HttpListener> {
  const options = { ...given, fetch: guardFetch(given.fetch) };
  if (serveOnBun !== undefined) return listenOnBun(serveOnBun, options);
  if (serveOnDeno !== undefined) return listenOnDeno(serveOnDeno, options);
  return listenOnNode(options);
}

/**
 * Refuses a request whose `Host` makes no valid URL, which runtimes pass on: `h:99999`, `a, b`. Closes the connection
 * after the response to a request whose body comes in chunks that were not read: the runtime would receive and drop
 * chunks for as long as the client sends them.
 */
function guardFetch(fetch: ListenOptions["fetch"]): ListenOptions["fetch"] {
  return (request, info) => {
    if (!URL.canParse(request.url)) return Promise.resolve(new Response(null, { status: 400 }));
    const answered = fetch(request, info);
    if (!request.headers.has("Transfer-Encoding")) return answered;
    return answered.then((response) => {
      if (request.bodyUsed) return response;
      const { status, headers, body } = response;
      const closing = new Headers(headers);
      closing.set("Connection", "close");
      return new Response(body, { status, headers: closing });
    });
  };
}

/**
 * Bun answers all requests that it has received on a connection in one turn of the event loop, unless a response is late:
 * then it closes a connection that has sent more. So responses are late once `requests` requests were answered in a turn,
 * or `few` requests that took `time` ms or more together.
 */
const TURN_LIMITS = { requests: 64, few: 4, time: 2 };

/** What was answered in the current turn of the event loop. */
class AnsweredInTurn {
  #requests = 0;
  #time = 0;
  #end: Promise<void> | undefined;

  /** @param time how long the application took, in ms @returns a promise for the next turn, if the response is late */
  add(time: number): Promise<void> | undefined {
    if (this.#requests++ === 0) setImmediate(this.#begin);
    this.#time += time;
    const isLate =
      this.#requests > TURN_LIMITS.requests ||
      (this.#requests > TURN_LIMITS.few && this.#time >= TURN_LIMITS.time);
    if (!isLate) return undefined;
    return (this.#end ??= new Promise((resolve) => setImmediate(resolve)));
  }

  readonly #begin = (): void => {
    this.#requests = 0;
    this.#time = 0;
    this.#end = undefined;
  };
}

function listenOnBun(
  serve: NonNullable<typeof serveOnBun>,
  { address, exactPaths = [], fetch }: ListenOptions,
): HttpListener {
  const answeredInTurn = new AnsweredInTurn();
  const handler =
    (pattern: string | undefined): BunHttpHandler =>
    (request, server) => {
      const start = performance.now();
      // Bun's router matches the path as it was sent, but Bun replaces backslashes in the request's URL by slashes: a
      // path with a backslash therefore counts as changed.
      const { params } = request;
      const isPathAsSent =
        pattern !== undefined &&
        (params === undefined || !Object.values(params).some(hasBackslash)) &&
        (!pattern.endsWith("/*") || startsAs(request.url, pattern, params ?? {}));
      const answered = fetch(request, new BunRequestInfo(isPathAsSent, request, server));
      const nextTurn = answeredInTurn.add(performance.now() - start);
      return nextTurn === undefined ? answered : nextTurn.then(() => answered);
    };
  const options: BunServeOptions = {
    ...("path" in address ? { unix: address.path } : address),
    development: false,
    reusePort: false,
    idleTimeout: IDLE_TIMEOUT,
    // No limit here: `RequestBodies` limits bodies while it reads them.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    routes: Object.fromEntries(exactPaths.map((path) => [path, handler(path)])),
    fetch: handler(undefined),
    error: internalError,
  };
  const server = serve(options);
  return {
    port: server.port ?? 0,
    close: (ms) => closeWithin(ms, server.stop(), () => server.stop(true)),
  };
}

/** Whether the path of a URL begins with a pattern such as `/plugins/:plugin/*`, filled with these parameters. */
function startsAs(url: string, pattern: string, params: Readonly<Record<string, string>>): boolean {
  const path = url.slice(url.indexOf("/", url.indexOf("://") + 3));
  const wanted = pattern.slice(0, -1).split("/");
  const sent = path.split("/");
  return wanted.every((part, i) => {
    const expected = part.startsWith(":") ? params[part.slice(1)] : part;
    return i === wanted.length - 1 || decoded(sent[i] ?? "") === expected;
  });
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

function hasBackslash(text: string): boolean {
  return text.includes("\\");
}

function listenOnDeno(
  serve: NonNullable<typeof serveOnDeno>,
  { address, fetch }: ListenOptions,
): HttpListener {
  const abort = new AbortController();
  let inFlight = 0;
  let idle: PromiseWithResolvers<void> | undefined;
  const onEnd = (): void => {
    if (--inFlight === 0) idle?.resolve();
  };
  const options = { ...address, signal: abort.signal, onListen() {}, onError: internalError };
  const server = serve(options, (request, { completed, remoteAddr }) => {
    inFlight++;
    void completed.then(onEnd, onEnd);
    // Deno does not normalize paths.
    return fetch(request, requestInfo(true, remoteAddr?.hostname));
  });
  return {
    port: server.addr.port ?? 0,
    close: async (ms) => {
      if (inFlight > 0) {
        idle = Promise.withResolvers<void>();
        await settlesWithin(ms, idle.promise);
      }
      // `server.shutdown()` is not used: after it, `abort` throws on Deno, and only `abort` closes open connections.
      abort.abort();
      // Wait for the server to finish: only then is the file of a Unix socket removed. A new server may need its path.
      await settlesWithin(ms, server.finished);
    },
  };
}

async function listenOnNode({ address, fetch }: ListenOptions): Promise<HttpListener> {
  const [{ createServer }, { getRequestListener, RequestError }] = await Promise.all([
    import("node:http"),
    import("@hono/node-server"),
  ]);
  const queued = new QueuedResponses();
  const server = createServer(
    { keepAliveTimeout: IDLE_TIMEOUT * 1000, noDelay: true },
    getRequestListener(
      (request, env) => {
        if (!("incoming" in env)) return fetch(request, requestInfo(false, undefined));
        const { incoming, outgoing } = env as unknown as NodeEnv;
        if (outgoing.socket === null) queued.add(incoming.socket, outgoing);
        const sent = incoming.url;
        const isPathAsSent = isPathOf(request.url, sent);
        return fetch(request, requestInfo(isPathAsSent, incoming.socket.remoteAddress));
      },
      {
        hostname: "path" in address ? "localhost" : address.hostname,
        overrideGlobalObjects: false,
        // A `RequestError` is thrown for a request whose Host header or target is malformed.
        errorHandler: (error) =>
          error instanceof RequestError ? new Response(null, { status: 400 }) : internalError(),
      },
    ) as Parameters<typeof createServer>[1],
  );
  await startListening(server, address);
  return {
    port: "path" in address ? 0 : (server.address() as AddressInfo).port,
    close: (ms) => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      return closeWithin(ms, closed, () => {
        server.closeAllConnections();
        return closed;
      });
    },
  };
}

interface NodeEnv {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
}

/**
 * The responses to pipelined requests that must wait until earlier responses on their connection are sent. When the
 * connection closes, Node does not emit `close` on them. This class emits it, so that their requests are cancelled.
 */
class QueuedResponses {
  readonly #bySocket = new WeakMap<Socket, Set<ServerResponse>>();

  add(socket: Socket, response: ServerResponse): void {
    const responses = this.#bySocket.get(socket) ?? this.#watch(socket);
    responses.add(response);
    response.once("close", () => responses.delete(response));
  }

  #watch(socket: Socket): Set<ServerResponse> {
    const responses = new Set<ServerResponse>();
    this.#bySocket.set(socket, responses);
    socket.once("close", () => {
      for (const response of responses) response.emit("close");
    });
    return responses;
  }
}

/**
 * Whether the URL ends with exactly the path and query of the request line (RFC 9112, 3.2.1), that is, nothing was
 * normalized.
 */
function isPathOf(url: string, target: string | undefined): boolean {
  return (
    target !== undefined &&
    url.endsWith(target) &&
    /^https?:\/\/[^/]*$/.test(url.slice(0, -target.length))
  );
}

function startListening(server: Server, address: ListenAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    if ("path" in address) server.listen(address.path, resolve);
    else server.listen(address.port, address.hostname, resolve);
  });
}

/** Waits at most `ms` milliseconds for `closed`. Calls `closeNow` if it has not settled by then. */
async function closeWithin(
  ms: number,
  closed: Promise<unknown>,
  closeNow: () => Promise<unknown>,
): Promise<void> {
  if (await settlesWithin(ms, closed)) return;
  await closeNow();
}

/** The response if the application throws. The client does not see the error. */
function internalError(): Response {
  return new Response(null, { status: 500 });
}
