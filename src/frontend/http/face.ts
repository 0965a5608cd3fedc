import { type Context, Hono, type HonoRequest } from "hono";
import { type Clock, systemClock } from "../../clock.ts";
import { isLegacyVersion } from "../../protocol/legacy.ts";
import { isModernVersion } from "../../protocol/modern.ts";
import { Deadlines } from "../../router/deadline.ts";
import type { ServerStatus } from "../../upstream/status.ts";
import { EVERYTHING, type Scope, scopeOf } from "../../upstream/scope.ts";
import { readFrame } from "../../wire/frame.ts";
import { within } from "../../wire/grace.ts";
import type { Link } from "../../wire/link.ts";
import { isModern } from "../modern/letter.ts";
import type { Parties } from "../modern/parties.ts";
import { readBody, type Trouble } from "./body.ts";
import { type Guard, refuseStranger, refuseUnknown } from "./guard.ts";
import { type Readiness, standingOf } from "./readiness.ts";
import { refuse } from "./refusal.ts";
import { readWants } from "./reply.ts";
import type { SessionLink } from "./session.ts";
import { MOST_SESSIONS, Sessions } from "./sessions.ts";
import { Stateless } from "./stateless.ts";
import { Turn } from "./turn.ts";

/** What requests that run when the face closes get to finish, in ms. */
export const DRAIN = 1500;

/** What the face needs of a hub. */
export interface FaceHub {
  accept(link: Link, signal: AbortSignal, scope: Scope): Promise<void>;
  status(): readonly ServerStatus[];
  /** Serves requests of the modern era. @param client who makes them, if it can be told */
  gather(client: string | undefined): Parties;
  readonly equipment: {
    /** What a plugin's web application answers; undefined if there is none. */
    serve(plugin: string, request: Request): Promise<Response> | undefined;
  };
}

export interface FaceSettings extends Guard {
  /** The longest message that is read, in bytes. */
  readonly maxMessage: number;
  readonly maxSessions?: number;
  readonly clock?: Clock;
}

/** Who knows the token is one client; without one nobody can tell who is who. */
const PRINCIPAL = "bearer";

/** The hub over HTTP, for clients of both eras (Streamable HTTP): what it answers to each request. */
export class Face {
  readonly #settings: FaceSettings;
  readonly #deadlines: Deadlines;
  readonly #turn = new Turn();
  readonly #hub: FaceHub;
  readonly #sessions: Sessions;
  readonly #stateless: Stateless;
  readonly #app: Hono;
  #isClosing = false;

