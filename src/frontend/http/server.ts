/**
 * MCP over HTTP for clients (Streamable HTTP), with `/healthz`, `/readyz`, `/metrics` and the web applications of plugins. Main
 * type: `HttpServer`, which answers each HTTP request. `session.ts` handles POSTs of legacy sessions, `modern.ts`
 * handles POSTs of the modern era. Start here.
 */
import { HubError, describeFault } from "../../base/errors.ts";
import { isUtf8 } from "node:buffer";
import { setImmediate } from "node:timers";
import { type Context, type HonoRequest, Hono } from "hono";
import { type Clock, settlesWithin, systemClock } from "../../base/clock.ts";
import { enterStage } from "../../base/fault-injection.ts";
import type { Message, Request as RpcRequest } from "../../jsonrpc/message.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { rejectInvalidUtf8 } from "../../jsonrpc/utf8.ts";
import { isLegacyVersion } from "../../protocol/legacy.ts";
import { isModernVersion } from "../../protocol/modern.ts";
import { Deadlines } from "../../router/deadlines.ts";
import type { Transport } from "../../transport/transport.ts";
import { type Exposure, EXPOSURES } from "../../manifest/exposures.ts";
import type { Exposition } from "../../telemetry/prometheus.ts";
import type { ClientLimits } from "../../views/client-modes.ts";
import {
  ALL_SERVERS,
  intersectSubsets,
  type ServerSubset,
  subsetOf,
} from "../../upstream/profile.ts";
import {
  bestConnectionOf,
  type ServerStatus,
  summariesOf,
  summaryStateOf,
} from "../../upstream/status.ts";
import { verdictOf } from "../../upstream/verdict.ts";
import type { AcceptOptions, ClientTransport } from "../clients.ts";
import type { ModernRequestTarget } from "../modern/clients.ts";
import { isModernRequest } from "../modern/request.ts";
import { httpOrigins } from "../traced-responder.ts";
import { type AccessRules, checkOrigin } from "./guard.ts";
import { type HttpListener, listen, type RequestInfo } from "./listener.ts";
import { ModernHttp } from "./modern.ts";
import {
  DEFAULT_PRINCIPAL,
  defaultHolder,
  type Principal,
  Principals,
  type TokenHolder,
} from "./principals.ts";
import { type AcceptedTypes, parseAccept } from "./post-response.ts";
import { MAX_RECEIVING, RequestBodies } from "./request-body.ts";
import {
  bodyErrorResponse,
  errorResponse,
  internalErrorResponse,
  methodNotAllowedResponse,
  missingSessionResponse,
  noContentResponse,
  notFoundResponse,
  shuttingDownResponse,
} from "./responses.ts";
import { HttpSessions, MAX_SESSIONS, type RequestScope, type SessionTransport } from "./session.ts";

/** Whether the HTTP server would accept an `initialize`, and the reason if it would not. */
export type Readiness =
  { readonly ready: true } | { readonly ready: false; readonly reason: "stopping" | "full" };

/**
 * The servers by state, as `/readyz` reports them. The hub answers `initialize` whatever the state of its servers, but
 * tools of servers that are not connected may be missing.
 */
export interface ServerSummary {
  readonly connected: readonly string[];
  /** Servers that should be connected and have not failed, but are not connected yet. */
  readonly waiting: readonly string[];
  readonly failed: readonly { readonly server: string; readonly code: string }[];
  /** Servers that are started when they are called. */
  readonly resting: readonly string[];
  /** Servers that a command has stopped, or that the manifest disables; absent if there are none. */
  readonly stopped?: readonly string[];
  readonly disabled?: readonly string[];
}

