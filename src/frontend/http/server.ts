/**
 * MCP over HTTP for clients (Streamable HTTP), with `/healthz`, `/readyz` and the web applications of plugins. Main
 * type: `HttpServer`, which turns each HTTP request into an answer: `session.ts` handles POSTs of legacy sessions,
 * `modern.ts` those of the modern era. Start here.
 */
import { isUtf8 } from "node:buffer";
import { type Context, Hono, type HonoRequest } from "hono";
import { type Clock, systemClock } from "../../base/clock.ts";
import { isLegacyVersion } from "../../protocol/legacy.ts";
import { Deadlines } from "../../router/deadlines.ts";
import type { ServerStatus } from "../../upstream/status.ts";
import { ALL_SERVERS, type ServerSubset, subsetOf } from "../../upstream/scope.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import { rejectInvalidUtf8 } from "../../jsonrpc/utf8.ts";
import { settlesWithin } from "../../base/grace.ts";
import type { Transport } from "../../transport/transport.ts";
import { isModern } from "../modern/request.ts";
import type { Taker } from "../modern/clients.ts";
import { type Answer, answerOf, done, requestOf, responseOf } from "./http1/answer.ts";
import { type Guard, refuseStranger, refuseUnknown } from "./guard.ts";
import type { Query, QueryHead } from "./http1/messages.ts";
import { type Readiness, standingOf } from "./readiness.ts";
import {
  refuse,
  refuseBody,
  refuseEnd,
  refuseFailure,
  refuseMethod,
  refuseNothing,
  refuseSessionless,
} from "./errors.ts";
import { type Saying, Sayings } from "./head-cache.ts";
import type { SessionLink } from "./session.ts";
import { MOST_SESSIONS, Sessions } from "./sessions.ts";
import { Stateless } from "./modern.ts";
import { Turn } from "./turn.ts";

/** How long requests in flight may finish when the server closes, in ms. */
export const DRAIN = 1500;

/** What the HTTP server needs of a hub. */
export interface FaceHub {
  accept(link: Transport, signal: AbortSignal, scope: ServerSubset): Promise<void>;
  status(): readonly ServerStatus[];
  /** Serves requests of the modern era. @param clientId undefined: clients cannot be told apart */
  createModernClients(client: string | undefined): Taker;
  readonly activePlugins: {
    /** The response of a plugin's web application; undefined if it has none. */
    serve(plugin: string, request: Request): Promise<Response> | undefined;
  };
}

export interface FaceSettings extends Guard {
  /** Longest message that is read, in bytes. */
  readonly maxMessage: number;
  readonly maxSessions?: number;
  readonly clock?: Clock;
}

/** Client id of everyone who has the token; without a token clients cannot be told apart. */
const PRINCIPAL = "bearer";

/** MCP over HTTP for clients of both eras (Streamable HTTP): routes, checks, and the answer to each request. */
export class Face {
  readonly #settings: FaceSettings;
  readonly #deadlines: Deadlines;
  readonly #turn = new Turn();
  readonly #hub: FaceHub;
  readonly #sessions: Sessions;
  readonly #stateless: Stateless;
  readonly #app: Hono<Asked>;
  readonly #sayings: Sayings;
  #isClosing = false;

