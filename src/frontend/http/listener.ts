import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { settlesWithin } from "../../base/clock.ts";
import { type Deferred, deferred } from "../../base/deferred.ts";
import {
  type BunHttpHandler,
  serveOnBun,
  type BunServeOptions,
  serveOnDeno,
} from "../../base/runtime.ts";

/** Where an HTTP server listens. `hostname`: a name or address, IPv6 without brackets; `port`: 0 for any free port. */
export type ListenAddress =
  | { readonly hostname: string; readonly port: number }
  /** The path of a Unix socket, which must not exist. */
  | { readonly path: string };

/** A listening HTTP server of the runtime. */
export interface HttpListener {
  /** 0 for a Unix socket. */
  readonly port: number;
  /** Stops listening; open connections have `ms` milliseconds to send their last responses. */
  close(ms: number): Promise<void>;
}

export interface ListenOptions {
  readonly address: ListenAddress;
  /**
   * Paths for which `RequestInfo.isPathAsSent` is known: `/a` or `/a/:name`, where `:name` stands for one segment. For
   * other paths it may be false.
   */
  readonly exactPaths?: readonly string[];
  /** Answers a request; must never reject. */
  readonly fetch: (request: Request, info: RequestInfo) => Promise<Response>;
}

/** What a web `Request` does not say. */
export interface RequestInfo {
  /**
   * Whether the path of the request's URL is the path that the client sent; if false, the runtime may have normalized it
   * (`/a/../b` to `/b`). Reverse proxies that allow only some paths judge the path that was sent.
   */
  readonly isPathAsSent: boolean;
  /** Keeps the connection open until `response` settles, even if nothing is sent for longer than `IDLE_TIMEOUT`. */
  keepOpen(response: Promise<unknown>): void;
}

const PATH_AS_SENT: RequestInfo = { isPathAsSent: true, keepOpen() {} };
const PATH_NORMALIZED: RequestInfo = { isPathAsSent: false, keepOpen() {} };

/** A connection on which no response is pending is closed after this time without traffic, in s. Deno has no such limit. */
const IDLE_TIMEOUT = 60;

/**
 * Listens with the HTTP server of the runtime: `Bun.serve`, `Deno.serve`, or `node:http` with `@hono/node-server`. It
 * parses requests, limits their heads and closes idle connections. Rejects with the runtime's error.
 */
export async function listen(options: ListenOptions): Promise<HttpListener> {
  if (serveOnBun !== undefined) return listenOnBun(serveOnBun, options);
  if (serveOnDeno !== undefined) return listenOnDeno(serveOnDeno, options);
  return listenOnNode(options);
}

function listenOnBun(
  serve: NonNullable<typeof serveOnBun>,
  { address, exactPaths = [], fetch }: ListenOptions,
): HttpListener {
  const handler =
    (isExact: boolean): BunHttpHandler =>
    (request, server) => {
      // Bun's router compares paths as they were sent, but the URL takes a backslash for a slash.
      const { params } = request;
      const isPathAsSent =
        isExact && (params === undefined || !Object.values(params).some(hasBackslash));
      return fetch(request, {
        isPathAsSent,
        keepOpen(response) {
          server.timeout(request, 0);
          const restore = (): void => server.timeout(request, IDLE_TIMEOUT);
          void response.then(restore, restore);
        },
      });
    };
  const exact = handler(true);
  const options: BunServeOptions = {
    ...("path" in address ? { unix: address.path } : address),
    development: false,
    reusePort: false,
    idleTimeout: IDLE_TIMEOUT,
    // Bodies are limited while they are read.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    routes: Object.fromEntries(exactPaths.map((path) => [path, exact])),
    fetch: handler(false),
    error: internalError,
  };
  const server = serve(options);
  return {
    port: server.port ?? 0,
    close: (ms) => closeWithin(ms, server.stop(), () => server.stop(true)),
  };
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
  let idle: Deferred<void> | undefined;
  const onEnd = (): void => {
    if (--inFlight === 0) idle?.resolve();
  };
  const options = { ...address, signal: abort.signal, onListen() {}, onError: internalError };
  const server = serve(options, (request, { completed }) => {
    inFlight++;
    void completed.then(onEnd, onEnd);
    // Deno does not normalize paths.
    return fetch(request, PATH_AS_SENT);
  });
  return {
    port: server.addr.port ?? 0,
    close: async (ms) => {
      if (inFlight > 0) {
        idle = deferred();
        await settlesWithin(ms, idle.promise);
      }
      // `server.shutdown()` is not used: after it, Deno throws in `abort`, and nothing else closes open connections.
      abort.abort();
      // Only then is the file of a socket removed, which a new server may want to make again.
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
        if (!("incoming" in env)) return fetch(request, PATH_NORMALIZED);
        const { incoming, outgoing } = env as unknown as NodeEnv;
        if (outgoing.socket === null) queued.add(incoming.socket, outgoing);
        const sent = incoming.url;
        return fetch(request, isPathOf(request.url, sent) ? PATH_AS_SENT : PATH_NORMALIZED);
      },
      {
        hostname: "path" in address ? "localhost" : address.hostname,
        overrideGlobalObjects: false,
        // Thrown for a request whose Host header or target is malformed.
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
 * The responses to pipelined requests that wait for the responses before them. Node does not tell them that their
 * connection has closed, so their requests would not be cancelled.
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

/** Waits `ms` milliseconds at most for `closed`, then calls `closeNow`. */
async function closeWithin(
  ms: number,
  closed: Promise<unknown>,
  closeNow: () => Promise<unknown>,
): Promise<void> {
  if (await settlesWithin(ms, closed)) return;
  await closeNow();
}

/** The response if the application fails; its error is not shown to the client. */
function internalError(): Response {
  return new Response(null, { status: 500 });
}
