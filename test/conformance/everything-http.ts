import { randomUUID } from "node:crypto";
import {
  createMcpHandler,
  type EventStore,
  hostHeaderValidationResponse,
  isLegacyRequest,
  type JSONRPCMessage,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  originValidationResponse,
  WebStandardStreamableHTTPServerTransport as HttpLink,
} from "@modelcontextprotocol/server";
import { createServer } from "./everything.ts";

/** The `retry` field of event streams, in ms. */
export const RETRY_DELAY = 50;

/** The everything server over the SDK's HTTP, one instance for each session or modern request, without a hub. */
export class EverythingHttpServer {
  readonly #sessions = new Map<string, HttpLink>();
  readonly #modern = createMcpHandler(
    ({ era }) => createServer({ era, notify: this.#modern.notify }),
    { legacy: "reject" },
  );

  /** Answers one request. */
  readonly fetch = async (request: Request): Promise<Response> =>
    hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
    originValidationResponse(request, localhostAllowedOrigins()) ??
    (await this.#dispatch(request));

  async #dispatch(request: Request): Promise<Response> {
    if (!(await isLegacyRequest(request))) return this.#modern.fetch(request);
    const id = request.headers.get("Mcp-Session-Id");
    const session = id === null ? await this.#beginSession() : this.#sessions.get(id);
    return session?.handleRequest(request) ?? new Response(null, { status: 404 });
  }

  async #beginSession(): Promise<HttpLink> {
    const transport = new HttpLink({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void this.#sessions.set(id, transport),
      onsessionclosed: (id) => void this.#sessions.delete(id),
      eventStore: new SessionEventStore(),
      retryInterval: RETRY_DELAY,
    });
    await createServer({ era: "legacy" }).connect(transport);
    return transport;
  }
}

/** The event store of one session, for resumed streams. An event's id is its index. */
export class SessionEventStore implements EventStore {
  readonly #events: { readonly stream: string; readonly message: JSONRPCMessage }[] = [];

  async storeEvent(stream: string, message: JSONRPCMessage): Promise<string> {
    return String(this.#events.push({ stream, message }) - 1);
  }

  async replayEventsAfter(
    last: string,
    { send }: { readonly send: (id: string, message: JSONRPCMessage) => Promise<void> },
  ): Promise<string> {
    const from = Number(last);
    const stream = this.#events[from]?.stream ?? "";
    for (const [at, event] of this.#events.entries()) {
      // The first event of a stream has no message: it only gives the client an id to resume with.
      const isWanted = at > from && event.stream === stream && "jsonrpc" in event.message;
      if (isWanted) await send(String(at), event.message);
    }
    return stream;
  }
}
