import { type AddressInfo, createServer, type Server } from "node:net";
import type { Answer } from "./answer.ts";
import { Channel } from "./connection.ts";
import { BodyQuota } from "./inlet.ts";
import type { Query } from "./messages.ts";

/** A listening HTTP socket. */
export interface Listener {
  readonly port: number;
  /** Closes it: connections have `ms` to send the last answers. */
  close(ms: number): Promise<void>;
}

export interface ListenOptions {
  /** Without brackets, for IPv6 too. */
  readonly hostname: string;
  /** 0: any free port. */
  readonly port: number;
  /** Interval of the checks for connections without progress, in ms. */
  readonly pause?: number;
  /** Memory for all bodies being received together, in bytes. */
  readonly maxReceiving?: number;
  /** Never rejects. */
  readonly answer: (query: Query) => Answer | Promise<Answer>;
}

const PAUSE = 5000;
export const MAX_RECEIVING: number = 256 * 1024 * 1024;

/**
 * Listens for HTTP/1.1 on plain sockets: the request objects of the runtimes' own servers cost more than everything
 * that the hub does with a request, and each runtime notices other events late or never. Rejects with the system's
 * error.
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  const channels = new Set<Channel>();
  const quota = new BodyQuota(options.maxReceiving ?? MAX_RECEIVING);
  let emptied = (): void => {};
  let looking: ReturnType<typeof setInterval> | undefined;
  // A client that has half-closed the connection may still read.
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    const channel = new Channel(socket, options.answer, quota, () => {
      channels.delete(channel);
      if (channels.size > 0) return;
      clearInterval(looking);
      looking = undefined;
      emptied();
    });
    channels.add(channel);
    looking ??= setInterval(() => {
      for (const each of channels) each.look();
    }, options.pause ?? PAUSE);
  });
  await begin(server, options);
  return {
    port: (server.address() as AddressInfo).port,
    async close(ms) {
      server.close();
      const empty = new Promise<void>((resolve) => (emptied = resolve));
      for (const channel of channels) channel.retire();
      if (channels.size === 0) return;
      const timer = setTimeout(() => {
        for (const channel of channels) channel.drop();
      }, ms);
      await empty;
      clearTimeout(timer);
    },
  };
}

function begin(server: Server, { port, hostname }: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, hostname, resolve);
  });
}
