/**
 * MCP over HTTP for clients (Streamable HTTP), with `/healthz`, `/readyz` and the web applications of plugins. Main
 * type: `HttpServer`, which turns each HTTP request into an answer: `session.ts` handles POSTs of legacy sessions,
 * `modern.ts` those of the modern era. Start here.
 */
import { isUtf8 } from "node:buffer";
import { setImmediate } from "node:timers";
import { type Context, type HonoRequest, Hono } from "hono";
import { type Clock, settlesWithin, systemClock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { rejectInvalidUtf8 } from "../../jsonrpc/utf8.ts";
import { isLegacyVersion } from "../../protocol/legacy.ts";
import { Deadlines } from "../../router/deadlines.ts";
import type { Transport } from "../../transport/transport.ts";
import { ALL_SERVERS, type ServerSubset, subsetOf } from "../../upstream/profile.ts";
import type { ServerStatus } from "../../upstream/status.ts";
import type { ModernRequestTarget } from "../modern/clients.ts";
import { isModernRequest } from "../modern/request.ts";
import {
  bodyErrorAnswer,
  errorAnswer,
  internalErrorAnswer,
  methodNotAllowedAnswer,
  missingSessionAnswer,
  notFoundAnswer,
  shuttingDownAnswer,
} from "./errors.ts";
import { type AccessRules, checkOrigin, checkToken } from "./guard.ts";
import { ParsedHeadCache, type ParsedHead } from "./head-cache.ts";
import {
  fromWebResponse,
  type HttpAnswer,
  type HttpRequestHead,
  type HttpServerRequest,
  noContentAnswer,
  toWebRequest,
  toWebResponse,
} from "./http1/messages.ts";
import { listenHttp, MAX_RECEIVING } from "./http1/server.ts";
import { ModernHttp } from "./modern.ts";
import { HttpSessions, MAX_SESSIONS, type SessionTransport } from "./session.ts";

/** Whether the HTTP server would accept an `initialize`; if not, why. */
export type Readiness =
  { readonly ready: true } | { readonly ready: false; readonly reason: "stopping" | "full" };

/**
 * The servers by state, as `/readyz` reports them. `initialize` is answered whatever their state, but tools of servers
 * that are not connected may be missing.
 */
export interface ServerSummary {
  readonly connected: readonly string[];
  /** Servers that should be connected, but are not. */
  readonly waiting: readonly string[];
  readonly failed: readonly { readonly server: string; readonly code: string }[];
  /** Servers that start on demand, or not at all. */
  readonly resting: readonly string[];
}

export function summaryOf(servers: readonly ServerStatus[]): ServerSummary {
  const connected: string[] = [];
  const waiting: string[] = [];
  const failed: { server: string; code: string }[] = [];
  const resting: string[] = [];
  for (const { server, goal, connections } of servers) {
    const [first] = connections;
    const best = connections.find(({ state }) => state === "connected") ?? first;
    if (goal === "down" || best === undefined) {
      resting.push(server);
    } else if (best.state === "connected") {
      connected.push(server);
    } else if (best.state === "failed") {
      failed.push({ server, code: (best.cause ?? best.lastError)?.code ?? "internal" });
    } else if (best.state === "idle" || best.state === "disconnected") {
      (goal === "up" ? waiting : resting).push(server);
    } else {
      waiting.push(server);
    }
  }
  return { connected, waiting, failed, resting };
}

/**
 * Groups requests by turns of the event loop: requests that arrive on many connections in one turn are continued
 * together, so that their messages to one server go out in one write.
 */
export class TurnBatch {
  #end: Promise<void> | undefined;

  /** Settles at the end of the current turn; waiters continue in the order in which they began to wait. */
  get end(): Promise<void> {
    this.#end ??= new Promise((resolve) =>
      setImmediate(() => {
        this.#end = undefined;
        resolve();
      }),
    );
    return this.#end;
  }
}

/** When the HTTP server closes: how long requests in flight have to finish, in ms. */
export const DRAIN_TIME = 1500;

/** What the HTTP server needs of a hub. */
export interface ServedHub {
  accept(transport: Transport, signal: AbortSignal, subset: ServerSubset): Promise<void>;
  status(): readonly ServerStatus[];
  /** Serves requests of the modern era. @param client undefined for clients that cannot be told apart */
  createModernClients(client: string | undefined): ModernRequestTarget;
  readonly activePlugins: {
    /** The response of a plugin's web application; undefined if it has none. */
    serve(plugin: string, request: Request): Promise<Response> | undefined;
  };
}

