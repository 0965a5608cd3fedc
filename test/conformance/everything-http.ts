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
export const RETRY = 50;

/** The everything server over the SDK's HTTP, one instance for each session or modern request, without a hub. */
export class Everything {
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
    const session = id === null ? await this.#begin() : this.#sessions.get(id);
    return session?.handleRequest(request) ?? new Response(null, { status: 404 });
  }

  async #begin(): Promise<HttpLink> {
    const link = new HttpLink({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void this.#sessions.set(id, link),
      onsessionclosed: (id) => void this.#sessions.delete(id),
      eventStore: new Events(),
      retryInterval: RETRY,
    });
    await createServer({ era: "legacy" }).connect(link);
    return link;
  }
}

/** The event store of one session, for resumed streams. An event's id is its index. */
export class Events implements EventStore {
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
