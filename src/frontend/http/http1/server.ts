import { type AddressInfo, createServer, type Server } from "node:net";
import type { HttpAnswer, HttpServerRequest } from "./messages.ts";
import { ServerConnection } from "./connection.ts";
import { BodyQuota } from "./request-parser.ts";

/** A listening HTTP socket. */
export interface HttpListener {
  readonly port: number;
  /** Closes the socket; open connections have `ms` milliseconds to send their last responses. */
  close(ms: number): Promise<void>;
}

export interface ListenOptions {
  /** Host name or address; IPv6 without brackets. */
  readonly hostname: string;
  /** The port to listen on; 0 for any free port. */
  readonly port: number;
  /** How often connections are checked for progress, in ms. */
  readonly checkInterval?: number;
  /** Memory for all bodies being received together, in bytes. */
  readonly maxReceiving?: number;
  /** Answers a request; must never reject. */
  readonly handle: (request: HttpServerRequest) => HttpAnswer | Promise<HttpAnswer>;
}

const CHECK_INTERVAL = 5000;
export const MAX_RECEIVING: number = 256 * 1024 * 1024;

/**
 * Listens for HTTP/1.1 on plain sockets. The request objects of the runtimes' own servers cost more than everything
 * that the hub does with a request, and each runtime reports some other event late or never. Rejects with the system's
 * error.
 */
export async function listenHttp(options: ListenOptions): Promise<HttpListener> {
  const connections = new Set<ServerConnection>();
  const quota = new BodyQuota(options.maxReceiving ?? MAX_RECEIVING);
  let onEmpty = (): void => {};
  let checkTimer: ReturnType<typeof setInterval> | undefined;
  // A client that has half-closed the connection may still read.
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    const connection = new ServerConnection(socket, options.handle, quota, () => {
      connections.delete(connection);
      if (connections.size > 0) return;
      clearInterval(checkTimer);
      checkTimer = undefined;
      onEmpty();
    });
    connections.add(connection);
    checkTimer ??= setInterval(() => {
      for (const each of connections) each.check();
    }, options.checkInterval ?? CHECK_INTERVAL);
  });
  await startListening(server, options);
  return {
    port: (server.address() as AddressInfo).port,
    async close(ms) {
      server.close();
      const empty = new Promise<void>((resolve) => (onEmpty = resolve));
      for (const connection of connections) connection.closeWhenIdle();
      if (connections.size === 0) return;
      const timer = setTimeout(() => {
        for (const connection of connections) connection.destroy();
      }, ms);
      await empty;
      clearTimeout(timer);
    },
  };
}

function startListening(server: Server, { port, hostname }: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, hostname, resolve);
  });
}
