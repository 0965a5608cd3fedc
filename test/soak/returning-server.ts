/**
 * A server over HTTP that is killed and started again: `bun test/soak/returning-server.ts ERA PORT LOG`. It writes down what it
 * does before it answers, so that nothing of it is lost with the process: a line for each call, its tool and its number.
 * Sessions of the legacy era are lost with it.
 */
import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import process from "node:process";

const [era, port, log] = process.argv.slice(2);
if ((era !== "legacy" && era !== "modern") || port === undefined || log === undefined) {
  throw new Error("usage: bun returning-server.ts legacy|modern PORT LOG");
}

/** How long a call takes at most, in ms. */
const WORK = 20;
/** Every third answer comes on a stream. */
const STREAMED = 3;

interface Call {
  readonly id?: number;
  readonly method?: string;
  readonly params?: {
    readonly name?: string;
    readonly arguments?: { readonly number?: number };
  };
}

const inputSchema = { type: "object", properties: { number: { type: "integer" } } };
const tools = [
  { name: "effect", inputSchema },
  { name: "look", inputSchema, annotations: { readOnlyHint: true } },
];
const capabilities = { tools: {} };
const info = { name: "returning", version: "1" };
const complete = { resultType: "complete", ttlMs: 0, cacheScope: "private" };
const sessions = new Set<string>();
let count = 0;

function resultOf({ method, params }: Call): object | undefined {
  const own = era === "modern" ? complete : {};
  switch (method) {
    case "server/discover":
      if (era === "legacy") return undefined;
      return { ...own, supportedVersions: ["2026-07-28"], capabilities, serverInfo: info };
    case "initialize":
      if (era === "modern") return undefined;
      return { protocolVersion: "2025-11-25", capabilities, serverInfo: info };
    case "tools/list":
      return { ...own, tools };
    case "ping":
      return {};
    case "tools/call": {
      const text = `${params?.name} ${params?.arguments?.number}`;
      return { ...own, content: [{ type: "text", text }] };
    }
    default:
      return undefined;
  }
}

function answer(call: Call, response: ServerResponse): void {
  const result = resultOf(call);
  const error = { code: -32601, message: "Method not found" };
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: call.id,
    ...(result === undefined ? { error } : { result }),
  });
  const isNew = call.method === "initialize" && result !== undefined;
  const session = isNew ? randomUUID() : undefined;
  if (session !== undefined) sessions.add(session);
  const isStream = call.method === "tools/call" && ++count % STREAMED === 0;
  response.writeHead(result === undefined && era === "modern" ? 404 : 200, {
    "Content-Type": isStream ? "text/event-stream" : "application/json",
    ...(session !== undefined && { "Mcp-Session-Id": session }),
  });
  response.end(isStream ? `data: ${body}\n\n` : body);
}

function take(call: Call, request: IncomingMessage, response: ServerResponse): void {
  const session = request.headers["mcp-session-id"];
  const isKnown = typeof session === "string" && sessions.has(session);
  if (era === "legacy" && call.method !== "initialize" && !isKnown) {
    response.writeHead(session === undefined ? 400 : 404).end();
  } else if (call.id === undefined) {
    response.writeHead(202).end();
  } else if (call.method === "tools/call") {
    const { name, arguments: args } = call.params ?? {};
    appendFileSync(log ?? "", `${name} ${args?.number}\n`);
    setTimeout(() => answer(call, response), Math.random() * WORK);
  } else {
    answer(call, response);
  }
}

const server = createServer((request, response) => {
  if (request.method !== "POST") {
    response.writeHead(405).end();
    return;
  }
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () =>
    take(JSON.parse(Buffer.concat(chunks).toString()) as Call, request, response),
  );
});
server.listen(Number(port), "127.0.0.1", () => console.log("ready"));