  constructor(hub: FaceHub, settings: FaceSettings) {
    const { clock = systemClock, maxSessions = MOST_SESSIONS } = settings;
    this.#settings = settings;
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
      gather: () => hub.gather(settings.token === undefined ? undefined : PRINCIPAL),
    });
    this.#app = this.#route();
  }

  /** How many sessions there are. */
  get sessions(): number {
    return this.#sessions.size;
  }

  find(session: string): SessionLink | undefined {
    return this.#sessions.find(session);
  }

  /** Never rejects. */
  readonly fetch = (request: Request): Response | Promise<Response> =>
    isUsual(request) ? this.#serveUsual(request) : this.#app.fetch(request);

  /** Takes no more requests, lets those finish that run, if they do so soon, and ends all sessions. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#stateless.stop();
    await within(DRAIN, Promise.all([this.#sessions.idle(), this.#stateless.idle()]));
    this.#stateless.close();
    await this.#sessions.close();
    this.#deadlines.end();
  }

  /** A message at /mcp: routes would cost more than all else. */
  async #serveUsual(request: Request): Promise<Response> {
    try {
      const refusal =
        refuseStranger(request, this.#settings) ?? refuseUnknown(request, this.#settings);
      return refusal ?? (await this.#post(request, undefined));
    } catch (error) {
      return refuseFailure(error);
    }
  }

  #route(): Hono {
    const app = new Hono();
    app.use(async ({ req }, next) => refuseStranger(req.raw, this.#settings) ?? (await next()));
    app.get("/healthz", (c) => c.json({ alive: true }));
    app.get("/readyz", (c) => this.#tellReadiness(c));
    app.use(async ({ req }, next) => refuseUnknown(req.raw, this.#settings) ?? (await next()));
    for (const path of ["/mcp", "/mcp/:server"]) {
      app.post(path, ({ req }) => this.#post(req.raw, serversIn(req)));
      app.get(path, ({ req }) => this.#get(req.raw, serversIn(req)));
      app.delete(path, ({ req }) => this.#delete(req.raw, serversIn(req)));
      app.all(path, refuseMethod);
    }
    for (const path of ["/plugins/:plugin", "/plugins/:plugin/*"]) {
      app.all(path, ({ req }) => this.#visit(req.raw, req.param("plugin") ?? ""));
    }
    app.notFound(refuseNothing);
    app.onError(refuseFailure);
    return app;
  }

  async #post(request: Request, servers: Servers): Promise<Response> {
    const scope = readScope(servers);
    const isStateless = isModernVersion(request.headers.get("MCP-Protocol-Version"));
    const named =
      hasSession(request) && !isStateless
        ? this.#find(request, scope)
        : this.#refuseMissing(servers);
    if (named instanceof Response) return named;
    const wants = readWants(request.headers.get("Accept"));
    if (wants === undefined) {
      return refuse(406, "Answers are application/json or text/event-stream.");
    }
    if (!/^application\/json\s*(?:;|$)/i.test(request.headers.get("Content-Type") ?? "")) {
      return refuse(415, "Messages are application/json.");
    }
    // Without a session there is one thing to say, and it is short.
    const limit =
      named === undefined && !isStateless
        ? Math.min(FIRST_BODY, this.#settings.maxMessage)
        : this.#settings.maxMessage;
    const body = await readBody(request, limit, this.#deadlines);
    if (typeof body === "string") return explain(body, limit);
    await this.#turn.end;
    const frame = readFrame(body);
    if (frame.kind === "invalid") {
      const { code, id, reason } = frame;
      return refuse(400, `Not a JSON-RPC message: ${reason}.`, { code, id: id?.slice });
    }
    // What a client says to what is still running helps it to finish.
    const isAsking = frame.kind === "request" || frame.kind === "batch";
    if (this.#isClosing && isAsking) return refuseEnd();
    if (isStateless || (frame.kind === "request" && isModern(frame))) {
      return this.#stateless.take(frame, request, wants, scope);
    }
    if (named !== undefined) return named.receive(frame, wants);
    const isFirst = frame.kind === "request" && frame.method === "initialize";
    return isFirst ? this.#sessions.begin(frame, wants, scope) : refuseSessionless();
  }

  #get(request: Request, servers: Servers): Response {
    // The router takes HEAD for GET; a stream that nobody reads is not to be opened.
    if (request.method !== "GET") return refuseMethod();
    const wants = readWants(request.headers.get("Accept"));
    if (wants !== "events" && wants !== "either") {
      return refuse(406, "What is here to GET is text/event-stream.");
    }
    if (this.#isClosing) return refuseEnd();
    const session = this.#find(request, readScope(servers));
    if (session instanceof Response) return session;
    return session.listen(request.headers.get("Last-Event-ID") ?? undefined);
  }

  async #delete(request: Request, servers: Servers): Promise<Response> {
    const session = this.#find(request, readScope(servers));
    if (session instanceof Response) return session;
    await session.close();
    return new Response(null, { status: 204 });
  }

  /** A plugin's web application sees its own paths, as if it were alone. */
  #visit(request: Request, plugin: string): Response | Promise<Response> {
    const url = new URL(request.url);
    const [, , , ...path] = url.pathname.split("/");
    url.pathname = `/${path.join("/")}`;
    const answer = this.#hub.equipment.serve(plugin, new Request(url, request));
    return answer ?? refuseNothing();
  }

  /** Refuses servers that there are not: nobody would ever find out why their lists are empty. */
  #refuseMissing(servers: Servers): Response | undefined {
    const known = this.#hub.status().map(({ server }) => server);
    const missing = servers?.find((name) => !known.includes(name));
    if (missing === undefined) return undefined;
    const names = known.map((name) => `"${name}"`).join(", ") || "none";
    return refuse(404, `There is no server "${missing}". There are: ${names}.`);
  }

  /** The session that the request names, if it was opened for these servers, or why it is not served. */
  #find({ headers }: Request, scope: Scope): SessionLink | Response {
    const version = headers.get("MCP-Protocol-Version");
    if (version !== null && !isLegacyVersion(version)) {
      return refuse(400, `This protocol version is not spoken here: ${version}.`);
    }
    const id = headers.get("Mcp-Session-Id");
    if (id === null) return refuseSessionless();
    const session = this.#sessions.find(id);
    return session?.scope.key === scope.key ? session : refuse(404, "There is no such session.");
  }

  #tellReadiness(c: Context): Response {
    const readiness = this.#readiness();
    const isKnown = refuseUnknown(c.req.raw, this.#settings) === undefined;
    const servers = isKnown ? { servers: standingOf(this.#hub.status()) } : {};
    return c.json({ ...readiness, ...servers }, readiness.ready ? 200 : 503);
  }

  #readiness(): Readiness {
    if (this.#isClosing) return { ready: false, reason: "stopping" };
    if (this.#sessions.isFull) return { ready: false, reason: "full" };
    return { ready: true };
  }
}

/** Addresses are spelled as URLs are: nothing else has this path. */
const USUAL_PATH = /^\w+:\/\/[^/?#]*\/mcp$/;

function isUsual({ method, url }: Request): boolean {
  return method === "POST" && USUAL_PATH.test(url);
}

function explain(trouble: Trouble, limit: number): Response {
  switch (trouble) {
    case "tooLarge": {
      const text = `A message has at most ${limit} bytes here.`;
      return refuse(413, text, { code: "messageTooLarge", headers: CLOSE });
    }
    case "tooSlow":
      return refuse(408, "The message took too long to come in.", { headers: CLOSE });
    case "broken":
      return refuse(400, "The message has no end.");
  }
}

const NEVER = new AbortController().signal;
/** What may be sent without a session, in bytes. */
const FIRST_BODY = 1024 * 1024;
const CLOSE = { Connection: "close" };

function refuseNothing(): Response {
  return refuse(404, "There is nothing here. MCP is spoken at /mcp.");
}

function hasSession({ headers }: Request): boolean {
  return headers.has("Mcp-Session-Id");
}

function refuseSessionless(): Response {
  return refuse(400, "This needs a session: begin with initialize.");
}

function refuseMethod(): Response {
  const headers = { Allow: "GET, POST, DELETE" };
  return refuse(405, "There is no such method here.", { headers });
}

function refuseFailure(error: unknown): Response {
  return refuse(500, error instanceof Error ? error.message : String(error), { code: "internal" });
}

function refuseEnd(): Response {
  return refuse(503, "The hub is stopping.", {
    code: "connectionLost",
    headers: { "Retry-After": "1" },
  });
}

/** The servers that an address names; undefined if it leaves that open. */
type Servers = readonly string[] | undefined;

/** What the path says comes first: whoever guards it shall not have to read what follows. */
function serversIn(request: HonoRequest): Servers {
  const one = request.param("server");
  if (one !== undefined) return [one];
  return request.queries("servers")?.flatMap((names) => names.split(","));
}

function readScope(servers: Servers): Scope {
  return servers === undefined ? EVERYTHING : scopeOf(servers);
}
