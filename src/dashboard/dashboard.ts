/**
 * dashboard/: a page that shows and controls running hubs through their control API. `dashboard.ts` has the routes and
 * the checks of each request; `hubs.ts` finds the hubs to show and passes requests on to them; `page/` has the sources
 * of the page. Main type: `Dashboard`. Start here.
 */
import { Buffer } from "node:buffer";
import { createHmac, timingSafeEqual } from "node:crypto";
import { type Context, Hono } from "hono";
import * as v from "valibot";
import { type Clock, systemClock } from "../base/clock.ts";
import { type ErrorCode, HubError, toHubError, describeFault } from "../base/errors.ts";
import { readBody, readBodyFirst } from "../control/requests.ts";
import type { RequestInfo } from "../frontend/http/listener.ts";
import type { DashboardHubs } from "./hubs.ts";
import type { ClientAppDocument } from "../operations/documents.ts";
import type { SharingOffer } from "../operations/share.ts";
import type { PageFiles } from "./page-files.ts";
import type { PageOrigin } from "./page-origin.ts";
import { HubQuestions } from "./questions.ts";
import { type IssuedToken, makeToken, Tokens } from "./tokens.ts";

export interface DashboardOptions {
  /** The path of the page without its trailing slash: empty, or such as `/ui`. */
  readonly base: string;
  /** The only origin at which the page and its API are served. */
  readonly origin: Pick<PageOrigin, "isHost">;
  readonly hubs: DashboardHubs;
  /** Undefined: the dashboard belongs to a hub. */
  readonly machine?: DashboardMachine;
  /** Loads the files of the page. Called when the page is first requested. @throws {HubError} */
  readonly page: () => Promise<PageFiles>;
  readonly clock?: Clock;
  /** Receives the cause of an answer with status 500, for the log. */
  readonly logFault?: (text: string) => void;
}

/** What a dashboard of all hubs knows and does besides what one hub does. */
export interface DashboardMachine {
  /** What one hub for all clients would save: an offer for each manifest that several hubs serve. */
  sharingOffers(): Promise<readonly ShownOffer[]>;
  /** The MCP clients whose files toolmux knows. */
  clients(): Promise<readonly ClientAppDocument[]>;
  /** Starts a hub that ends with the dashboard. Settles when it can be reached. @throws {HubError} */
  startHub(): Promise<void>;
}

/** An offer to share one hub: the figures, and the command to run. */
export type ShownOffer = Pick<SharingOffer, "figures" | "command">;

export interface Dashboard {
  /** The key with which programs of this user get one-time tokens. */
  readonly key: string;
  /** Creates a one-time token, with which the page can be opened once within `TOKEN_LIFETIME`. */
  createToken(): string;
  /**
   * Answers a request to a loopback address. At another host than the page's, it only says how to get a link. Never
   * rejects.
   */
  fetch(request: Request, info: Pick<RequestInfo, "keepOpen">): Promise<Response>;
  /** Makes all tokens invalid, and ends all requests to hubs that are in flight. */
  close(): void;
}

/** How long a one-time token is valid, in ms. */
export const TOKEN_LIFETIME = 5 * 60_000;
/** How long a bearer token is valid, in ms. The page gets it in exchange for a one-time token. */
const BEARER_LIFETIME = 12 * 60 * 60_000;
const MAX_TOKENS = 16;
const MAX_BEARERS = 64;
/** Maximum number of requests that are passed on to hubs at a time, event streams included. */
const MAX_FORWARDED = 256;

/** The headers that are sent with each response. */
const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Cache-Control": "no-store",
};

/** The headers of a request that are passed on to a hub. */
const FORWARDED_HEADERS = ["Accept", "Content-Type", "Last-Event-ID"];
const SAFE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD"]);

const sessionSchema = v.strictObject({ token: v.pipe(v.string(), v.maxLength(128)) });
const tokenRequestSchema = v.strictObject({ nonce: v.pipe(v.string(), v.maxLength(128)) });

interface RouteEnv {
  Bindings: { readonly info: Pick<RequestInfo, "keepOpen"> };
}

