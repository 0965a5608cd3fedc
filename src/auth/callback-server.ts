import { Buffer } from "node:buffer";
import type { IncomingMessage, ServerResponse, Server } from "node:http";
import process from "node:process";
import { errnoCodeOf } from "../process/process-table.ts";

/** The local HTTP server that receives the redirect of an authorization server. */
export interface CallbackServer {
  /** The redirect URI to register and send, unchanged. */
  readonly redirect: string;
  /** Resolves with the query parameters of the redirect that has this `state`; rejects with the signal's reason. */
  wait(state: string, signal: AbortSignal): Promise<URLSearchParams>;
  close(): void;
}

const PATH = "/callback";
const HOST = "127.0.0.1";
/** Maximum length of a request URL, in characters. */
const MAX_URL = 16 * 1024;

/** Listens on 127.0.0.1. @param port 0: any free port. @returns undefined if the port is in use or not permitted */
export async function openCallbackServer(port: number): Promise<CallbackServer | undefined> {
  const { createServer } = await import("node:http");
  let answer: (request: IncomingMessage, shown: Promise<void>) => Page = () => LOST;
  const server = createServer({ maxHeaderSize: 2 * MAX_URL }, (request, response) => {
    const shown = new Promise<void>((resolve) => response.once("close", resolve));
    show(answer(request, shown), response);
    request.resume();
  });
  server.requestTimeout = 5000;
  try {
    await open(server, port);
  } catch (error) {
    if (errnoCodeOf(error) === "EADDRINUSE" || errnoCodeOf(error) === "EACCES") return undefined;
    throw error;
  }
  const address = server.address();
  const own = typeof address === "object" && address !== null ? address.port : port;
  const close = (): void => {
    server.close();
    server.closeAllConnections();
  };
  return {
    redirect: `http://${HOST}:${own}${PATH}`,
    close,
    wait: (state, signal) =>
      new Promise((resolve, reject) => {
        const give = (): void => {
          close();
          reject(signal.reason);
        };
        if (signal.aborted) give();
        signal.addEventListener("abort", give, { once: true });
        answer = (request, shown) => {
          const said = readAnswer(request, own, state);
          if (said === undefined) return LOST;
          answer = () => LOST;
          signal.removeEventListener("abort", give);
          // Wait until the page is sent: the caller closes all connections then.
          void shown.then(() => resolve(said));
          return said.has("error") ? REFUSED : DONE;
        };
      }),
  };
}

function open(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ port, host: HOST, exclusive: true }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** @returns undefined if the request is not the expected redirect */
function readAnswer(
  { method, url = "", headers }: IncomingMessage,
  port: number,
  state: string,
): URLSearchParams | undefined {
  if (method !== "GET" || url.length > MAX_URL) return undefined;
  // Another Host means DNS rebinding.
  if (headers.host !== `${HOST}:${port}`) return undefined;
  const base = `http://${HOST}`;
  if (!URL.canParse(url, base)) return undefined;
  const { pathname, searchParams } = new URL(url, base);
  if (pathname !== PATH || !isSame(searchParams.get("state") ?? "", state)) return undefined;
  return searchParams.has("code") || searchParams.has("error") ? searchParams : undefined;
}

/** Compares in constant time. */
function isSame(given: string, wanted: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(wanted)];
  const { timingSafeEqual } = process.getBuiltinModule("node:crypto");
  return a.length === b.length && timingSafeEqual(a, b);
}

interface Page {
  readonly status: number;
  readonly title: string;
  readonly text: string;
}

const DONE: Page = {
  status: 200,
  title: "Thank you",
  text: "toolmux has the answer and goes on by itself. This page can be closed.",
};
const REFUSED: Page = {
  status: 200,
  title: "Not authorized",
  text: "The authorization was not given. This page can be closed; toolmux says more.",
};
const LOST: Page = { status: 404, title: "Nothing here", text: "Nobody waits for this." };

function show({ status, title, text }: Page, response: ServerResponse): void {
  const body = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>${title}</title>
<style>body{font:1.2rem system-ui;margin:20vh auto;max-width:32rem;padding:0 1rem}</style>
<h1>${title}</h1><p>${text}</p></html>
`;
  response.writeHead(status, {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy":
      "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    connection: "close",
  });
  response.end(body);
}