  constructor(hub: FaceHub, settings: FaceSettings) {
    const { clock = systemClock, maxSessions = MOST_SESSIONS } = settings;
    this.#settings = settings;
    this.#sayings = new Sayings(settings);
    this.#deadlines = new Deadlines(clock);
    this.#hub = hub;
    this.#sessions = new Sessions({
      clock,
      deadlines: this.#deadlines,
      most: maxSessions,
      accept: (link, scope) => hub.accept(link, NEVER, scope),
    });
    this.#stateless = new Stateless({
      clock,
      deadlines: this.#deadlines,
      gather: () => hub.createModernClients(settings.token === undefined ? undefined : PRINCIPAL),
    });
    this.#app = this.#route();
  }

  /** Number of sessions. */
  get sessions(): number {
    return this.#sessions.size;
  }

  find(session: string): SessionLink | undefined {
    return this.#sessions.find(session);
  }

  /** Never rejects. */
  readonly answer = (query: Query): Promise<Answer> =>
    isUsual(query.head) ? this.#serveUsual(query) : this.#serve(query);

  /** Refuses new requests, waits `DRAIN_TIME` at most for those in flight, then ends all sessions. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#stateless.stop();
    await settlesWithin(DRAIN, Promise.all([this.#sessions.idle(), this.#stateless.idle()]));
    this.#stateless.close();
    await this.#sessions.close();
    this.#deadlines.clear();
  }

  /** POST /mcp without the router, which would cost more than everything else here. */
  async #serveUsual(query: Query): Promise<Answer> {
    try {
      const saying = this.#sayings.of(query.head);
      return saying.refusal ?? (await this.#post(query, saying, undefined));
    } catch (error) {
      return refuseFailure(error);
    }
  }

  async #serve(query: Query): Promise<Answer> {
    try {
      const request = requestOf(query.head);
      if (request === undefined) return refuse(501, "This method is not served here.");
      return answerOf(await this.#app.fetch(request, { query }));
    } catch (error) {
      return refuseFailure(error);
    }
  }

  #route(): Hono<Asked> {
    const app = new Hono<Asked>();
    const guard = (answer: Answer | undefined): Response | undefined =>
      answer && responseOf(answer);
    app.use(async ({ env }, next) => {
      return guard(refuseStranger(env.query.head.fields, this.#settings)) ?? (await next());
    });
    app.get("/healthz", (c) => c.json({ alive: true }));
    app.get("/readyz", (c) => this.#tellReadiness(c));
    app.use(async ({ env }, next) => {
      return guard(refuseUnknown(env.query.head.fields, this.#settings)) ?? (await next());
    });
    for (const path of ["/mcp", "/mcp/:server"]) {
      app.post(path, async ({ req, env: { query } }) =>
        responseOf(await this.#post(query, this.#sayings.of(query.head), serversIn(req))),
      );
      app.get(path, ({ req, env }) => responseOf(this.#get(env.query.head, serversIn(req))));
      app.delete(path, async ({ req, env }) =>
        responseOf(await this.#delete(env.query.head, serversIn(req))),
      );
      app.all(path, () => responseOf(refuseMethod()));
    }
    for (const path of ["/plugins/:plugin", "/plugins/:plugin/*"]) {
      app.all(path, ({ req, env }) => this.#visit(req.raw, env.query, req.param("plugin") ?? ""));
    }
    app.notFound(() => responseOf(refuseNothing()));
    app.onError((error) => responseOf(refuseFailure(error)));
    return app;
  }

  async #post(query: Query, saying: Saying, servers: Servers): Promise<Answer> {
    const scope = readScope(servers);
    const { isStateless, wants } = saying;
    const named =
      saying.session !== null && !isStateless
        ? this.#find(saying, scope)
        : this.#refuseMissing(servers);
    if (named !== undefined && "status" in named) return named;
    if (wants === undefined) {
      return refuse(406, "Answers are application/json or text/event-stream.");
    }
    if (!saying.isJson) return refuse(415, "Messages are application/json.");
    // Without a session only `initialize` is accepted, which is short.
    const limit =
      named === undefined && !isStateless
        ? Math.min(FIRST_BODY, this.#settings.maxMessage)
        : this.#settings.maxMessage;
    const body = await query.read(limit);
    if (typeof body === "string") return refuseBody(body, limit);
    await this.#turn.end;
    const frame = isUtf8(body) ? parseMessage(body) : rejectInvalidUtf8(parseMessage(body));
    if (frame.kind === "invalid") {
      const { code, id, reason } = frame;
      // The body may have been meant as the response to a server's request in flight.
      named?.reject(frame);
      return refuse(400, `Not a JSON-RPC message: ${reason}.`, { code, id });
    }
    // Notifications and responses help requests in flight to finish: they are accepted while closing.
    const isAsking = frame.kind === "request" || frame.kind === "batch";
    if (this.#isClosing && isAsking) return refuseEnd();
    if (isStateless || (frame.kind === "request" && isModern(frame))) {
      return this.#stateless.take(frame, query, wants, scope);
    }
    if (named !== undefined) return named.receive(frame, wants);
    const isFirst = frame.kind === "request" && frame.method === "initialize";
    return isFirst ? this.#sessions.begin(frame, wants, scope) : refuseSessionless();
  }

  #get(head: QueryHead, servers: Servers): Answer {
    // Hono routes HEAD to GET; a HEAD must not open an event stream.
    if (head.method !== "GET") return refuseMethod();
    const saying = this.#sayings.of(head);
    const { wants } = saying;
    if (wants !== "events" && wants !== "either") {
      return refuse(406, "What is here to GET is text/event-stream.");
    }
    if (this.#isClosing) return refuseEnd();
    const session = this.#find(saying, readScope(servers));
    if ("status" in session) return session;
    return session.listen(head.fields.get("Last-Event-ID") ?? undefined);
  }

  async #delete(head: QueryHead, servers: Servers): Promise<Answer> {
    const session = this.#find(this.#sayings.of(head), readScope(servers));
    if ("status" in session) return session;
    await session.close();
    return done();
  }

  /** A plugin's web application gets paths relative to its own root. */
  async #visit(request: Request, query: Query, plugin: string): Promise<Response> {
    const { method, headers } = request;
    const url = new URL(request.url);
    const [, , , ...path] = url.pathname.split("/");
    url.pathname = `/${path.join("/")}`;
    const limit = this.#settings.maxMessage;
    const body = await query.read(limit);
    if (typeof body === "string") return responseOf(refuseBody(body, limit));
    const gone = new AbortController();
    const stay = query.whenGone(() => gone.abort());
    // A web Request of method GET or HEAD cannot have a body, although one on the wire may.
    const isBare = body.length === 0 || method === "GET" || method === "HEAD";
    const given = isBare ? {} : { body: body as Uint8Array<ArrayBuffer> };
    const init = { method, headers, signal: gone.signal, ...given };
    const answer = await this.#hub.activePlugins.serve(plugin, new Request(url, init));
    stay();
    return answer ?? responseOf(refuseNothing());
  }

  /** 404 for names of servers that do not exist: without it their lists would just be empty. */
  #refuseMissing(servers: Servers): Answer | undefined {
    if (servers === undefined) return undefined;
    const known = this.#hub.status().map(({ server }) => server);
    const missing = servers.find((name) => !known.includes(name));
    if (missing === undefined) return undefined;
    const names = known.map((name) => `"${name}"`).join(", ") || "none";
    return refuse(404, `There is no server "${missing}". There are: ${names}.`);
  }

  /** The session that the request names, if it was opened for the same servers; else the answer that refuses it. */
  #find({ version, session: id }: Saying, scope: ServerSubset): SessionLink | Answer {
    if (version !== null && !isLegacyVersion(version)) {
      return refuse(400, `This protocol version is not spoken here: ${version}.`);
    }
    if (id === null) return refuseSessionless();
    const session = this.#sessions.find(id);
    return session?.scope.key === scope.key ? session : refuse(404, "There is no such session.");
  }

  #tellReadiness(c: Context<Asked>): Response {
    const readiness = this.#readiness();
    const isKnown = refuseUnknown(c.env.query.head.fields, this.#settings) === undefined;
    const servers = isKnown ? { servers: standingOf(this.#hub.status()) } : {};
    return c.json({ ...readiness, ...servers }, readiness.ready ? 200 : 503);
  }

  #readiness(): Readiness {
    if (this.#isClosing) return { ready: false, reason: "stopping" };
    if (this.#sessions.isFull) return { ready: false, reason: "full" };
    return { ready: true };
  }
}

/** Hono's types: what the routes get beside the request. */
interface Asked {
  Bindings: { readonly query: Query };
}

function isUsual({ method, target }: QueryHead): boolean {
  return method === "POST" && target === "/mcp";
}

const NEVER = new AbortController().signal;
/** Longest message without a session, in bytes. */
const FIRST_BODY = 1024 * 1024;

/** The server names in a URL; undefined: all servers. */
type Servers = readonly string[] | undefined;

/** The path has precedence over the query: access rules of a reverse proxy can rely on it. */
function serversIn(request: HonoRequest): Servers {
  const one = request.param("server");
  if (one !== undefined) return [one];
  return request.queries("servers")?.flatMap((names) => names.split(","));
}

function readScope(servers: Servers): ServerSubset {
  return servers === undefined ? ALL_SERVERS : subsetOf(servers);
}