export function summaryOf(servers: readonly ServerStatus[]): ServerSummary {
  const connected: string[] = [];
  const waiting: string[] = [];
  const failed: { server: string; code: string }[] = [];
  const resting: string[] = [];
  const stopped: string[] = [];
  const disabled: string[] = [];
  for (const status of servers) {
    const { server, goal, isStopped, connections } = status;
    const state = summaryStateOf(status);
    if (goal === "down") (isStopped ? stopped : disabled).push(server);
    else if (state === "connected") connected.push(server);
    else if (state === "idle") resting.push(server);
    else if (state === "failed") {
      const best = bestConnectionOf(connections);
      failed.push({ server, code: (best?.cause ?? best?.lastError)?.code ?? "internal" });
    } else waiting.push(server);
  }
  return {
    connected,
    waiting,
    failed,
    resting,
    ...(stopped.length > 0 && { stopped }),
    ...(disabled.length > 0 && { disabled }),
  };
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

/** Time that requests in flight have to finish when the HTTP server closes, in ms. */
export const DRAIN_TIME = 1500;

/** The parts of a hub that the HTTP server needs. */
export interface ServedHub {
  accept(
    transport: Transport,
    signal: AbortSignal,
    client: Required<Pick<AcceptOptions, "subset" | "kind" | "limits">>,
  ): Promise<void>;
  status(): readonly ServerStatus[];
  /** The reason why a mode cannot be used, as a sentence; undefined if it can be used. */
  modeFault(mode: string): string | undefined;
  /** Makes a handler of modern requests. @param client undefined for clients without a token */
  createModernClients(client: string | undefined, limits: ClientLimits): ModernRequestTarget;
  readonly activePlugins: {
    /** The response of a plugin's web application; undefined if it has none. */
    serve(plugin: string, request: Request): Promise<Response> | undefined;
  };
}

export interface HttpServerSettings extends AccessRules {
  /** The HTTP server's own bearer token, for clients that have none of their own; undefined: there is no such token. */
  readonly token: string | undefined;
  /** Clients with their own tokens; undefined: none are configured. If it is set, every request needs a valid token. */
  readonly clients?: readonly TokenHolder[] | undefined;
  /** The servers that clients of this HTTP server may see; absent: all. */
  readonly subset?: ServerSubset | undefined;
  /** Maximum length of a message, in bytes. */
  readonly maxMessage: number;
  /** The transport that is shown in the status of this server's clients; by default `http`. */
  readonly clientTransport?: ClientTransport;
  readonly maxSessions?: number;
  /**
   * Whether a new session beyond `maxSessions` ends the one that has been idle the longest; if not, the new one is
   * refused.
   */
  readonly evictsIdle?: boolean;
  /** Maximum memory for all messages that are being received at the same time, in bytes; at least `maxMessage`. */
  readonly maxReceiving?: number;
  readonly clock?: Clock;
  readonly mounted?: MountedApp;
  /** The metrics of the hub; absent: they are not served. */
  readonly metrics?: ServedMetrics;
  /** Whether requests are traced at present; absent: they are not. */
  readonly isTracing?: () => boolean;
  /** Receives the cause of an answer with status 500, for the log. */
  readonly logFault?: (text: string) => void;
}

/** Keeps what an HTTP request has besides its message, for the spans of the message's requests. */
function rememberOrigins(message: Message, headers: Headers, info: RequestInfo): void {
  const requests = message.kind === "batch" ? message.items : [message];
  const origin = {
    traceparent: headers.get("traceparent") ?? undefined,
    tracestate: headers.get("tracestate") ?? undefined,
    address: info.address?.(),
  };
  for (const request of requests) if (request.kind === "request") httpOrigins.set(request, origin);
}

/** Metrics that scrapers can read. */
export interface ServedMetrics {
  /** Whether they are served at present: another manifest may change that. */
  isServed(): boolean;
  /** @param accept the header `Accept` of the scraper; null: it has none */
  read(accept: string | null): Promise<Exposition>;
}

/** Another web application at the same address. */
export interface MountedApp {
  /** The application gets the requests for this path, such as `/ui`, and for all paths below it. */
  readonly path: string;
  /** Whether a `Host` header is that of the application alone. It gets all requests to that host. */
  isHost(host: string): boolean;
  /**
   * Answers a request. The application itself checks Host and Origin. The MCP token is not checked: it gives no access to this
   * application.
   */
  fetch(request: Request, info: RequestInfo): Promise<Response>;
}

/** MCP over HTTP for clients of both eras (Streamable HTTP): routes, checks, and the answer to each request. */
export class HttpServer {
  readonly #settings: HttpServerSettings;
  readonly #deadlines: Deadlines;
  readonly #turnBatch = new TurnBatch();
  readonly #hub: ServedHub;
  readonly #sessions: HttpSessions;
  readonly #modern: ModernHttp;
  readonly #app: Hono<RouteEnv>;
  readonly #bodies: RequestBodies;
  #principals: Principals;
  #isClosing = false;

  constructor(hub: ServedHub, settings: HttpServerSettings) {
    const { clock = systemClock, maxSessions = MAX_SESSIONS, evictsIdle = false } = settings;
    this.#settings = settings;
    // The quota is at least one message of the maximum length, so that such a message alone is never rejected.
    const maxReceiving = Math.max(settings.maxReceiving ?? MAX_RECEIVING, settings.maxMessage);
    this.#bodies = new RequestBodies(clock, maxReceiving);
    this.#deadlines = new Deadlines(clock);
    this.#hub = hub;
    this.#principals = this.#makePrincipals(settings.clients, false);
    this.#sessions = new HttpSessions({
      clock,
      deadlines: this.#deadlines,
      maxSessions,
      evictsIdle,
      accept: (transport, { subset, mode, expose, principal }) => {
        const limits = this.#limitsOf(principal?.name, mode, expose);
        const kind = settings.clientTransport ?? "http";
        return hub.accept(transport, NEVER_ABORTED, { subset, kind, limits });
      },
    });
    this.#modern = new ModernHttp({
      clock,
      deadlines: this.#deadlines,
      createModernClients: (principal) =>
        hub.createModernClients(principal, this.#limitsOf(principal, undefined, undefined)),
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

  /**
   * Replaces the clients that have their own tokens. If a client is removed, or its token or servers change, its
   * sessions end at once.
   * @param clients undefined: none are configured
   */
  setClients(clients: readonly TokenHolder[] | undefined): void {
    const before = this.#principals;
    // Once this HTTP server has required a token, no change of the manifest lets clients in without one.
    this.#principals = this.#makePrincipals(clients, before.isTokenRequired);
    const revoked: (string | undefined)[] = [...before.revokedBy(this.#principals)];
    if (this.#principals.isTokenRequired && !before.isTokenRequired) revoked.push(undefined);
    for (const principal of revoked) {
      this.#sessions.closeOf(principal);
      this.#modern.closeOf(principal);
    }
  }

  /**
   * The limits of a client. The principal's mode and exposure are looked up at each use, because a new manifest may
   * change them.
   * @param mode that the client's URL names; `expose`: the exposure that it names
   */
  #limitsOf(
    principal: string | undefined,
    mode: string | undefined,
    expose: Exposure | undefined,
  ): ClientLimits {
    const isOperator = (this.#settings.clientTransport ?? "http") !== "http";
    return {
      modes: () => [this.#principals.find(principal)?.mode, mode].filter((it) => it !== undefined),
      hasOperatorMode: !isOperator,
      ...(!isOperator && { expose: () => expose ?? this.#principals.find(principal)?.expose }),
      principal,
      servers: () =>
        this.#principals.find(principal)?.subset ?? this.#settings.subset ?? ALL_SERVERS,
    };
  }

  #makePrincipals(clients: HttpServerSettings["clients"], isTokenRequired: boolean): Principals {
    const { token } = this.#settings;
    const own = token === undefined ? [] : [defaultHolder(token)];
    const isRequired = isTokenRequired || token !== undefined || clients !== undefined;
    const { subset } = this.#settings;
    // If a configured client has the same token as the HTTP server, the token identifies the client, whose limits are
    // narrower.
    const holders = [...own, ...(clients ?? [])].map((holder) =>
      subset === undefined
        ? holder
        : { ...holder, subset: intersectSubsets(subset, holder.subset) },
    );
    return new Principals(holders, isRequired);
  }

  /** Answers a request. Host, Origin and token are checked before anything else is read. Never rejects. */
  readonly fetch = async (request: Request, info: RequestInfo): Promise<Response> => {
    try {
      const { mounted } = this.#settings;
      if (mounted?.isHost(request.headers.get("Host") ?? "")) {
        return await mounted.fetch(request, info);
      }
      const refusal = checkOrigin(request.headers, this.#settings);
      if (refusal !== undefined) return refusal;
      const identified = this.#principals.identify(request.headers);
      const isRefused = identified instanceof Response;
      const unauthorized = isRefused ? identified : undefined;
      const principal = isRefused ? undefined : identified;
      // A reverse proxy that allows only some paths checks the path that was sent, so no other path counts.
      if (!info.isPathAsSent) {
        return unknownPathResponse(new URL(request.url).pathname, unauthorized);
      }
      return await this.#app.fetch(request, { unauthorized, principal, info });
    } catch (error) {
      return this.#answerFault(error);
    }
  };

  /** Ends a request whose handling has thrown. The cause is logged. */
  #answerFault(error: unknown): Response {
    this.#settings.logFault?.(`A request could not be handled: ${describeFault(error)}`);
    return internalErrorResponse(error);
  }

  /**
   * Serves on a port; 0 for any free port. Rejects with the runtime's error.
   * @param hostname host name or address; IPv6 without brackets
   */
  listen(hostname: string, port: number): Promise<HttpListener> {
    const { mounted } = this.#settings;
    const ofMounted = mounted === undefined ? [] : ["/", mounted.path, `${mounted.path}/*`];
    const exactPaths = [...STATUS_PATHS, ...MCP_PATHS, ...PLUGIN_PATHS, ...ofMounted];
    return listen({ address: { hostname, port }, exactPaths, fetch: this.fetch });
  }

  /** Refuses new requests, waits at most `DRAIN_TIME` ms for requests in flight, then ends all sessions. */
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
    this.#bodies.close();
  }

  /**
   * Builds the routes. Each has one handler and there is no middleware, because hono calls a single handler directly,
   * but awaits a chain of handlers.
   */
  #buildRoutes(): Hono<RouteEnv> {
    const app = new Hono<RouteEnv>();
    const status = (answer: Route): Route => {
      return (c) => (STATUS_URL.test(c.req.raw.url) ? answer(c) : notFoundResponse());
    };
    app.get(
      "/healthz",
      status((c) => c.json({ alive: true })),
    );
    app.get(
      "/readyz",
      status((c) => this.#answerReadiness(c)),
    );
    app.get(
      METRICS_PATH,
      status((c) => this.#answerMetrics(c)),
    );
    for (const path of MCP_PATHS) {
      const atPath = (answer: Route): Route =>
        authorized((c) => {
          return MCP_URL.test(c.req.raw.url) ? answer(c) : notFoundResponse();
        });
      app.post(
        path,
        atPath((c) => this.#post(c.req, c.env)),
      );
      app.get(
        path,
        atPath((c) => this.#get(c.req, c.env.principal)),
      );
      app.delete(
        path,
        atPath((c) => this.#delete(c.req, c.env.principal)),
      );
      app.all(path, atPath(methodNotAllowedResponse));
    }
    for (const path of PLUGIN_PATHS) {
      const serve: Route = ({ req, env }) =>
        this.#servePlugin(req.raw, req.param("plugin") ?? "", env.info);
      app.all(path, authorized(serve));
    }
    const { mounted } = this.#settings;
    if (mounted !== undefined) {
      for (const path of [mounted.path, `${mounted.path}/*`]) {
        app.all(path, ({ req, env }) => mounted.fetch(req.raw, env.info));
      }
      // A person who opens the address of the hub in a browser looks for the page.
      app.get("/", (c) => c.redirect(`${mounted.path}/`));
    }
    app.notFound((c) => unknownPathResponse(c.req.path, c.env.unauthorized));
    app.onError((error) => this.#answerFault(error));
    return app;
  }

  async #post(request: McpRequest, { info, principal }: RouteEnv["Bindings"]): Promise<Response> {
    const { headers } = request.raw;
    const scope = this.#scopeOf(request, principal);
    const version = headers.get(VERSION_HEADER);
    const hasModernVersion = isModernVersion(version);
    const sessionId = hasModernVersion ? null : headers.get(SESSION_HEADER);
    const found =
      sessionId === null
        ? this.#refuseUnknownNames(request, scope)
        : this.#sessionOf(sessionId, version, scope);
    const refusal = found instanceof Response ? found : undefined;
    const session = found instanceof Response ? undefined : found;
    // An `initialize` begins a new session, whatever session id it is sent with. For all else, a session that is not
    // found has precedence over other faults of the request.
    const isUnknownSession = sessionId !== null && refusal?.status === 404;
    if (refusal !== undefined && !isUnknownSession) return refusal;
    const accepts = parseAccept(headers.get("Accept"));
    if (refusal !== undefined && (accepts === undefined || !isJson(headers.get("Content-Type"))))
      return refusal;
    if (accepts === undefined) {
      return errorResponse(406, "Accept must allow application/json or text/event-stream.");
    }
    if (!isJson(headers.get("Content-Type"))) {
      return errorResponse(415, "Content-Type must be application/json.");
    }
    // Apart from modern requests, only `initialize` is accepted without a session. It is short, so the limit is low.
    const limit =
      session === undefined && !hasModernVersion
        ? Math.min(MAX_INITIALIZE, this.#settings.maxMessage)
        : this.#settings.maxMessage;
    const body = await this.#bodies.read(request.raw, limit);
    if (typeof body === "string") return refusal ?? bodyErrorResponse(body, limit);
    await this.#turnBatch.end;
    enterStage("httpPost");
    const message = isUtf8(body) ? parseMessage(body) : rejectInvalidUtf8(parseMessage(body));
    const isInitialize = message.kind === "request" && message.method === "initialize";
    if (refusal !== undefined && !isInitialize) return refusal;
    if (message.kind === "invalid") {
      const { code, id, reason } = message;
      // If the client meant this body as the response to a server's request, the session makes that request fail at
      // once.
      session?.receiveInvalid(message);
      return errorResponse(400, `Not a JSON-RPC message: ${reason}.`, { code, id });
    }
    // Notifications and responses help requests in flight to finish, so they are accepted while the HTTP server closes.
    const hasRequest = message.kind === "request" || message.kind === "batch";
    if (this.#isClosing && hasRequest) return shuttingDownResponse();
    if (this.#settings.isTracing?.() === true) rememberOrigins(message, headers, info);
    const isModern = hasModernVersion || (message.kind === "request" && isModernRequest(message));
    const response = isModern
      ? this.#modern.receive(message, request.raw, accepts, scope)
      : isInitialize
        ? this.#beginSession(message, request, sessionId, accepts, scope)
        : (session?.receive(message, accepts) ?? missingSessionResponse());
    const mayBeSilent = accepts === "json" || session?.isPaused === true;
    if (mayBeSilent && response instanceof Promise) info.keepOpen(response);
    return response;
  }

  /**
   * Answers `initialize`, and begins a session with an id of its own. A client may send the id of a session that it had
   * before: if that is alive and the client's own, it ends. That another client has such a session cannot be seen.
   */
  async #beginSession(
    message: RpcRequest,
    request: McpRequest,
    sessionId: string | null,
    accepts: AcceptedTypes,
    scope: RequestScope,
  ): Promise<Response> {
    const refusal = this.#refuseUnknownNames(request, scope);
    if (refusal !== undefined) return refusal;
    const previous = sessionId === null ? undefined : this.#sessions.find(sessionId);
    if (previous !== undefined && previous.scope.principal?.name === scope.principal?.name)
      await previous.close();
    return this.#sessions.create(message, accepts, scope);
  }

  #get(request: McpRequest, principal: Principal | undefined): Response {
    const { headers, method } = request.raw;
    // Hono routes HEAD to GET; a HEAD must not open an event stream.
    if (method !== "GET") return methodNotAllowedResponse();
    const accepts = parseAccept(headers.get("Accept"));
    if (accepts !== "events" && accepts !== "either") {
      return errorResponse(406, "A GET answers with text/event-stream only: Accept must allow it.");
    }
    if (this.#isClosing) return shuttingDownResponse();
    const session = this.#findSession(request, principal);
    if (session instanceof Response) return session;
    return session.openEventStream(headers.get("Last-Event-ID") ?? undefined);
  }

  async #delete(request: McpRequest, principal: Principal | undefined): Promise<Response> {
    const session = this.#findSession(request, principal);
    if (session instanceof Response) return session;
    await session.close();
    return noContentResponse();
  }

  /** Passes a request to a plugin's web application, with the path relative to the application's root. */
  async #servePlugin(request: Request, plugin: string, info: RequestInfo): Promise<Response> {
    const { method, headers, signal } = request;
    if (!WEB_METHODS.has(method)) return errorResponse(501, "This HTTP method is not supported.");
    const url = new URL(request.url);
    const [, , , ...path] = url.pathname.split("/");
    url.pathname = `/${path.join("/")}`;
    const limit = this.#settings.maxMessage;
    const body = await this.#bodies.read(request, limit);
    if (typeof body === "string") return bodyErrorResponse(body, limit);
    // A web `Request` with method GET or HEAD cannot have a body, although such an HTTP request may.
    const hasNoBody = body.length === 0 || method === "GET" || method === "HEAD";
    const bodyInit = hasNoBody ? {} : { body: body as Uint8Array<ArrayBuffer> };
    const pluginRequest = new Request(url, { method, headers, signal, ...bodyInit });
    const response = this.#hub.activePlugins.serve(plugin, pluginRequest);
    if (response === undefined) return notFoundResponse();
    info.keepOpen(response);
    return withoutConnectionHeaders(await response);
  }

  /**
   * Responds 404 if the URL names a server, mode or exposure that does not exist: a client whose URL has a typing error would
   * otherwise get empty lists, or see more than it should.
   */
  #refuseUnknownNames(request: McpRequest, { limit, mode }: RequestScope): Response | undefined {
    const expose = request.query("expose");
    if (expose !== undefined && exposureNamed(expose) === undefined) {
      const names = EXPOSURES.map((name) => `"${name}"`).join(", ");
      const text = `There is no exposure ${JSON.stringify(expose)}. The exposures are: ${names}.`;
      return errorResponse(404, text);
    }
    // The reason is not passed on: it names other modes, and files of this machine.
    if (mode !== undefined && this.#hub.modeFault(mode) !== undefined)
      return errorResponse(
        404,
        `There is no mode ${JSON.stringify(mode)} that this client can use.`,
      );
    const servers = requestedServersOf(request);
    if (servers === undefined) return undefined;
    const known = this.#hub.status().flatMap(({ server }) => (limit.has(server) ? [server] : []));
    const missing = servers.find((name) => !known.includes(name));
    if (missing === undefined) return undefined;
    const names = known.map((name) => `"${name}"`).join(", ") || "none";
    return errorResponse(404, `There is no server "${missing}". The servers are: ${names}.`);
  }

  /** The servers, mode and exposure that a request asks for, limited to the servers that its principal may see. */
  #scopeOf(request: McpRequest, principal: Principal | undefined): RequestScope {
    const servers = requestedServersOf(request);
    const limit = principal?.subset ?? this.#settings.subset ?? ALL_SERVERS;
    const subset = servers === undefined ? limit : intersectSubsets(limit, subsetOf(servers));
    const expose = exposureNamed(request.query("expose"));
    return { principal, limit, subset, mode: request.query("mode"), expose };
  }

  #findSession(request: McpRequest, principal: Principal | undefined): SessionTransport | Response {
    const { headers } = request.raw;
    const scope = this.#scopeOf(request, principal);
    const id = headers.get(SESSION_HEADER);
    const refusal = id === null ? this.#refuseUnknownNames(request, scope) : undefined;
    return refusal ?? this.#sessionOf(id, headers.get(VERSION_HEADER), scope);
  }

  /**
   * Finds the session with an id.
   * @returns the session, if the same principal opened it for the same servers, mode and exposure; else the response that rejects
   * the request
   * @param version the protocol version that the request names
   */
  #sessionOf(
    id: string | null,
    version: string | null,
    { subset, mode, expose, principal }: RequestScope,
  ): SessionTransport | Response {
    if (version !== null && !isLegacyVersion(version)) {
      return errorResponse(400, `This protocol version is not supported: ${version}.`);
    }
    if (id === null) return missingSessionResponse();
    const session = this.#sessions.find(id);
    const scope = session?.scope;
    return session !== undefined &&
      scope?.subset.key === subset.key &&
      scope.mode === mode &&
      scope.expose === expose &&
      scope.principal?.name === principal?.name
      ? session
      : errorResponse(404, "This session does not exist, or has ended: send initialize.");
  }

  #answerReadiness(c: Context<RouteEnv>): Response {
    const readiness = this.#readiness();
    const isAuthorized = c.env.unauthorized === undefined;
    const limit = c.env.principal?.subset ?? this.#settings.subset ?? ALL_SERVERS;
    const status = this.#hub.status().filter(({ server }) => limit.has(server));
    const servers = isAuthorized
      ? { verdict: verdictOf(summariesOf(status)), servers: summaryOf(status) }
      : {};
    return c.json({ ...readiness, ...servers }, readiness.ready ? 200 : 503);
  }

  /** Answers a scraper. Metrics name all servers, tools and clients, so they are for the operator alone. */
  async #answerMetrics({ req, env }: Context<RouteEnv>): Promise<Response> {
    const { metrics } = this.#settings;
    if (metrics?.isServed() !== true) return notFoundResponse();
    if (env.unauthorized !== undefined) return env.unauthorized;
    if (env.principal !== undefined && env.principal.name !== DEFAULT_PRINCIPAL)
      return errorResponse(403, "Metrics need the hub's own token: this one belongs to a client.");
    const { contentType, text } = await metrics.read(req.raw.headers.get("Accept"));
    return new Response(text, { headers: { "Content-Type": contentType } });
  }

  #readiness(): Readiness {
    if (this.#isClosing) return { ready: false, reason: "stopping" };
    if (this.#sessions.isFull) return { ready: false, reason: "full" };
    return { ready: true };
  }
}

/** Hono's environment type: the values that routes get besides the request. */
interface RouteEnv {
  Bindings: {
    /** The response that refuses the request because of its token; undefined if the token is right or not needed. */
    readonly unauthorized: Response | undefined;
    /** The principal that sent the request; undefined if the request is refused, or if no token is required. */
    readonly principal: Principal | undefined;
    readonly info: RequestInfo;
  };
}

/** A request for one of `MCP_PATHS`. */
type McpRequest = HonoRequest<"/mcp/:server">;

type Route = (c: Context<RouteEnv>) => Response | Promise<Response>;

/** Makes a route that answers only requests with a valid token, if a token is required. */
function authorized(answer: Route): Route {
  return (c) => c.env.unauthorized ?? answer(c);
}

const MCP_PATHS = ["/mcp", "/mcp/:server"];
const PLUGIN_PATHS = ["/plugins/:plugin", "/plugins/:plugin/*"];
const METRICS_PATH = "/metrics";
const STATUS_PATHS = ["/healthz", "/readyz", METRICS_PATH];
/** A URL of one of `STATUS_PATHS` without percent-encoding. */
const STATUS_URL = /^[\w+]+:\/\/[^/]*\/(?:healthz|readyz|metrics)(?:$|\?)/;
/**
 * A URL of `/mcp` or `/mcp/SERVER` in which no letter, digit or other unreserved character (RFC 3986, 2.3) is
 * percent-encoded: hono decodes paths, but a reverse proxy may not.
 */
const MCP_URL =
  /^[\w+]+:\/\/[^/]*\/mcp(?:$|\?|\/(?![^?]*%(?:2[de]|3\d|[46][1-9a-f]|[57][\da]|5f|7e)))/i;
/**
 * Paths under which nobody learns without a token whether something is there. All other paths that have no route answer
 * 404, with or without a token: clients look for `/.well-known/…` before they have one.
 */
const GUARDED_PATH = /^\/(?:mcp|ui|plugins)(?:\/|$)/;
/** @param unauthorized the response to a request without a valid token; undefined if it has one */
function unknownPathResponse(path: string, unauthorized: Response | undefined): Response {
  if (!GUARDED_PATH.test(path)) return notFoundResponse();
  return unauthorized ?? notFoundResponse(MCP_PATH_WITH_SLASH.exec(path)?.[1]);
}

/** A path that would be one of `MCP_PATHS` without the slash at its end. */
const MCP_PATH_WITH_SLASH = /^(\/mcp(?:\/[^/]+)?)\/+$/;
const VERSION_HEADER = "MCP-Protocol-Version";
const SESSION_HEADER = "Mcp-Session-Id";

function isJson(contentType: string | null): boolean {
  return (
    contentType === "application/json" || /^application\/json\s*(?:;|$)/i.test(contentType ?? "")
  );
}

/** The HTTP methods that `Request` supports in every runtime. For others, some runtimes throw or use GET instead. */
const WEB_METHODS: ReadonlySet<string> = new Set(
  "GET HEAD POST PUT PATCH DELETE OPTIONS QUERY".split(" "),
);

/** Headers about the connection or the framing, which the HTTP server itself writes (RFC 9110, 7.6.1). */
const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "date",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
]);

/** The response of a plugin's web application, without the headers that only the HTTP server may set. */
function withoutConnectionHeaders({ status, headers, body }: Response): Response {
  const ownHeaders = [...headers].filter(([name]) => !CONNECTION_HEADERS.has(name.toLowerCase()));
  // `Response.error()` has status 0, which cannot be sent.
  return new Response(body, { status: status === 0 ? 500 : status, headers: ownHeaders });
}

const NEVER_ABORTED = new AbortController().signal;
/** Maximum length, in bytes, of a legacy message that belongs to no session. */
const MAX_INITIALIZE = 1024 * 1024;

/** The exposure of this name; undefined if there is none. */
function exposureNamed(name: string | undefined): Exposure | undefined {
  return EXPOSURES.find((each) => each === name);
}

/** The server names in a URL; undefined if the URL stands for all servers. */
type RequestedServers = readonly string[] | undefined;

/** Reads the server names. The path has precedence over the query, so that a reverse proxy can filter by path. */
function requestedServersOf(request: McpRequest): RequestedServers {
  const one = request.param("server");
  if (one !== undefined) return [one];
  return request.queries("servers")?.flatMap((names) => names.split(","));
}

/** Time that connections have to send their last responses when the server closes, in ms. */
const FLUSH_TIME = 250;

export interface HttpSettings extends HttpServerSettings {
  /** The port to listen on; 0 for any free port. */
  readonly port: number;
}

/** A hub's running HTTP server. */
export interface RunningHttpServer {
  /** The URL of the MCP endpoint. */
  readonly url: string;
  /** Replaces the clients that have their own tokens; undefined: none are configured. */
  setClients(clients: readonly TokenHolder[] | undefined): void;
  /** Waits a short time for requests in flight, and then ends those that are still in flight. */
  close(): Promise<void>;
}

/**
 * Serves a hub over HTTP.
 * @throws {HubError} usage if the address cannot be listened on; its cause is the system's error
 */
export async function startHttpServer(
  hub: ServedHub,
  settings: HttpSettings,
): Promise<RunningHttpServer> {
  const server = new HttpServer(hub, settings);
  const { hostname, port } = settings;
  const listener = await server
    .listen(hostname.replace(/^\[|\]$/g, ""), port)
    .catch((error: unknown) => {
      void server.close();
      const reason = error instanceof Error ? error.message : String(error);
      const text = `toolmux cannot listen on ${hostname}:${port}: ${reason}`;
      throw new HubError("usage", text, { cause: error });
    });
  return {
    url: `http://${hostname}:${listener.port}/mcp`,
    setClients: (clients) => server.setClients(clients),
    async close() {
      await server.close();
      await listener.close(FLUSH_TIME);
    },
  };
}