export interface HttpServerSettings extends AccessRules {
  /** Maximum length of a message, in bytes. */
  readonly maxMessage: number;
  readonly maxSessions?: number;
  readonly clock?: Clock;
}

/** The client id of all clients with the token; without a token clients cannot be told apart. */
const TOKEN_CLIENT_ID = "bearer";

/** MCP over HTTP for clients of both eras (Streamable HTTP): routes, checks, and the answer to each request. */
export class HttpServer {
  readonly #settings: HttpServerSettings;
  readonly #deadlines: Deadlines;
  readonly #turnBatch = new TurnBatch();
  readonly #hub: ServedHub;
  readonly #sessions: HttpSessions;
  readonly #modern: ModernHttp;
  readonly #app: Hono<RouteEnv>;
  readonly #heads: ParsedHeadCache;
  #isClosing = false;

  constructor(hub: ServedHub, settings: HttpServerSettings) {
    const { clock = systemClock, maxSessions = MAX_SESSIONS } = settings;
    this.#settings = settings;
    this.#heads = new ParsedHeadCache(settings);
    this.#deadlines = new Deadlines(clock);
    this.#hub = hub;
    this.#sessions = new HttpSessions({
      clock,
      deadlines: this.#deadlines,
      maxSessions,
      accept: (transport, subset) => hub.accept(transport, NEVER_ABORTED, subset),
    });
    this.#modern = new ModernHttp({
      clock,
      deadlines: this.#deadlines,
      createModernClients: () =>
        hub.createModernClients(settings.token === undefined ? undefined : TOKEN_CLIENT_ID),
    });
    this.#app = this.#buildRoutes();
  }

  /** Number of sessions. */
  get sessions(): number {
    return this.#sessions.size;
  }

  findSession(sessionId: string): SessionTransport | undefined {
    return this.#sessions.find(sessionId);
  }

  /** Never rejects. */
  readonly handle = (request: HttpServerRequest): Promise<HttpAnswer> =>
    isMcpPost(request.head) ? this.#handleMcpPost(request) : this.#handleRouted(request);

  /** Refuses new requests, waits `DRAIN_TIME` at most for those in flight, then ends all sessions. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#modern.stop();
    await settlesWithin(
      DRAIN_TIME,
      Promise.all([this.#sessions.untilIdle(), this.#modern.untilIdle()]),
    );
    this.#modern.close();
    await this.#sessions.close();
    this.#deadlines.clear();
  }

  /** POST /mcp is handled before hono's router, which would cost more than everything else here. */
  async #handleMcpPost(request: HttpServerRequest): Promise<HttpAnswer> {
    try {
      const parsed = this.#heads.parse(request.head);
      return parsed.refusal ?? (await this.#post(request, parsed, undefined));
    } catch (error) {
      return internalErrorAnswer(error);
    }
  }

  async #handleRouted(request: HttpServerRequest): Promise<HttpAnswer> {
    try {
      const webRequest = toWebRequest(request.head);
      if (webRequest === undefined) return errorAnswer(501, "This method is not served here.");
      return fromWebResponse(await this.#app.fetch(webRequest, { request }));
    } catch (error) {
      return internalErrorAnswer(error);
    }
  }

  #buildRoutes(): Hono<RouteEnv> {
    const app = new Hono<RouteEnv>();
    const guard = (answer: HttpAnswer | undefined): Response | undefined =>
      answer && toWebResponse(answer);
    app.use(async ({ env }, next) => {
      return guard(checkOrigin(env.request.head.headers, this.#settings)) ?? (await next());
    });
    app.get("/healthz", (c) => c.json({ alive: true }));
    app.get("/readyz", (c) => this.#answerReadiness(c));
    app.use(async ({ env }, next) => {
      return guard(checkToken(env.request.head.headers, this.#settings)) ?? (await next());
    });
    for (const path of ["/mcp", "/mcp/:server"]) {
      app.post(path, async ({ req, env: { request } }) =>
        toWebResponse(
          await this.#post(request, this.#heads.parse(request.head), requestedServersOf(req)),
        ),
      );
      app.get(path, ({ req, env }) =>
        toWebResponse(this.#get(env.request.head, requestedServersOf(req))),
      );
      app.delete(path, async ({ req, env }) =>
        toWebResponse(await this.#delete(env.request.head, requestedServersOf(req))),
      );
      app.all(path, () => toWebResponse(methodNotAllowedAnswer()));
    }
    for (const path of ["/plugins/:plugin", "/plugins/:plugin/*"]) {
      app.all(path, ({ req, env }) =>
        this.#servePlugin(req.raw, env.request, req.param("plugin") ?? ""),
      );
    }
    app.notFound(() => toWebResponse(notFoundAnswer()));
    app.onError((error) => toWebResponse(internalErrorAnswer(error)));
    return app;
  }

  async #post(
    request: HttpServerRequest,
    parsed: ParsedHead,
    servers: RequestedServers,
  ): Promise<HttpAnswer> {
    const subset = readSubset(servers);
    const { hasModernVersion, accepts } = parsed;
    const session =
      parsed.session !== null && !hasModernVersion
        ? this.#sessionOf(parsed, subset)
        : this.#refuseUnknownServers(servers);
    if (session !== undefined && "status" in session) return session;
    if (accepts === undefined) {
      return errorAnswer(406, "Answers are application/json or text/event-stream.");
    }
    if (!parsed.isJson) return errorAnswer(415, "Messages are application/json.");
    // Without a session only `initialize` is accepted, which is short; so is the limit.
    const limit =
      session === undefined && !hasModernVersion
        ? Math.min(MAX_INITIALIZE, this.#settings.maxMessage)
        : this.#settings.maxMessage;
    const body = await request.read(limit);
    if (typeof body === "string") return bodyErrorAnswer(body, limit);
    await this.#turnBatch.end;
    const message = isUtf8(body) ? parseMessage(body) : rejectInvalidUtf8(parseMessage(body));
    if (message.kind === "invalid") {
      const { code, id, reason } = message;
      // A server may wait for this body: it may have been meant as the response to its request.
      session?.receiveInvalid(message);
      return errorAnswer(400, `Not a JSON-RPC message: ${reason}.`, { code, id });
    }
    // Notifications and responses help requests in flight to finish, so they are accepted while closing.
    const hasRequest = message.kind === "request" || message.kind === "batch";
    if (this.#isClosing && hasRequest) return shuttingDownAnswer();
    if (hasModernVersion || (message.kind === "request" && isModernRequest(message))) {
      return this.#modern.receive(message, request, accepts, subset);
    }
    if (session !== undefined) return session.receive(message, accepts);
    const isInitialize = message.kind === "request" && message.method === "initialize";
    return isInitialize ? this.#sessions.create(message, accepts, subset) : missingSessionAnswer();
  }

  #get(head: HttpRequestHead, servers: RequestedServers): HttpAnswer {
    // Hono routes HEAD to GET; a HEAD must not open an event stream.
    if (head.method !== "GET") return methodNotAllowedAnswer();
    const parsed = this.#heads.parse(head);
    const { accepts } = parsed;
    if (accepts !== "events" && accepts !== "either") {
      return errorAnswer(406, "What is here to GET is text/event-stream.");
    }
    if (this.#isClosing) return shuttingDownAnswer();
    const session = this.#sessionOf(parsed, readSubset(servers));
    if ("status" in session) return session;
    return session.openEventStream(head.headers.get("Last-Event-ID") ?? undefined);
  }

  async #delete(head: HttpRequestHead, servers: RequestedServers): Promise<HttpAnswer> {
    const session = this.#sessionOf(this.#heads.parse(head), readSubset(servers));
    if ("status" in session) return session;
    await session.close();
    return noContentAnswer();
  }

  /** A plugin's web application gets paths relative to its own root. */
  async #servePlugin(
    webRequest: Request,
    request: HttpServerRequest,
    plugin: string,
  ): Promise<Response> {
    const { method, headers } = webRequest;
    const url = new URL(webRequest.url);
    const [, , , ...path] = url.pathname.split("/");
    url.pathname = `/${path.join("/")}`;
    const limit = this.#settings.maxMessage;
    const body = await request.read(limit);
    if (typeof body === "string") return toWebResponse(bodyErrorAnswer(body, limit));
    const abort = new AbortController();
    const unsubscribe = request.onDisconnect(() => abort.abort());
    // A web Request of method GET or HEAD cannot have a body, although one on the wire may.
    const hasNoBody = body.length === 0 || method === "GET" || method === "HEAD";
    const bodyInit = hasNoBody ? {} : { body: body as Uint8Array<ArrayBuffer> };
    const init = { method, headers, signal: abort.signal, ...bodyInit };
    const answer = await this.#hub.activePlugins.serve(plugin, new Request(url, init));
    unsubscribe();
    return answer ?? toWebResponse(notFoundAnswer());
  }

  /** 404 for names of servers that do not exist; otherwise their lists would just be empty. */
  #refuseUnknownServers(servers: RequestedServers): HttpAnswer | undefined {
    if (servers === undefined) return undefined;
    const known = this.#hub.status().map(({ server }) => server);
    const missing = servers.find((name) => !known.includes(name));
    if (missing === undefined) return undefined;
    const names = known.map((name) => `"${name}"`).join(", ") || "none";
    return errorAnswer(404, `There is no server "${missing}". There are: ${names}.`);
  }

  /**
   * The session that the request names, if it was opened for the same servers; else the answer that rejects the
   * request.
   */
  #sessionOf(
    { version, session: id }: ParsedHead,
    subset: ServerSubset,
  ): SessionTransport | HttpAnswer {
    if (version !== null && !isLegacyVersion(version)) {
      return errorAnswer(400, `This protocol version is not spoken here: ${version}.`);
    }
    if (id === null) return missingSessionAnswer();
    const session = this.#sessions.find(id);
    return session?.subset.key === subset.key
      ? session
      : errorAnswer(404, "There is no such session.");
  }

  #answerReadiness(c: Context<RouteEnv>): Response {
    const readiness = this.#readiness();
    const isAuthorized = checkToken(c.env.request.head.headers, this.#settings) === undefined;
    const servers = isAuthorized ? { servers: summaryOf(this.#hub.status()) } : {};
    return c.json({ ...readiness, ...servers }, readiness.ready ? 200 : 503);
  }

  #readiness(): Readiness {
    if (this.#isClosing) return { ready: false, reason: "stopping" };
    if (this.#sessions.isFull) return { ready: false, reason: "full" };
    return { ready: true };
  }
}

/** Hono's environment type: the values that routes get besides the request. */
interface RouteEnv {
  Bindings: { readonly request: HttpServerRequest };
}

function isMcpPost({ method, target }: HttpRequestHead): boolean {
  return method === "POST" && target === "/mcp";
}

const NEVER_ABORTED = new AbortController().signal;
/** Maximum length of a message without a session, in bytes. */
const MAX_INITIALIZE = 1024 * 1024;

/** The server names in a URL; undefined if the URL stands for all servers. */
type RequestedServers = readonly string[] | undefined;

/** The path has precedence over the query, so that access rules of a reverse proxy can rely on the path. */
function requestedServersOf(request: HonoRequest): RequestedServers {
  const one = request.param("server");
  if (one !== undefined) return [one];
  return request.queries("servers")?.flatMap((names) => names.split(","));
}

function readSubset(servers: RequestedServers): ServerSubset {
  return servers === undefined ? ALL_SERVERS : subsetOf(servers);
}

/** How long connections may take to send the last answers when the server closes, in ms. */
const FLUSH_TIME = 250;

export interface HttpSettings extends HttpServerSettings {
  /** The port to listen on; 0 for any free port. */
  readonly port: number;
  /** Memory for all messages being received together, in bytes; at least `maxMessage`. */
  readonly maxReceiving?: number;
}

/** A hub's running HTTP server. */
export interface RunningHttpServer {
  /** The URL of the MCP endpoint. */
  readonly url: string;
  /** Waits a short time for requests in flight, and ends the rest. */
  close(): Promise<void>;
}

/**
 * Serves a hub over HTTP.
 * @throws {HubError} usage if the address cannot be listened on
 */
export async function startHttpServer(
  hub: ServedHub,
  settings: HttpSettings,
): Promise<RunningHttpServer> {
  const server = new HttpServer(hub, settings);
  const { hostname, port, maxMessage } = settings;
  // The quota is at least one message of the maximum length, so that such a message alone is never rejected.
  const maxReceiving = Math.max(settings.maxReceiving ?? MAX_RECEIVING, maxMessage);
  const address = { hostname: hostname.replace(/^\[|\]$/g, ""), port, maxReceiving };
  const listener = await listenHttp({ ...address, handle: server.handle }).catch(
    (error: unknown) => {
      void server.close();
      const reason = error instanceof Error ? error.message : String(error);
      throw new HubError("usage", `Nothing can listen on ${hostname}:${port}: ${reason}`);
    },
  );
  return {
    url: `http://${hostname}:${listener.port}/mcp`,
    async close() {
      await server.close();
      await listener.close(FLUSH_TIME);
    },
  };
}