/** Makes a dashboard. The dashboard keeps only tokens and open requests; what the page shows is kept in the browser. */
export function makeDashboard({
  base,
  origin,
  hubs,
  machine,
  page,
  clock,
  logFault,
}: DashboardOptions): Dashboard {
  const withClock = clock === undefined ? {} : { clock };
  const tokens = new Tokens({ lifetime: TOKEN_LIFETIME, limit: MAX_TOKENS, ...withClock });
  const bearers = new Tokens({ lifetime: BEARER_LIFETIME, limit: MAX_BEARERS, ...withClock });
  const key = makeToken();
  const questions = new HubQuestions(hubs, clock ?? systemClock);
  let forwarded = 0;

  const app = new Hono<RouteEnv>({ getPath: (request) => pathOf(request, base) ?? "" });
  app.use(readBodyFirst());

  app.get("/", async (c) => {
    const { "index.html": text = "" } = await page();
    return c.body(text, 200, { "Content-Type": "text/html; charset=utf-8" });
  });
  app.get("/:file{[\\w-]+\\.(?:js|css)}", async (c) => {
    const name = c.req.param("file");
    const files = await page();
    if (!Object.hasOwn(files, name)) return c.notFound();
    const type = name.endsWith(".js") ? "text/javascript" : "text/css";
    return c.body(files[name] ?? "", 200, { "Content-Type": `${type}; charset=utf-8` });
  });

  app.post("/api/session", async (c) => {
    const { token } = await readBody(c, sessionSchema);
    if (!tokens.end(token)) {
      throw new HubError(
        "accessDenied",
        "This link was used already, or is too old. Get a new one: toolmux dashboard",
      );
    }
    const { token: bearer, expiresAt } = bearers.create();
    return c.json({ bearer, expiresAt });
  });
  app.delete("/api/session", (c) => {
    requireBearer(c);
    bearers.end(bearerOf(c));
    return c.body(null, 204);
  });
  app.post("/api/tokens", async (c) => {
    const { nonce } = await readBody(c, tokenRequestSchema);
    if (!isProof(bearerOf(c), key, "ask", nonce)) {
      throw new HubError("accessDenied", "The key of this dashboard is required.");
    }
    const { token } = tokens.create();
    return c.json({ token, proof: computeProof(key, "answer", `${nonce} ${token}`) });
  });

  app.get("/api/hubs", async (c) => {
    requireBearer(c);
    return c.json({ hubs: await hubs.list() });
  });
  app.get("/api/questions", (c) => {
    requireBearer(c);
    return c.json({ hubs: questions.list() });
  });
  app.post("/api/hubs", async (c) => {
    requireBearer(c);
    if (machine === undefined) throw new HubError("usage", CANNOT_START);
    await machine.startHub();
    return c.json({ hubs: await hubs.list() });
  });
  app.get("/api/machine", async (c) => {
    requireBearer(c);
    return c.json({ clients: (await machine?.clients()) ?? [], canStart: machine !== undefined });
  });
  app.get("/api/sharing", async (c) => {
    requireBearer(c);
    return c.json({ offers: (await machine?.sharingOffers()) ?? [] });
  });
  app.all("/api/hubs/:id/v1/*", async (c) => {
    const { signal } = requireBearer(c);
    if (forwarded >= MAX_FORWARDED) {
      const text = "The dashboard has too many open requests: close other pages of it.";
      return errorAnswer(503, "usage", text);
    }
    const { method, path } = c.req;
    const apiPath = /^\/api\/hubs\/[^/]+(\/v1\/.*)$/.exec(path)?.[1];
    if (apiPath === undefined) return c.notFound();
    const { search, searchParams } = new URL(c.req.url);
    const headers = FORWARDED_HEADERS.flatMap((name) => {
      const value = c.req.header(name);
      return value === undefined ? [] : [[name, value] as const];
    });
    const body = SAFE_METHODS.has(method) ? undefined : new Uint8Array(await c.req.arrayBuffer());
    const either = AbortSignal.any([c.req.raw.signal, signal]);
    const answer = hubs.forward(c.req.param("id"), {
      method,
      path: apiPath + search,
      headers: Object.fromEntries(headers),
      body: body?.length === 0 ? undefined : body,
      signal: either,
    });
    c.env.info.keepOpen(answer);
    let isOpen = true;
    forwarded++;
    const isPage = apiPath === "/v1/events" && searchParams.get("watch") === "approvals";
    const closePage = isPage ? questions.open() : undefined;
    const onEnd = (): void => {
      if (isOpen) {
        forwarded--;
        closePage?.();
      }
      isOpen = false;
      // If the listener stayed, the signal would stay in memory until the bearer token expires.
      either.removeEventListener("abort", onEnd);
    };
    either.addEventListener("abort", onEnd, { once: true });
    return answer.then(
      (response) => watchEnd(response, onEnd),
      (error: unknown) => {
        onEnd();
        throw error;
      },
    );
  });

  app.notFound((c) =>
    errorAnswer(404, "methodNotFound", `There is no ${c.req.method} ${c.req.path}.`),
  );
  app.onError((error, c) => {
    const { code, message, httpStatus } = toHubError(error);
    // A page that is closed, or that cancels a call, ends its requests.
    const hasLeft = c.req.raw.signal.aborted;
    if (code !== "internal" || hasLeft) return errorAnswer(httpStatus, code, message);
    logFault?.(`A request of the page failed: ${describeFault(error)}`);
    return errorAnswer(httpStatus, code, "The dashboard failed.");
  });

  return {
    key,
    createToken: () => tokens.create().token,
    async fetch(request, info) {
      let response: Response;
      const path = pathOf(request, base);
      const refusal = refusalOf(request);
      if (!origin.isHost(request.headers.get("Host") ?? "")) response = refuseHost(path);
      else if (refusal !== undefined) response = errorAnswer(403, "accessDenied", refusal);
      else if (path === undefined && new URL(request.url).pathname === "/")
        response = redirectTo(`${base}/`);
      else if (path === undefined) response = errorAnswer(404, "methodNotFound", NOT_SERVED);
      // The relative URLs of the page's files are right only if the page's path ends with a slash.
      else if (path === "") response = redirectTo(`${base}/`);
      else response = await app.fetch(request, { info });
      for (const [name, value] of Object.entries(SECURITY_HEADERS))
        response.headers.set(name, value);
      return response;
    },
    close() {
      questions.close();
      tokens.clear();
      bearers.clear();
    },
  };

  function requireBearer(c: Context): IssuedToken {
    const held = bearers.find(bearerOf(c));
    if (held !== undefined) return held;
    throw new HubError(
      "accessDenied",
      "This page may not use the hub any more. Open it again: toolmux dashboard",
    );
  }
}

