import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import type { Listener, ListenOptions } from "../../runtime.ts";

/** How long a request's head, and all of it, may take to come in, in ms. */
const HEAD_TIME = 20_000;
const REQUEST_TIME = 120_000;
/** How long a connection without a request is kept, in ms. */
const SPARE_TIME = 60_000;

/** Listens with node:http, for the runtime that has no server that takes and gives web requests and responses. */
export async function listenOnNode(options: ListenOptions): Promise<Listener> {
  const server = createServer(
    {
      headersTimeout: HEAD_TIME,
      requestTimeout: REQUEST_TIME,
      keepAliveTimeout: SPARE_TIME,
      connectionsCheckingInterval: 5000,
    },
    (incoming, outgoing) => void relay(incoming, outgoing, options),
  );
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, options.hostname, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: (ms) => end(server, ms),
  };
}

function end(server: Server, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => server.closeAllConnections(), ms);
    server.close(() => {
      clearTimeout(timer);
      resolve();
    });
    server.closeIdleConnections();
  });
}

/** Never rejects. */
async function relay(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  options: ListenOptions,
): Promise<void> {
  try {
    const request = requestOf(incoming, goneOf(outgoing));
    if (request === undefined) {
      outgoing.writeHead(400).end();
      return;
    }
    const response = await options.fetch(request);
    outgoing.writeHead(response.status, [...response.headers].flat());
    outgoing.flushHeaders();
    if (response.body !== null) await pour(response.body, outgoing);
    outgoing.end();
  } catch {
    outgoing.destroy();
  }
}

/** Aborted when the client goes before it was answered. */
function goneOf(outgoing: ServerResponse): AbortSignal {
  const abort = new AbortController();
  outgoing.once("close", () => {
    if (!outgoing.writableEnded) abort.abort();
  });
  return abort.signal;
}

function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request | undefined {
  const { method = "GET", headers, url = "/" } = incoming;
  const whole = `http://${headers.host ?? "localhost"}${url}`;
  if (!url.startsWith("/") || !URL.canParse(whole)) return undefined;
  const given = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) given.set(name, Array.isArray(value) ? value.join(", ") : value);
  }
  if (method === "GET" || method === "HEAD") return new Request(whole, { method, headers: given });
  // The types of the web's streams and of Node's are not the same, but the streams are.
  const body = Readable.toWeb(incoming) as unknown as ReadableStream<Uint8Array>;
  const init = { method, headers: given, body, duplex: "half", signal };
  return new Request(whole, init);
}

/** Gives out a body as fast as it is taken, until the client has gone. */
async function pour(body: ReadableStream<Uint8Array>, outgoing: ServerResponse): Promise<void> {
  const reader = body.getReader();
  let wake = (): void => {};
  outgoing.on("drain", () => wake());
  const leave = (): void => {
    wake();
    void reader.cancel().catch(() => {});
  };
  outgoing.on("close", leave);
  // It may have gone before there was anything to give out.
  if (outgoing.destroyed) leave();
  for (;;) {
    const { done, value } = await reader.read();
    if (done || outgoing.destroyed) return;
    if (!outgoing.write(value)) await new Promise<void>((resolve) => (wake = resolve));
  }
}
