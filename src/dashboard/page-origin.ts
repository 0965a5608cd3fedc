import { Buffer } from "node:buffer";
import { networkInterfaces } from "node:os";
import { HubError } from "../base/errors.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import { type HttpListener, listen, type ListenOptions } from "../frontend/http/listener.ts";

/** Answers the requests to the page. */
type Fetch = ListenOptions["fetch"];

/**
 * The origin of a dashboard's page. It was never used before: what a browser has stored for an address that somebody
 * else may have served, such as service workers and cached files of `http://127.0.0.1:8701`, is not used for it.
 */
export interface PageOrigin {
  /** Whether this is the page's host. @param host a `Host` header: a name or address, and the port */
  isHost(host: string): boolean;
  /** The page's address. @param port the dashboard's port @param path of the page, such as `/ui/` */
  urlOf(port: number, path: string): string;
  /** Stops listening; open connections have `ms` milliseconds to send their last responses. */
  close(ms: number): Promise<void>;
}

/** Length of the random part of a name, in bytes. */
const NAME_LENGTH = 16;
const ADDRESS = "127.0.0.1";
/** The addresses that browsers try for a name below `localhost`. */
const LOOPBACK_ADDRESSES = [ADDRESS, "::1"];
/** How often a port is looked for that is free at all loopback addresses. */
const ATTEMPTS = 20;

/**
 * Makes the origin of a page. By default it is a random name below `localhost` (RFC 6761, 6.3), which Chromium and
 * Firefox resolve to the loopback addresses without asking anybody. Safari does not, so on macOS the page has a random
 * port of its own, unless the command runs over ssh: then the browser is on another machine, which forwards only the
 * dashboard's port.
 * @param fetch answers the requests at the port of its own
 */
export async function openPageOrigin(
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  fetch: Fetch,
): Promise<PageOrigin> {
  if (platform === "darwin" && !env["SSH_CONNECTION"]) {
    const listener = await listen({ address: { hostname: ADDRESS, port: 0 }, fetch });
    const host = `${ADDRESS}:${listener.port}`;
    return {
      isHost: (given) => given === host,
      urlOf: (_port, path) => `http://${host}${path}`,
      close: (ms) => listener.close(ms),
    };
  }
  const random = crypto.getRandomValues(new Uint8Array(NAME_LENGTH));
  const name = `${Buffer.from(random).toString("hex")}.localhost`;
  return {
    // The port is not compared: it is another one if ssh forwards the page.
    isHost: (given) => given.replace(/:\d{1,5}$/, "").toLowerCase() === name,
    urlOf: (port, path) => `http://${name}:${port}${path}`,
    close: () => Promise.resolve(),
  };
}

/**
 * Listens on a port of all loopback addresses (see `listenBeside`). Rejects with the runtime's error.
 * @param port 0 for any port that is free at all of them
 * @throws {HubError} usage if somebody else has the port at one of them, and can be reached there by browsers
 */
export async function listenOnLoopback(port: number, fetch: Fetch): Promise<HttpListener> {
  for (let attempt = 1; ; attempt++) {
    const first = await listen({ address: { hostname: ADDRESS, port }, fetch });
    try {
      const others = await listenBeside(first.port, fetch, async (address) => address === ADDRESS);
      return {
        port: first.port,
        close: async (ms) => void (await Promise.all([first.close(ms), others.close(ms)])),
      };
    } catch (error) {
      await first.close(0);
      if (port !== 0 || attempt === ATTEMPTS || !(error instanceof HubError)) throw error;
    }
  }
}

/**
 * Listens on a port of those loopback addresses that the dashboard does not have yet: a browser tries all of them for a
 * name below `localhost`, so whoever had the port at one of them would get the link's token. Rejects with the runtime's
 * error.
 * @param isOwn whether the dashboard itself answers at an address, which cannot be listened on
 * @throws {HubError} usage if somebody else has the port at one of them
 */
export async function listenBeside(
  port: number,
  fetch: Fetch,
  isOwn: (address: string) => Promise<boolean>,
): Promise<HttpListener> {
  const listeners: HttpListener[] = [];
  const close = async (ms: number): Promise<void> =>
    void (await Promise.all(listeners.map((listener) => listener.close(ms))));
  try {
    for (const hostname of LOOPBACK_ADDRESSES) {
      if (hostname !== ADDRESS && !hasAddress(hostname)) continue;
      try {
        listeners.push(await listen({ address: { hostname, port }, fetch }));
      } catch (error) {
        if (await isOwn(hostname)) continue;
        if (hostname === ADDRESS || (error as NodeJS.ErrnoException).code !== "EADDRINUSE")
          throw error;
        throw takenError(hostname, port);
      }
    }
    return { port, close };
  } catch (error) {
    await close(0);
    throw error;
  }
}

function takenError(hostname: string, port: number): HubError {
  const text = `Port ${port} of ${hostname} is taken by another process, so a browser could open that process in place of the dashboard.`;
  return new HubError("usage", text, { hint: "Stop that process, or choose another port." });
}

/** Whether an interface of this machine has the address: without IPv6, nobody can listen on `::1`. */
function hasAddress(address: string): boolean {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return all.some((one) => one.address === address);
}
