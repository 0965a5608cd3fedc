import { Buffer } from "node:buffer";
import type { IncomingMessage, ServerResponse, Server } from "node:http";
import process from "node:process";
import { errnoCodeOf } from "../process/process-table.ts";

/** A local HTTP server that receives the browser's redirect at the end of a login. */
export interface CallbackServer {
  /** The redirect URI. It must be registered and sent exactly like this. */
  readonly redirectUri: string;
  /** Resolves with the query parameters of the redirect that has this `state`; rejects with the signal's reason. */
  wait(state: string, signal: AbortSignal): Promise<URLSearchParams>;
  close(): void;
}

const CALLBACK_PATH = "/callback";
const HOST = "127.0.0.1";
/** Maximum length of a request URL, in characters. */
const MAX_URL_LENGTH = 16 * 1024;

/** Opens a server on 127.0.0.1. @param port 0: any free port @returns undefined if the port is in use or forbidden */
export async function openCallbackServer(port: number): Promise<CallbackServer | undefined> {
  const { createServer } = await import("node:http");
  let respond: (request: IncomingMessage, shown: Promise<void>) => Page = () => NOT_FOUND_PAGE;
  const server = createServer({ maxHeaderSize: 2 * MAX_URL_LENGTH }, (request, response) => {
    const pageSent = new Promise<void>((resolve) => response.once("close", resolve));
    sendPage(respond(request, pageSent), response);
    request.resume();
  });
  server.requestTimeout = 5000;
  try {
    await listenOn(server, port);
  } catch (error) {
    if (errnoCodeOf(error) === "EADDRINUSE" || errnoCodeOf(error) === "EACCES") return undefined;
    throw error;
  }
  const address = server.address();
  const ownPort = typeof address === "object" && address !== null ? address.port : port;
  const close = (): void => {
    server.close();
    server.closeAllConnections();
  };
  return {
    redirectUri: `http://${HOST}:${ownPort}${CALLBACK_PATH}`,
    close,
    wait: (state, signal) =>
      new Promise((resolve, reject) => {
        const onAbort = (): void => {
          close();
          reject(signal.reason);
        };
        if (signal.aborted) onAbort();
        signal.addEventListener("abort", onAbort, { once: true });
        respond = (request, shown) => {
          const params = readRedirect(request, ownPort, state);
          if (params === undefined) return NOT_FOUND_PAGE;
          respond = () => NOT_FOUND_PAGE;
          signal.removeEventListener("abort", onAbort);
          // Resolve only after the page is sent, because the caller closes all connections when this promise resolves.
          void shown.then(() => resolve(params));
          return params.has("error") ? DENIED_PAGE : SUCCESS_PAGE;
        };
      }),
  };
}

function listenOn(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ port, host: HOST, exclusive: true }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** @returns undefined if the request is not the expected redirect */
function readRedirect(
  { method, url = "", headers }: IncomingMessage,
  port: number,
  state: string,
): URLSearchParams | undefined {
  if (method !== "GET" || url.length > MAX_URL_LENGTH) return undefined;
  // A different Host header indicates a DNS rebinding attack.
  if (headers.host !== `${HOST}:${port}`) return undefined;
  const base = `http://${HOST}`;
  if (!URL.canParse(url, base)) return undefined;
  const { pathname, searchParams } = new URL(url, base);
  if (pathname !== CALLBACK_PATH || !isEqualConstantTime(searchParams.get("state") ?? "", state))
    return undefined;
  return searchParams.has("code") || searchParams.has("error") ? searchParams : undefined;
}

/** Compares in constant time, so that timing reveals nothing about the expected text. */
function isEqualConstantTime(actual: string, expected: string): boolean {
  const [a, b] = [Buffer.from(actual), Buffer.from(expected)];
  const { timingSafeEqual } = process.getBuiltinModule("node:crypto");
  return a.length === b.length && timingSafeEqual(a, b);
}

interface Page {
  readonly status: number;
  readonly title: string;
  readonly text: string;
}

const SUCCESS_PAGE: Page = {
  status: 200,
  title: "Thank you",
  text: "toolmux is now authorized. You can close this page.",
};
const DENIED_PAGE: Page = {
  status: 200,
  title: "Not authorized",
  text: "Access was denied. You can close this page; see toolmux for details.",
};
const NOT_FOUND_PAGE: Page = {
  status: 404,
  title: "Not found",
  text: "No login is in progress here.",
};

function sendPage({ status, title, text }: Page, response: ServerResponse): void {
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
