import { type AddressInfo, createServer, type Server } from "node:net";
import type { Answer } from "./answer.ts";
import { Channel } from "./channel.ts";
import { BodyQuota } from "./inlet.ts";
import type { Query } from "./query.ts";

/** Something that listens for HTTP requests. */
export interface Listener {
  readonly port: number;
  /** Ends it: connections have `ms` to take what they were answered. */
  close(ms: number): Promise<void>;
}

export interface ListenOptions {
  /** Without brackets, also if it is an IPv6 address. */
  readonly hostname: string;
  /** 0: any that is free. */
  readonly port: number;
  /** Between two looks for connections on which nothing moves, in ms. */
  readonly pause?: number;
  /** What all bodies that are being received may take of memory together, in bytes. */
  readonly maxReceiving?: number;
  /** Never rejects. */
  readonly answer: (query: Query) => Answer | Promise<Answer>;
}

const PAUSE = 5000;
export const MAX_RECEIVING: number = 256 * 1024 * 1024;

/**
 * Listens for HTTP/1.1 on plain sockets: the objects that runtimes' own servers make for each request cost more than all that
 * the hub does with it, and each runtime notices something else late, or never. Rejects with what the system says.
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  const channels = new Set<Channel>();
  const quota = new BodyQuota(options.maxReceiving ?? MAX_RECEIVING);
  let emptied = (): void => {};
  let looking: ReturnType<typeof setInterval> | undefined;
  // A client that says no more may still read.
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
