/**
 * A peer of a hub that sends as fast as it can. `events`, `chunks` and `model` serve HTTP, and print their port:
 * an MCP server that answers a call with events without end; the same in chunks of a few bytes; a model in the manner of
 * OpenAI that streams text without end. `stdio` is an MCP server that sends notifications from its first call on.
 * `body PORT` and `control SOCKET` send request bodies in small chunks to a hub.
 */
import { Buffer } from "node:buffer";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import process from "node:process";
import { createInterface } from "node:readline";
import type { Writable } from "node:stream";

const NOTE =
  '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"x"}}';
const DELTA =
  '{"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}';
const PROTOCOL = "2025-06-18";

interface Message {
  readonly id?: number;
  readonly method?: string;
}

const [mode = "", target = ""] = process.argv.slice(2);

/** Writes the block as often as the stream takes it, until it closes. */
function pour(stream: Writable, block: Buffer): void {
  const write = (): void => {
    while (!stream.destroyed && stream.write(block));
  };
  stream.on("drain", write);
  stream.on("error", () => {});
  write();
}

function resultOf(method: string | undefined): string {
  if (method === "initialize")
    return `{"protocolVersion":"${PROTOCOL}","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"flooder","version":"1"}}`;
  if (method === "tools/list")
    return '{"tools":[{"name":"flood","inputSchema":{"type":"object"}}]}';
  return "{}";
}

function answer(text: string, response: ServerResponse): void {
  if (mode === "model") {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    pour(response, Buffer.from(`data: ${DELTA}\n\n`.repeat(400)));
    return;
  }
  const { id, method } = (text === "" ? {} : JSON.parse(text)) as Message;
  if (method === undefined) response.writeHead(405).end();
  else if (id === undefined) response.writeHead(202).end();
  else if (method === "tools/call") {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    if (mode === "events") pour(response, Buffer.from(`data: ${NOTE}\n\n`.repeat(600)));
    else {
      response.flushHeaders();
      // The socket is written to directly, so that many chunks go out in one write.
      pour(response.socket as Socket, Buffer.from("3\r\n:x\n\r\n".repeat(8000)));
    }
  } else {
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(`{"jsonrpc":"2.0","id":${id},"result":${resultOf(method)}}`);
  }
}

/** Sends bodies without end over four connections; a connection that the hub closes is opened again. */
function sendBodies(
  path: string,
  options: { readonly port: number } | { readonly path: string },
): void {
  const open = (): void => {
    const socket = connect({ host: "127.0.0.1", ...options });
    const types = "Content-Type: application/json\r\nAccept: application/json, text/event-stream";
    const head = `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n${types}\r\nMCP-Protocol-Version: 2026-07-28\r\nTransfer-Encoding: chunked\r\n\r\n`;
    socket.on("error", () => {});
    socket.on("close", () => setTimeout(open, 5));
    socket.resume();
    socket.write(head);
    pour(socket, Buffer.from(`40\r\n${"x".repeat(64)}\r\n`.repeat(1000)));
  };
  for (let at = 0; at < 4; at++) open();
}

if (mode === "body") sendBodies("/mcp", { port: Number(target) });
else if (mode === "control") sendBodies("/v1/servers", { path: target });
else if (mode === "stdio") {
  createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, method } = JSON.parse(line) as Message;
    if (id === undefined) return;
    if (method === "tools/call") pour(process.stdout, Buffer.from(`${NOTE}\n`.repeat(600)));
    else process.stdout.write(`{"jsonrpc":"2.0","id":${id},"result":${resultOf(method)}}\n`);
  });
} else {
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (chunk: Buffer) => (text += chunk.toString()));
    request.on("end", () => answer(text, response));
  });
  server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
}