/** The path of a request without `base`; undefined if the request is for another path. */
function pathOf({ url }: Request, base: string): string | undefined {
  const { pathname } = new URL(url);
  const isBelow = pathname === base || pathname.startsWith(`${base}/`);
  return isBelow ? pathname.slice(base.length) : undefined;
}

const CANNOT_START = "This dashboard belongs to a hub, and starts no other.";
const NOT_SERVED = "There is nothing but the dashboard at this host.";
const HOW_TO_OPEN =
  "The dashboard is not at this address. A link opens it; to get one, run in a terminal: toolmux dashboard (for a hub with --dashboard, add its port: toolmux dashboard --port 8700)";

/**
 * The answer at a host that is not the page's: such an address may be known to others, who may have stored things for
 * it in the browser, and whose names may lead to this machine (DNS rebinding). So nothing is served but a text.
 */
function refuseHost(path: string | undefined): Response {
  if (path?.startsWith("/api/")) return errorAnswer(403, "accessDenied", HOW_TO_OPEN);
  const html = `<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>toolmux</title><p>${HOW_TO_OPEN}</p></html>\n`;
  return new Response(html, {
    status: 403,
    headers: { "Content-Type": "text/html; charset=utf-8" },
  });
}

function redirectTo(path: string): Response {
  return new Response(null, { status: 308, headers: { Location: path } });
}

/**
 * Why a request to the page's host is refused, whatever token it has: another web page may have sent it. Undefined if
 * the request is allowed.
 */
function refusalOf({ method, headers }: Request): string | undefined {
  const origin = headers.get("Origin");
  if (origin === null) {
    return SAFE_METHODS.has(method)
      ? undefined
      : "A request that changes something needs an Origin.";
  }
  const isOwn = origin.toLowerCase() === `http://${headers.get("Host")}`.toLowerCase();
  return isOwn ? undefined : "This Origin is not allowed.";
}

function bearerOf(c: Context): string {
  return /^Bearer +(\S+) *$/i.exec(c.req.header("Authorization") ?? "")?.[1] ?? "";
}

type ProofPurpose = "ask" | "answer";

/** An HMAC, which proves that a message comes from somebody who has the key. */
export function computeProof(key: string, purpose: ProofPurpose, message: string): string {
  return createHmac("sha256", key).update(`${purpose} ${message}`).digest("base64url");
}

/** Whether a text is the proof of a message, compared in constant time. */
export function isProof(
  given: string,
  key: string,
  purpose: ProofPurpose,
  message: string,
): boolean {
  const bytes = Buffer.from(given);
  const expected = Buffer.from(computeProof(key, purpose, message));
  return bytes.length === expected.length && timingSafeEqual(bytes, expected);
}

function errorAnswer(status: number, code: ErrorCode, message: string): Response {
  return Response.json({ error: { code, message } }, { status });
}

/** The response, with a body that calls `onEnd` when it has ended or is cancelled. */
function watchEnd(response: Response, onEnd: () => void): Response {
  const reader = response.body?.getReader();
  if (reader === undefined) {
    onEnd();
    return response;
  }
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (value !== undefined) return controller.enqueue(value);
        if (done) controller.close();
      } catch (error) {
        controller.error(error);
      }
      onEnd();
    },
    cancel(reason) {
      onEnd();
      return reader.cancel(reason);
    },
  });
  const { status, headers } = response;
  return new Response(body, { status, headers });
}
