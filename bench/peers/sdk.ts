/**
 * The fastest relay that can be built with the MCP SDK, over stdio or over HTTP: `sdk stdio|http COMMAND…`. One Client
 * is connected to the server, which the relay starts with the command. A low-level Server, over HTTP one for each
 * session, forwards requests unchanged, over HTTP with JSON as answers instead of events; results are neither
 * validated nor changed.
 */
import { randomUUID } from "node:crypto";
import process from "node:process";
import { Client, type StandardSchemaV1 } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Server, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";

type Result = Record<string, unknown>;

/** A schema that accepts any result unchanged. The SDK's own schemas would parse it. */
const ANY: StandardSchemaV1<unknown, Result> = {
  "~standard": { version: 1, vendor: "bench", validate: (value) => ({ value: value as Result }) },
};
/** The longest timeout that a timer can have, in ms. */
const NO_LIMIT = 2 ** 31 - 1;

const [mode, command = "", ...args] = process.argv.slice(2);
const identity = { name: "sdk", version: "1.0.0" };

const client = new Client(identity, { capabilities: {} });
await client.connect(new StdioClientTransport({ command, args, stderr: "inherit" }));

// The high-level server, which is not deprecated, parses requests, which a relay must not do.
// oxlint-disable-next-line typescript/no-deprecated
function makeServer(): Server {
  // oxlint-disable-next-line typescript/no-deprecated
  const server = new Server(identity, { capabilities: { tools: {} } });
  server.fallbackRequestHandler = ({ method, params }) =>
    client.request(params === undefined ? { method } : { method, params }, ANY, {
      timeout: NO_LIMIT,
    });
  return server;
}

const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();

async function begin(): Promise<WebStandardStreamableHTTPServerTransport> {
  const session = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: true,
    onsessioninitialized: (id) => void sessions.set(id, session),
    onsessionclosed: (id) => void sessions.delete(id),
  });
  await makeServer().connect(session);
  return session;
}

/** The part of Bun's API that is used here. */
interface BunServe {
  serve(options: {
    readonly hostname: string;
    readonly port: number;
    readonly idleTimeout: number;
    fetch(request: Request): Promise<Response>;
  }): { readonly port: number; stop(closesConnections: boolean): Promise<void> };
}

if (mode === "http") {
  const { Bun: bun } = globalThis as unknown as { Bun: BunServe };
  const listener = bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      const id = request.headers.get("Mcp-Session-Id");
      if (id === null) return (await begin()).handleRequest(request);
      return sessions.get(id)?.handleRequest(request) ?? new Response(null, { status: 404 });
    },
  });
  console.error(`http://127.0.0.1:${listener.port}/mcp`);
  process.on("SIGTERM", () => {
    void listener.stop(true);
    void client.close().then(() => process.exit(0));
  });
} else {
  const server = makeServer();
  // The SDK's objects offer no other way to listen for events.
  // oxlint-disable-next-line unicorn/prefer-add-event-listener
  server.onclose = () => void client.close();
  await server.connect(new StdioServerTransport());
}
